import csv
import io

from fova.reports.sheet import Sheet

SHEET = Sheet(
    "Two & more",
    "scale tiny, 95 %",
    ("", "a_b", "c"),
    (("x|y", "1 [0, 2]", "3, 4"), ("z", "5", "6")),
    frozenset({(1, 2)}),
)


def test_markdown():
    assert SHEET.markdown() == (
        "**Two & more**\n\n"
        "|  | a_b | c |\n| --- | ---: | ---: |\n| x\\|y | 1 [0, 2] | 3, 4 |\n| z | 5 | **6** |\n\n"
        "*scale tiny, 95 %*\n"
    )


def test_csv_reads_back_and_says_its_scale():
    first, *rows = csv.reader(io.StringIO(SHEET.csv()))
    assert "scale tiny" in first[0]
    assert rows == [["", "a_b", "c"], ["x|y", "1 [0, 2]", "3, 4"], ["z", "5", "6"]]


def test_latex_is_escaped_and_marks_what_stands_out():
    text = SHEET.latex()
    assert r"\caption{Two \& more. scale tiny, 95 \%}" in text
    assert r" & a\_b & c \\" in text
    assert r"z & 5 & \textbf{6} \\" in text
    assert r"\begin{tabular}{lrr}" in text


def test_save_writes_all_three(tmp_path):
    assert [path.suffix for path in SHEET.save(tmp_path / "main")] == [".md", ".csv", ".tex"]
    assert (tmp_path / "main.md").read_text() == SHEET.markdown()
