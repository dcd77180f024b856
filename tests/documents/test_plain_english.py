"""Sentences that a reader stumbled over stay away. STYLE: subject first, one idea, the field's words."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Parts of sentences, without line breaks. What to write instead stands beside them.
STUMBLES = {
    "29 is left": "Without the vote the score falls from 95.4 to 29.2.",
    "all there are are read": "All of them are read.",
    "Who takes part can be written down": "Describe the clients in a TOML file.",
    "made data is then not kept between runs": "Without Minari, data is regenerated on every run.",
    "That ours is not behind is what it says": "At this budget ours scores at least as high.",
    "How the server listens is not": "The aggregation rule makes no difference.",
    "the vote cannot speak": "With alpha = 5 the vote carries no signal.",
    "a single seed is called that": "Single-seed results are labelled.",
    "in the dark and on paper": "in dark mode and in print",
    "in the dark, on paper": "in dark mode and in print",
    "As few devices as get through the clients": "Smallest set of devices that balances the clients.",
    "nobody is silenced": "Every client keeps a minimum weight.",
    "half way from the one it heard": "averaged with the received value",
    "without a word about": "without telling",
    "is what it says, for": "At this budget ...",
    "does not serve to": "is not meant to",
    "said shorter": "the same, shorter",
    "no number serves every task": "no fixed number suits every task",
    "there is data enough": "there is enough data",
    "who is listened to": "how clients are weighted",
    "what follows is worth nothing": "later figures mean nothing",
    "nobody's business": "is left out",
    "in the beginning": "at the start",
}
SUFFIXES = (".md", ".py", ".toml", ".ipynb", ".jinja", ".yml")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name.endswith(SUFFIXES))
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def stumbles(text: str) -> list[str]:
    """The known bad phrases in a text, whatever its line breaks."""
    flat = re.sub(r"[\s#*>]+", " ", text).lower()
    return [phrase for phrase in STUMBLES if phrase.lower() in flat]


def test_no_file_has_a_sentence_that_readers_stumble_over():
    found = {str(path.relative_to(ROOT)): stumbles(path.read_text(encoding="utf-8")) for path in tracked()}
    bad = [f"{path}: {phrase!r}; better: {STUMBLES[phrase]}" for path, list_ in found.items() for phrase in list_]
    assert bad == []


def test_a_phrase_is_found_across_lines():
    assert stumbles("# without it 29 is\n# left") == ["29 is left"]
