from pathlib import Path
from xml.etree import ElementTree

import pytest

from fova.errors import FovaError
from fova.paper.marked import MARKED, documents, main, pictures, renewed
from fova.paper.tables import table
from made_results import made_results, made_run

ROOT = Path(__file__).parents[2]
MARKS = "before\n<!-- results/made.json: main -->\nstale\n<!-- end of results -->\nafter\n"


@pytest.mark.parametrize("document", documents(ROOT), ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_in_the_documents_are_those_of_the_result_files(document):
    text = document.read_text(encoding="utf-8")
    assert renewed(text, ROOT, document.parent) == text, "run: make results-tables"
    for picture, content in pictures(text, ROOT).items():
        assert picture.read_text(encoding="utf-8") == content, "run: make results-tables"


def test_a_marked_table_is_made_from_its_result_file(tmp_path):
    results = made_results([made_run("a", "x", seed, 5.0) for seed in range(2)])
    results.save(tmp_path / "results/made.json")
    text = renewed(MARKS, tmp_path, tmp_path)
    assert text.startswith("before\n<!-- results/made.json: main -->\n")
    assert table(results, "main").markdown() in text
    assert "stale" not in text
    assert text.endswith("<!-- end of results -->\nafter\n")
    assert renewed(text, tmp_path, tmp_path) == text
    assert MARKED.search(text) is not None


def test_a_missing_result_file_and_table_are_named(tmp_path):
    with pytest.raises(FovaError, match=r"made\.json"):
        renewed(MARKS, tmp_path, tmp_path)
    made_results([made_run("a", "x", 0, 5.0)]).save(tmp_path / "results/made.json")
    with pytest.raises(FovaError, match="'mian'"):
        renewed(MARKS.replace("main", "mian"), tmp_path, tmp_path)


def test_marked_curves_become_a_picture_with_a_line_for_every_variant(tmp_path):
    runs = [made_run(case, variant, seed, 5.0 + seed) for case in "ab" for variant in "xy" for seed in range(2)]
    made_results(runs, name="made").save(tmp_path / "results/made.json")
    document = tmp_path / "docs/algorithms/x.md"
    document.parent.mkdir(parents=True)
    document.write_text(MARKS.replace("main", "curves"))
    main(tmp_path)
    picture = tmp_path / "docs/images/made-curves.svg"
    assert "](../images/made-curves.svg)" in document.read_text()
    tree = ElementTree.parse(picture)
    space = {"svg": "http://www.w3.org/2000/svg"}
    panels = tree.findall("svg:svg", space)
    assert len(panels) == 2
    for panel in panels:
        assert len(panel.findall("svg:g[@class]", space)) == 2
    written = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "b", "x", "y"} <= set(written)
    before = picture.read_bytes()
    main(tmp_path)
    assert picture.read_bytes() == before


def test_no_page_denies_the_results_that_the_readme_shows():
    pages = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
    assert len(pages) > 5
    for page in pages:
        assert "no table" not in page.read_text(encoding="utf-8").lower(), page.name
