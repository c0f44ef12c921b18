"""A topic whose token changes at every edge: who uses which when, and nothing lost on the way over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import msgspec
import pytest

from support.village import SMALL, Village, note
from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.topickeys import Role
from veilcast.errors import ConfigError, ExpiredError, LocalError, UnknownTopicError
from veilcast.machine import Address
from veilcast.mesh.config import HARDENED, Config, Defences
from veilcast.mesh.epochs import Epochs
from veilcast.sim.checkers import AtMostOnce, InOrder
from veilcast.sim.engine import START_US
from veilcast.sim.mesh import TOPIC

EPOCH_US = 60_000_000
FIRST = epoch_of(START_US, EPOCH_US)
EPOCHS = 6
ON = msgspec.structs.replace(SMALL, defences=Defences(epoch_tokens=True, lead_us=15_000_000, grace_us=5_000_000))


@cache
def rings() -> dict[str, Keyring]:
    """The topic in the `hardened` profile, with epochs of a minute."""
    entropy = Random(1).randbytes
    state = issuer.declare_label(issuer.create(EPOCH_US, entropy), TOPIC, "hardened", entropy)
    wanted: dict[str, list[tuple[str, Role]]] = {
        "publisher": [(TOPIC, "publisher")],
        "subscriber": [(TOPIC, "subscriber")],
        "forwarder": [],
    }
    found = {}
    for role, grants in wanted.items():
        state, found[role] = issuer.grant_ready(state, role, grants, FIRST, EPOCHS, entropy)
    return found


def token(epoch: int) -> bytes:
    return rings()["subscriber"].at(epoch).topic(TOPIC).token


def edge(number: int) -> int:
    return (FIRST + number) * EPOCH_US


# --- which token when ---------------------------------------------------------------------------------------


def test_the_next_token_counts_from_its_lead_on_and_the_last_one_until_its_grace_is_over() -> None:
    epochs, e = Epochs(ON, rings()["publisher"]), FIRST + 1

    def read(now: int) -> list[bytes]:
        return [keys.token for keys in epochs.to_read(TOPIC, now)]

    def told(now: int) -> list[bytes]:
        return [keys.token for keys in epochs.to_advertise(TOPIC, now)]

    middle, lead, grace = edge(1) + 30_000_000, edge(2) - 15_000_000, edge(2) + 5_000_000
    assert read(middle) == told(middle) == [token(e)]
    assert read(lead - 1) == told(lead - 1) == [token(e)]
    assert read(lead) == told(lead) == [token(e), token(e + 1)]
    assert epochs.current(TOPIC, edge(2) - 1).token == token(e)
    assert epochs.current(TOPIC, edge(2)).token == token(e + 1)
    assert (read(edge(2)), told(edge(2))) == ([token(e), token(e + 1)], [token(e + 1)])
    assert (read(grace - 1), told(grace - 1)) == ([token(e), token(e + 1)], [token(e + 1)])
    assert read(grace) == told(grace) == [token(e + 1)]
    assert (epochs.over_before(grace - 1), epochs.over_before(grace)) == (e, e + 1)


def test_it_is_noticed_once_when_other_tokens_come_into_use() -> None:
    epochs = Epochs(ON, rings()["publisher"])
    turns = [now for now in range(edge(1), edge(3), 1_000_000) if epochs.turned(now)]
    at = [edge(1), edge(1) + 5_000_000, edge(2) - 15_000_000, edge(2) + 5_000_000, edge(3) - 15_000_000]
    assert turns == at


def test_a_certificate_counts_in_its_own_epoch_and_near_its_edges_whatever_the_clocks() -> None:
    epochs = Epochs(ON, rings()["publisher"])
    certificate = rings()["publisher"].at(FIRST + 1).topic(TOPIC).certificate
    assert certificate is not None
    counts = [second for second in range(180) if epochs.judging(certificate, edge(0) + second * 1_000_000) == FIRST + 1]
    assert counts == list(range(60 - 15 - 5, 120 + 5))


def test_what_our_grant_does_not_reach_is_not_read_and_the_owner_is_told() -> None:
    epochs = Epochs(ON, rings()["subscriber"])
    last = edge(EPOCHS) - 1
    assert [keys.token for keys in epochs.to_read(TOPIC, last)] == [token(FIRST + EPOCHS - 1)]
    assert epochs.to_read(TOPIC, edge(EPOCHS) + 10_000_000) == []
    assert epochs.to_read("nowhere", last) == []
    with pytest.raises(ExpiredError):
        epochs.current(TOPIC, edge(EPOCHS))
    with pytest.raises(UnknownTopicError):
        epochs.current("nowhere", last)


def test_keys_of_four_epochs_are_kept_at_hand() -> None:
    epochs = Epochs(ON, rings()["subscriber"])
    for number in range(EPOCHS):
        epochs.to_read(TOPIC, edge(number))
    assert len(epochs._at_hand) == 4


def test_lead_and_grace_fit_into_an_epoch() -> None:
    with pytest.raises(ConfigError, match="epoch"):
        Epochs(msgspec.structs.replace(SMALL, defences=Defences(epoch_tokens=True)), rings()["subscriber"])
    with pytest.raises(ConfigError, match="lead_us"):
        Defences(lead_us=-1)


# --- over the edges -----------------------------------------------------------------------------------------


def over_three_edges(config: Config, skews: dict[str, int] | None = None) -> Village:
    """A publisher sends a note every second and a bit for four epochs."""
    checkers = (AtMostOnce(), InOrder(lambda note: int(note.publication.body)))
    village = Village("p-f f-g g-s f-h h-s2 g-h", config=config, rings=rings(), checkers=checkers)
    for name, offset_us in (skews or {}).items():
        village.world.set_clock(Address(name), offset_us, 0)
    village.world.run(edge(1) + 10_000_000 - village.world.now)
    for number in numbers(village):
        village.publish(b"%d" % number, wait=1.3)
    village.run(5)
    return village


def numbers(village: Village) -> Iterator[int]:
    number = 0
    while village.world.now < edge(4) + 20_000_000:
        yield number
        number += 1


def test_three_edges_pass_and_no_note_is_lost_nor_out_of_order() -> None:
    village = over_three_edges(ON)
    assert len(village.got("s")) > 140
    assert village.got("s") == village.got("s2") == [b"%d" % number for number in range(len(village.got("s")))]
    for name in village.neighbours:
        assert village.node(name).overlay.routes.tokens() == [token(FIRST + 4)]
        assert village.node(name).overlay.branches.tokens() == [token(FIRST + 4)]


def published(village: Village) -> int:
    return village.node("p")._records.draft(TOPIC, None, note(b"")).content.number - 1


def test_so_it_is_with_all_defences_and_with_clocks_that_differ() -> None:
    defences = msgspec.structs.replace(HARDENED, lead_us=15_000_000, grace_us=5_000_000)
    village = over_three_edges(
        msgspec.structs.replace(SMALL, defences=defences), {"p": 2_000_000, "g": -2_000_000, "s2": -1_000_000}
    )
    sent = published(village)
    assert village.got("s") == village.got("s2") == [b"%d" % number for number in range(sent)]


def test_who_never_unsubscribes_is_forgotten_with_the_token() -> None:
    village = Village("p-f f-x", config=ON, rings=rings()).run(5)
    village.node("f").overlay.branches.add(token(FIRST), Address("x"))
    village.world.run(edge(1) + 8_000_000 - village.world.now)
    assert village.node("f").overlay.branches.tokens() == []


def test_without_lead_and_grace_notes_are_lost_at_the_edge() -> None:
    sharp = msgspec.structs.replace(SMALL, defences=Defences(epoch_tokens=True, lead_us=0, grace_us=0))
    village = over_three_edges(sharp)
    assert len(village.got("s")) < published(village)


def test_without_the_switch_the_topic_is_refused() -> None:
    with pytest.raises(LocalError, match="hardened"):
        Village("p-s", rings=rings())


def test_who_stops_reading_or_publishing_stops_for_all_tokens_in_use() -> None:
    village = Village("p-f f-s", config=ON, rings=rings())
    village.world.run(edge(1) - 5_000_000 - village.world.now)
    assert village.node("f").overlay.branches.tokens() == [token(FIRST), token(FIRST + 1)]
    village.world.call(Address("s"), lambda machine, now: machine.unsubscribe(1, now))
    village.run(4)
    assert village.node("f").overlay.branches.tokens() == []
    village.world.call(Address("p"), lambda machine, now: machine.unadvertise(TOPIC, now))
    village.run(4)
    assert not any(
        origin.reachable for t in (0, 1) for origin in village.node("f").overlay.routes.origins(token(FIRST + t))
    )
