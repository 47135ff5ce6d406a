"""Who is in no hurry hears what comes, and how long it sleeps meanwhile."""

import numpy as np
import pytest

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.request_watch import Pauses, PausingWatch, RequestWatch
from bagpipe_hpc.mpi.requests import handles
from bagpipe_hpc.roles import request_waits
from bagpipe_hpc.roles.request_waits import BarrierSleeps, RequestWaits, open_watch

TIMEOUT_S = 60.0


class Counted:
    """A watch that counts its waits."""

    def __init__(self, watch: RequestWatch) -> None:
        self._watch, self.looks = watch, watch.looks
        self.waits: list[Pauses] = []
        self.groups: list[list[list[int]]] = []

    def wait(self, groups, pauses):
        self.waits.append(pauses)
        self.groups.append(groups)
        return self._watch.wait(groups, pauses)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("is_native", [True, False])
def test_who_is_in_no_hurry_hears_what_comes_and_what_does_not(comm, is_native):
    """Native code sleeps on until it has come; a wait that has failed may go on later, with the same request."""
    if comm.Get_rank() == 1:
        comm.Recv(np.empty(1), 0, tag=5)
        comm.Send(np.full(1, 7.0), 0, tag=1)
        comm.Recv(np.empty(1), 0, tag=5)
        comm.Send(np.full(1, 8.0), 0, tag=2)
        return
    if comm.Get_rank() > 1:
        return
    counted = Counted(open_watch("auto") if is_native else PausingWatch())
    waits = RequestWaits(counted)
    numbers = np.zeros(2)
    requests = [comm.Irecv(numbers[own : own + 1], 1, tag=1 + own) for own in range(2)]
    with pytest.raises(WaitTimeoutError, match="for both numbers"):
        waits.until_complete(requests, "both numbers", 0.2)
    assert {pauses.longest_s for pauses in counted.waits} == {2e-3}
    assert max(pauses.limit_s for pauses in counted.waits) == 50e-3
    firsts = [pauses.first_s for pauses in counted.waits]
    assert firsts[0] == 100e-6
    assert firsts[1] == pytest.approx(2e-3 if is_native else 150e-6)
    assert firsts[8:] == [2e-3] * len(firsts[8:])
    comm.Send(np.zeros(1), 1, tag=5)
    with pytest.raises(WaitTimeoutError):
        waits.until_complete(requests, "both numbers", 0.2)
    comm.Send(np.zeros(1), 1, tag=5)
    waits.until_complete(requests, "both numbers", TIMEOUT_S)
    assert numbers.tolist() == [7.0, 8.0]


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize(
    ("last_s", "first_s", "longest_s"),
    [(0.4e-3, 0.1e-3, 2e-3), (8e-3, 1e-3, 2e-3), (40e-3, 5e-3, 5e-3), (80e-3, 10e-3, 10e-3), (10.0, 20e-3, 20e-3)],
)
def test_pauses_are_parts_of_the_wait_before(comm, monkeypatch, last_s, first_s, longest_s):
    """What is there at once is no wait."""
    if comm.Get_rank():
        return
    now_s = 5.0

    class Slept(Counted):
        def wait(self, _, pauses):
            nonlocal now_s
            self.waits.append(pauses)
            now_s += last_s
            self.send()
            return False

        def send(self):
            comm.Isend(np.zeros(1), 0, tag=6).Wait()

    monkeypatch.setattr(request_waits.time, "monotonic", lambda: now_s)
    slept = Slept(PausingWatch())
    waits = RequestWaits(slept)
    for _ in range(2):
        waits.until_complete([comm.Irecv(np.empty(1), 0, tag=6)], "a number", TIMEOUT_S)
        request = comm.Irecv(np.empty(1), 0, tag=6)
        slept.send()
        waits.until_complete([request], "what is there", TIMEOUT_S)
    assert [pauses.first_s for pauses in slept.waits] == pytest.approx([100e-6, first_s])
    assert [pauses.longest_s for pauses in slept.waits] == pytest.approx([2e-3, longest_s])


@pytest.mark.mpi(min_size=1)
def test_who_waits_at_a_barrier_sleeps_while_native_code_looks_at_it(comm):
    if comm.Get_rank():
        return
    slept = Counted(open_watch("auto"))
    request = comm.Irecv(np.empty(1), 0, tag=7)
    BarrierSleeps(slept)([request], 1e-3)
    assert slept.waits == [Pauses(1e-3, BarrierSleeps.longest_s, 20e-3)]
    assert slept.groups == [[handles([request])]]
    comm.Isend(np.zeros(1), 0, tag=7).Wait()
    request.Wait()
