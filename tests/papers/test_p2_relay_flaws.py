"""P2, section 4.1: five flaws of the protocol to the letter, as attacks that succeed on `paper` and fail on `hardened`.

Each attack is a function of what its party holds, and uses only that; the tests say what it computes. The fourth, a
proxy together with any one user, still yields all keys of users in `hardened`; what it no longer yields is shown, too.
`tests/relay/test_relay_knowledge.py` asks the same of all that could be computed, not of these attacks only.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import pytest

from support.authority_members import EPOCHS, NOW, OTHER, TOPIC, make_authority_members
from veilcast.core.match_elements import derive_element_key, key_element, qualify_element
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.derive import derive
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.crypto.seal import Sealer, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Publication
from veilcast.relay import body_encryption, subject_tags
from veilcast.relay.transformation_key import ServerKeys, answer_enrolment, begin_enrolment, combine_shares

PEOPLE = make_authority_members()
PUBLISHER, READER = PEOPLE.alice.keys_at(NOW).topic(TOPIC), PEOPLE.bob.keys_at(NOW).topic(TOPIC)
BODY = b"we meet at noon"
TOPICS = ("chat", "news/asia", TOPIC, "weather")
"""Topics that an attacker would try first."""


@dataclass
class Play:
    """A server, a proxy and three users that have joined. The first publishes; the first and the second are in one
    topic."""

    entropy: random.Random = field(default_factory=lambda: random.Random(11))

    def __post_init__(self) -> None:
        draw = self.entropy.randbytes
        self.server = ServerKeys.draw(draw)
        self.mask = Scalar.draw(draw)
        begun = [begin_enrolment(self.server.public(), draw) for _ in range(3)]
        self.keys = [each.key for each in begun]
        self.moves = [combine_shares(each.ratio, answer_enrolment(self.server, each.sealed)) for each in begun]


@dataclass
class Paper(Play):
    """The messages on the wires if the three act as P2 says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        draw = self.entropy.randbytes
        wanted = [qualify_element(topic, b"") for topic in (TOPIC, TOPIC, OTHER)]
        self.uploads = [subject_tags.blind_element(each, key) for each, key in zip(wanted, self.keys, strict=True)]
        self.moved = [
            subject_tags.move_element(each, move) for each, move in zip(self.uploads, self.moves, strict=True)
        ]
        self.tags = [subject_tags.tag_of(each) for each in self.moved]
        self.sent, self.sealed = body_encryption.seal_body(BODY, self.keys[0], draw)
        self.at_server = body_encryption.move_key_up(self.sent, self.moves[0])
        self.down = body_encryption.move_key_down(
            body_encryption.rerandomise_key(self.at_server, self.server, draw), self.moves[1]
        )


