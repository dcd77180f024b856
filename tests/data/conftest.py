import pytest


@pytest.fixture(autouse=True)
def minari_datasets(tmp_path, monkeypatch):
    """Minari keeps its datasets in a folder of the test's own."""
    folder = tmp_path / "minari"
    folder.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder
