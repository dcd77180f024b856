"""Command-line arguments as a dataclass of options: every field is a flag, and its docstring is the flag's help.

No training code is imported here, so that `--help` is quick.
"""

from collections.abc import Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from fova.commands.helping import Sources, check_flags, help_text, wants_help
from fova.settings import check_ranges

T = TypeVar("T")


def parse(kind: type[T], prog: str, arguments: list[str], positional: bool = False) -> T:
    """The options that the arguments set. With `positional`, required options need no flag."""
    import tyro

    config = (tyro.conf.PositionalRequiredArgs,) if positional else ()
    return as_declared(kind, read_flags(described(kind), prog, arguments, config))


def read_flags(
    command: type, prog: str, arguments: list[str], config: Sequence[Any] = (), sources: Sources | None = None
) -> Any:
    """An instance of `command` with what the arguments set. Prints help and leaves if that is asked for."""
    import tyro

    if wants_help(arguments):
        print(help_text(command, prog, "--help-all" in arguments, config, sources), end="")
        raise SystemExit(0)
    check_flags(arguments, command, prog)
    return tyro.cli(command, prog=prog, args=arguments, config=tuple(config))


def asks_for_help(arguments: list[str]) -> bool:
    """Whether something, help or tyro's completion script, is printed instead of parsing the arguments."""
    printed = ("--tyro-print-completion", "--tyro-write-completion")
    return wants_help(arguments) or any(argument.startswith(printed) for argument in arguments)


def described(kind: type) -> type:
    """The same options without "(default: None)" in the help. The field's docstring describes the default.

    A field that is a dataclass itself is a group of options.
    """
    import tyro

    hints = get_type_hints(kind, include_extras=True)
    silent = tyro.conf.arg(help_behavior_hint=_default)
    unset = [
        (option.name, Annotated[hints[option.name], silent], field(default=option.default))
        for option in fields(kind)
        if option.default is None or option.default == ()
    ]
    for name, declared in _groups(kind).items():
        group = described(declared)
        unset.append((name, Annotated[group, tyro.conf.arg(name="")], field(default=group())))
    command = make_dataclass(kind.__name__, unset, bases=(kind,), frozen=True)
    command.__doc__ = kind.__doc__
    return command


def _default(label: str) -> str:
    return "" if label in ("None", "") else f"(default: {label})"


def as_declared(kind: type[T], parsed: Any) -> T:
    """The options as an instance of the class that declares them."""
    values = {option.name: getattr(parsed, option.name) for option in fields(kind)}  # type: ignore[arg-type]
    options = kind(**values | {name: as_declared(group, values[name]) for name, group in _groups(kind).items()})
    check_ranges(options)
    return options


def _groups(kind: type) -> dict[str, type]:
    """The fields that are groups of options."""
    made_by: dict[str, Any] = {option.name: option.default_factory for option in fields(kind)}
    return {name: group for name, group in made_by.items() if isinstance(group, type) and is_dataclass(group)}
