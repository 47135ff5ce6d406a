"""Questions that rank 0 answers at once, in a thread of its own, whatever it is busy with.

So ranks with uneven work share it, meet and wait for each other for hours, and a rank that has fallen silent is still
noticed: each asks something every few seconds, if only whether the first one is there.
"""

import threading
import time
import traceback
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any

from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.exit_codes import EXIT_FAILED
from bagpipe_hpc.mpi.start.hosts import Hosts
from bagpipe_hpc.mpi.start.roll_call import call_roll
from bagpipe_hpc.mpi.start.world import abort_job, remove_shared_files
from bagpipe_hpc.mpi.time_limit import NETWORK_CURE, TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until
from bagpipe_hpc.terminal import counted

_TAG_QUESTION, _TAG_ANSWER = 81, 82
_LONGEST_PAUSE_S = 2.0
_QUESTIONS_A_LIMIT = 4
"""At least so many come from each rank within the silence that the first one bears."""
_SHORTEST_POLL_S, _LONGEST_POLL_S = 50e-6, 5e-3
_SHORTEST_AGAIN_S, _LONGEST_AGAIN_S_A_RANK = 1e-3, 2e-3
"""All ranks together ask the first one again 500 times a second at most."""
_LOOKS_A_LIMIT = 20


class _Sign(Enum):
    """What a rank tells of itself, which comes back as its own answer."""

    PRESENT = "present"
    LEAVING = "leaving"


class Questions:
    """Between all ranks and the first one; a context manager.

    Collective over all of them: construction, and the end of the body where it ends without an error.

    Args:
        answer: on the first rank, what gives the answer to the question of a rank, both of which can be pickled; called
            in any thread, and soon done.
        silence_s: longest wait for a word from another rank; after it the job is ended by name.
        comm: the ranks; None for all of the job.

    Raises:
        WaitTimeoutError: a rank did not come.

    Attributes:
        rank: of this process.
        size: number of ranks.
        host: name of this rank's host.
    """

    def __init__(self, answer: Callable[[int, Any], Any], silence_s: float, comm: MPI.Intracomm | None = None) -> None:
        self._answer, self._silence_s = answer, silence_s
        comm = comm or MPI.COMM_WORLD
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        call_roll(comm, "having started", silence_s)
        remove_shared_files()
        with TimeLimit("all ranks to say where they are", silence_s):
            self._comm = comm.Dup()
            self._hosts = Hosts.find(self._comm)
        self.host = self._hosts.names[self.rank]
        self._asking = threading.Lock()
        self._ended = threading.Event()
        work = self._serve if self.rank == 0 else self._show_presence
        self._thread = threading.Thread(target=self._guard, args=(work,), name="questions", daemon=True)

    def __enter__(self) -> "Questions":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # the others may never come; the job is aborted
            return
        if self.rank != 0:
            self._ended.set()
            self._thread.join()
            self.ask(_Sign.LEAVING)
        else:
            self._thread.join()
        with TimeLimit("all ranks to end their questions", self._silence_s):
            self._comm.Free()

    def ask(self, question: Any) -> Any:
        """The answer to a question, from any thread.

        Raises:
            WaitTimeoutError: none came in time.
        """
        if self.rank == 0:
            return self._answer(0, question)
        try:
            with self._asking:
                return self._ask_first(question)
        except WaitTimeoutError:
            raise WaitTimeoutError(
                f"no answer from rank 0 on {self._hosts.names[0]} for {self._silence_s:.0f} s: it is stopped, "
                f"{NETWORK_CURE}"
            ) from None

    def _ask_first(self, question: Any) -> Any:
        what = "an answer from rank 0"
        wait_for_all([self._comm.isend(question, 0, _TAG_QUESTION)], what, self._silence_s)
        wait_until(lambda: self._comm.Iprobe(0, _TAG_ANSWER), what, self._silence_s)
        with TimeLimit(what, self._silence_s):
            return self._comm.recv(source=0, tag=_TAG_ANSWER)

    def ask_again(self, question: Any) -> Any:
        """Ask until the answer is not None, for as long as all ranks live."""
        pause_s = _SHORTEST_AGAIN_S
        while (answer := self.ask(question)) is None:
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_AGAIN_S_A_RANK * self.size)
        return answer

    def end_all(self, message: str) -> None:
        """End the job with a message; does not return."""
        abort_job(message, EXIT_FAILED)

    def _guard(self, work: Callable[[], None]) -> None:
        """Run the thread's work; whatever goes wrong ends the job, for the others would wait for good."""
        try:
            work()
        except WaitTimeoutError as error:
            abort_job(f"bagpipe: rank {self.rank} on {self.host}: {error}", EXIT_FAILED)
        except BaseException:  # noqa: BLE001 - this thread has nobody to tell
            abort_job(f"bagpipe: rank {self.rank} failed:\n{traceback.format_exc()}", EXIT_FAILED)

    def _show_presence(self) -> None:
        while not self._ended.wait(min(_LONGEST_PAUSE_S, self._silence_s / _QUESTIONS_A_LIMIT)):
            self.ask(_Sign.PRESENT)

    def _serve(self) -> None:
        """Answer until all others have left."""
        silent_s = dict.fromkeys(range(1, self.size), 0.0)
        sent: list[MPI.Request] = []
        looked_s, pause_s = time.monotonic(), _SHORTEST_POLL_S
        look_every_s = self._silence_s / _LOOKS_A_LIMIT
        while silent_s:
            status = MPI.Status()
            if self._comm.Iprobe(MPI.ANY_SOURCE, _TAG_QUESTION, status):
                rank, pause_s = status.Get_source(), _SHORTEST_POLL_S
                question = self._comm.recv(source=rank, tag=_TAG_QUESTION)
                silent_s[rank] = 0.0
                if isinstance(question, _Sign):
                    answer = question
                    if question is _Sign.LEAVING:
                        del silent_s[rank]
                else:
                    answer = self._answer(rank, question)
                sent = [request for request in sent if not request.Test()]
                sent.append(self._comm.isend(answer, rank, _TAG_ANSWER))
                continue
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_POLL_S)
            now = time.monotonic()
            if now - looked_s > look_every_s:
                # While this rank was stopped itself, others were not silent.
                passed_s, looked_s = min(now - looked_s, 2 * look_every_s), now
                for rank in silent_s:
                    silent_s[rank] += passed_s
                self._require_words(silent_s)
        wait_for_all(sent, "the other ranks to take their last answers", self._silence_s)

    def _require_words(self, silent_s: dict[int, float]) -> None:
        silent = [rank for rank, seconds in silent_s.items() if seconds > self._silence_s]
        if silent:
            named = f"rank {silent[0]} on {self._hosts.names[silent[0]]}"
            more = f" and {counted(len(silent) - 1, 'more rank')}" if len(silent) > 1 else ""
            abort_job(
                f"bagpipe: no word from {named}{more} for {self._silence_s:.0f} s: a rank is stopped, {NETWORK_CURE}",
                EXIT_FAILED,
            )
