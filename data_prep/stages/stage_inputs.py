"""What the stages after parsing have in common: the rows, who does the work, and how."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from data_prep.backend import Backend
from data_prep.formats.layout import RowLayout
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import WorkFolder
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.progress import Progress
from data_prep.ranks.team import Team
from data_prep.recorded import RecordedPreparation
from data_prep.splits import Split


@dataclass(frozen=True)
class StageInputs:
    """The inputs of a stage; the same on all ranks, except for the rank's place in the team.

    Attributes:
        team: the ranks that share the work.
        pool: threads of this rank.
        rows: all parsed rows.
        split: which of them are for training, and which for tests.
        work: the folder for the results.
        layout: layout of the rows.
        settings: how to prepare.
        backend: the code that counts, gives ids and compresses.
        progress: called with a line now and then.
        earlier: the preparation of earlier rows whose ids these get.
    """

    team: Team
    pool: ThreadPoolExecutor
    rows: ParsedRows
    split: Split
    work: WorkFolder
    layout: RowLayout
    settings: PrepareSettings
    backend: Backend
    progress: Progress
    earlier: RecordedPreparation | None = None

    @property
    def train_rows(self) -> int:
        """How many rows, the first ones, count for vocabularies."""
        return self.split.train_rows
