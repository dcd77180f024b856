"""Pages from templates: the style, the script and the policy that every page carries in itself.

The content security policy forbids the browser every request and every script but the page's own, which it names by
its hash. Only a page that `fova watch` serves may ask the server that sent it for news.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from fova.reports import palette
from fova.reports.markup import Markup, escaped

POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Live:
    """A page that renews itself: what it shows, and how often it asks for news."""

    version: str
    seconds: int
    progress: float | None = None  # share of the rounds that are done; None for a page about several runs
    state: str = ""
    back: str = ""  # address of the table of runs


def render(template: str, live: Live | None = None, **content: Any) -> str:
    """The page that a template makes of its content."""
    style, script = _style(), _script(live is not None)
    return (
        _environment()
        .get_template(template)
        .render(css=Markup(style), script=Markup(script), policy=policy(live is not None), live=live, **content)
    )


@cache
def policy(live: bool) -> str:
    """The content security policy of a page."""
    news = "; connect-src 'self'" if live else ""
    return f"{POLICY}; style-src {_hash(_style())}; script-src {_hash(_script(live))}{news}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _style() -> str:
    return palette.css() + "\n" + _resource("page.css")


@cache
def _script(live: bool) -> str:
    return _resource("page.js") + (_resource("live.js") if live else "")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        finalize=escaped,  # as in the charts, so that the page has one spelling of every character
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _resource(name: str) -> str:
    return resources.files("fova.reports").joinpath(name).read_text(encoding="utf-8")
