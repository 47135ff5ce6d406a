"""How commands end whose errors are not the program's own: those of a limit have a cure, others are shown in full."""

import resource

import pytest

from bagpipe_hpc.cli.outcome import EXIT_ERROR, exit_code_of

UNMAPPED = ImportError("libtorch_cpu.so: failed to map segment from shared object")


def limit_memory(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most_bytes, resource.RLIM_INFINITY))


def ending(error: Exception) -> int:
    def fail() -> int:
        raise error

    return exit_code_of(fail, "bagpipe")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 2 GiB"), "Unable to allocate 2 GiB"),
        (MemoryError(), "a piece was refused"),
        (UNMAPPED, "libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_memory_that_a_limit_refuses_names_the_limit(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit_memory(monkeypatch, 1_200_000_000)
    assert ending(error) == EXIT_ERROR
    assert capsys.readouterr().err == (
        f"bagpipe: error: no more memory ({said}): this process may have 1.2 GB (ulimit -v); raise that limit\n"
    )


def test_other_errors_are_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, resource.RLIM_INFINITY)
    for error in (MemoryError(), UNMAPPED):
        with pytest.raises(type(error)):
            ending(error)
    limit_memory(monkeypatch, 1_200_000_000)
    with pytest.raises(ImportError):
        ending(ImportError("cannot import name"))
