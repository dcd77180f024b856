"""Mutation testing: change the code in one place at a time and see whether the tests notice.

    make mutants FILES="src/fova/spaces.py src/fova/settings.py"

Every mutant is tried in a copy of the tree; the working tree is never written to. Results are kept in `.mutants/`,
and a run that was stopped goes on where it stopped: a mutant that was killed is tried again only when its file
changes, a survivor when the file or its tests change. `equivalent_mutants.toml` lists the ones no test can kill.

The libraries, the package and the tests are imported once, and every mutant is tested in a fork of that process.
There the changed function gets its new code. Where the change is in code that runs on import, the package and the
tests are imported anew. Only tests that reach the changed function run: first those that reach the changed line,
the quickest before the others, and the first failure ends them. A test that reaches the function in another process
alone does not count. `--sample 25` tries 25 mutants of each file, always the same ones.
"""

import argparse
import ast
import copy
import functools
import gc
import hashlib
import importlib
import inspect
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".mutants"
RECORD = KEPT / "record.jsonl"
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
    imports = re.compile(
        rf"\b(from {package}\.{name} import|from {package} import .*\b{name}\b|import {package}\.{name})\b"
    )
    every = sorted(folder.glob("test_*.py"))
    found = [p for p in every if p.name in mirrors or imports.search(p.read_text())]
    return [str(path.relative_to(ROOT)) for path in found or every]


