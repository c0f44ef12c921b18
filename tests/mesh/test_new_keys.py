"""Keys that change while a hardened mesh runs: bulletins and renewals are adopted in place, and nobody restarts."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from support.hardened_mesh_network import EPOCH_US, FIRST, HardenedMeshNetwork
from veilcast.authority import bulletin, issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import complete_request, make_request
from veilcast.authority.topic_record import TopicRecord
from veilcast.sim.engine import SimulationError
from veilcast.sim.mesh.population import TOPIC
from veilcast.topics import Schema


class RekeyedNetwork(HardenedMeshNetwork):
    """Every node has a keyring of its own, of one authority that goes on deciding."""

    epochs = 40
    """Epochs of a grant."""

    def __init__(self, edges: str, **options: Any) -> None:
        self.entropy = Random(5).randbytes
        self.authority = issuer.create(EPOCH_US, self.entropy)
        record = TopicRecord(TOPIC, Schema(), cover_share=options.get("cover", 0))
        self.authority = issuer.declare(self.authority, record, self.entropy)
        self.rings: dict[str, Keyring] = {}
        super().__init__(edges, **options)

    def keyring(self, name: str, role: str) -> Keyring:
        if name not in self.rings:
            wanted: list[Any] = [(TOPIC, role)] if role in ("publisher", "subscriber") else []
            self.authority, self.rings[name] = issuer.grant_ready(
                self.authority, name, wanted, FIRST, self.epochs, self.entropy
            )
        return self.rings[name]

    def epoch(self) -> int:
        return self.world.now // EPOCH_US

    def revoke(self, name: str) -> None:
        """Revoke a member, and let all others adopt the bulletin. The revoked one leaves its keyring as it was."""
        self.authority = issuer.revoke(self.authority, name, None, self.epoch(), self.entropy)
        assert self.authority.bulletin is not None
        for other, ring in self.rings.items():
            if other != name:
                ring.adopt(bulletin.apply_bulletin(ring, self.authority.bulletin, self.epoch()))

    def say(self, *bodies: bytes) -> None:
        for body in bodies:
            self.publish(body, wait=1)
        self.run(8)


def test_a_revoked_subscriber_reads_nothing_more_and_the_others_go_on_without_a_restart() -> None:
    mesh = RekeyedNetwork("p-a a-b b-s b-s2 s2-a s-a", cover=0.5)
    mesh.run_until(0.7)
    mesh.say(b"before")
    mesh.revoke("s")
    mesh.run_until(1.7)
    mesh.say(b"after 1", b"after 2")
    mesh.run_until(2.7)
    mesh.say(b"after 3")
    assert mesh.delivered("s2") == [b"before", b"after 1", b"after 2", b"after 3"]
    assert mesh.delivered("s") == [b"before"]


def test_a_renewed_grant_serves_beyond_the_end_of_the_first_without_a_restart() -> None:
    class ShortNetwork(RekeyedNetwork):
        epochs = 2

    mesh = ShortNetwork("p-a a-b b-s s-a", cover=0.5).run_until(0.7)
    assert isinstance(mesh, ShortNetwork)
    mesh.say(b"before")
    for name, ring in mesh.rings.items():
        roles: dict[str, Any] = {"p": "publisher", "s": "subscriber"}
        role = roles.get(name[0], "subscriber")
        topic = TOPIC if name[0] in roles else ""
        asking = make_request(topic, role, EPOCH_US, mesh.epoch(), 10, mesh.entropy, ring.membership.link)
        mesh.authority, reply = issuer.grant(mesh.authority, name, asking.request, mesh.epoch(), 10, mesh.entropy)
        copy = msgspec.structs.replace(ring)
        assert ring.adopt(complete_request(asking, reply, copy))
    mesh.run_until(4.7)
    mesh.say(b"long after")
    assert mesh.delivered("s") == [b"before", b"long after"]


def test_without_the_renewal_the_same_mesh_falls_silent() -> None:
    """The control: what the test above shows is the renewal's doing."""

    class ShortNetwork(RekeyedNetwork):
        epochs = 2

    mesh = ShortNetwork("p-a a-b b-s s-a", cover=0.5).run_until(0.7)
    assert isinstance(mesh, ShortNetwork)
    mesh.say(b"before")
    mesh.run_until(4.7)
    with pytest.raises(SimulationError, match="the membership is for epochs"):
        mesh.say(b"long after")
