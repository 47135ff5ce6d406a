"""What a run's trainers take evaluations and predictions in, and how much memory that is."""

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.evaluation.click_evaluation import evaluation_bytes
from bagpipe_hpc.evaluation.label_evaluations import LabelEvaluations
from bagpipe_hpc.evaluation.pairs import MOST_GROUPS
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.logits import LogitsWriter


def is_exact(run: Run, segment: Segment) -> bool:
    """Whether an evaluation is small enough for its AUC to be exact."""
    return segment.samples <= run.config.train.exact_auc_samples


def require_auc_group(run: Run) -> None:
    """See that `train.auc_group` names a feature by whose ids samples can be grouped, if it names any.

    Raises:
        ConfigError: there is no such feature, or its ids are too many.
    """
    _named_feature(run)


def auc_feature(run: Run, segment: Segment) -> int | None:
    """By whose ids an evaluation groups its samples: number of that feature among those with one id a sample.

    None where it does not group them. Errors as for `require_auc_group`.
    """
    named = _named_feature(run)
    return named if is_exact(run, segment) else None


def _named_feature(run: Run) -> int | None:
    if not (name := run.config.train.auc_group):
        return None
    features = [feature for feature in run.manifest.features if not feature.ragged]
    names = [feature.name for feature in features]
    if name not in names:
        raise ConfigError(f"train.auc_group = {name!r}: names no feature with one id a sample; the data has {names}")
    table = features[names.index(name)].table
    (ids,) = (info.rows for info in run.manifest.tables if info.name == table)
    if ids > MOST_GROUPS:
        raise ConfigError(f"train.auc_group = {name!r}: it has {ids} ids; use a feature of {MOST_GROUPS} at most")
    return names.index(name)


def start_evaluation(run: Run, segment: Segment) -> LabelEvaluations:
    """What takes in one trainer's samples of an evaluation."""
    by_group = auc_feature(run, segment) is not None
    return LabelEvaluations(run.manifest.labels, is_exact=is_exact(run, segment), by_group=by_group)


def start_prediction(run: Run, trainer: int) -> LogitsWriter:
    """What takes in one trainer's logits of a prediction."""
    assert run.logits is not None, "a run that predicts has a folder for it"
    return LogitsWriter(run.logits, trainer, len(run.manifest.labels))


def most_evaluation_bytes(run: Run, trainers: int) -> int:
    """Memory of a trainer for the largest evaluation."""
    evaluations = [segment for segment in run.schedule if segment.kind is SegmentKind.EVALUATE]
    needs = (
        evaluation_bytes(one.samples, trainers, is_exact=is_exact(run, one), by_group=auc_feature(run, one) is not None)
        for one in evaluations
    )
    return len(run.manifest.labels) * max(needs, default=0)
