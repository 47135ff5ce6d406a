"""Which settings a resumed run must share with the one that wrote the checkpoint, and which may change. Pure.

Every setting is in one of five sets, and a test sees to it: what no set names would change a training in silence.
"""

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from bagpipe_hpc.config.doors import MODELS, POLICIES, ROW_OPTIMIZERS
from bagpipe_hpc.config.file import own_keys, to_document
from bagpipe_hpc.config.rates import DenseRateConfig, RowsRateConfig
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError
from bagpipe_hpc.plan.lane_order import AUTOMATIC
from bagpipe_hpc.plan.schedule import ends_segment
from bagpipe_hpc.planning.policy_choice import keeps_order, policy_class, shares_out_samples, watches_rows
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.run.start.data_lineage import Lineage, data_step, lineage
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic, CheckpointManifest
from bagpipe_hpc.storage.shards.columns import column_words, differing_columns, unknown_columns
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.terminal import counted, shown

FIXED = (
    "data.block_rows",
    "data.shuffle",
    "data.lanes",
    "train.seed",
    "train.batch_size",
    "model.name",
    "model.embedding_dim",
    "model.embedding_dim_of",
    *(f"features.{name}" for name in ("pooling", "pooling_of", "longest", "longest_of")),
    "graph.fan_outs",
    "tables.initial_bound",
    "optimizer.rows",
    "optimizer.dense",
)
"""With another value the checkpoint's step, rows or weights would mean something else: the run is refused."""

_RATES: dict[str, Any] = {
    f"{kind.section}.{field.name}": field.default
    for kind in (RowsRateConfig, DenseRateConfig)
    for field in fields(kind)
}
CHANGEABLE = (
    *("model.frozen", "tables.frozen"),
    "optimizer.dense_lr",
    "optimizer.dense_options",
    "optimizer.dense_clip_norm",
    "optimizer.rows_clip_norm",
    "optimizer.rows_weight_decay",
    "optimizer.rows_weight_decay_mode",
    *_RATES,
)
"""A new value is used from the next step on, and the change is said. Steps count from the first of the training."""

ROUNDING = ("model.precision", "train.deterministic", "train.dense_sums", "train.row_sums", "policy.name")
"""These change how numbers are rounded or in which order they are added: said, as is what `Arithmetic` holds.

A policy that orders samples in its own way is fixed, as are its settings: see `require_same_training`.
"""

RESOLVED = ("kernels.linear", "train.device", "train.threads", "train.reference_slices")
"""What these come to is in `Arithmetic`: `auto` may mean something else on another machine."""

FREE = (
    *("data.path", "data.verify", "data.reader_threads"),  # the data itself is compared
    "tables.placement",  # and what it has of its own settings: a checkpoint's files say which rows they hold
    *("tables.memory_gb", "tables.ssd_path", "tables.read_ahead"),
    *("lookahead.batches", "lookahead.group", "cache.rows", "cache.measure"),
    *("cache.sharing", "cache.exchange"),
    *(f"roles.{name}" for name in ("servers", "placement", "server_poll_us", "same_host", "transfers")),
    *(f"train.{name}" for name in ("epochs", "max_steps", "output", "overwrite", "resume", "preflight")),
    *("train.warm_start", "train.warm_start_takes"),  # what first weights were is in the checkpoint
    *(f"train.{name}" for name in ("checkpoint_every_steps", "full_checkpoint_every", "checkpoint_copy")),
    *(f"train.{name}" for name in ("keep_checkpoints", "checkpoint_at_end", "evaluate", "log_every_steps")),
    "train.log_trainers",
    *(f"train.{name}" for name in ("evaluate_every_steps", "evaluate_samples", "exact_auc_samples", "auc_group")),
    *(f"train.{name}" for name in ("best_by", "keep_best", "stop_after", "stop_min_delta")),
    *("train.status_every_s", "train.prometheus", "train.tensorboard", "train.weight_gradients", "train.late_share"),
    "train.sums_thread",
    *("train.plans", "train.trace", "train.timeout_s", "debug.verify_rows", "debug.ssd_path_in_memory"),
    *(f"kernels.{name}" for name in ("backend", "planner_threads", "planner_state", "row_threads")),
)
"""These change no bit of a step, but for what stands below."""

_EVALUATIONS = ("train.evaluate", "train.evaluate_every_steps", "train.evaluate_samples")
"""Settings of `FREE` that are fixed where the policy orders samples by evaluations."""

