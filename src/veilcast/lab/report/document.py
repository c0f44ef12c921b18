"""A whole HTML document around what a page shows. It needs nothing else, and a policy forbids the browser to fetch."""

from __future__ import annotations

from veilcast.lab.report import style
from veilcast.lab.report.markup import Markup, tag


def document(title: str, *body: str, styles: str = "") -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style.COLOURS + style.FIGURE + style.PAGE + styles)),
    )
    sheet = tag("div", tag("header", tag("h1", title), id="top"), *body, class_="sheet")
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", sheet)), lang="en") + "\n"
