"""Every module can be imported where the parts of Python that only Unix has are missing."""

import subprocess
import sys

from patience import PATIENCE

IMPORT_ALL = """
import importlib, os, pkgutil, signal, sys, traceback, warnings

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

warnings.simplefilter("ignore")
for name in ("fcntl", "resource"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for owner, name in ((os, "sched_getaffinity"), (signal, "SIGHUP"), (signal, "SIGKILL")):
    if hasattr(owner, name):
        delattr(owner, name)

import fova

for module in pkgutil.walk_packages(fova.__path__, "fova."):
    try:
        importlib.import_module(module.name)
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and error.name not in ("fcntl", "resource"):
            continue  # an optional extra that is not installed
        frames = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
        print([name for name in frames if name.startswith("fova")][-1])
"""


def test_no_module_needs_unix_to_be_imported():
    ended = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
