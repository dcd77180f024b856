"""Writing HTML and SVG so that what users wrote can never become markup: every text is escaped exactly once."""

import html
from collections.abc import Iterable

_VOID = {"img", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str | Iterable[str], **attributes: str | float | None) -> Markup:
    """`<name ...>children</name>`. Plain text among the children is escaped; attributes that are None are left out.

    An attribute that Python cannot name takes a trailing underscore (`class_`); other underscores become hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | Iterable[str]]) -> Markup:
    """All children one after another."""
    return Markup("".join(_escaped(child) if isinstance(child, str) else join(child) for child in children))


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)


def _short(value: str | float) -> str:
    """Coordinates need no more than two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
