"""CONTRIBUTING.md, the import linter and the tests agree on which rooms there are."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/fova"
TESTS = ROOT / "tests"


def is_package(path):
    return path.is_dir() and (path / "__init__.py").is_file()


def rooms():
    """Every folder and top-level module of the package, by name."""
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return modules | {path.name for path in PACKAGE.iterdir() if is_package(path)}


def mapped():
    """The names in the map of CONTRIBUTING.md, from top to bottom."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = re.search(r"^src/fova/\n(.*?)^tests/", page, flags=re.S | re.M)
    assert block is not None, "CONTRIBUTING.md has no map of src/fova"
    return re.findall(r"^  (\S+)  ", block.group(1), flags=re.M)


def layers():
    """The rooms in the order of imports."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return [room.strip() for layer in contract["layers"] for room in re.split(r"[|:]", layer)]


def test_the_map_shows_every_room_and_nothing_else():
    names = mapped()
    assert len(names) == len(set(names))
    assert set(names) == {f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py" for name in rooms()}


def test_the_map_is_in_the_order_of_imports():
    assert [name.removesuffix("/").removesuffix(".py") for name in mapped()] == layers()


def test_every_room_is_in_the_order_of_imports():
    assert sorted(layers()) == sorted(rooms())


DOCUMENTS = "documents"  # the tests of README, docs and the package as a whole, which belong to no room


def test_every_folder_of_tests_belongs_to_a_room():
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path(DOCUMENTS)}
    assert sorted(str(folder) for folder in folders if not is_package(PACKAGE / folder)) == []
    assert {folder.parts[0] for folder in folders if folder.parts} == {
        name for name in rooms() if is_package(PACKAGE / name)
    }


def test_no_folder_of_tests_is_left_behind():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= rooms() | {DOCUMENTS}


def test_every_file_of_tests_has_a_name_of_its_own():
    """pytest imports test files by their names alone, so that two of one name cannot be collected together."""
    names = sorted(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, following in pairwise(names) if name == following] == []