@dataclass
class Hardened(Play):
    """The same messages in `hardened`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        draw = self.entropy.randbytes
        self.subject_key = derive_element_key(READER, b"relay")
        other_key = derive_element_key(PEOPLE.bob.keys_at(NOW).topic(OTHER), b"relay")
        wanted = [key_element(key, b"") for key in (self.subject_key, self.subject_key, other_key)]
        public = self.server.public()
        self.uploads = [
            subject_tags.veil_element(each, key, public.subject, draw)
            for each, key in zip(wanted, self.keys, strict=True)
        ]
        self.moved = [
            subject_tags.move_veiled_element(each, move, self.mask)
            for each, move in zip(self.uploads, self.moves, strict=True)
        ]
        self.tags = [subject_tags.tag_veiled(each, self.server.unveil) for each in self.moved]
        content = NumberedPublication(b"streamed", 1, Publication((("topic", TOPIC),), BODY))
        self.sealed = body_encryption.seal_note(PUBLISHER, content, draw)
        self.up = body_encryption.wrap_for_server(public.box, self.sealed, purpose=b"publish", entropy=draw)
        self.delivery = body_encryption.draw_delivery_key(draw)
        self.down = body_encryption.wrap_for_subscriber(Sealer(self.delivery), self.sealed, draw)


@pytest.fixture(scope="module")
def paper() -> Paper:
    return Paper()


@pytest.fixture(scope="module")
def hardened() -> Hardened:
    return Hardened()


def test_both_do_what_they_are_for(paper: Paper, hardened: Hardened) -> None:
    assert body_encryption.open_body(paper.down, paper.sealed, paper.keys[1]) == BODY
    received = body_encryption.open_at_subscriber(Sealer(hardened.delivery), hardened.down)
    assert body_encryption.open_note(READER, received, PEOPLE.bob.root, NOW).publication.body == BODY
    for play in (paper, hardened):
        assert play.tags[0] == play.tags[1] != play.tags[2]


# --- (a) the server holds k_r, so it reads every message


def opened_by(keys: Iterable[Secret], sealed: bytes) -> list[bytes]:
    """Everything that these keys open, or keys derived from them by our recipes."""
    found = []
    contexts = (b"veilcast/relay-note", b"veilcast/relay-paper", b"veilcast/relay-delivery")
    for key, context in product(keys, contexts):
        for used in (key, derive(key, b"vc/relay-note")):
            try:
                found.append(unseal(used, sealed, context=context))
            except ForgedError:
                continue
    return found


def test_a_in_paper_the_server_reads_every_message(paper: Paper) -> None:
    assert body_encryption.open_body(paper.at_server, paper.sealed, paper.server.k_r) == BODY


def test_a_hardened_the_server_has_no_key_of_content(hardened: Hardened) -> None:
    server = hardened.server
    at_server = body_encryption.open_at_server(server, hardened.up, purpose=b"publish")
    points = [hardened.moved[0].body, hardened.moved[0].key_part, server.public().route, server.public().subject]
    held = [server.k_r, server.y, server.box, server.unveil, hardened.delivery]
    derived = [(point * Scalar(scalar.reveal())).key() for point in points for scalar in (server.k_r, server.unveil)]
    assert opened_by([*held, *derived, *(point.key() for point in points)], at_server) == []
    assert BODY not in at_server


def test_a_hardened_server_proxy_and_members_of_another_topic_pool_their_keys_and_read_nothing(
    hardened: Hardened,
) -> None:
    """All that the two hosts and all three users draw or compute, with the grants of the other topic for all epochs."""
    server, other = hardened.server, [PEOPLE.bob.keys_at(NOW + later).topic(OTHER) for later in range(EPOCHS)]
    scalars = [server.k_r, server.y, server.unveil, hardened.mask, *hardened.keys, *hardened.moves]
    points = [server.public().route, server.public().subject]
    points += [part for each in (*hardened.uploads, *hardened.moved) for part in (each.body, each.key_part)]
    pooled = [*scalars, server.box, hardened.delivery, *(keys.content for keys in other)]
    pooled += [derive_element_key(keys, b"relay") for keys in other]
    pooled += [(point * scalar).key() for point, scalar in product(points, [Scalar.of(1), *scalars])]
    assert opened_by(pooled, hardened.sealed) == []
    assert opened_by([READER.content], hardened.sealed) != [], "the topic's key opens it"


# --- (b) the server holds k_r, so it tries every subject it can think of


def dictionary(tags: Iterable[bytes], candidates: dict[str, bytes], factor: Scalar) -> list[str | None]:
    """The candidate of each tag."""
    names = {
        subject_tags.tag_of(subject_tags.blind_element(element, factor)): name for name, element in candidates.items()
    }
    return [names.get(tag) for tag in tags]


def test_b_in_paper_the_server_names_every_subject(paper: Paper) -> None:
    candidates = {topic: qualify_element(topic, b"") for topic in TOPICS}
    assert dictionary(paper.tags, candidates, paper.server.k_r) == [TOPIC, TOPIC, OTHER]


def test_b_hardened_the_server_names_none_at_home_even_with_the_topics_key(hardened: Hardened) -> None:
    outsider = {topic: qualify_element(topic, b"") for topic in TOPICS}
    insider = {TOPIC: key_element(hardened.subject_key, b"")}
    for candidates in (outsider, insider):
        for factor in (hardened.server.k_r, hardened.server.y, hardened.server.k_r * hardened.server.y):
            assert dictionary(hardened.tags, candidates, factor) == [None, None, None]
    with_the_mask = hardened.server.k_r * hardened.mask
    assert dictionary(hardened.tags, outsider, with_the_mask) == [None, None, None], "the topic's key is needed"
    assert dictionary(hardened.tags, insider, with_the_mask) == [TOPIC, TOPIC, None], "and the proxies' mask"


def test_b_hardened_a_server_that_is_a_user_tries_one_subject_for_each_upload(hardened: Hardened) -> None:
    """The remaining attack: an online oracle, as slow as the proxy's limits make it."""
    draw = random.Random(3).randbytes
    asked = subject_tags.veil_element(
        key_element(hardened.subject_key, b""), hardened.keys[2], hardened.server.public().subject, draw
    )
    by_the_proxy = subject_tags.move_veiled_element(asked, hardened.moves[2], hardened.mask)
    assert [subject_tags.tag_veiled(by_the_proxy, hardened.server.unveil) == tag for tag in hardened.tags] == [
        True,
        True,
        False,
    ]


