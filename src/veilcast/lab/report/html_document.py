"""A complete HTML document around the contents of a page. It needs neither network nor script.

A policy in its head forbids the browser to fetch anything, so that no text of an experiment can make it.
"""

from __future__ import annotations

from veilcast.lab.report import style
from veilcast.lab.report.markup import Markup, tag


def html_document(title: str, *body: str, styles: str = "") -> str:
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
