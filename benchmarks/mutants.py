"""Mutation testing: change the code in one place at a time and see whether the tests notice.

    make mutants FILES="src/fova/spaces.py src/fova/settings.py"

Every mutant is tried in a copy of the tree; the working tree is never written to. Results are kept in `.mutants/`,
and a run that was stopped goes on where it stopped: a mutant that was killed is tried again only when its file
changes, a survivor when the file or its tests change. `equivalent_mutants.toml` lists the ones no test can kill.

The libraries are imported once, and every mutant is tested in a fork of that process: JAX is not started anew each
time. The tests that reach the changed line run first, the quickest of them before the others, and the first failure
ends them. `--sample 25` tries 25 mutants of each file, always the same ones.
"""

import argparse
import ast
import copy
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / ".mutants" / "record.jsonl"
EQUIVALENT = ROOT / "benchmarks" / "equivalent_mutants.toml"
NOT_COPIED = (".git", ".venv", ".mutants", "runs", "__pycache__", ".*_cache", ".hypothesis", ".jax-cache")
# Imported once. Importing them computes nothing, so that JAX has no threads yet when the process forks.
LIBRARIES = ("numpy", "jax", "equinox", "optax", "safetensors.numpy", "gymnasium", "h5py", "tyro", "rich.progress")
TEST_LIBRARIES = ("pytest", "hypothesis.extra.numpy", "scipy.stats", "rliable.library", "flwr.app", "tensorboardX")

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    file: str
    line: int
    column: int
    before: str
    after: str
    start: int  # bytes of the source that are replaced
    end: int

    @property
    def change(self) -> str:
        return f"{self.before} -> {self.after}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.change}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


# --- Mutants of a file ------------------------------------------------------------------------------------


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """All mutants of a source file, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, mutated in _mutations(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(source[start:end].decode().split())
        after = ast.unparse(mutated)
        if isinstance(mutated, ast.expr) and not isinstance(mutated, ast.Constant):
            after = f"({after})"
        found.append(Mutant(file, node.lineno, node.col_offset, before, after, start, end))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def _mutations(tree: ast.AST) -> Iterator[tuple[Any, ast.AST]]:
    for node in _mutable(tree):
        if isinstance(node, ast.Compare):
            for i, operator in enumerate(node.ops):
                mutated = copy.deepcopy(node)
                mutated.ops[i] = SWAPPED[type(operator)]()
                yield node, mutated
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED:
            yield node, _with(node, op=SWAPPED[type(node.op)]())
        elif isinstance(node, ast.UnaryOp):
            yield node, node.operand
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, ast.Constant(_other(node.value))
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield node, ast.Return(ast.Constant(None))
        tests = [getattr(node, "test", None)] if isinstance(node, ast.If | ast.IfExp | ast.While) else []
        tests += node.ifs if isinstance(node, ast.comprehension) else []
        for test in tests:
            if isinstance(test, ast.Name | ast.Call | ast.Attribute):  # the others are mutated themselves
                yield test, ast.UnaryOp(ast.Not(), test)


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without annotations, decorators and texts."""
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _mutable(child)


def _other(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) or value == 0.0 else 2 * value


def _with(node: Any, **fields: Any) -> Any:
    mutated = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(mutated, name, value)
    return mutated


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# --- Tests of a file --------------------------------------------------------------------------------------


def tests_of(file: str) -> list[str]:
    """The test files of a source file's folder that mirror or import it; where there are none, the whole folder."""
    module = Path(file).relative_to("src/fova").with_suffix("")
    folder, name = ROOT / "tests" / module.parent, module.name
    mirrors = {f"test_{name}.py", f"test_{module.parent.name}_{name}.py"}
    package = ".".join(("fova", *module.parent.parts))
    imports = (f"from {package}.{name} import", f"from {package} import {name}", f"import {package}.{name}")
    every = sorted(folder.glob("test_*.py"))
    found = [p for p in every if p.name in mirrors or any(line in p.read_text() for line in imports)]
    return [str(path.relative_to(ROOT)) for path in found or every]


class Reach:
    """A pytest plugin that writes down which lines of a file every test reaches, and how long the test takes.

    A function that JAX has compiled is not reached again, so a line that few tests reach may concern more of them.
    """

    def __init__(self, source: Path, record: Path) -> None:
        self.source, self.record = str(source), record
        self.lines: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.reached: set[int] = set()
        self.started = time.process_time()
        sys.settrace(self._entered)
        threading.settrace(self._entered)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)
        self.lines[nodeid] = sorted(self.reached)
        self.seconds[nodeid] = time.process_time() - self.started

    def pytest_sessionfinish(self) -> None:
        self.record.write_text(json.dumps({"lines": self.lines, "seconds": self.seconds}))

    def _entered(self, frame: Any, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename == self.source else None

    def _step(self, frame: Any, event: str, argument: Any) -> Any:
        self.reached.add(frame.f_lineno)
        return self._step


class InOrder:
    """A pytest plugin that runs the tests that reach a line first, and the quickest of them before the others."""

    def __init__(self, line: int, record: Path) -> None:
        reached = json.loads(record.read_text())
        self.line, self.lines, self.seconds = line, reached["lines"], reached["seconds"]

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda i: (self.line not in self.lines.get(i.nodeid, ()), self.seconds.get(i.nodeid, 0.0)))


class Limits(NamedTuple):
    """Seconds of a mutant's tests. Those of the processor count, which do not depend on other processes."""

    processor: float = 3600.0
    clock: float = 3600.0


class Outcome(NamedTuple):
    code: int  # 0 where all tests pass
    processor: float
    clock: float