_ENDS_OF_SEGMENTS = (*_EVALUATIONS, "train.checkpoint_every_steps")
"""So are these where it leaves samples out, which others of the segment replace; said where it learns to share samples
out, for it learns in each segment anew."""

_LENGTHS = ("train.epochs", "train.max_steps")
"""As `_ENDS_OF_SEGMENTS`, where the earlier run ended in the middle of what is a segment now."""

FIXED_DOORS = (MODELS,)
"""The own settings of what these name are as those of `FIXED`."""

CHANGEABLE_DOORS = (ROW_OPTIMIZERS,)
"""The own settings of what these name are as those of `CHANGEABLE`."""

ROUNDING_DOORS = (POLICIES,)
"""The own settings of what these name are as those of `ROUNDING`."""

_TAKEN_LATE = {
    "Rprop": {"lr": "at the start of a training only"},
    "Adagrad": {"initial_accumulator_value": "at the start of a training only"},
    "ASGD": {"lr": "a step late", "alpha": "a step late"},
}
"""By optimizer, the hyperparameters that the next step does not use: that has what the checkpoint's state was made of.

ASGD keeps the rate of its next step, made of these two and of `lambd`, which acts at once, too.
"""

_UNKNOWN = "not recorded"
_BEFORE_CHOICES = {
    "data.lanes": 1,
    "model.name": "dlrm",
    "policy.name": "bagpipe",
    "train.dense_sums": "horovod",
    "train.row_sums": "float32",
    "tables.initial_bound": 0.0,
    "features.pooling": "sum",
    "features.pooling_of": {},
    "features.longest": 0,
    "features.longest_of": {},
    "graph.fan_outs": [],
    "model.frozen": [],
    "tables.frozen": [],
    "optimizer.dense_clip_norm": 0.0,
    "optimizer.rows_clip_norm": 0.0,
    "optimizer.rows_weight_decay": 0.0,
    "optimizer.rows_weight_decay_mode": "l2",
    **_RATES,
}
"""What a checkpoint stands for that was written when there was nothing to choose."""


def require_same_training(checkpoint: Checkpoint, config: Config, shards: ShardManifest) -> None:
    """See that a checkpoint's step, rows and weights mean in this run what they meant in the run that wrote it.

    Raises:
        CheckpointError: they do not; the message names each difference, both values and the cure.
    """
    manifest, record = checkpoint.manifest, RowRecord.of(config)
    compared: dict[str, tuple[Any, Any]] = {
        **_data(manifest, shards),
        "train.batch_size": (manifest.batch_size, config.train.batch_size),
        "train.seed": (manifest.seed, config.train.seed),
        "model.embedding_dim": (manifest.embedding_dim, config.model.embedding_dim),
        "model.embedding_dim_of": (
            _other_widths(dict(zip(manifest.table_names, manifest.widths, strict=True)), manifest.embedding_dim),
            _other_widths(config.model.embedding_dim_of, config.model.embedding_dim),
        ),
        "optimizer.rows": (manifest.row_optimizer, config.optimizer.rows),
        "optimizer.rows, its state": (manifest.row_state_layout, [part.layout for part in record.state]),
    }
    own = [key for door in FIXED_DOORS for key in own_keys(config, door)]
    compared |= {key: _both(manifest, config, key) for key in (*FIXED, *own) if key not in compared}
    if not config.data.shuffle:
        for key in ("data.block_rows", "data.lanes"):
            del compared[key]  # how rows are read alone; `data.shuffle` itself is compared
    elif AUTOMATIC in compared["data.lanes"] and _lanes_agree(*compared["data.lanes"], config, shards):
        del compared["data.lanes"]
    differences = [_was(name, *values) for name, values in compared.items() if values[0] != values[1]]
    differences += _order_of_policies(manifest, config, shards)
    if differences:
        raise CheckpointError(
            f"{checkpoint.directory}: is of another training: {'; '.join(differences)}. Resume with the same data, or "
            "with rows that were prepared from it with --like, or once with --grow, and the same settings; or start "
            "anew in another train.output without train.resume"
        )


def _lanes_agree(then: Any, now: Any, config: Config, shards: ShardManifest) -> bool:
    """Whether two values of `data.lanes`, one of which leaves it to the data, stand for the same order."""
    orders = [SampleOrders(replace(config, data=replace(config.data, lanes=wanted)), shards) for wanted in (then, now)]
    return len({(order.lanes, order.in_lanes) for order in orders}) == 1


