"""Links as options of the script that emulates them, and what happens where it refuses or the ranks fail."""

import subprocess
from pathlib import Path

import pytest

from bagpipe_hpc.tools.report import Report
from benchmarks.jobs import links
from benchmarks.jobs.links import LINKS, NODES, Link, RanksFailedError, refusal, run_ranks, usable_links


def script(folder: Path, text: str) -> Path:
    path = folder / "script.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_links_become_options() -> None:
    assert LINKS["10gbit"].options() == ["--bandwidth", "10gbit"]
    assert LINKS["1gbit"].options() == ["--bandwidth", "1gbit", "--latency", "500us"]
    assert Link("slow", 0.1, 2.5).options() == ["--bandwidth", "0.1gbit", "--latency", "2.5us"]


def test_bandwidth_in_bytes() -> None:
    assert LINKS["1gbit"].bytes_per_s == 125e6
    assert LINKS["native"].bytes_per_s == float("inf")


def test_one_host_needs_no_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_EMULATED_HOSTS", Path("/no/such/script"))
    assert refusal(LINKS["native"]) is None


def test_the_nodes_of_a_job_need_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPIRUN", raising=False)
    assert "MPIRUN='srun" in str(refusal(NODES))
    launcher = script(tmp_path, 'echo "$@"')
    monkeypatch.setenv("MPIRUN", f"{launcher} --mpi=pmix")
    assert refusal(NODES) is None
    assert run_ranks([3], NODES, ["measure"], share=tmp_path) == "--mpi=pmix -n 3 measure\n"


def test_the_refusal_is_the_scripts_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_EMULATED_HOSTS", script(tmp_path, "echo 'needs root' >&2; exit 2"))
    assert refusal(LINKS["1gbit"]) == "needs root"
    monkeypatch.setattr(links, "_EMULATED_HOSTS", script(tmp_path, "exit 0"))
    assert refusal(LINKS["1gbit"]) is None


def test_links_that_there_are_not_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "refusal", lambda link: "needs root" if link.is_emulated else None)
    report = Report("store")
    assert usable_links(LINKS.values(), report) == [LINKS["native"]]
    assert report.lines == ["link 10gbit left out: needs root", "link 1gbit left out: needs root"]
    assert report.figures == {"links_left_out": ["10gbit", "1gbit"]}


def test_ranks_are_placed_on_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_EMULATED_HOSTS", script(tmp_path, 'echo "$@"'))
    monkeypatch.setattr(links, "_RUN_RANKS", Path("run"))
    printed = run_ranks([3, 2], LINKS["1gbit"], ["train", Path("x.toml")], share=tmp_path)
    assert printed == f"--ranks 3,2 --bandwidth 1gbit --latency 500us --share {tmp_path} -- run 5 train x.toml\n"


def test_failed_ranks_show_what_they_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_RUN_RANKS", script(tmp_path, "echo oh no >&2; exit 3"))
    with pytest.raises(RanksFailedError, match=r"(?s)oh no.*status 3 \(link native\)"):
        run_ranks([2], LINKS["native"], ["train"], share=tmp_path)


def test_the_script_takes_these_options() -> None:
    """It checks its arguments before it looks for root: without a command, the options are what it accepts."""
    for link in LINKS.values():
        if link.is_emulated:
            command = [str(links._EMULATED_HOSTS), "--ranks", "3,2", *link.options()]
            refused = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "no command given" in refused.stderr
