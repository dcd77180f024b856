"""The settings that a dataclass declares, read from its source without importing its module.

Help needs the names, types, defaults and texts of settings. The modules that declare them import JAX, which takes
seconds. So help reads their source: a class here has the fields of the real one and nothing else of it.
"""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import field, make_dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import fova

PACKAGE = Path(fova.__file__).parent


class Declared(NamedTuple):
    """One field of a dataclass of settings."""

    type: Any
    options: dict[str, Any]  # of dataclasses.field: its default, if it has one
    help: str


def declared(module: str, name: str) -> type:
    """A dataclass with the fields of `module.name`: their types, defaults and help."""
    import tyro

    source = _source(module)
    fields = [
        (setting, Annotated[about.type, tyro.conf.arg(help=about.help)], field(**about.options))
        for setting, about in _fields(source, name).items()
    ]
    return make_dataclass(name, fields, frozen=True, namespace={"__doc__": ast.get_docstring(source.classes[name])})


@cache
def declared_algorithms() -> dict[str, tuple[str, str]]:
    """The algorithms of this package by name: the module and the class of each."""
    found = {}
    for path in sorted((PACKAGE / "algorithms").glob("*.py")):
        module = f"fova.algorithms.{path.stem}"
        for kind, statement in _source(module).classes.items():
            own = _class_values(statement)
            if "name" in own and "evaluates" not in own:
                found[ast.literal_eval(own["name"])] = (module, kind)
    return found


def declared_presets(module: str, name: str) -> dict[str, dict[str, Any]]:
    """The presets of an algorithm, from its class or from the nearest base that has some."""
    source = _source(module)
    own = _class_values(source.classes[name])
    if "presets" in own:
        presets: dict[str, dict[str, Any]] = source.evaluate(own["presets"])
        return presets
    for base in _bases(source, name):
        return declared_presets(*base)
    return {"default": {}}


# --- Reading source ---------------------------------------------------------------------------------------


class Source:
    """The parsed source of a module of this package. Names are looked up as Python would, one at a time."""

    def __init__(self, module: str) -> None:
        self.module = module
        path = PACKAGE.joinpath(*module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.classes: dict[str, ast.ClassDef] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        self.assigned: dict[str, ast.expr] = {}
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            match statement:
                case ast.ClassDef(name=name):
                    self.classes[name] = statement
                case ast.ImportFrom(module=str(origin), names=names):
                    self.imported.update({alias.asname or alias.name: (origin, alias.name) for alias in names})
                case ast.Assign(targets=targets, value=value):
                    self.assigned.update(_assigned(targets, value))

    def evaluate(self, expression: ast.expr) -> Any:
        """The value of an expression in the module."""
        code = compile(ast.Expression(expression), self.module, "eval")
        return eval(code, {}, self)  # type: ignore[arg-type]  # only __getitem__ is used

    def __getitem__(self, name: str) -> Any:
        """The value of a name in the module. Only what is neither assigned nor imported from here is imported."""
        if name in self.assigned:
            return self.evaluate(self.assigned[name])
        if name in self.classes:
            return getattr(importlib.import_module(self.module), name)
        if name not in self.imported:
            raise KeyError(name)  # a builtin
        module, origin = self.imported[name]
        if module.startswith("fova."):
            return _source(module)[origin]
        return getattr(importlib.import_module(module), origin)


_source = cache(Source)


def _assigned(targets: list[ast.expr], value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment sets, also `A, B = 1, 2`."""
    for target in targets:
        match target, value:
            case ast.Name(id=name), _:
                yield name, value
            case ast.Tuple(elts=names), ast.Tuple(elts=values):
                yield from ((name.id, each) for name, each in zip(names, values) if isinstance(name, ast.Name))


def _class_values(statement: ast.ClassDef) -> dict[str, ast.expr]:
    """What the body of a class assigns with an annotation."""
    return {
        each.target.id: each.value
        for each in statement.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None
    }


def _bases(source: Source, name: str) -> list[tuple[str, str]]:
    """The module and the name of each base of a class."""
    bases = [base.id for base in source.classes[name].bases if isinstance(base, ast.Name)]
    return [(source.module, base) if base in source.classes else source.imported[base] for base in bases]


def _fields(source: Source, name: str) -> dict[str, Declared]:
    """The fields of a dataclass in its own order: those of its bases first."""
    found: dict[str, Declared] = {}
    for module, base in _bases(source, name):
        found |= _fields(_source(module), base)
    body = source.classes[name].body
    for statement, following in zip(body, [*body[1:], ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if ast.unparse(statement.annotation).startswith("ClassVar"):
            continue
        options = {} if statement.value is None else {"default": source.evaluate(statement.value)}
        found[statement.target.id] = Declared(source.evaluate(statement.annotation), options, _text(following))
    return found


def _text(statement: ast.stmt) -> str:
    """The string that stands below a field, or nothing."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return cleandoc(text)
    return ""