def _data(manifest: CheckpointManifest, shards: ShardManifest) -> dict[str, tuple[Any, Any]]:
    """What the data must have in common with that of a checkpoint: later rows of the same values may follow."""
    names = list(manifest.table_names), [table.name for table in shards.tables]
    rows = list(manifest.table_rows), list(shards.table_rows)
    found = lineage(manifest, shards)
    columns: dict[str, tuple[Any, Any]] = {}
    if differing := differing_columns(manifest.columns, column_words(shards)):
        columns["data.path, columns"] = differing
    match found:
        case Lineage.LATER:
            return {"data.path, rows of the tables": rows} | columns
        case Lineage.GROWN:
            return {"data.path, tables": names} | columns
        case _:
            compared: dict[str, tuple[Any, Any]] = {
                "data.path, rows of the tables": rows,
                "data.path, training samples": (manifest.train_samples, shards.rows("train")),
                "data.path, digest of the training shards": (manifest.training_data, shards.digest("train")),
            }
            if found is Lineage.OTHER and manifest.vocabularies and shards.vocabularies:
                compared["data.path, digest of the vocabularies"] = manifest.vocabularies, shards.vocabularies.sha256
            return compared


def _other_widths(widths: dict[str, int], usual: int) -> dict[str, int]:
    """Widths of the tables that have another than the usual one, by name."""
    return {name: width for name, width in sorted(widths.items()) if width != usual}


def _ends_of_segments(manifest: CheckpointManifest, config: Config, shards: ShardManifest) -> tuple[str, ...]:
    """Settings that say where segments end, as far as this run, had it done the steps before, too, has others."""
    step = manifest.step - data_step(manifest, shards)
    is_end = ends_segment(config.train, shards.rows("train"), shards.rows("test"), step)
    return _ENDS_OF_SEGMENTS if is_end else (*_ENDS_OF_SEGMENTS, *_LENGTHS)


def _order_of_policies(manifest: CheckpointManifest, config: Config, shards: ShardManifest) -> list[str]:
    """What is to be said of another policy, or another setting of it, where the samples come in another order by it."""
    policy = policy_class(config.policy.name)
    ends: tuple[str, ...] = _EVALUATIONS if policy.hears(config.policy.settings) else ()
    if watches_rows(config.policy.name):
        ends = _ends_of_segments(manifest, config, shards)
    keys = [POLICIES.key, *own_keys(config, POLICIES), *policy.order_settings, *ends]
    then_name, _ = _both(manifest, config, POLICIES.key)
    if all(_orders_as_configured(name, config) for name in (then_name, config.policy.name)):
        return []
    changed = {key: values for key in keys if (values := _both(manifest, config, key))[0] != values[1]}
    return [f"{_was(key, *values)} (the samples' order)" for key, values in changed.items()]


def _is_known(name: Any, config: Config) -> bool:
    """Whether a policy that a checkpoint names may be looked at: one of the package, or this run's own.

    Another one would be imported, and nothing that is read is run.
    """
    return isinstance(name, str) and (name in POLICIES.entries or name == config.policy.name)


def _orders_as_configured(name: Any, config: Config) -> bool:
    """Whether a policy leaves the order of samples to `[data]`; one that is not at hand may not."""
    if not _is_known(name, config):
        return False
    try:
        return keeps_order(name)
    except ConfigError:
        return False


def _shares_out_samples(name: Any, config: Config) -> bool:
    """Whether a policy gives samples to trainers in its own way; one that is not at hand may."""
    if not _is_known(name, config):
        return True
    try:
        return shares_out_samples(name)
    except ConfigError:
        return True


def changes_since(manifest: CheckpointManifest, run: Run, arithmetic: Arithmetic) -> list[str]:
    """What this run does in another way than the one that wrote a checkpoint, each as `NAME: THEN -> NOW`.

    Of a run that scores, what changes predictions in their last digits.
    """
    if not run.trains:
        return list(_changed_scoring(manifest, run, arithmetic))
    return list(_changes(manifest, run, arithmetic))


def _changed_scoring(manifest: CheckpointManifest, run: Run, arithmetic: Arithmetic) -> Iterator[str]:
    then, now = _both(manifest, run.config, "model.precision")
    if then not in (now, _UNKNOWN):
        yield f"model.precision: {then} -> {now}"
    then, now = _both(manifest, run.config, POLICIES.key)
    trained_by = manifest.arithmetic.trainers
    if _shares_out_samples(then, run.config) and (now, arithmetic.trainers) != (then, trained_by):
        way = f"that of policy.name = {then!r} with {counted(trained_by, 'trainer')}"
        yield f"way of sharing samples out: {way} -> another (the last bits may differ)"
    yield from _unknown_columns(manifest, run.manifest)
    same_slices = replace(arithmetic, trainers=manifest.arithmetic.trainers)  # whatever the number of trainers
    yield from _changed_arithmetic(manifest.arithmetic, same_slices)