class Reach:
    """A pytest plugin that writes down which lines of a file every test reaches, and how long the test takes.

    A function that JAX has compiled or whose result is cached is not reached again, so tests start without them.
    What a test's fixtures reach counts for all tests of the file, because fixtures may be shared.
    """

    def __init__(self, source: Path, record: Path) -> None:
        self.source, self.record = str(source), record
        self.reached: set[int] = set()
        self.fixtures: set[int] = set()
        self.lines: dict[str, set[int]] = {}
        self.seconds: dict[str, float] = {}
        self._trace(self._entered)

    def pytest_collection_finish(self) -> None:
        self.imported, self.reached = self.reached, set()

    def pytest_runtest_protocol(self, item: Any) -> None:
        import jax

        jax.clear_caches()
        for name, module in list(sys.modules.items()):
            if name.startswith("fova"):
                for value in vars(module).values():
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        self.reached = set()
        self.started = time.process_time()
        self._trace(self._entered)  # a test may have ended the tracing

    def pytest_runtest_call(self, item: Any) -> None:
        self.fixtures |= self.reached

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.lines[nodeid] = self.reached
        self.seconds[nodeid] = time.process_time() - self.started

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._trace(None)
        if exitstatus != 0:
            return
        lines = {test: sorted(reached | self.fixtures) for test, reached in self.lines.items()}
        found = {"imported": sorted(self.imported), "lines": lines, "seconds": self.seconds}
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.record.write_text(json.dumps(found))

    def _trace(self, function: Any) -> None:
        sys.settrace(function)
        threading.settrace(function)

    def _entered(self, frame: Any, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename == self.source else None

    def _step(self, frame: Any, event: str, argument: Any) -> Any:
        self.reached.add(frame.f_lineno)
        return self._step


class InOrder:
    """A pytest plugin that runs the given tests in the given order, and no others."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid])


class Reached(NamedTuple):
    """What the tests of a file reach in it."""

    imported: set[int]  # lines that run when the package and the tests are imported
    lines: dict[str, set[int]]
    seconds: dict[str, float]

    def tests(self, line: int, body: range | None) -> list[str]:
        """The tests that reach a function, in the order in which they run for a change of the line.

        Without a function, all of them: what is set on import concerns tests that reach no line afterwards, too.
        """
        tests = [test for test, lines in self.lines.items() if body is None or not lines.isdisjoint(body)]
        return sorted(tests, key=lambda test: (line not in self.lines[test], self.seconds[test]))


def reached(file: str, tests: list[str], tree: Path) -> Reached:
    """Run the tests once and see what they reach; what is known already is not run again."""
    found = Reached(set(), {}, {})
    for test in tests:
        contents = file.encode(), (tree / file).read_bytes(), (tree / test).read_bytes()
        record = KEPT / "reach" / f"{digest(*contents)}.json"
        plugin = functools.partial(Reach, tree / file, record)
        if not record.exists() and run_tests(tree, [test], Limits(), plugin).code != 0:
            run_tests(tree, [test], Limits(), show=True)
            sys.exit(f"{file}: {test} must pass before mutants can be tried.")
        entry = json.loads(record.read_text())
        found.imported.update(entry["imported"])
        found.lines.update({test: set(lines) for test, lines in entry["lines"].items()})
        found.seconds.update(entry["seconds"])
    return found


class Limits(NamedTuple):
    """Seconds of a mutant's tests. Those of the processor count, which do not depend on other processes."""

    processor: float = 3600.0
    clock: float = 3600.0


class Outcome(NamedTuple):
    code: int  # 0 where all tests pass
    processor: float
    clock: float


def run_tests(
    tree: Path,
    tests: list[str],
    limits: Limits,
    plugin: Callable[[], Any] | None = None,
    code: dict[tuple[str, int], CodeType] | None = None,
    show: bool = False,
) -> Outcome:
    """Run tests of the tree in a fork of this process, with a plugin of pytest.

    `code` is the new code of functions that are imported already; without it everything is imported anew.
    """
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            if code is None or not _replaced(code):
                _forget(tree)
            status = _in_child(tests, limits, plugin, show)
        finally:
            os._exit(status)
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


def _in_child(tests: list[str], limits: Limits, plugin: Callable[[], Any] | None, show: bool) -> int:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not show:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    seconds = int(limits.processor)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    return _pytest("-x", *tests, plugins=[plugin()] if plugin else [])


def _pytest(*arguments: str, plugins: Sequence[Any] = ()) -> int:
    import pytest

    quietly = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-m", "not slow"]
    quietly.append(
        f"--basetemp={Path.cwd().parent / 'files' / str(os.getpid())}"
    )  # nothing is looked for or removed
    return int(pytest.main([*quietly, *arguments], plugins=list(plugins)))


def enter(tree: Path) -> None:
    """Make the copy the tree that is imported. Mutated programs stay out of the user's cache."""
    os.chdir(tree)
    os.environ |= {"FOVA_CACHE": str(KEPT / "cache"), "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'tests'}"}
    sys.path[:0] = [str(tree / "src"), str(tree / "tests")]


def import_tests(tests: list[str]) -> None:
    """Import tests, and the package with them, so that forks of this process need not."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        code = _pytest("--collect-only", *tests)
    if code != 0:
        sys.exit(f"{' '.join(tests)}: no tests, or they cannot be imported.")
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():  # its threads would not be in the forks
        sys.exit(f"One of {' '.join(tests)} computes with JAX when it is imported.")
    gc.freeze()  # forks need not look through all of this for garbage


def _forget(tree: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tree}/"):
            del sys.modules[name]


# --- New code in functions that are imported already ------------------------------------------------------


def function_bodies(source: bytes) -> list[range]:
    """The lines of the bodies of functions and methods, without those that are inside of others."""

    def below(node: ast.AST) -> Iterator[range]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield range(child.body[0].lineno, child.end_lineno + 1)
            elif isinstance(child, ast.stmt):
                yield from below(child)

    return list(below(ast.parse(source)))


def changed_code(before: bytes, after: bytes, path: Path) -> dict[tuple[str, int], CodeType]:
    """The new code of the changed functions, by the name and first line of the old."""

    def functions(code: CodeType) -> Iterator[CodeType]:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                is_function = constant.co_flags & inspect.CO_NEWLOCALS
                yield from [constant] if is_function else functions(constant)

    old, new = (list(functions(compile(source, str(path), "exec"))) for source in (before, after))
    return {(a.co_qualname, a.co_firstlineno): b for a, b in zip(old, new, strict=True) if a != b}


def _replaced(code: dict[tuple[str, int], CodeType]) -> bool:
    """Give the functions their new code; whether all of them were found and took it."""
    found = set()
    gc.unfreeze()  # lists the frozen objects, too
    objects = gc.get_objects()
    gc.freeze()
    for thing in objects:
        if isinstance(thing, FunctionType):
            old = thing.__code__
            key = (old.co_qualname, old.co_firstlineno)
            if key in code and old.co_filename == code[key].co_filename:
                if old.co_freevars != code[key].co_freevars:
                    return False
                thing.__code__ = code[key]
                found.add(key)
    return found == set(code)


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


def stale(judged: list[dict[str, str]]) -> Iterator[str]:
    """The entries of `equivalent_mutants.toml` whose mutants do not exist any more."""
    for entry in judged:
        path = ROOT / entry["file"]
        source = path.read_bytes() if path.exists() else b""
        lines = source.decode().splitlines()
        mutants = mutants_of(entry["file"], source)
        if not any(judged_equivalent(mutant, lines[mutant.line - 1], [entry]) for mutant in mutants):
            yield f"{entry['file']}  {entry['line']}  {entry['change']}"


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
    digests = digest(source), digest(*((tree / test).read_bytes() for test in tests))
    results = known(*digests)
    reach: Reached | None = None
    killed = equivalent = 0
    for number, mutant in enumerate(mutants):
        if judged_equivalent(mutant, lines[mutant.line - 1], judged):
            equivalent += 1
            continue
        name = f"{mutant.line}:{mutant.column} {mutant.change}"
        if name not in results:
            reach = reach or reached(file, tests, tree)
            target.write_bytes(mutant.applied(source))
            os.utime(target, (number, number))  # or Python might take the bytecode of another mutant
            results[name] = _is_killed(mutant, source, reach, tree)
            remember(source=digests[0], tests=digests[1], mutant=name, killed=results[name])
            target.write_bytes(source)
        if results[name]:
            killed += 1
        else:
            print(f"survived  {mutant}", flush=True)
    return Count(len(mutants), killed, equivalent, len(mutants) - killed - equivalent)


def _is_killed(mutant: Mutant, source: bytes, reach: Reached, tree: Path) -> bool:
    body = next((body for body in function_bodies(source) if mutant.line in body), None)
    code = None
    if body is None or not reach.imported.isdisjoint(body):
        body = None
    else:
        code = changed_code(source, mutant.applied(source), tree / mutant.file)
    tests = reach.tests(mutant.line, body)
    if not tests:
        return False
    seconds = 10 + 5 * sum(reach.seconds[test] for test in tests)
    files = sorted({test.split("::")[0] for test in tests})
    return run_tests(tree, files, Limits(seconds, 600 + 100 * seconds), lambda: InOrder(tests), code).code != 0


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
    for entry in stale(judged):
        print(f"stale     {entry}", flush=True)
    for library in (*LIBRARIES, *TEST_LIBRARIES):
        with suppress(ImportError):
            importlib.import_module(library)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "fova"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        enter(tree)
        (Path(folder) / "files").mkdir()
        total = Count()
        for file in files:
            tests = options.tests or tests_of(file)
            if not tests:
                print(f"{file}: no test file mirrors or imports it", flush=True)
                continue
            import_tests(tests)
            count = try_file(file, tests, tree, judged, options.sample)
            print(f"{file}: {count}", flush=True)
            total = Count(*(a + b for a, b in zip(total, count)))
    print(f"all: {total}")


if __name__ == "__main__":
    main()