# --- (c) the proxy computes k_r H, so it links users, whom it knows, by topic


def linked(views: Sequence[set[Point]]) -> list[tuple[int, int]]:
    """The users that have a point in common."""
    return [(a, b) for b in range(len(views)) for a in range(b) if views[a] & views[b]]


def products(points: Iterable[Point], factors: Iterable[Scalar]) -> set[Point]:
    return {point * factor for point, factor in product(list(points), list(factors))}


def test_c_in_paper_the_proxy_knows_who_wants_the_same(paper: Paper) -> None:
    views = [products([upload], [move]) for upload, move in zip(paper.uploads, paper.moves, strict=True)]
    assert linked(views) == [(0, 1)]


def test_c_hardened_what_the_proxy_has_of_two_users_has_nothing_in_common(hardened: Hardened) -> None:
    one, mask, public = Scalar.of(1), hardened.mask, hardened.server.public()
    views = []
    for upload, move in zip(hardened.uploads, hardened.moves, strict=True):
        parts = [upload.body, upload.key_part, upload.body - upload.key_part, upload.body + upload.key_part]
        parts += [upload.body - public.subject, upload.key_part - public.subject, upload.body - public.route]
        views.append(products(parts, (one, move, mask, move * mask, move.inverse(), mask.inverse())))
    assert linked(views) == []
    unveiled = [{moved.body - moved.key_part / hardened.server.y} for moved in hardened.moved]
    assert linked(unveiled) == [(0, 1)], "the veil is all that is between: with the server's key it would"


# --- (d) a proxy and any one user have every key. This remains


def coalition_keys(moves: Sequence[Scalar], bribed: int, key: Scalar) -> tuple[Scalar, list[Scalar]]:
    """k_r and every k_u, from all transformation keys and the key of one user."""
    k_r = moves[bribed] * key
    return k_r, [k_r / move for move in moves]


@pytest.mark.parametrize("play", [Paper(), Hardened()], ids=["paper", "hardened"])
@pytest.mark.parametrize("bribed", [0, 1, 2])
def test_d_a_proxy_and_any_one_user_have_every_key_in_both_profiles(play: Play, bribed: int) -> None:
    assert coalition_keys(play.moves, bribed, play.keys[bribed]) == (play.server.k_r, play.keys)


@pytest.mark.parametrize("play", [Paper(), Hardened()], ids=["paper", "hardened"])
def test_d_a_proxy_that_makes_up_a_user_needs_to_bribe_none(play: Play) -> None:
    """P2's proxy is curious but honest; this shows what rests on that assumption. The server cannot recognise real
    users."""
    nobody = begin_enrolment(play.server.public(), random.Random(5).randbytes)
    move = combine_shares(nobody.ratio, answer_enrolment(play.server, nobody.sealed))
    assert move * nobody.key == play.server.k_r


