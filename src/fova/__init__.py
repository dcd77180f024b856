"""Offline federated reinforcement learning that works when clients' data differ in quality.

    import fova

    result = fova.train("maze2d-umaze", ["expert", "expert", "random", "random"], size=5000)
    policy = fova.load_policy(result.directory)
    action = policy(observation)

The names below are imported when they are first used, so that `import fova` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fova.clients import ClientSpec as ClientSpec
    from fova.clients import Federation as Federation
    from fova.errors import FovaError as FovaError
    from fova.policy import Policy as Policy
    from fova.policy import load_policy as load_policy
    from fova.training import Result as Result
    from fova.training import resume as resume
    from fova.training import train as train

__version__ = "0.1.0"

_HOMES = {
    "ClientSpec": "fova.clients",
    "Federation": "fova.clients",
    "FovaError": "fova.errors",
    "Policy": "fova.policy",
    "Result": "fova.training",
    "load_policy": "fova.policy",
    "resume": "fova.training",
    "train": "fova.training",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fova' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
