"""`fova completion`: the script that lets a shell complete commands, flags and their values.

The flags are read from the source of the commands, so that the script is written at once and nothing is imported.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fova.commands.flags import parse
from fova.commands.helping import HELP
from fova.settings import setting_name

HERE = Path(__file__).parent
TRAINING = ("train", "server")  # they also take the settings of a run and of the algorithm
SETTINGS = (("run/config.py", "RunConfig"), ("algorithms/base.py", "ActorCritic"), ("algorithms/fova.py", "Fova"))
SHELLS = ("bash", "zsh", "fish")
SUBCOMMANDS = {
    "data": ("make", "list", "inspect", "validate", "import", "train-behaviour"),
    "completion": SHELLS,
    "server": ("status",),
    "certificates": ("make",),
    "demo": ("insulin",),
}


@dataclass(frozen=True)
class CompletionOptions:
    """Print the completion script of a shell.

    bash: eval "$(fova completion bash)" in ~/.bashrc. zsh: eval "$(fova completion zsh)" in ~/.zshrc, after
    compinit. fish: fova completion fish > ~/.config/fish/completions/fova.fish
    """

    shell: Literal["bash", "zsh", "fish"]
    """bash, zsh or fish."""


def command(arguments: list[str]) -> None:
    options = parse(CompletionOptions, "fova completion", arguments, positional=True)
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](), end="")


def words() -> dict[str, list[str]]:
    """What can follow each command: its own commands and its flags."""
    from fova.commands.main import COMMANDS

    return {name: [*SUBCOMMANDS.get(name, ()), *flags_of(name)] for name in COMMANDS}


def flags_of(command: str) -> list[str]:
    """The flags of a command, from the dataclasses of options in its source."""
    files = sorted((HERE / command).glob("*.py")) if (HERE / command).is_dir() else [HERE / f"{command}.py"]
    found = [flag for file in files for name, kind in _classes(file).items() if "Options" in name
             for flag in _flags(kind, "positional=True" in file.read_text(encoding="utf-8"))]  # fmt: skip
    if command in TRAINING:
        found += [flag for file, name in SETTINGS for flag in _flags(_classes(HERE.parent / file)[name], True)]
    return [*dict.fromkeys(found), *(flag for flag in HELP if flag.startswith("--"))]


@cache
def _classes(file: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {statement.name: statement for statement in tree.body if isinstance(statement, ast.ClassDef)}


def _flags(kind: ast.ClassDef, positional: bool) -> list[str]:
    """The flags of a dataclass. With `positional`, a field without a default has none."""
    found = []
    for statement in kind.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(statement.annotation) or (statement.value is None and positional):
            continue
        if (group := _group(statement.value)) is not None:
            found += _flags(group, positional)
            continue
        name = setting_name(statement.target.id).replace("_", "-")
        on = isinstance(statement.value, ast.Constant) and statement.value.value is True
        found += [f"--{name}", f"--no-{name}"] if on else [f"--{name}"]
    return found


def _group(value: ast.expr | None) -> ast.ClassDef | None:
    """The dataclass of a group of options: `field(default_factory=Group)`."""
    keywords = value.keywords if isinstance(value, ast.Call) else []
    for made_by in (keyword.value for keyword in keywords if keyword.arg == "default_factory"):
        if isinstance(made_by, ast.Name):
            every = (_classes(file).get(made_by.id) for file in sorted(HERE.glob("*.py")))
            return next((kind for kind in every if kind is not None), None)
    return None


# --- The scripts ---


def bash() -> str:
    cases = "\n".join(f"    {name}) words={_quoted(follow)} ;;" for name, follow in words().items())
    return f"""\
_fova() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {_quoted([*words(), "--help", "--version"])} -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fova fova
"""


def zsh() -> str:
    cases = "\n".join(f"    {name}) follow=({' '.join(each)}) ;;" for name, each in words().items())
    return f"""\
#compdef fova
_fova() {{
  local -a follow
  if (( CURRENT == 2 )); then
    compadd -- {" ".join(words())}
    compadd -- --help --version
    return
  fi
  case "$words[2]" in
{cases}
  esac
  [[ "$PREFIX" == -* || $CURRENT -eq 3 ]] && compadd -- $follow
  _files
}}
compdef _fova fova
"""


def fish() -> str:
    lines = ["complete -c fova -n __fish_use_subcommand -f -a " + _quoted(list(words()))]
    for name, follow in words().items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [
            f"complete -c fova {seen} -l {word.removeprefix('--')}" if word.startswith("--") else
            f"complete -c fova {seen} -a {word}"
            for word in follow
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _quoted(each: list[str]) -> str:
    return f'"{" ".join(each)}"'
