"""Every block has a language, every shell block a decision, and every Python and TOML block parses."""

import tomllib

import pytest
from pages import LANGUAGES, ROOT, blocks, pages

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


@PAGES
def test_every_block_says_what_it_is_and_whether_it_is_run(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: give the block one of the languages {', '.join(LANGUAGES)}"
        if block.language == "sh":
            assert block.decision, (
                f"{block}: write <!-- run --> or <!-- not run: why --> on the line before the block"
            )
        if block.decision in ("not run", "save"):
            assert block.detail, f"{block}: say why the block is not run, or in which file it is saved"


@PAGES
def test_programs_and_configurations_can_be_read(page):
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, str(block), "exec")
        if block.language == "toml":
            tomllib.loads(block.text)


def test_a_block_without_a_decision_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: discrete -->\n```sh\nfova tasks\n```\n\n```sh\nfova tasks\n```\n\n```\noutput\n```\n"
    )
    first, second, third = blocks(page)
    assert (first.decision, first.detail, first.text) == ("run", "discrete", "fova tasks\n")
    assert (second.decision, third.language) == (None, "")
