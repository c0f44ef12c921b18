from __future__ import annotations

import json
from pathlib import Path

import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab.audit import operator_files
from veilcast.lab.audit.operator_files import ListedMember, OverlayLink

MEMBERS = (ListedMember("10.0.0.1:4000", "publisher", "news"), ListedMember("10.0.0.2:4000", "subscriber", "news"))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"node": each.node, "role": each.role, "topic": each.topic} for each in MEMBERS]),
        "node,role,topic,town\n10.0.0.1:4000,publisher,news,Ulm\n10.0.0.2:4000,subscriber,news,\n",
        "\ufeffrole,topic,node\r\npublisher,news,10.0.0.1:4000\r\nsubscriber,news,10.0.0.2:4000\r\n",
    ],
)
def test_members_come_as_json_or_as_csv(text: str, tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text(text, encoding="utf-8")
    assert operator_files.read_members(path) == MEMBERS


def test_the_output_of_net_status_serves_as_members(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    nodes = [{"node": "01", "address": "127.1.0.1:4000", "role": "publisher", "up": True, "neighbours": 3}]
    path.write_text(json.dumps({"up": 1, "pids": [5], "nodes": nodes}))
    assert operator_files.read_members(path) == (ListedMember("127.1.0.1:4000", "publisher"),)


@pytest.mark.parametrize("role", ["Subscriber", " subscriber", "subscribers"])
def test_a_role_that_is_almost_one_is_refused(role: str, tmp_path: Path) -> None:
    """A subscriber that counts as a member without a role makes the attackers who find it wrong."""
    path = tmp_path / "members.csv"
    path.write_text(f"node,role\na,publisher\nb,subscriber\nc,{role}\n")
    with pytest.raises(ConfigError, match=r"entry 3: the role is .*; write 'subscriber'"):
        operator_files.read_members(path)


def test_a_link_counts_once_whichever_way_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("u,v\nb,a\na,b\nb,c\n")
    assert operator_files.read_links(path) == (OverlayLink("a", "b"), OverlayLink("b", "c"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node,role\n",
        "node,role\na,reader\n",
        "name,job\na,publisher\n",
        "node,role\na,\n",
        "[1]",
        "{}",
        '[{"node": "a"}]',
        '[{"node": 1, "role": "x"}]',
        "[" * 9999,
    ],
)
def test_a_malformed_list_of_members_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text(text)
    with pytest.raises(ConfigError, match="members") as refused:
        operator_files.read_members(path)
    assert "\n" not in str(refused.value)


def test_a_malformed_list_of_links_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("u,v\na,a\n")
    with pytest.raises(ConfigError, match="entry 1 is no link"):
        operator_files.read_links(path)
    with pytest.raises(StorageError):
        operator_files.read_links(tmp_path / "absent")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no text"):
        operator_files.read_links(path)
