"""The pages about the theory must not fall behind the program."""

import re
from pathlib import Path

from fova.paper.theory.table import TOPICS

DOCS = Path(__file__).parents[3] / "docs"
TEXT = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in ("theory.md", "theory-notebook.md"))


def test_the_page_lists_every_claim() -> None:
    for group in TOPICS.values():
        for statement in group:
            assert statement.claim.replace("|", "\\|") in TEXT, statement.claim


def test_the_page_shows_pictures_that_exist() -> None:
    shown = set(re.findall(r"\]\((images/[^)]+)\)", TEXT))
    assert len(shown) == 4
    assert all((DOCS / name).is_file() for name in shown)


def test_every_counter_example_is_named_on_the_page() -> None:
    examples = {s.counter_example.__name__ for group in TOPICS.values() for s in group if s.counter_example}
    variants = {"flip_flop_of_the_largest_reward", "flip_flop_beside_a_rest", "hidden_exit_against_staying"}
    assert {name for name in examples - variants if f"`{name}`" not in TEXT} == set()
