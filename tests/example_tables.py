"""Tables of the examples' pages, made from committed figures by the examples' own scripts."""

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed_and_made(example, monkeypatch):
    """The table on the page of an example, and the one that its compare.py makes of results/EXAMPLE.json."""
    folder = ROOT / "examples" / example
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "make_data", raising=False)  # both examples have one
    found = importlib.util.spec_from_file_location(f"compare_{example}", folder / "compare.py")
    compare = importlib.util.module_from_spec(found)
    found.loader.exec_module(compare)
    monkeypatch.delitem(sys.modules, "make_data")
    rows = json.loads((ROOT / "results" / f"{example}.json").read_text())["rows"]
    page = (folder / "README.md").read_text(encoding="utf-8")
    begin, end = f"<!-- table of results/{example}.json -->\n", "\n<!-- end of table -->"
    return page.split(begin)[1].split(end)[0], compare.table(rows)
