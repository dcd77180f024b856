"""The package as people install it: a wheel in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from patience import PATIENCE

ROOT = Path(__file__).parents[2]


def call(*words: object, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    written = [str(word) for word in words]
    done = subprocess.run(written, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT, folder=folder)
    (found,) = folder.glob("fova-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_files_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"fova", f"{wheel.name.split('-py3')[0]}.dist-info"}
    for part in ("fova/py.typed", "fova/reports/page.html.jinja", "fova/tasks/glucose/patients.csv"):
        assert part in names
    assert any(name.startswith("fova/tasks/weights/hopper/") for name in names)


@pytest.mark.slow
def test_an_installed_wheel_works_without_the_repository(wheel, tmp_path):
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv/bin/python"
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, folder=tmp_path)
    # Dependencies are those of the environment of the tests. Its own fova is not on this path.
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert str(site) in call(python, "-c", "import fova; print(fova.__file__)", folder=tmp_path)
    assert "usage: fova COMMAND" in call(tmp_path / "venv/bin/fova", "--help", folder=tmp_path)
    tasks = call(tmp_path / "venv/bin/fova", "tasks", folder=tmp_path)
    assert "hopper" in tasks
    assert "medium-replay" in tasks  # needs the weights of the behaviour policies
