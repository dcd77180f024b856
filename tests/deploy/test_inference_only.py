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


def test_a_folder_with_fova_numpy_and_safetensors_is_enough(tmp_path):
    """As after `pip install --no-deps fova numpy safetensors`: nothing else can be imported."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("fova", "numpy", "safetensors"):
        origin = fova.__file__ if name == "fova" else importlib.util.find_spec(name).origin
        package = Path(origin).parent
        (site / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).exists():
            (site / libraries.name).symlink_to(libraries)
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
