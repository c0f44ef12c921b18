"""Members, proxies and servers that do not keep to the protocol, and what they gain by it."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from two_rooms import ANNA, BEN, PROXY, SERVER, TOPIC, Parlour

from veilcast.authority.content import Content
from veilcast.authority.letters import Letter
from veilcast.crypto.group import Scalar
from veilcast.machine import Publication
from veilcast.relay.bodies import wrap_for_server
from veilcast.relay.hardened import _SUBMIT
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.geometry import MOMENT_MAX, NOTE_ID
from veilcast.wire.messages import Message
from veilcast.wire.relay import Delivery, Lease, Submit

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


@pytest.mark.parametrize("told", [True, False])
def test_a_proxy_that_sends_the_subjects_of_a_subscription_as_a_publication_s_reaches_nobody(told: bool) -> None:
    """By the deliveries it would know who else wants the same. Only who is told the bond could."""
    table = Parlour("hardened")
    for name in (ANNA, BEN):
        table.subscribe(name, TOPIC)
    table.run(1_000_000)
    lease = next(message for each in table.between(PROXY, SERVER) if isinstance(message := each.message, Lease))
    bond = table.server._part.open_lease(lease).bond
    assert bond is not None
    guess = bond.reveal() if told else Scalar.draw(Random("guess").randbytes).reveal()
    inside = guess + bytes(NOTE_ID) + MOMENT_MAX.to_bytes(8, "big") + b"nothing"
    boxed = wrap_for_server(table.public.box, inside, purpose=_SUBMIT, entropy=Random("box").randbytes)
    sent_before = len(deliveries(table))
    table.server.receive(encode(Submit(1, lease.subjects, None, boxed)), PROXY, table.now)
    table.run(1_000_000)
    assert (len(deliveries(table)) > sent_before) == told


def deliveries(table: Parlour) -> list[Message]:
    return [each.message for each in table.between(SERVER, PROXY) if isinstance(each.message, Delivery)]
