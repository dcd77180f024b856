"""The notebooks run from the first cell to the last, and the outputs in the repository are small."""

import json
from pathlib import Path

import pytest

from patience import PATIENCE

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 2


@EACH
def test_a_notebook_is_small_and_has_no_paths_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 50_000
    for cell in json.loads(text)["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error"
            assert "/home/" not in str(output)
            assert "/tmp/" not in str(output)


@pytest.mark.slow
@EACH
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=int(PATIENCE), resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for cell in notebook.cells:
        assert all(output["output_type"] != "error" for output in cell.get("outputs", ()))
