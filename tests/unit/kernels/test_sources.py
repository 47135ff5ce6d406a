"""The sources of the native code are as wide as Python's: ruff looks at those alone."""

from pathlib import Path

from bagpipe_hpc import kernels

CSRC = Path(kernels.__file__).parent / "csrc"
MOST = 120


def test_no_line_is_too_wide() -> None:
    lines = {
        f"{path.relative_to(CSRC)}:{number}": len(line)
        for path in CSRC.rglob("*")
        if path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    }
    assert lines
    assert {place: width for place, width in lines.items() if width > MOST} == {}
