"""The first stage of a preparation: ranks read ranges of the input, parse them, and write parts of parsed rows.

Whatever the number of ranks, the error names the first row, in the order of the input, that ends a preparation: ranges
before it are parsed to their end, and ranges after it are abandoned.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.inputs.blocks import InputBlock, bytes_of, parse_input_block, read_range
from data_prep.inputs.ranges import InputRange
from data_prep.inputs.text_blocks import TextPosition
from data_prep.ordered_map import ordered_map
from data_prep.parsed_rows import BadRow, Part, part_name
from data_prep.preparation_state import WorkFolder
from data_prep.ranks.board import Stage, Tell
from data_prep.ranks.team import Team

PART_ROWS = 1 << 20
"""Rows after which a part is closed: after a kill, each rank parses at most this many again."""
_TELL_EVERY_S = 0.2

OpenInput = Callable[[int], TextInput | ColumnInput]
"""Says how the file with this number is read."""


@dataclass(frozen=True)
class ParsedInput:
    """The result of parsing.

    Attributes:
        parts: parts of parsed rows, in the order of the input.
        skipped_rows: malformed rows in that order, as `FILE:LINE: REASON`.
    """

    parts: tuple[Part, ...]
    skipped_rows: tuple[str, ...]


@dataclass(frozen=True)
class _Ended:
    """A range that was not parsed to its end.

    Attributes:
        range: its number.
        skipped: malformed rows after its last finished part.
        error: why, in words; None where it had too many malformed rows.
    """

    range: int
    skipped: tuple[BadRow, ...]
    error: str | None


@dataclass(frozen=True)
class ParseTask:
    """What is to be parsed, by whom and how.

    Attributes:
        team: the ranks that share the ranges.
        pool: threads of this rank, which parse blocks.
        sources: the files.
        open_input: says how the file with a number is read.
        ranges: all ranges of the files.
        schema: schema of the parsed rows.
        work: the folder for the parts; it knows which are finished.
        most_skipped: most malformed rows that are allowed.
    """

    team: Team
    pool: ThreadPoolExecutor
    sources: Sequence[Path]
    open_input: OpenInput
    ranges: Sequence[InputRange]
    schema: pa.Schema
    work: WorkFolder
    most_skipped: int


def parse_input(task: ParseTask) -> ParsedInput:
    """Parse what is not yet parsed. Collective over: all ranks of the team.

    Raises:
        DataError: a file is damaged, or has more malformed rows than are allowed.
    """
    team, ranges, work = task.team, task.ranges, task.work
    begun: dict[int, list[Part]] = defaultdict(list)
    for part in work.parts:
        begun[part.range].append(part)
    left = [number for number in range(len(ranges)) if number not in begun or not begun[number][-1].is_last]
    parser = _Parser(task)
    team.begin(
        Stage(
            "parsed",
            total=sum(piece.bytes for piece in ranges),
            done=sum(part.bytes for part in work.parts),
            rows=sum(part.rows for part in work.parts),
            unit="the input",
            allowed=task.most_skipped,
            bad={number: sum(len(part.skipped) for part in parts) for number, parts in begun.items()},
        )
    )

    def parse_share() -> list[Part | _Ended]:
        with work.naming_output():
            return list(parser.parse_share(left, begun))

    shares = team.together(parse_share)
    found = [*work.parts, *(item for share in shares for item in share)]
    parts = tuple(sorted((item for item in found if isinstance(item, Part)), key=lambda part: part.place))
    ended = {item.range: item for item in found if isinstance(item, _Ended)}
    skipped = team.each_does(lambda: _name_skipped(task, parts, ended))
    return ParsedInput(parts, tuple(skipped))


def check_skipped(skipped: Sequence[str], allowed: int) -> None:
    """Refuse more malformed rows than are allowed; the error names the first one too many."""
    if len(skipped) > allowed:
        limit = f" (more than the {allowed} malformed rows that are allowed)" if allowed else ""
        raise DataError(
            f"{skipped[allowed]}{limit}; correct the row (bagpipe prepare --skip-bad-rows N leaves such rows out)"
        )


def _name_skipped(task: ParseTask, parts: Sequence[Part], ended: dict[int, _Ended]) -> list[str]:
    """Malformed rows in the order of the input, as `FILE:LINE: REASON`.

    Raises:
        DataError: they are too many, or a range could not be read; whichever comes first in the input.
    """
    of_range: dict[int, list[Part]] = defaultdict(list)
    for part in parts:
        of_range[part.range].append(part)
    skipped: list[str] = []
    lines_before = 0
    for number, piece in enumerate(task.ranges):
        if piece.begin == 0 or not piece.is_text:
            lines_before = 0
        bad = [row for part in of_range[number] for row in part.skipped]
        bad += ended[number].skipped if number in ended else ()
        skipped += [f"{task.sources[piece.source]}:{lines_before + row.line}: {row.reason}" for row in bad]
        check_skipped(skipped, task.most_skipped)
        if number in ended and (error := ended[number].error) is not None:
            raise DataError(error)
        if of_range[number]:
            lines_before += of_range[number][-1].end.line
    return skipped


class _UnwantedError(Exception):
    """The rest of a range need not be read: a row in it or before it ends the preparation."""


class _Parser:
    """One rank's share of the stage."""

    def __init__(self, task: ParseTask) -> None:
        self._task, self._team = task, task.team
        self._open_input = cache(task.open_input)
        self._finisher = ThreadPoolExecutor(1)
        self._finishing: Future[None] | None = None
        self._skipped: list[BadRow] = []
        self._untold_bytes = self._untold_rows = 0
        self._told_s = 0.0

    def parse_share(self, left: Sequence[int], begun: dict[int, list[Part]]) -> Iterator[Part | _Ended]:
        """Parse ranges that no other rank has taken, until none is left or wanted.

        Args:
            left: numbers of the unfinished ranges, in order.
            begun: the finished parts of each range.
        """
        with self._finisher:
            while (taken := self._team.take()) < len(left):
                number = left[taken]
                if number >= self._team.tell(Tell()):
                    break
                yield from self._parse_range(number, begun.get(number, []))
            self._wait_finished()

    def _parse_range(self, number: int, before: Sequence[Part]) -> Iterator[Part | _Ended]:
        """Parse a range from the end of its finished parts; the last item that it yields says how the range ended."""
        self._skipped = []
        try:
            yield from self._parse_parts(number, before)
        except _UnwantedError:
            yield _Ended(number, tuple(self._skipped), None)
        except DataError as error:
            self._team.tell(Tell(piece=number, failed=True))
            yield _Ended(number, tuple(self._skipped), str(error))

    def _parse_parts(self, number: int, before: Sequence[Part]) -> Iterator[Part]:
        piece = self._task.ranges[number]
        how = self._open_input(piece.source)
        end = before[-1].end if before else TextPosition(piece.source, piece.begin)
        bad_before = sum(len(part.skipped) for part in before)

        def parse(block: InputBlock) -> tuple[InputBlock, int, pa.RecordBatch, list[BadLine]]:
            return block, *parse_input_block(block, how)

        read = read_range(self._task.sources[piece.source], how, piece, end if before else None)
        blocks = ordered_map(self._task.pool, parse, read, ahead=2 * self._team.threads)
        upcoming = next(blocks, None)
        for at in count(len(before)):
            self._skipped = []
            rows = read_bytes = 0
            with ExitStack() as opened:
                file = opened.enter_context(self._new_part(part_name(number, at)))
                while upcoming is not None and rows < PART_ROWS:
                    block, first_line, batch, bad = upcoming
                    self._skipped += [BadRow(first_line + line.index + 1, line.reason) for line in bad]
                    self._tell(number, block, piece, len(batch), bad_before + len(self._skipped), found=bool(bad))
                    if len(batch):
                        file.write_batch(batch)
                    rows, read_bytes, end = rows + len(batch), read_bytes + bytes_of(block, piece), block.end
                    upcoming = next(blocks, None)
                part = Part(number, at, rows, read_bytes, end, upcoming is None, tuple(self._skipped))
                bad_before += len(self._skipped)
                self._wait_finished()  # an error in it closes this part, too
                self._finish_later(part, opened.pop_all())
            yield part
            if part.is_last:
                return

    def _finish_later(self, part: Part, opened: ExitStack) -> None:
        """Force a part to the disk in another thread, and note it; the part before must be finished."""
        told = Tell(self._untold_bytes, self._untold_rows, finished=True)
        self._untold_bytes = self._untold_rows = 0

        def finish() -> None:
            opened.close()
            if not part.rows:
                (self._task.work.parts_folder / part.file).unlink()
            self._task.work.note_part(part)
            self._team.tell(told)

        self._finishing = self._finisher.submit(finish)

    def _wait_finished(self) -> None:
        if self._finishing is not None:
            finishing, self._finishing = self._finishing, None
            finishing.result()

    @contextmanager
    def _new_part(self, name: str) -> Iterator[pa.RecordBatchFileWriter]:
        """The file of a part, to write batches to."""
        with (
            atomic_write(self._task.work.parts_folder / f"{name}.arrow") as partial,
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, self._task.schema) as file,
        ):
            yield file

    def _tell(self, number: int, block: InputBlock, piece: InputRange, rows: int, bad: int, *, found: bool) -> None:
        """Tell the team now and then what was done, and at once if bad rows were found.

        Raises:
            _UnwantedError: the rest of the range need not be read.
        """
        self._untold_bytes += bytes_of(block, piece)
        self._untold_rows += rows
        if not found and time.monotonic() - self._told_s < _TELL_EVERY_S:
            return
        told = Tell(self._untold_bytes, self._untold_rows, piece=number, bad=bad)
        self._untold_bytes = self._untold_rows = 0
        self._told_s = time.monotonic()
        if number >= self._team.tell(told) or bad > self._task.most_skipped:
            raise _UnwantedError
