"""The algorithms by name. A file in this folder whose class has a `name` is known without being listed."""

import importlib
import importlib.util
import inspect
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fova.errors import FovaError, unknown
from fova.settings import fill


@cache
def by_name() -> dict[str, type]:
    """Every algorithm of this package."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(__path__):
        found.update(_algorithms_in(importlib.import_module(f"{__name__}.{module.name}")))
    return found


def get(name: str) -> type:
    """The config class of an algorithm: one of ours by name, or yours as `path/to/file.py`."""
    if name.endswith(".py"):
        return _from_file(Path(name).resolve())
    if name not in by_name():
        raise unknown("algorithm", name, by_name(), "One of your own is given as the path of its .py file.")
    return by_name()[name]


def configure(name: str, /, preset: str | None = None, **overrides: Any) -> Any:
    """An algorithm ready to run: the preset's values (the first preset by default), then the overrides."""
    return fill(get(name), {**preset_values(name, preset), **overrides}, f"of {name}")


def preset_values(name: str, preset: str | None = None) -> dict[str, Any]:
    """What a preset of an algorithm sets; the first one by default."""
    presets: dict[str, dict[str, Any]] = getattr(get(name), "presets", {"default": {}})
    chosen = preset if preset is not None else next(iter(presets))
    if chosen not in presets:
        raise unknown(f"preset of {name}", chosen, presets)
    return presets[chosen]


def _algorithms_in(module: ModuleType) -> dict[str, type]:
    classes = (
        kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__
    )
    named = ((vars(kind).get("name"), kind) for kind in classes)
    return {name: kind for name, kind in named if isinstance(name, str)}


@cache
def _from_file(path: Path) -> type:
    if not path.is_file():
        raise FovaError(f"There is no algorithm file {path}. Give the path of a .py file that holds one.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FovaError(f"{path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = list(_algorithms_in(module).values())
    if len(found) != 1:
        raise FovaError(
            f"{path} holds {len(found)} algorithms, but exactly one is needed: "
            "a frozen dataclass with a class attribute `name`."
        )
    return found[0]
