"""Writing SVG and HTML so that text from users can never become markup: every text is escaped exactly once."""

import html
from collections.abc import Iterable

from markupsafe import Markup


def element(name: str, /, *children: str | Iterable[str], **attributes: str | float | None) -> Markup:
    """`<name ...>children</name>`. Plain text among the children is escaped; attributes that are None are left out.

    An attribute that Python cannot name takes a trailing underscore (`class_`); other underscores become hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | Iterable[str]]) -> Markup:
    """All children one after another."""
    return Markup("".join(escaped(child) if isinstance(child, str) else join(child) for child in children))


def escaped(value: object) -> Markup:
    """Text with its special characters replaced; markup as it is."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def _short(value: str | float) -> str:
    """Coordinates need no more than two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
