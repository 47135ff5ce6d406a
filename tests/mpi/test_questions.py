"""The first rank answers at once, whatever it is busy with; a rank that falls silent is named."""

import threading
import time

import pytest
from mpi4py import MPI

import bagpipe_hpc.mpi.questions
from bagpipe_hpc.mpi.questions import Questions


@pytest.mark.mpi(min_size=2)
def test_answers_come_while_the_first_rank_works(comm: MPI.Intracomm):
    """And waits last as long as it works, which is longer than the silence that is borne."""
    finished = threading.Event()

    def answer(rank: int, question: object) -> object:
        if question == 0:
            return "finished" if finished.is_set() else None
        return rank, question

    with Questions(answer, 0.5, comm) as questions:
        start = time.monotonic()
        assert questions.ask(7) == (comm.Get_rank(), 7)
        assert questions.ask("leaving") == (comm.Get_rank(), "leaving")  # a question like any other
        if comm.Get_rank() == 0:
            time.sleep(1.2)
            finished.set()
        assert questions.ask_again(0) == "finished"
        assert time.monotonic() - start > 1.0
        assert questions.host


@pytest.mark.mpi(min_size=2)
def test_a_silent_rank_is_named(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch):
    ended: list[str] = []
    monkeypatch.setattr(bagpipe_hpc.mpi.questions, "abort_job", lambda message, _: ended.append(message))
    questions = Questions(lambda *_: None, 1.0, comm)
    if comm.Get_rank() == 0:
        questions.__enter__()
        deadline = time.monotonic() + 20
        while not ended and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ended
        assert "no word from rank 1 on " in ended[0]
    comm.Barrier()
    if comm.Get_rank() == 1:  # leaves as it should, so that the first rank's thread ends
        with questions:
            pass
    else:
        questions.__exit__(None, None, None)
