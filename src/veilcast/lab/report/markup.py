"""HTML and SVG, escaped by construction: plain text becomes markup only through `tag`, which escapes it.

Titles, labels and reasons come from files that anyone may have written. A `str` that is given as a child or an
attribute is text; only strings that this module made are `Markup` and go in unchanged. XML cannot write most control
characters, so they, and halves of surrogate pairs, become the replacement character.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final


class Markup(str):
    """Text that is escaped already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` and `for_` lose their underscore, and `aria_label` becomes `aria-label`. Attributes that are
    None are dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children and name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*parts: str) -> Markup:
    return Markup("".join(text(part) for part in parts))


def text(part: str) -> Markup:
    return part if isinstance(part, Markup) else Markup(escape(replace_unwritable(part)))


def replace_unwritable(part: str) -> str:
    """The text with the replacement character for what XML cannot write."""
    return _UNWRITABLE.sub("\ufffd", part)


def slug(*names: str) -> str:
    """The names in letters that are safe in a file name and in an address. Different names stay different."""
    return "-".join(_UNSAFE.sub(lambda found: f"~{ord(found[0]):x}~", name) for name in names)


def _plain(value: str | float) -> str:
    """A coordinate with at most hundredths of a pixel."""
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".")


_VOID: Final = frozenset({"br", "circle", "hr", "input", "line", "meta", "path", "rect", "stop"})
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
