"""The algorithms by name.

A class with a `name` in a file of this folder is an algorithm; no list has to be kept. A user's algorithm is given
by the path of its file, which is imported and checked against the contract in `base.py`.
"""

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fova.errors import FovaError, unknown
from fova.settings import by_field, fill
from fova.spaces import ActionSpace, Box, Discrete, Space


@cache
def installed() -> dict[str, type]:
    """Every algorithm of this package, also those that evaluate a given policy."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(__path__):
        kinds = _algorithms_in(importlib.import_module(f"{__name__}.{module.name}"))
        found |= {vars(kind)["name"]: kind for kind in kinds}
    return found


@cache
def by_name() -> dict[str, type]:
    """Every algorithm of this package that trains a policy."""
    return {name: kind for name, kind in installed().items() if not evaluates(kind)}


def evaluates(algorithm: Any) -> bool:
    """Whether an algorithm needs a policy to evaluate, and trains none."""
    return bool(getattr(algorithm, "evaluates", False))


def get(name: str) -> type:
    """The class of an algorithm: one of this package by its name, or a user's as `path/to/file.py`."""
    if isinstance(name, str) and name.endswith(".py"):
        return _from_file(Path(name).resolve())
    if name not in installed():
        raise unknown("algorithm", name, by_name(), "Give an algorithm of your own as the path of its .py file.")
    return installed()[name]


def configure(name: str, /, preset: str | None = None, **overrides: Any) -> Any:
    """An algorithm with the values of a preset (by default the first) and the overrides."""
    where = f"of {name}"
    return fill(get(name), preset_values(name, preset) | by_field(overrides, where), where)


def for_space(algorithm: Any, space: Space) -> Any:
    """The algorithm for this space: itself, or its counterpart for discrete actions with the same settings.

    An algorithm that cannot act in the space is refused.
    """
    from fova.algorithms.discrete import COUNTERPARTS

    if isinstance(space.action, algorithm.action_spaces):
        return algorithm
    counterpart = COUNTERPARTS.get(type(algorithm)) if isinstance(space.action, Discrete) else None
    if counterpart is None:
        raise FovaError(_not_served(algorithm, space.action))
    return counterpart(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


def _not_served(algorithm: Any, action: ActionSpace) -> str:
    from fova.algorithms.discrete import COUNTERPARTS

    others = [
        name
        for name, kind in sorted(by_name().items())
        if isinstance(action, kind.action_spaces) or (isinstance(action, Discrete) and kind in COUNTERPARTS)  # type: ignore[attr-defined]
    ]
    kinds = {Box: "continuous", Discrete: "discrete"}
    served = " or ".join(kinds.get(kind, kind.__name__) for kind in algorithm.action_spaces)
    return (
        f"{getattr(algorithm, 'name', type(algorithm).__name__)} serves {served} actions only, but these are "
        f"{kinds[type(action)]}; choose one of {', '.join(others)}."
    )


def preset_values(name: str, preset: str | None = None) -> dict[str, Any]:
    """The settings of a preset of an algorithm, by default of the first."""
    presets: dict[str, dict[str, Any]] = getattr(get(name), "presets", {"default": {}})
    chosen = preset if preset is not None else next(iter(presets))
    if chosen not in presets:
        raise unknown(f"preset of {name}", chosen, presets)
    return presets[chosen]


def _algorithms_in(module: ModuleType) -> list[type]:
    """The classes with a name that a module defines, each once."""
    classes = dict.fromkeys(kind for _, kind in inspect.getmembers(module, inspect.isclass))
    own = (kind for kind in classes if kind.__module__ == module.__name__)
    return [kind for kind in own if isinstance(vars(kind).get("name"), str)]


# --- Algorithms in users' files ---------------------------------------------------------------------------


@cache
def _from_file(path: Path) -> type:
    if not path.is_file():
        raise FovaError(f"There is no algorithm file {path}. Give the path of a .py file that holds one.")
    found = _algorithms_in(_executed(path))
    if len(found) != 1:
        raise FovaError(
            f"{path} holds {len(found)} algorithms, but exactly one is needed: "
            "a frozen dataclass with a class attribute `name`."
        )
    _check(found[0], path)
    return found[0]


def _executed(path: Path) -> ModuleType:
    """The module of a user's file. An error in the file names the file and the line."""
    # Dataclasses, type hints and help texts look up a class's module by its name, so the name must be unique.
    name = f"fova_algorithm_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FovaError(f"{path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise FovaError(f"{path} cannot be used as an algorithm.\n{_located(error, path)}") from error
    return module


def _located(error: BaseException, path: Path) -> str:
    """Where in a user's file an error was raised, and its message."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line, message = error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line, message = next((f.lineno for f in reversed(frames) if f.filename == str(path)), None), str(error)
    return f"{f'Line {line}: ' if line else ''}{type(error).__name__}: {message}"


def _check(kind: type, path: Path) -> None:
    """Refuse a class that no engine could train with."""
    parameters = vars(kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise FovaError(
            f"{kind.__name__} in {path} must be a frozen dataclass: write @dataclass(frozen=True) above the class."
        )
    missing = [name for name in _contract() if not hasattr(kind, name) and name not in kind.__dataclass_fields__]  # type: ignore[attr-defined]
    if missing:
        raise FovaError(
            f"{kind.__name__} in {path} lacks {', '.join(missing)}. Write what is missing, or derive the class "
            "from ActorCritic, which brings all but `step`; fova/algorithms/base.py describes each."
        )


def _contract() -> list[str]:
    """The names of all attributes of an algorithm that engines use."""
    from fova.algorithms.base import Algorithm

    members = [*inspect.get_annotations(Algorithm), *vars(Algorithm)]
    return [name for name in members if not name.startswith("_")]