def test_d_in_paper_the_two_then_read_all_and_name_every_subject(paper: Paper) -> None:
    k_r, keys = coalition_keys(paper.moves, 2, paper.keys[2])
    assert body_encryption.open_body(paper.sent, paper.sealed, keys[0]) == BODY
    candidates = {topic: qualify_element(topic, b"") for topic in TOPICS}
    assert dictionary(map(subject_tags.tag_of, paper.moved), candidates, k_r) == [TOPIC, TOPIC, OTHER]


def test_d_hardened_the_two_read_nothing_and_name_no_subject_of_others(hardened: Hardened) -> None:
    """The bribed user is of the topic OTHER; then one of TOPIC itself is bribed, and still the veil stays on."""
    k_r, keys = coalition_keys(hardened.moves, 2, hardened.keys[2])
    assert opened_by([k_r, *keys, hardened.mask], hardened.sealed) == []
    for upload, move, key in zip(hardened.uploads, hardened.moves, keys, strict=True):
        for element in (key_element(hardened.subject_key, b""), qualify_element(TOPIC, b"")):
            assert not named_by_coalition(upload, element, key, [k_r, key, move, hardened.mask])


def named_by_coalition(upload: Ciphertext, element: bytes, key: Scalar, held: list[Scalar]) -> bool:
    """Whether a guess shows: for the right element, `body` less k_u H is rho G, and `key_part` is y times that."""
    rho_g = upload.body - subject_tags.blind_element(element, key)
    return any(rho_g * a == upload.key_part * b for a, b in product([Scalar.of(1), *held], repeat=2))


def test_d_hardened_it_is_the_servers_key_that_would_name_them(hardened: Hardened) -> None:
    """The control of the test above."""
    element = key_element(hardened.subject_key, b"")
    found = [
        named_by_coalition(upload, element, key, [hardened.server.y])
        for upload, key in zip(hardened.uploads, hardened.keys, strict=True)
    ]
    assert found == [True, True, False]


# --- (e) the sealed body travels unchanged, so the proxy links publisher and readers


def common_piece(up: bytes, down: bytes, size: int = 8) -> bool:
    """True if any piece of this many bytes is in both."""
    pieces = {up[start : start + size] for start in range(len(up) - size + 1)}
    return any(down[start : start + size] in pieces for start in range(len(down) - size + 1))


def test_e_in_paper_the_proxy_sees_the_same_bytes_come_and_go(paper: Paper) -> None:
    came = paper.sent.encode() + paper.sealed
    went = paper.down.encode() + paper.sealed
    assert common_piece(came, went)
    assert not common_piece(paper.sent.encode(), paper.down.encode()), "the encrypted point is made anew, in vain"


def test_e_hardened_nothing_that_comes_goes(hardened: Hardened) -> None:
    again = body_encryption.wrap_for_subscriber(Sealer(hardened.delivery), hardened.sealed, random.Random(1).randbytes)
    other = body_encryption.wrap_for_subscriber(Sealer(Secret(bytes(32))), hardened.sealed, random.Random(2).randbytes)
    for one, two in product((hardened.up,), (hardened.down, again, other)):
        assert not common_piece(one, two)
    for one, two in ((hardened.down, again), (hardened.down, other), (again, other)):
        assert not common_piece(one, two)
    assert common_piece(hardened.sealed, hardened.sealed[100:]), "had the layers been left out, it would show"


# --- and crafted values are refused in both


def test_crafted_subjects_and_messages_are_refused(paper: Paper, hardened: Hardened) -> None:
    for data in (bytes(64), paper.sent.encode()[:32] + bytes(32), b"\xff" * 64, paper.sent.encode()[:-1]):
        with pytest.raises(MalformedError):
            Ciphertext.decode(data)
    for data in (bytes(32), b"\xff" * 32, b""):
        with pytest.raises(MalformedError):
            Point.decode(data)
        with pytest.raises(MalformedError):
            Scalar(data)
    rho = Scalar.of(7)
    of_nothing = Ciphertext(rho.public(), hardened.server.public().subject * rho)
    with pytest.raises(MalformedError):
        subject_tags.tag_veiled(of_nothing, hardened.server.unveil)
