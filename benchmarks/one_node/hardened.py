"""The load of a node that neither paper has: certified membership, and the hardened mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import msgspec

from one_node.bench import EPOCH, Bench, Item, Work, note_content, same
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.core.publication import make_certified_notify
from veilcast.crypto import hash_chain
from veilcast.machine import Address
from veilcast.mesh.advertisements import make_call, replace_chain_value
from veilcast.mesh.config import ALL_DEFENCES, CertifiedConfig, HardeningConfig, MeshConfig, MessageRate
from veilcast.mesh.credentials import COOKIE_PERIODS, Credentials, ProofContext
from veilcast.mesh.roots import make_root_advert
from veilcast.mesh.stem import cargo_id
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_hardened_keyring
from veilcast.sim.mesh.population import TOPIC, make_own_keyring
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Admit, Advert, Answer, Knock, Notify, Show, Stem, StemReceipt, Subscribe

# --- certified membership


def stranger(name: str, bench: Bench) -> Credentials:
    return Credentials(
        make_own_keyring("forwarder", "stranger"),
        Address(name),
        Random(3).randbytes,
        COOKIE_PERIODS * bench.config.heartbeat_us,
    )


def house(contacts: str = "") -> Bench:
    return Bench(CERTIFIED, make_own_keyring("forwarder", "host"), contacts)


def knocks(bench: Bench) -> Iterator[Item]:
    for number in range(1_000):
        yield f"s{number}", (Knock(number.to_bytes(16, "big")),)


def shows(bench: Bench) -> Iterator[Item]:
    for number in range(200):
        name, nonce = f"s{number}", number.to_bytes(16, "big")
        bench.hear(name, Knock(nonce))
        bench.say()
        (answer,) = bench.told(name)
        assert isinstance(answer, Answer)
        own, epoch = stranger(name, bench), epoch_of(bench.now, HOUR_US)
        meeting = ProofContext(Address(name), Address("me"), nonce, answer.cookie, epoch)
        proof = own.prove(answer.certificate, meeting, bench.now).knocker.reveal()
        yield name, (Show(nonce, answer.cookie, epoch, own.certificate(bench.now), proof, False),)


def meetings(timed: type[Message]) -> Callable[[Bench], Iterator[Item]]:
    """The node knocks at one address after the other: each turns it away, and names the next.

    After thirty it would try the first again.
    """

    def items(bench: Bench) -> Iterator[Item]:
        for number in range(30):
            name, own = f"c{number}", stranger(f"c{number}", bench)
            if not bench.told(name):
                bench.say()
            (knock,) = bench.told(name)
            assert isinstance(knock, Knock)
            cookie = own.cookie(Address("me"), knock.nonce, bench.now)
            answer = Answer(knock.nonce, cookie, own.certificate(bench.now))
            if timed is Answer:
                yield name, (answer,)
            else:
                bench.hear(name, answer)
                bench.say()
            (show,) = bench.told(name)
            assert isinstance(show, Show)
            meeting = ProofContext(Address("me"), Address(name), show.nonce, cookie, show.epoch)
            proof = own.prove(show.certificate, meeting, bench.now).answerer.reveal()
            admit = Admit(show.nonce, proof, False, (f"c{number + 1}",))
            if timed is Admit:
                yield name, (admit,)
            else:
                bench.hear(name, admit)

    return items


# --- the hardened mesh


def member() -> Bench:
    """A reader in a hardened mesh, with a parent and a branch."""
    bench = Bench(HARD, _make_keyring("subscriber", 0))
    bench.node.subscribe(Label(TOPIC), bench.now)
    for beat in range(8):
        bench.hear_all()
        bench.say()
        if beat == 1:
            bench.hear("parent", ROOT_ADVERT)
            bench.hear("child", Subscribe(CALL.token))
    assert bench.node.overlay.branches.inward(CALL.token) == ["parent"]
    return bench


def calls(bench: Bench) -> Iterator[Item]:
    known = bench.node._conduct._roots._calls  # type: ignore[attr-defined]
    for _ in range(300):
        known.clear()
        yield "x", (CALL,)


def root_advert(number: int) -> Advert:
    keys, expires_us = _make_keyring("forwarder", 2).keys_at(EPOCH), START_US + 2 * HOUR_US + number
    return make_root_advert(CALL, keys, HARD.d_max, expires_us, Random(number).randbytes)


def fresh_roots(bench: Bench) -> Iterator[Item]:
    for number in range(1, 201):
        yield "parent", (root_advert(number),)


def notes() -> Iterator[Notify]:
    keys, entropy = _make_keyring("publisher", 1).keys_at(EPOCH).topic(TOPIC), Random(2).randbytes
    for number in range(1, 401):
        yield make_certified_notify(keys, note_content(number), entropy)


def genuine_notes(bench: Bench) -> Iterator[Item]:
    for note in notes():
        yield "parent", (note,)


def stems(bench: Bench) -> Iterator[Item]:
    for note in notes():
        yield "x", (Stem(True, encode(note)),)


def acknowledgements(bench: Bench) -> Iterator[Item]:
    for cargo in map(encode, notes()):
        bench.hear("x", Stem(True, cargo))
        yield "parent", (StemReceipt(cargo_id(cargo), bytes(64)),)


def _make_keyring(role: str, number: int) -> Keyring:
    return make_hardened_keyring(TOPIC, 0.78, HOUR_US, role, number)


_MANY = MessageRate(1_000_000, 1_000_000)
CERTIFIED = MeshConfig(
    neighbours_max=20,
    address_bytes_max=8,
    membership="certified",
    certified=CertifiedConfig(knock_periods=1, knock_burst=1_000_000, probe_periods=1_000_000),
)
HARD = MeshConfig(
    profile="hardened",
    neighbours_max=20,
    address_bytes_max=8,
    hardening=HardeningConfig(window_periods=1, lead_periods=2),
    defences=msgspec.structs.replace(ALL_DEFENCES, adverts=_MANY, subscriptions=_MANY, notes=_MANY, stems=_MANY),
)
"""As the profile has it, but that one neighbour may send as much as it likes."""
CALL = make_call(_make_keyring("publisher", 1).keys_at(EPOCH).topic(TOPIC))
ROOT_ADVERT = root_advert(0)
FURTHER = replace_chain_value(ROOT_ADVERT, hash_chain.advance_chain(ROOT_ADVERT.value, 3))

WORKS = (
    Work("Knock", house, knocks),
    Work("Answer", lambda: house("c0"), meetings(Answer), crypto=True, at_once=1),
    Work("Show", house, shows, crypto=True, at_once=1),
    Work("Admit", lambda: house("c0"), meetings(Admit), crypto=True, at_once=1),
    Work("Call, checked and passed on", member, calls, crypto=True, checked=True, at_once=1),
    Work("root's Advert, duplicate", member, same("x", FURTHER)),
    Work("root's Advert, duplicate, checked", member, same("x", FURTHER, times=200), crypto=True, checked=True),
    Work("root's Advert of a fresh chain, checked", member, fresh_roots, crypto=True, checked=True),
    Work("Stem, checked and passed on", member, stems, crypto=True),
    Work("Taken, passed on", member, acknowledgements, at_once=1),
    Work("certified Notify, checked, read and passed on", member, genuine_notes, crypto=True),
)