def run_tests(tree: Path, tests: list[str], limits: Limits, plugin: Any = None, show: bool = False) -> Outcome:
    """Run tests of the tree in a fork of this process, with a plugin of pytest."""
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            code = _in_child(tree, tests, limits, plugin, show)
        finally:
            os._exit(code)
    status, usage = 0, None
    try:
        while usage is None:
            done, status, measured = os.wait4(child, os.WNOHANG)
            if done:
                usage = measured
            elif time.monotonic() - started > limits.clock:
                os.killpg(child, signal.SIGKILL)
                limits = limits._replace(clock=float("inf"))
            else:
                time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):  # the tests, if this run is stopped, and what they started
            os.killpg(child, signal.SIGKILL)
    return Outcome(status, usage.ru_utime + usage.ru_stime, time.monotonic() - started)


def _in_child(tree: Path, tests: list[str], limits: Limits, plugin: Any, show: bool) -> int:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(tree)
    # Mutated programs stay out of the user's cache.
    os.environ |= {"FOVA_CACHE": str(tree / ".cache"), "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'tests'}"}
    sys.path[:0] = [str(tree / "src"), str(tree / "tests")]
    if not show:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    seconds = int(limits.processor)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    import pytest

    quietly = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
    return int(pytest.main([*quietly, *tests], plugins=[plugin] if plugin else []))


# --- What is known already --------------------------------------------------------------------------------


def known(file_digest: str, tests_digest: str) -> dict[str, bool]:
    """Whether a mutant was killed, for those that need not be tried again."""
    found: dict[str, bool] = {}
    for line in RECORD.read_text().splitlines() if RECORD.exists() else ():
        with suppress(ValueError):  # a line that was cut off when a run was stopped
            entry = json.loads(line)
            if entry["source"] == file_digest and (entry["killed"] or entry["tests"] == tests_digest):
                found[entry["mutant"]] = entry["killed"]
    return found


def remember(**entry: Any) -> None:
    RECORD.parent.mkdir(exist_ok=True)
    with RECORD.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def judged_equivalent(mutant: Mutant, line: str, judged: list[dict[str, str]]) -> bool:
    wanted = (mutant.file, line.strip(), mutant.change)
    return any((entry["file"], entry["line"], entry["change"]) == wanted for entry in judged)


def digest(*contents: bytes) -> str:
    return hashlib.blake2b(b"\0".join(contents), digest_size=16).hexdigest()


# --- A run ------------------------------------------------------------------------------------------------


class Count(NamedTuple):
    mutants: int = 0
    killed: int = 0
    equivalent: int = 0
    survived: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{number} {name}" for name, number in self._asdict().items())


def try_file(file: str, tests: list[str], tree: Path, judged: list[dict[str, str]], sample: int | None) -> Count:
    """Try all mutants of a file, or a sample of them, and print those that survive."""
    target = tree / file
    source = target.read_bytes()
    lines = source.decode().splitlines()
    mutants = mutants_of(file, source)
    if sample is not None:
        random.Random(file).shuffle(mutants)  # a larger sample has the mutants of a smaller one
        mutants = sorted(mutants[:sample])
    reach = tree / "reach.json"
    digests = digest(source), digest(*((tree / test).read_bytes() for test in tests))
    results = known(*digests)
    limits: Limits | None = None
    killed = equivalent = 0
    for number, mutant in enumerate(mutants):
        if judged_equivalent(mutant, lines[mutant.line - 1], judged):
            equivalent += 1
            continue
        name = f"{mutant.line}:{mutant.column} {mutant.change}"
        if name not in results:
            limits = limits or _measured(file, tests, tree, reach)
            target.write_bytes(mutant.applied(source))
            os.utime(target, (number, number))  # or Python might take the bytecode of another mutant
            results[name] = run_tests(tree, tests, limits, InOrder(mutant.line, reach)).code != 0
            remember(source=digests[0], tests=digests[1], mutant=name, killed=results[name])
            target.write_bytes(source)
        if results[name]:
            killed += 1
        else:
            print(f"survived  {mutant}", flush=True)
    return Count(len(mutants), killed, equivalent, len(mutants) - killed - equivalent)


def _measured(file: str, tests: list[str], tree: Path, reach: Path) -> Limits:
    """What the tests may take. They run twice: the first run compiles, the second sees which lines they reach."""
    for plugin in (None, Reach(tree / file, reach)):
        plain = run_tests(tree, tests, Limits(), plugin)
        if plain.code != 0:
            run_tests(tree, tests, Limits(), plugin, show=True)
            sys.exit(f"{file}: {' '.join(tests)} must pass before mutants can be tried.")
    return Limits(10 + 5 * plain.processor, 60 + 20 * plain.clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files of src/fova; all of them if none are given")
    parser.add_argument("--tests", nargs="+", help="test files to run instead of those that mirror a file")
    parser.add_argument("--sample", type=int, help="how many mutants of each file to try, drawn at random")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # removes the copy
    package = ROOT / "src" / "fova"
    paths = [Path(file).resolve() for file in options.files] or sorted(package.rglob("*.py"))
    for path in paths:
        if not (path.is_file() and path.is_relative_to(package)):
            parser.error(f"{path} is no file of {package}")
    files = [str(path.relative_to(ROOT)) for path in paths]
    judged = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    for library in (*LIBRARIES, *TEST_LIBRARIES):
        with suppress(ImportError):
            importlib.import_module(library)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "fova"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        total = Count()
        for file in files:
            tests = options.tests or tests_of(file)
            if not tests:
                print(f"{file}: no test file mirrors or imports it", flush=True)
                continue
            count = try_file(file, tests, tree, judged, options.sample)
            print(f"{file}: {count}", flush=True)
            total = Count(*(a + b for a, b in zip(total, count)))
    print(f"all: {total}")


if __name__ == "__main__":
    main()
