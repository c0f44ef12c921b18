from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from support.recorded_network import PUBLISHER, READERS, write_loud_network
from veilcast.lab.audit import audit, limits, reader
from veilcast.lab.audit.audit import Audit
from veilcast.lab.audit.observed import ObservedCapture
from veilcast.lab.audit.operator_files import ListedMember
from veilcast.lab.report import audit_page, network_picture
from veilcast.lab.report.network_picture import NodeDot

MEMBERS = (ListedMember(PUBLISHER, "publisher"), *(ListedMember(node, "subscriber") for node in READERS))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> ObservedCapture:
    return reader.observe([write_loud_network(tmp_path_factory.mktemp("net") / "<&>")], 10**9)


@pytest.fixture(scope="module")
def found(seen: ObservedCapture) -> Audit:
    return audit.audit_capture(seen, members=MEMBERS).worst


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(found: Audit) -> None:
    text = audit_page.render_page(found, [limits.parse_limit("auc>0.6"), limits.parse_limit("set<1")])
    tree = ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))
    assert not re.search(r"https?:|<script|src=|@import", text)
    assert "&lt;&amp;&gt;" in text
    items = ["".join(item.itertext()) for item in tree.iter("li")]
    assert any(item.startswith("auc>0.6: failed") for item in items)
    assert any(item.startswith("set<1: passed") for item in items)
    cells = ["".join(cell.itertext()) for cell in tree.iter("th")]
    assert PUBLISHER in cells
    assert {each.attack for each in found.attackers} <= set(cells)


def test_the_network_is_drawn_with_those_who_are_named(found: Audit) -> None:
    text = audit_page.render_page(found)
    [drawn] = re.findall(r"<svg[^>]*aria-label=.*?</svg>", text, re.DOTALL)
    tree = ElementTree.fromstring(drawn)
    titles = [title.text or "" for title in tree.iter("title")]
    assert f"{PUBLISHER}: named as publisher" in titles
    assert len([title for title in titles if "named" in title]) == found.wire.nodes
    assert sum(path.get("class") == "note" for path in tree.iter("path")) == len(found.flows)


def test_without_members_the_page_says_that_these_are_scores_only(seen: ObservedCapture, found: Audit) -> None:
    assert "scores only" not in audit_page.render_page(found)
    assert "scores only" in audit_page.render_page(audit.audit_capture(seen).worst)


def test_a_missed_reader_has_a_ring_and_a_label_is_text() -> None:
    drawn = network_picture.draw_network(
        [NodeDot("other", "<b>", True), NodeDot("publisher", "p")], [(0, 1)], {(1, 0): 3}, "a & b"
    )
    tree = ElementTree.fromstring(drawn)
    assert sum(circle.get("class") == "missed" for circle in tree.iter("circle")) == 1
    assert [title.text for title in tree.iter("title")] == ["a & b", "3 notes", "<b>", "p"]


def test_a_doubt_stands_at_the_top_of_the_page(found: Audit) -> None:
    text = audit_page.render_page(found, remarks=["left out: 1 node"], doubts=["1 node (x) is not listed"])
    assert '<p class="notice">In doubt: 1 node (x) is not listed.</p>' in text.split("What to change")[0]
    assert "left out: 1 node" in text.split("How it was read")[1]
