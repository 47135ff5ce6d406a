"""The table of a run's summary: a line a trainer while they are few, parts where a terminal is narrow."""

from bagpipe_hpc.telemetry.records.summary_text import summary_lines
from bagpipe_hpc.telemetry.step_stats import StepStats

INTERVAL = StepStats(steps=5, samples=640, total_s=2.0, wait_rows_s=0.5, unique_rows=200, fetched_rows=20)
MEANS = INTERVAL.per_step() | {"rows_fetched": 4.0, "rows_written_back": 3.0}


def test_the_table_has_a_line_a_trainer_with_its_columns_aligned() -> None:
    lines = summary_lines([MEANS, MEANS | {"rows_fetched": 123456.0}])
    assert len({len(line) for line in lines}) == 1
    assert [line.split()[:2] for line in lines] == [["per", "step"], ["trainer", "0"], ["trainer", "1"]]
    assert lines[1].split()[2:] == ["400.00", "300.00", "100.00", "0.00", "4", "3", "0", "0", "0"]
    assert lines[2].split()[6] == "123456"


def test_of_many_trainers_a_table_has_the_mean_and_two() -> None:
    waits = [5.0, 1.0, 9.0, *[5.0] * 14]
    many = [
        MEANS | {"wait_reductions_ms": waited, "rows_fetched": float(number)} for number, waited in enumerate(waits)
    ]
    lines = summary_lines(many)
    assert len({len(line) for line in lines}) == 1
    heads = [line[: lines[0].index(" step ms")].strip() for line in lines]
    assert heads == ["per step", "mean of 17 trainers", "trainer 1, waited for", "trainer 2, waiting most"]
    assert [line.split()[-6:-4] for line in lines[1:]] == [["5.00", "8"], ["1.00", "1"], ["9.00", "2"]]
    assert len(summary_lines(many[:16])) == 17


def test_a_narrow_terminal_gets_the_table_in_parts() -> None:
    lines = summary_lines([MEANS], 60)
    assert all(len(line) < 60 for line in lines)
    assert [line.split()[0] for line in lines] == ["per", "trainer"] * (len(lines) // 2)
    cells = [cell for line in lines[1::2] for cell in line.split()[2:]]
    assert cells == summary_lines([MEANS])[1].split()[2:]
