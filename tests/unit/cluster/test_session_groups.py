"""Linux groups the threads of a session where it is told to, unless a CPU control group takes that place."""

from pathlib import Path

import pytest

from bagpipe_hpc.cluster.session_groups import are_sessions_grouped

SETTING = "proc/sys/kernel/sched_autogroup_enabled"
GROUPS = "proc/self/cgroup"
PASSED_ON = "sys/fs/cgroup/cgroup.subtree_control"


@pytest.mark.parametrize(
    ("files", "grouped"),
    [
        pytest.param({}, False, id="a kernel without"),
        pytest.param({SETTING: "0\n"}, False, id="switched off"),
        pytest.param({SETTING: "1\n"}, True, id="no control groups"),
        pytest.param(
            {SETTING: "1\n", GROUPS: "2:cpuset:/a\n1:cpu,cpuacct:/\n0::/a\n"}, True, id="first group, version 1"
        ),
        pytest.param({SETTING: "1\n", GROUPS: "2:cpuset:/\n1:cpu,cpuacct:/a\n0::/\n"}, False, id="another, version 1"),
        pytest.param({SETTING: "1\n", GROUPS: "0::/\n", PASSED_ON: "cpu memory\n"}, True, id="first group, version 2"),
        pytest.param({SETTING: "1\n", GROUPS: "0::/a:b/c\n", PASSED_ON: "cpu io\n"}, False, id="another, version 2"),
        pytest.param({SETTING: "1\n", GROUPS: "0::/a\n", PASSED_ON: "cpuset io\n"}, True, id="groups without cpu"),
        pytest.param({SETTING: "0\n", GROUPS: "0::/\n", PASSED_ON: "cpu\n"}, False, id="switched off, first group"),
    ],
)
def test_sessions_are_grouped_outside_control_groups(tmp_path: Path, files: dict[str, str], grouped: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert are_sessions_grouped(tmp_path) is grouped
