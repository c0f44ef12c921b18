"""A complete HTML document around the contents of a page. It needs no network, and can be read without its scripts.

A policy in its head forbids the browser to fetch anything, and to run any script but those that the page was written
with, whose digests it names. So no text of an experiment can do either. Vega makes functions of its expressions, which
needs `unsafe-eval`; the expressions are ours.
"""

from __future__ import annotations

import base64
import hashlib

from veilcast.lab.report import style
from veilcast.lab.report.markup import Markup, tag


def html_document(title: str, *body: str, styles: str = "", scripts: tuple[str, ...] = ()) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(["script-src 'unsafe-eval'", *(f"'sha256-{digest}'" for digest in digests)])
    policy = "; ".join(["default-src 'none'", "style-src 'unsafe-inline'", *([allowed] if scripts else [])])
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style.COLOURS + style.FIGURE + style.PAGE + styles)),
    )
    sheet = tag("div", tag("header", tag("h1", title), id="top"), *body, class_="sheet")
    return (
        "<!doctype html>\n"
        + tag(
            "html",
            head,
            tag("body", tag("main", sheet), *(tag("script", Markup(script)) for script in scripts)),
            lang="en",
        )
        + "\n"
    )
