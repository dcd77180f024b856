"""The blocks that say so run as they stand, page by page, in a folder with made-up data and with small sizes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, Block, blocks, pages
from small_fova import smaller

import hospitals
from made_runs import make_run
from patience import PATIENCE
from tiny import make_transitions, npz_arrays

HERE = Path(__file__).parent
WARDS = ("ward-1", "ward-2", "ward-3")
SHIMS = {
    "fova": f'exec "{sys.executable}" "{HERE / "small_fova.py"}" "$@"',
    "python": f'exec "{sys.executable}" "$@"',
}
PREPARED = """
import numpy as np
observation, observations = np.zeros(4), np.zeros((2, 4))
"""
RUN = [block for page in pages() for block in blocks(page) if block.decision == "run"]
CHOSEN = sorted({block.page for block in RUN})


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder with the commands that blocks call."""
    folder = tmp_path_factory.mktemp("commands")
    for name, line in SHIMS.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    return folder


def prepare(folder: Path, kind: str | None) -> None:
    """Put files into a folder that documents speak of: logs of wards and hospitals, runs, examples."""
    folder.mkdir()
    for seed, name in enumerate(WARDS):
        arrays = npz_arrays(make_transitions(seed, episodes=30))
        if kind == "discrete":
            arrays["actions"] = np.random.default_rng(seed).integers(0, 3, len(arrays["rewards"]))
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "hospitals").mkdir()
    for seed, name in enumerate(("north", "south", "east", "west")):
        frame = hospitals.hospital(seed, patients=30)
        frame["ward"] = np.where(frame["age"] > 60, "A", "B")
        frame.loc[::7, "lactate"] = np.nan
        frame.to_csv(folder / "hospitals" / f"{name}.csv", index=False)
        frame.fillna(1.0).to_csv(folder / f"{name}.csv", index=False)
    hospitals.hospital(0).to_csv(folder / "ward-1.csv", index=False)
    for name in ("examples", "benchmarks", "results"):
        (folder / name).symlink_to(ROOT / name)
    make_run(folder / "runs/demo-1")
    for name in ("runs/my-comparison/fova-0", "runs/try"):
        shutil.copytree(folder / "runs/demo-1", folder / name)
    if kind == "trained":
        shutil.copytree(folder / "runs/demo-1", folder / "runs/wards")
    shutil.copy(ROOT / "examples/deploy/make_data.py", folder)
    (folder / "wards.toml").write_text(
        "".join(f'[[client]]\nname = "{name}"\ndata = "{name}.npz"\n' for name in WARDS)
        + "[run]\naction_low = [-1.0]\naction_high = [1.0]\n"
    )


def run(block: Block, folder: Path, commands: Path) -> None:
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
        "COLUMNS": "120",
        "MINARI_DATASETS_PATH": str(folder / "minari"),  # not the user's own
    }
    if block.language == "sh":
        words = ["bash", "-euo", "pipefail", "-c", block.text]
    else:
        words = [sys.executable, "-c", PREPARED + block.text]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{block}\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", CHOSEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_run(page, commands, tmp_path):
    saved: dict[str, str] = {}
    for block in blocks(page):
        if block.decision == "save":
            saved[block.detail] = block.text
        if block.decision == "run":
            folder = tmp_path / (block.detail or "plain")
            if not folder.exists():
                prepare(folder, block.detail)
            for name, text in saved.items():
                (folder / name).write_text(text)
            run(block, folder, commands)


def test_only_sizes_are_changed():
    written = "train --task hopper --clients expert random --rounds 50 --hidden 64 64 --name x"
    small = smaller(written.split())
    assert small[:7] == ["train", "--task", "hopper", "--clients", "expert", "random", "--name"]
    assert small[small.index("--rounds") + 1] == "1"
    assert small[small.index("--hidden") + 1] == "8"
    assert "64" not in small
    assert "--size" not in smaller(["train", "--clients", "ward-1.npz"])
    assert smaller(["tasks"]) == ["tasks"]
