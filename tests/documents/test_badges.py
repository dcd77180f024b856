"""The badges of the README are files of the repository, and they say what the package says."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SAID = {
    "version": PROJECT["version"],
    "python": PROJECT["requires-python"].removeprefix(">=") + " or newer",
    "licence": PROJECT["license"],
}


@pytest.mark.parametrize("name", SAID)
def test_a_badge_says_what_the_package_says(name):
    drawn = (ROOT / f"docs/images/badge-{name}.svg").read_text()
    assert re.findall(r"<text [^>]*>(.*?)</text>", drawn) == [name, SAID[name]]
    assert f"![{name} {SAID[name]}](docs/images/badge-{name}.svg)" in (ROOT / "README.md").read_text()
