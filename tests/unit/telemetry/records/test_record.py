"""What several records are told."""

from pathlib import Path

from bagpipe_hpc.telemetry.records.record import Record, Records
from tests.unit.telemetry.records.test_tensorboard_record import tell_everything

PUBLIC = {name for name in vars(Record) if not name.startswith("_")}


def test_several_records_hand_on_all_that_one_is_told() -> None:
    """What `Records` does not override would be lost in silence: the base class does nothing with it."""
    assert PUBLIC - vars(Records).keys() == set()


def test_several_records_are_told_the_same_in_turn(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    class Noted(Record):
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattribute__(self, name: str) -> object:
            if not name.startswith("_") and name != "name":
                calls.append((self.name, name))
            return super().__getattribute__(name)

        def __exit__(self, *_: object) -> None:
            calls.append((self.name, "exit"))

    tell_everything(Records(Noted("one"), Noted("two")), tmp_path)
    names = [name for of, name in calls if of == "one"]
    assert set(names) == PUBLIC | {"exit"}
    assert sorted(name for of, name in calls if of == "two") == sorted(names)
    assert [of for of, name in calls if name == "progress"] == ["one", "two"]
