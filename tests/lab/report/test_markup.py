"""Nothing that was handed in as text is ever read as markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.report.markup import Markup, join, slug, tag

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</style></title></svg><h1>",
    "&lt;b&gt; &amp; &#60;",
    "]]><!--",
    "\x00\x08\x1b[31m\x7f",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_content_and_in_attributes(text: str) -> None:
    tree = ElementTree.fromstring(tag("p", text, title=text))
    assert [child.tag for child in tree.iter()] == ["p"]
    assert list(tree.attrib) == ["title"]
    assert (tree.text or "").count("\ufffd") == sum(not letter.isprintable() for letter in text)


@given(st.text(), st.text())
def test_any_text_is_well_formed_and_comes_back(content: str, value: str) -> None:
    tree = ElementTree.fromstring(tag("p", "|", content, "|", title="|" + value))
    assert (tree.text or "").startswith("|")
    assert tree.attrib["title"].startswith("|")


def test_markup_goes_in_as_it_is_and_is_escaped_only_once() -> None:
    inner = tag("b", "a & b")
    assert tag("p", inner, " & c") == "<p><b>a &amp; b</b> &amp; c</p>"
    assert join(inner, Markup("&amp;")) == "<b>a &amp; b</b>&amp;"


def test_attributes_are_written_as_html_has_them() -> None:
    made = tag("line", x1=1.0, x2=2.126, class_="a b", aria_label="x", id=None)
    assert made == '<line x1="1" x2="2.13" class="a b" aria-label="x"/>'


@given(st.text(), st.text())
def test_a_slug_is_safe_and_tells_names_apart(one: str, other: str) -> None:
    assert not set(slug(one)) & set("/\\.:?#%&<> \"'\n\0")
    assert (slug(one) == slug(other)) == (one == other)


def test_a_plain_name_is_its_own_slug() -> None:
    assert slug("mesh-fig08", "accuracy") == "mesh-fig08-accuracy"
