"""What is written about settings is what the code has: the reference, the printed file, the examples."""

import re
import tomllib
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.config.file import load_config, setting_types
from bagpipe_hpc.config.reference import sections
from bagpipe_hpc.config.schema import Config

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "configs").glob("*.toml"))


def test_the_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "--markdown"]) == 0
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "run: bagpipe keys --markdown > docs/configuration.md"


def test_the_printed_file_is_the_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys"]) == 0
    path = tmp_path / "defaults.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_config(path) == Config()


def test_every_setting_is_explained() -> None:
    listed = {
        f"{section.name}.{setting.name}": setting.meaning for section in sections() for setting in section.settings
    }
    assert list(listed) == list(setting_types())
    assert [key for key, meaning in listed.items() if not meaning.endswith(".")] == []
    assert [section.name for section in sections() if not section.meaning.endswith(".")] == []


def test_the_examples_are_there() -> None:
    names = ["criteo_kaggle", "criteo_sample", "criteo_terabyte", "embedding_bound", "quickstart"]
    assert [path.stem for path in EXAMPLES] == names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_loads_and_names_its_folders_after_itself(path: Path) -> None:
    config = load_config(path)
    assert config.data.path == f"data/{path.stem}"
    assert config.train.output == f"output/{path.stem}"


def test_the_rows_of_criteo_terabyte() -> None:
    """By `prepare`'s rule, from the numbers of values that MLPerf's reference reads (day_fea_count.npz)."""
    # fmt: off
    values = (
        227605432, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 130229467, 3067956, 405282, 10,
        2209, 11938, 155, 4, 976, 14, 292775614, 40790948, 187188510, 590152, 12973, 108, 36,
    )
    # fmt: on
    limit = 40_000_000
    rows = [min(number + 1, limit) for number in values]
    text = (ROOT / "configs" / "criteo_terabyte.toml").read_text(encoding="utf-8")
    assert f"--max-rows-per-table {limit}" in text
    assert f"{sum(values) / 1e6:.0f} million values" in text
    assert f"{sum(rows) / 1e6:.0f} million rows" in text
    assert rows.count(limit) == 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_replaces_no_earlier_run(path: Path) -> None:
    assert not load_config(path).train.overwrite


@pytest.mark.parametrize("document", ["README.md", "docs/training.md"])
def test_what_a_command_reads_was_made_by_one_before_it(document: str) -> None:
    made: set[str] = set()
    read: list[str] = []
    text = (ROOT / document).read_text(encoding="utf-8")
    for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for command in block.splitlines():
            words = command.partition(" #")[0].split()
            settings = dict(word.split("=", 1) for word in words if re.match(r"[a-z]+\.[a-z_]+=", word))
            needed = [settings.get("data.path", "")]
            if words[:2] in (["bagpipe", "inspect"], ["bagpipe", "compare"]):
                needed += words[2:]
            read += [path for path in needed if path.startswith(("data/", "output/"))]
            assert set(read) <= made, command
            made.add(settings.get("train.output", ""))
            made.update(words[at + 1] for at, word in enumerate(words) if word == "--output")
    assert read


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_the_ranks_it_names(path: Path) -> None:
    ranks = re.search(r"(?:mpirun|srun) -n (\d+) bagpipe train configs/", path.read_text(encoding="utf-8"))
    assert ranks
    config = load_config(path)
    layout = RoleLayout.for_world(int(ranks[1]), config.roles.servers)
    assert config.train.batch_size % layout.trainers == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_writes_every_value_once(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    given = [f"{section}.{key}" for section, table in tomllib.loads(text).items() for key in table]
    assigned = [line for line in text.splitlines() if re.match(r"\w+ +=|\w+ = ", line)]
    assert len(assigned) == len(given)
    assert set(given) <= set(setting_types())


def test_the_glossary_defines_the_words_of_the_project() -> None:
    words = """role, world rank, role rank, oracle, server, trainer, mover, reference, heartbeat, row client,
        row server, table, look-up, ragged, one-hot, row, record, gather, scatter, shard, hop, fan-out, block, lane,
        batch, slice, step, segment, schedule, look-ahead, window, plan, micro-batch, policy, placement, group,
        group of tables, retire, write-back, change, base, slot, home, popular row, level, copy of a row, shared slot,
        reserved slot, private slot, now, later, private"""
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, flags=re.MULTILINE)
    assert [word for words in defined for word in words.split(", ")] == [word.strip() for word in words.split(",")]
