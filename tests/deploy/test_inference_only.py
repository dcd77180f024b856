"""Playing and serving a saved policy needs NumPy and safetensors, and no other package."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import fova
from deploy.made_policies import make_policy, observations

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy
import fova
from fova.deploy.answers import Answers
from fova.deploy.service import Limits, Service

policy = fova.load_policy(sys.argv[2])
service = Service(Answers(policy), "127.0.0.1", 0, Limits())
service.server_close()
assert callable(fova.serve)
print(*numpy.asarray(policy(numpy.fromstring(sys.argv[3], sep=" "))))
"""


def installation(folder, *more):
    """A folder with fova, NumPy, safetensors and the named packages. Nothing else can be imported from it."""
    site = folder / "site"
    site.mkdir()
    for name in ("fova", "numpy", "safetensors", *more):
        origin = Path(fova.__file__ if name == "fova" else importlib.util.find_spec(name).origin)
        package = origin.parent if origin.name == "__init__.py" else origin
        (site / package.name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).exists():
            (site / libraries.name).symlink_to(libraries)
    return site


def command(site, *arguments):
    """`fova` in an installation."""
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fova.commands.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(site), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, " ".join((ended.stdout + ended.stderr).split())


def test_a_folder_with_fova_numpy_and_safetensors_is_enough(tmp_path):
    """As after `pip install --no-deps fova numpy safetensors`: nothing else can be imported."""
    site = installation(tmp_path)
    policy, row = make_policy(), observations(1)[0]
    policy.save(tmp_path / "policy.safetensors")
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(site), str(tmp_path), " ".join(map(repr, row.tolist()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.stdout == " ".join(map(str, policy(row))) + "\n"


def test_the_command_says_what_it_lacks(tmp_path):
    code, said = command(installation(tmp_path), "serve", tmp_path)
    assert (code, said) == (1, "error: the command fova needs the package rich. Install it with: pip install rich")


def test_with_tyro_and_rich_the_commands_of_a_policy_work(tmp_path):
    """As after `pip install tyro rich`, which also installs what these need."""
    needed = ("tyro", "rich", "docstring_parser", "typeguard", "typing_extensions")
    site = installation(tmp_path, *needed)
    make_policy().save(tmp_path / "policy.safetensors")
    code, said = command(site, "serve", tmp_path, "--port", "99999")
    assert (code, said) == (2, "error: port is 99999, but must be at least 0 and at most 65,535.")
    code, said = command(site, "serve", tmp_path / "none")
    assert code == 2
    assert "There is no policy at" in said
    code, said = command(site, "export", tmp_path)
    assert code == 2
    assert "needs the package onnx" in said
    code, said = command(site, "train", "--clients", "a.npz")
    assert code == 2
    assert "which is not installed. Install fova with everything that it needs: pip install fova" in said
