"""Members, proxies and servers that do not keep to the protocol, and what they gain by it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from two_rooms import ANNA, BEN, TOPIC, Parlour

from veilcast.authority.content import Content
from veilcast.authority.letters import Letter
from veilcast.machine import Publication
from veilcast.topics import Label

Profile: TypeAlias = Literal["paper", "hardened"]
each_profile = pytest.mark.parametrize("profile", ["paper", "hardened"])


@each_profile
def test_nobody_takes_the_place_of_a_publication_that_is_still_to_come(profile: Profile) -> None:
    """A reader knows the stream and can count. What it sends in the next place must not pass for what comes there."""
    table = Parlour(profile)
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    anna, ben = table.clients[ANNA], table.clients[BEN]
    planted = Content(anna._records._stream, 1, Publication((Label(TOPIC).pair,), b"planted"))
    ben._submit(1, Letter(TOPIC, planted), table.now)
    table.run(1_000_000)
    table.publish(ANNA, TOPIC, b"true")
    table.run(1_000_000)
    assert table.notes[BEN] == [b"planted", b"true"]
