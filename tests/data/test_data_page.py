"""The examples in docs/data.md run as they stand."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

import fova
from fova.data.sources import load
from fova.data.tables.columns import ROLES, Columns

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def example(word: str) -> str:
    """The one Python example that holds this word."""
    (found,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if word in text)
    return found


def write_log(file: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ("observation_0", "observation_1", "action_0", "reward")
    columns = {name: rng.uniform(-1, 1, rows) for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns | {"terminal": np.arange(rows) % 100 == 99}), file)


def test_the_example_that_deals_data_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, (name, rows) in enumerate({"all-wards": 24_000, "day": 3000, "night": 3000}.items()):
        write_log(tmp_path / f"{name}.parquet", rows, seed)
    given = []
    monkeypatch.setattr(fova, "train", lambda clients: given.append(clients), raising=False)
    exec(compile(example("partition"), str(PAGE), "exec"), {})
    (federation,) = given
    assert list(federation.clients) == ["ward-1", "ward-2", "ward-3", "ward-4"]
    assert sum(map(len, federation.clients.values())) == 6000


def test_the_example_that_writes_a_parquet_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(example("write_table"), str(PAGE), "exec"), {})
    source = load("ward-1.parquet")
    assert source.transitions.episode_lengths().tolist() == [2, 2]
    assert source.transitions.terminals.tolist() == [0, 1, 0, 1]
    assert (source.action_low.tolist(), source.action_high.tolist()) == ([0.0], [1.0])


def test_the_page_has_the_columns_of_parquet():
    text = PAGE.read_text()
    for name in ("observation_0", "action_0", "reward", "terminal", "truncated", "next_observation_0", "episode"):
        assert f"| `{name}`" in text


def test_the_mapping_in_a_configuration_file_is_the_one_of_the_command():
    text = PAGE.read_text()
    (table,) = (toml for toml in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[columns]" in toml)
    mapping = Columns.of(tomllib.loads(table)["columns"])
    flags = text[text.index("--columns episode=patient_id") :].partition("--missing")[0].replace("\\\n", " ")
    assert mapping == Columns.of(flags.split()[1:], ["lactate=carry-mean"])
    for role in ROLES:
        assert f"| `{role}`" in text or role == "missing"
