"""Hooks of MkDocs: the pages of docs/ link to files of the repository, and the site has a page for each of these.

A link such as `../src/fova/spaces.py` works where the repository is read in a browser. On the site the file becomes
a page below `repository/`: Markdown and notebooks are rendered, programs are shown as code, other files are copied.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).parents[2]
PLACE = "repository"  # the folder of the site that holds pages about files of the repository
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".service": "ini", "": "text"}
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\S\n]*$", re.MULTILINE | re.DOTALL)
SEARCH = 'data-md-component="search" role="dialog"'
CODE = re.compile(r"(<pre[^>]*>(?:<span></span>)?)<code>")
EMPTY_HEADER = re.compile(r"<th([^>]*)></th>")
OUTSIDE = ("http://", "https://", "mailto:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that a page links to."""
    waiting = [*ALWAYS]
    for file in files.documentation_pages():
        waiting += _linked(Path(file.abs_src_path).read_text(encoding="utf-8"), f"docs/{file.src_uri}")
    known: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in known or path.startswith("docs/"):
            continue
        known.add(path)
        if (ROOT / path).suffix in (".json", ".csv", ".npz"):
            files.append(File.generated(config, f"{PLACE}/{path}", abs_src_path=str(ROOT / path)))
            continue
        content = _content(path)
        files.append(File.generated(config, f"{PLACE}/{_page_name(path)}", content=content))
        if path.endswith((".md", ".ipynb")):
            waiting += _linked(content, path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in generated parts, and point links at the pages of the site."""
    uri = page.file.src_uri
    origin = _origin(uri)
    if uri in reference.PAGES:
        markdown = reference.fill(uri, markdown)

    def pointed(found: re.Match[str]) -> str:
        target = _resolved(found["target"], origin)
        if target is None:
            return found[0]
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"{PLACE}/{_page_name(target)}"
        return f"{found['before']}{posixpath.relpath(place, posixpath.dirname(uri) or '.')}{found['anchor'] or ''}"

    return _outside_fences(markdown, lambda text: LINK.sub(pointed, text))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Mend what hinders screen readers and keyboards in the theme's pages."""
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    output = CODE.sub(r'\1<code tabindex="0">', output)  # long lines can be scrolled with the keyboard
    return EMPTY_HEADER.sub(r"<td\1></td>", output)


def _origin(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if not uri.startswith(f"{PLACE}/"):
        return f"docs/{uri}"
    path = uri.removeprefix(f"{PLACE}/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _linked(text: str, origin: str) -> list[str]:
    """The files of the repository that a Markdown text links to."""
    found: list[str] = []

    def note(part: str) -> str:
        found.extend(filter(None, (_resolved(link["target"], origin) for link in LINK.finditer(part))))
        return part

    _outside_fences(text, note)
    return found


def _resolved(target: str, origin: str) -> str | None:
    """A relative link as a path from the root of the repository; None for other links and for broken ones."""
    if target.startswith(OUTSIDE):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    return path if (ROOT / path).exists() else None  # MkDocs warns about the broken ones


def _page_name(path: str) -> str:
    return path if path.endswith((".md", ".json", ".csv", ".npz")) else f"{path}.md"


def _content(path: str) -> str:
    """A file or folder of the repository as Markdown."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(str(item.relative_to(ROOT)) for item in file.rglob("*") if "__pycache__" not in item.parts)
        return f"# {path}\n\n```text\n" + "\n".join(names) + "\n```\n"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    if file.suffix == ".ipynb":
        return _notebook(json.loads(text))
    fence = "`" * 4
    return f"# {file.name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"


def _notebook(notebook: dict) -> str:
    """A notebook as Markdown: its text, its code and what it printed."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _outside_fences(text: str, change) -> str:
    """The text with `change` applied to all of it but the fenced blocks."""
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])