def _unknown_columns(manifest: CheckpointManifest, shards: ShardManifest) -> Iterator[str]:
    """Of other rows than those that the checkpoint was trained on, why nobody can compare how columns are made."""
    if manifest.training_data != shards.digest("train"):
        yield from filter(None, [unknown_columns(manifest.columns, column_words(shards))])


def _changed_arithmetic(then: Arithmetic, now: Arithmetic) -> Iterator[str]:
    earlier = asdict(then)
    for name, value in asdict(now).items():
        if earlier[name] != value:
            yield f"{_ARITHMETIC[name]}: {earlier[name]} -> {value} (results differ in the last bits)"


def _changes(manifest: CheckpointManifest, run: Run, arithmetic: Arithmetic) -> Iterator[str]:
    own = [key for door in (*CHANGEABLE_DOORS, *ROUNDING_DOORS) for key in own_keys(run.config, door)]
    for key in (*CHANGEABLE, *ROUNDING, *own):
        then, now = _both(manifest, run.config, key)
        if then != now:
            yield f"{key}: {shown(then)} -> {shown(now)}{_doubt(key, then, now, run.config.optimizer.dense)}"
    if effect := _effect_of_segments(run, arithmetic.trainers):
        for key in (*_ends_of_segments(manifest, run.config, run.manifest), "cache.rows"):
            then, now = _both(manifest, run.config, key)
            if then != now:
                yield f"{key}: {shown(then)} -> {shown(now)} (policy.name = {run.config.policy.name!r} {effect})"
    for old, new in zip(manifest.row_state, RowRecord.of(run.config).state, strict=True):
        if old.first != new.first:
            yield (
                f"optimizer.rows, first value of {new.name}: {old.first} -> {new.first} (rows take theirs at the start "
                "of a training only)"
            )
    yield from _changed_arithmetic(manifest.arithmetic, arithmetic)
    yield from _unknown_columns(manifest, run.manifest)
    if (data := lineage(manifest, run.manifest)) is not Lineage.SAME:
        batches = -(-manifest.train_samples // manifest.batch_size)
        yield (
            f"training rows (data.path): {shown(manifest.training_data)} -> {shown(run.manifest.digest('train'))}, "
            f"{data.value}; the checkpoint was at step {manifest.epoch_step} of {batches} of its epoch "
            f"{manifest.epoch}, both from 0"
        )
    then, now = manifest.evaluation_data, run.manifest.digest("test")
    if then != now:
        yield f"set of test rows (data.path): {shown(then)} -> {shown(now)} (evaluations do not compare)"


def _effect_of_segments(run: Run, trainers: int) -> str:
    """What a policy lets depend on where segments end and on the size of caches; empty where that is nothing."""
    name = run.config.policy.name
    if shares_out_samples(name):
        return "shares samples out by it: results differ in the last bits"
    if policy_class(name).adds_rows and run.policy(trainers).whole.most_missing:
        return "lets trainers miss updates by it: results differ"
    return ""


_ARITHMETIC = {
    "trainers": "number of trainers",
    "linear": "library for linear layers (kernels.linear)",
    "device": "device (train.device)",
    "threads": "number of threads (train.threads)",
}


def _both(manifest: CheckpointManifest, config: Config, key: str) -> tuple[Any, Any]:
    """A setting's value in the run that wrote a checkpoint, and now; lists for tuples, as in JSON."""
    section, _, name = key.partition(".")
    now = to_document(config)[section][name]
    unknown = _BEFORE_CHOICES.get(key, _UNKNOWN)
    then = manifest.config.get(section, {}).get(name, unknown)
    then, now = (list(value) if isinstance(value, tuple) else value for value in (then, now))
    return then, now


def _doubt(key: str, then: Any, now: Any, optimizer: str) -> str:
    """What is to be said of a change that the dense optimizer takes up late, or not at all."""
    late = _TAKEN_LATE.get(optimizer, {})
    changed = {"lr"} if key == "optimizer.dense_lr" else set()
    if key == "optimizer.dense_options" and isinstance(then, dict):
        changed = {name for name in late if then.get(name) != now.get(name)}
    told = [f"{optimizer} takes its {name} {when}" for name, when in late.items() if name in changed]
    return f" ({', '.join(told)})" if told else ""


def _was(name: str, then: object, now: object) -> str:
    return f"{name}: {shown(then)} then, {shown(now)} now"
