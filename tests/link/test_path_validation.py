"""Path validation: a link follows its peer to a new address only after the peer has answered a challenge there."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.link_network import MovingLinks
from veilcast.link.chunks import (
    CHALLENGE,
    PATH_FRAMES_MAX,
    RESPONSE,
    insert_path_frames,
    split_path_frames,
    write_path_frame,
)
from veilcast.link.config import LinkConfig
from veilcast.link.machine import SILENT_US
from veilcast.link.pacing import RATES, SECOND_US
from veilcast.link.path_validation import ANSWERS_MAX, GRACE_US, PROBE_AFTER_US, PeerPath, _CandidateProbe
from veilcast.link.transfer import Transfer
from veilcast.machine import Address, Frame
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL, CELL_BODY

PATH_FRAME = len(write_path_frame(CHALLENGE, bytes(8)))
A, B, EVIL, BEHIND = Address("a"), Address("b"), Address("evil"), Address("behind")


def linked_town(config: LinkConfig | None = None) -> MovingLinks:
    links = MovingLinks(config, "a", "b")
    links.tell("a", "b", b"hello")
    links.run(5 * SECOND_US)
    assert links.heard("b") == [b"hello"]
    return links


def keep_talking(links: MovingLinks, seconds: int) -> None:
    """Both members send a message every second, as mesh neighbours do."""
    for _ in range(seconds):
        links.tell("a", "b", b"a %d" % links.now)
        links.tell("b", "a", b"b %d" % links.now)
        links.run(SECOND_US)


def destinations(links: MovingLinks, source: str, since_us: int) -> list[Address]:
    return [frame.destination for at, by, frame in links.sent if by == source and at >= since_us]


def lost_links(links: MovingLinks) -> list[tuple[str, Address]]:
    return [notice for name in ("a", "b") for notice in links.talker(name).notices if notice[0] == "lost"]


def stop_one(links: MovingLinks) -> None:
    """The adversary stops the next cell from B to A, and forwards it from its own address."""
    stopped: list[Frame] = []

    def intercept(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
        if source == B and frame.destination == A and not stopped:
            stopped.append(frame)
            return [(EVIL, frame)]
        return [(source, frame)]

    links.intercept = intercept


def relay(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
    """The adversary stops every cell both ways, and forwards each from an address of its own."""
    if source == B:
        return [(EVIL, Frame(A, frame.data))]
    return [(BEHIND, Frame(B, frame.data))]


def redirect_all(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
    """The adversary stops every cell from B to A, and forwards it from its own address."""
    return [(EVIL if source == B and frame.destination == A else source, frame)]


def race_all(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
    """The adversary stops nothing, but its copy of every cell, either way, is faster than the cell itself.

    It forwards what comes to its own addresses, so each challenge reaches its peer.
    """
    if frame.destination in (EVIL, BEHIND):
        return relay(source, frame)
    return [*relay(source, frame), (source, frame)]


@pytest.mark.parametrize("wire", ["cells", "prompt"])
def test_one_stopped_cell_that_is_sent_on_from_elsewhere_moves_no_link(wire: str) -> None:
    links = linked_town(LinkConfig(wire="prompt" if wire == "prompt" else "cells"))
    stop_one(links)
    start = links.now
    keep_talking(links, 10)
    assert set(destinations(links, "a", start)) == {B}
    assert lost_links(links) == []


def test_challenges_that_come_by_one_way_are_all_answered() -> None:
    """An adversary that carries both challenges from one address must not hide the first by the second."""
    route = PeerPath(B, random.Random(1).randbytes)
    tokens = [b"token  1", b"token  2"]
    route.on_cell(B, [(CHALLENGE, tokens[0])], follow=True, now=0)
    route.on_cell(B, [(CHALLENGE, tokens[1]), (CHALLENGE, b"token  3")], follow=True, now=0)
    assert route.next_cell(0)[1] == b"".join(write_path_frame(RESPONSE, token) for token in tokens)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("attack", [redirect_all, race_all, relay])
def test_an_adversary_that_carries_all_cells_or_only_copies_them_moves_no_link(attack: object, rate: int) -> None:
    links = linked_town(LinkConfig(rate=rate))
    links.intercept = attack  # type: ignore[assignment]
    start = links.now
    keep_talking(links, 60)
    for name, peer in (("a", B), ("b", A)):
        sent = destinations(links, name, start)
        assert sent.count(peer) / len(sent) > 0.9
        assert links.machines[name]._links[peer].route.path == peer
    assert lost_links(links) == []


@pytest.mark.parametrize("rate", RATES)
def test_a_relay_that_stops_the_direct_path_holds_a_link_no_longer_than_it_stops_it(rate: int) -> None:
    """The limit of path validation: an adversary that stops the direct cells can become a relay, and no more.

    It takes one end after the other. When it opens the direct path, a challenge to the first address brings both ends
    home, although the adversary still carries everything that is sent to its own addresses.
    """
    links = linked_town(LinkConfig(rate=rate))

    def carry_own(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
        return relay(source, frame) if frame.destination in (EVIL, BEHIND) else []

    links.intercept = lambda source, frame: carry_own(source, frame) or (relay(source, frame) if source == B else [])
    keep_talking(links, 7)
    assert links.machines["a"]._links[B].route.path == EVIL
    links.intercept = carry_own
    keep_talking(links, 7)
    assert links.machines["b"]._links[A].route.path == BEHIND
    keep_talking(links, 30)
    assert links.machines["a"]._links[B].route.path == EVIL
    assert {message for message in links.heard("b") if message.startswith(b"a ")}
    links.intercept = lambda source, frame: carry_own(source, frame) or [(source, frame)]
    released = links.now
    keep_talking(links, 60)
    assert links.machines["a"]._links[B].route.path == B
    assert links.machines["b"]._links[A].route.path == A
    assert destinations(links, "a", released + 60 * SECOND_US - 2 * SECOND_US).count(EVIL) == 0
    assert lost_links(links) == []


@pytest.mark.parametrize("wire", ["cells", "prompt"])
@pytest.mark.parametrize("rate", [4, 16])
def test_a_member_that_forges_its_source_reflects_no_more_than_it_sends(rate: int, wire: str) -> None:
    links = linked_town(LinkConfig(wire="prompt" if wire == "prompt" else "cells", rate=rate))
    line = links.machines["b"]._links[A].channel
    assert line is not None
    victim = Address("victim")
    del links.machines["b"], links.where["b"]  # From now on the member sends only what it forges.
    sent = 0
    while links.now < line.generations.session.rekey_us:
        body = bytes(CELL_BODY)
        links.inject(victim, A, line.generations.session.seal(body, links.now))
        sent += 1
        links.tell("a", "b", b"heartbeat %d" % sent)
        links.run(SILENT_US - SECOND_US)
        assert links.machines["a"].peers() == [B]
    reflected = destinations(links, "a", 0).count(victim)
    assert sent >= 8
    assert reflected <= sent


@pytest.mark.parametrize("rate", RATES)
def test_a_link_follows_an_honest_peer_with_one_cell_a_slot(rate: int) -> None:
    """An observer sees one cell in each slot, first to the old address, then to the new, and few to both in between."""
    links = linked_town(LinkConfig(rate=rate))
    links.where["b"] = Address("b2")
    start = links.now
    keep_talking(links, 14)
    sent = destinations(links, "a", start)
    assert abs(len(sent) - 14 * rate) <= 1
    first, last = sent.index(Address("b2")), len(sent) - 1 - sent[::-1].index(B)
    assert last - first < 8 if rate < 16 else 48
    assert len(sent[: last + 1]) <= max(5, 4 * rate)
    assert lost_links(links) == []
    assert links.talker("a").heard[-1][1].startswith(b"b ")
    assert links.talker("b").heard[-1][1].startswith(b"a ")
    # The old address gets a challenge after 15, 30, 60, ... seconds.
    start = links.now
    keep_talking(links, 100)
    assert 1 <= destinations(links, "a", start).count(B) <= 9


@pytest.mark.parametrize("rate", RATES)
def test_a_link_follows_a_peer_that_moves_again_while_the_first_address_is_asked(rate: int) -> None:
    """The challenge to the first address is in flight from 15 to 27 seconds after the first move."""
    for stay in range(12, 30, 2):
        links = linked_town(LinkConfig(rate=rate))
        links.where["b"] = Address("b2")
        keep_talking(links, stay)
        links.where["b"] = Address("b3")
        keep_talking(links, 9 if rate == 1 else 4)
        assert links.machines["a"]._links[B].route.path == "b3"
        assert lost_links(links) == []


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("first", ["moves twice", "one fast copy"])
def test_a_candidate_from_which_no_more_cells_come_does_not_keep_a_link_from_following(first: str, rate: int) -> None:
    """The first candidate is an address that the peer leaves at once, or one from which an adversary sent one copy."""
    links = linked_town(LinkConfig(rate=rate))
    links.where["b"] = Address("b2")
    if first == "moves twice":
        keep_talking(links, 1)
        links.where["b"] = Address("b3")
    else:
        copies = iter([EVIL])
        links.intercept = lambda source, frame: [
            *((copy, frame) for copy in ([next(copies, source)] if source == "b2" else [])),
            (source, frame),
        ]
    keep_talking(links, 9)
    assert links.machines["a"]._links[B].route.path == links.where["b"]
    assert lost_links(links) == []


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("place", ["old address", "home", "fast copies"])
def test_a_relay_that_holds_a_link_when_the_peer_moves_holds_it_no_longer_than_it_carries(
    place: str, rate: int
) -> None:
    """The limit of path validation when a peer moves: the adversary stops nothing, and forwards what comes to it."""
    links, moved = linked_town(LinkConfig(rate=rate)), Address("b2")
    held, copies = (EVIL if place == "fast copies" else B), 0
    links.where["b"] = moved
    keep_talking(links, 8 if place == "home" else 0)
    assert links.machines["a"]._links[B].route.path == (moved if place == "home" else B)

    def carry(source: Address, frame: Frame) -> list[tuple[Address, Frame]]:
        nonlocal copies
        if frame.destination == held:
            copies = 3 if place == "home" and copies == 0 else copies
            return [(A, Frame(moved, frame.data))]
        if source == moved and (copies > 0 or place == "fast copies"):
            copies -= 1
            return [(held, frame), (source, frame)]
        return [(source, frame)]

    links.intercept = carry
    keep_talking(links, 40)
    assert links.machines["a"]._links[B].route.path == held
    links.intercept = lambda source, frame: [] if frame.destination == held else [(source, frame)]
    keep_talking(links, 9)
    assert links.machines["a"]._links[B].route.path == moved
    assert lost_links(links) == []


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_link_follows_an_honest_peer_through_losses_and_floods(loss: float) -> None:
    links, rng = linked_town(), random.Random(3)
    links.intercept = lambda source, frame: [] if rng.random() < loss else [(source, frame)]
    links.where["b"] = Address("b2")
    for turn in range(14 * 500):
        links.inject(Address(f"10.0.{turn % 256}.1:9"), A, rng.randbytes(CELL))
        if turn % 500 == 0:
            links.tell("a", "b", b"a %d" % links.now)
        links.run(rng.randrange(4_000))
    assert links.machines["a"]._links[B].route.path == "b2"
    assert lost_links(links) == []


def test_the_wire_of_a_busy_link_that_moves_is_that_of_a_quiet_one() -> None:
    wires = []
    for is_busy in (False, True):
        links = linked_town()
        if is_busy:
            links.tell("a", "b", *[b"\1" * 30_000] * 3)
        links.where["b"] = Address("b2")
        keep_talking(links, 40)
        links.where["b"] = B
        keep_talking(links, 20)
        wires.append([(at, source, frame.destination, len(frame.data)) for at, source, frame in links.sent])
    assert wires[0] == wires[1]


def test_an_answer_with_another_token_or_from_another_address_proves_nothing() -> None:
    route = checked_route()
    for source, token in ((EVIL, b"guessed!"), (B, token_to(EVIL, route))):
        route.on_cell(source, [(RESPONSE, token)], follow=False, now=GRACE_US)
        assert route.next_cell(3 * GRACE_US)[0] != EVIL or route.path == B
    route.on_cell(EVIL, [(RESPONSE, token_to(EVIL, route))], follow=False, now=3 * GRACE_US)
    assert route.path == EVIL


def test_an_answer_of_the_address_in_use_counts_from_anywhere() -> None:
    route = checked_route()
    check = route._check
    assert check is not None
    route.on_cell(EVIL, [(RESPONSE, check.path_token), (RESPONSE, check.token)], follow=True, now=GRACE_US)
    assert route.addresses == (B,)


def checked_route() -> PeerPath:
    """A path with the candidate EVIL. Both addresses have been sent their challenges."""
    route = PeerPath(B, random.Random(1).randbytes)
    route.on_cell(EVIL, [], follow=True, now=0)
    assert route.next_cell(0)[0] == B
    assert route.next_cell(PROBE_AFTER_US)[0] == EVIL
    return route


def token_to(address: Address, route: PeerPath) -> bytes:
    assert route._check is not None
    assert route._check.address == address
    return route._check.token


@given(st.data())
def test_for_any_path_frames_little_is_stored_and_few_cells_are_misdirected(data: st.DataObject) -> None:
    """For every order of cells, sources, tokens and slots: no more cells go to an unproven address than came from
    there, and the link leaves home only for an address that has answered."""
    route, now = PeerPath(B, random.Random(1).randbytes), 0
    came: Counter[Address] = Counter()
    went: Counter[Address] = Counter()
    answered = {B}
    sources = st.sampled_from([B, EVIL, BEHIND])
    for _ in range(data.draw(st.integers(1, 60))):
        now += data.draw(st.sampled_from([0, 250_000, SECOND_US, 13 * SECOND_US]))
        if data.draw(st.booleans()):
            path, frames = route.next_cell(now)
            went[path] += 1
            assert len(frames) <= PATH_FRAMES_MAX * PATH_FRAME
        else:
            source = data.draw(sources)
            asked = [probe for probe in (route._check, route._home_check) if probe and went[probe.address]]
            token = data.draw(st.sampled_from([b"guessed!", *(probe.token for probe in asked)]))
            came[source] += 1
            answered |= {probe.address for probe in asked if (source, token) == (probe.address, probe.token)}
            route.on_cell(source, [(CHALLENGE, b"challeng"), (RESPONSE, token)], follow=True, now=now)
        assert route.path in answered
        for place in {EVIL, BEHIND} - answered:
            assert went[place] <= came[place]
        assert len(route.addresses) <= 3
        assert len(route._answers) <= ANSWERS_MAX


def test_a_planted_path_that_accepts_every_answer_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CandidateProbe, "is_answered", property(lambda check: True, lambda check, value: None))
    with pytest.raises(AssertionError):
        test_for_any_path_frames_little_is_stored_and_few_cells_are_misdirected()
    with pytest.raises(AssertionError):
        test_an_answer_with_another_token_or_from_another_address_proves_nothing()


def test_a_planted_path_that_does_not_ask_the_address_in_use_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe(route: PeerPath, token: bytes, source: Address, now: int) -> None:
        if route._check is not None and (token, source) == (route._check.token, route._check.address):
            route._check.is_answered = True

    monkeypatch.setattr(PeerPath, "_hear_response", believe)
    with pytest.raises(AssertionError):
        test_an_adversary_that_carries_all_cells_or_only_copies_them_moves_no_link(race_all, 4)


@given(st.lists(st.tuples(st.sampled_from([CHALLENGE, RESPONSE]), st.binary(min_size=8, max_size=8)), max_size=3))
def test_path_frames_are_read_as_written_and_leave_the_body_as_it_was(frames: list[tuple[int, bytes]]) -> None:
    body = Transfer(timeout_us=1).fill(CELL_BODY - len(frames) * PATH_FRAME, 0)
    whole = insert_path_frames(body, b"".join(write_path_frame(*frame) for frame in frames))
    assert len(whole) == CELL_BODY
    read, rest = split_path_frames(whole)
    assert (list(read), rest) == (frames, body)


@given(st.binary(max_size=CELL_BODY))
def test_no_body_breaks_the_reader_of_path_frames(body: bytes) -> None:
    for whole in (body, bytes(ACKNOWLEDGEMENTS) + b"\0\10\0\0\0\1" + body, bytes(ACKNOWLEDGEMENTS) + b"\0\10" + body):
        frames, rest = split_path_frames(whole)
        assert len(frames) <= PATH_FRAMES_MAX
        assert len(rest) == len(whole) - len(frames) * PATH_FRAME


def test_a_path_frame_of_no_kind_or_one_too_many_is_refused() -> None:
    frame = write_path_frame(CHALLENGE, b"token 12")
    for planted in (4 * frame, write_path_frame(3, b"token 12")):
        links = linked_town()
        line = links.machines["b"]._links[A].channel
        assert line is not None
        body = (bytes(ACKNOWLEDGEMENTS) + planted).ljust(CELL_BODY, b"\0")
        links.inject(B, A, line.generations.session.seal(body, links.now))
        links.run(20_000)
        assert links.machines["a"].counts["refused MalformedError"] == 1
