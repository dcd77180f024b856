"""Offline federated reinforcement learning that works when clients' data differ in quality.

    import fova

    result = fova.train("maze2d-umaze", ["expert", "expert", "random", "random"], size=5000)
    policy = fova.load_policy(result.directory)
    action = policy(observation)

The names below are imported when they are first used, so that `import fova` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fova.version import __version__

if TYPE_CHECKING:
    from fova.deploy.export import export_onnx as export_onnx
    from fova.deploy.service import serve as serve
    from fova.errors import FovaError as FovaError
    from fova.evaluation.judging.judge import JudgeSettings as JudgeSettings
    from fova.evaluation.judging.verdict import Verdict as Verdict
    from fova.federation.client_specs import ClientSpec as ClientSpec
    from fova.federation.clients import Federation as Federation
    from fova.policy import Policy as Policy
    from fova.policy import load_policy as load_policy
    from fova.run.callbacks import RoundSummary as RoundSummary
    from fova.run.callbacks import StopTraining as StopTraining
    from fova.run.judged import judge as judge
    from fova.run.result import Result as Result
    from fova.run.training import resume as resume
    from fova.run.training import train as train


_HOMES = {
    "ClientSpec": "fova.federation.client_specs",
    "Federation": "fova.federation.clients",
    "FovaError": "fova.errors",
    "JudgeSettings": "fova.evaluation.judging.judge",
    "Policy": "fova.policy",
    "Result": "fova.run.result",
    "RoundSummary": "fova.run.callbacks",
    "StopTraining": "fova.run.callbacks",
    "Verdict": "fova.evaluation.judging.verdict",
    "judge": "fova.run.judged",
    "export_onnx": "fova.deploy.export",
    "load_policy": "fova.policy",
    "resume": "fova.run.training",
    "serve": "fova.deploy.service",
    "train": "fova.run.training",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fova' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
