"""What each party of the relay holds, and what it can derive: a party that could compute more fails here.

Views are written in the algebra of `symbolic/group_knowledge`, for two users. `Play` runs the real recipes with the
same secrets, and a test compares every point of every view with the result. So a recipe that reveals more is noticed
here.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.symbolic.group_knowledge import ONE, G, GroupView, Number, Secrets, Sum, base, can_distinguish, secret
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.relay import body_encryption, subject_tags
from veilcast.relay.transformation_key import (
    EnrolmentStart,
    ServerKeys,
    answer_enrolment,
    begin_enrolment,
    combine_shares,
)

K_R, Y, XS = secret("k_r"), secret("y"), secret("xs")
K, B = (secret("k_1"), secret("k_2")), (secret("b_1"), secret("b_2"))
T = (K_R / K[0], K_R / K[1])
RHO, R, R2 = (secret("rho_1"), secret("rho_2")), secret("r"), secret("r'")
M = base("M")
NEWS, CHAT = base("H(news)"), base("H(chat)")


def joined(user: int) -> GroupView:
    """The proxy's view of an enrolment, including the user's claim."""
    return GroupView((B[user] / K[user], K_R / B[user]), (G * K[user],))


PUBLIC = GroupView(points=(G * K_R, G * Y))
USER = GroupView((K[0], B[0]))
JOINS = joined(0) + joined(1)
MASK = GroupView((XS,))


# --- paper: what each of them sees of user 1's upload, user 2's, and a message from 1 to 2


def paper_uploads(first: Sum, second: Sum) -> GroupView:
    return GroupView(points=(first * K[0], second * K[1]))


def paper_tags(first: Sum, second: Sum) -> GroupView:
    return GroupView(points=(first * K_R, second * K_R))


SENT = GroupView(points=(M + G * R, G * (K[0] * R)))
MOVED = GroupView(points=(M + G * R, G * (K_R * R)))
REFRESHED = GroupView(points=(M + G * R + G * R2, G * (K_R * R) + G * (K_R * R2)))


def paper_proxy(first: Sum = NEWS, second: Sum = CHAT) -> GroupView:
    return PUBLIC + JOINS + paper_uploads(first, second) + SENT + MOVED + REFRESHED


def paper_server(first: Sum = NEWS, second: Sum = CHAT) -> GroupView:
    return PUBLIC + GroupView((K_R, Y, *B)) + paper_tags(first, second) + MOVED


# --- hardened: uploads are veiled, and no message is in the group


def veiled(element: Sum, user: int, factor: Number = ONE) -> GroupView:
    """An upload, or the proxy's transformation of it by its factor."""
    return GroupView(points=((element * K[user] + G * RHO[user]) * factor, G * (RHO[user] * Y * factor)))


def hardened_proxy(first: Sum = NEWS, second: Sum = CHAT) -> GroupView:
    return PUBLIC + JOINS + MASK + veiled(first, 0) + veiled(second, 1)


def hardened_server(first: Sum = NEWS, second: Sum = CHAT) -> GroupView:
    return PUBLIC + GroupView((K_R, Y, *B)) + veiled(first, 0, T[0] * XS) + veiled(second, 1, T[1] * XS)


KEYS = (K_R, Y, XS, *K)
"""Keys that a party must not have unless it was given them."""


def keys_of(view: GroupView) -> set[Number]:
    return {key for key in KEYS if view.knows(key)}


@pytest.mark.parametrize(
    ("view", "theirs"),
    [
        (PUBLIC, set()),
        (PUBLIC + USER, {K[0]}),
        (paper_proxy(), set()),
        (paper_server(), {K_R, Y}),
        (paper_server() + USER, {K_R, Y, K[0]}),
        (hardened_proxy(), {XS}),
        (hardened_server(), {K_R, Y}),
        (hardened_server() + USER, {K_R, Y, K[0]}),
    ],
    ids=["outsider", "user", "proxy p", "server p", "server and user p", "proxy", "server", "server and user"],
)
def test_a_party_can_compute_only_the_keys_it_was_given(view: GroupView, theirs: set[Number]) -> None:
    assert keys_of(view) == theirs


def test_a_proxy_with_any_one_user_has_every_users_key_in_both_profiles() -> None:
    """Flaw (d), which remains: the ratio of two keys is symmetric."""
    assert keys_of(paper_proxy() + USER) == {K_R, *K}
    assert keys_of(hardened_proxy() + USER) == {K_R, XS, *K}


def test_a_server_with_the_transformation_key_would_have_the_users_key() -> None:
    """P2 says so in one place: the model catches what the protocol must not do."""
    assert K[0] in keys_of(paper_server() + GroupView((T[0],)))


# --- messages


def test_in_paper_the_server_reads_messages_and_the_proxy_does_not() -> None:
    """Flaw (a)."""
    assert paper_server().knows(M)
    assert not paper_proxy().knows(M)
    assert (paper_proxy() + USER).knows(M)
    assert not (PUBLIC + USER + REFRESHED).knows(M)


def test_in_paper_the_proxy_cannot_recognise_a_rerandomised_message() -> None:
    """This holds; the sealed body beside the point reveals it (flaw e)."""
    other = GroupView(points=(base("M'") + G * R2, G * (K_R * R2)))
    seen = PUBLIC + JOINS + SENT + MOVED
    assert not can_distinguish(seen + REFRESHED, seen + other)
    assert can_distinguish(seen + MOVED, seen + other), "had the server not refreshed it"


# --- subjects

ELEMENTS = GroupView(points=(NEWS, CHAT))
"""A party that can name the elements: anyone in `paper`, a party with the topic's key in `hardened`."""

Seen = Callable[[Sum, Sum], GroupView]


@pytest.mark.parametrize(
    ("seen", "linked", "guessed"),
    [
        (paper_proxy, True, False),
        (paper_server, True, True),
        (hardened_proxy, False, False),
        (hardened_server, True, False),
    ],
)
def test_which_party_links_users_by_subject_and_which_can_try_a_dictionary(
    seen: Seen, linked: bool, guessed: bool
) -> None:
    """Flaws (b) and (c). The server links tags by design, and does not know whose they are."""
    assert can_distinguish(seen(NEWS, NEWS), seen(NEWS, CHAT)) == linked
    others = seen(base("H(1)"), base("H(2)"))
    assert can_distinguish(seen(NEWS, CHAT) + ELEMENTS, others + ELEMENTS) == guessed


def test_the_server_cannot_link_uploads_to_users() -> None:
    """The server knows the blinds of the enrolments; they lead from no user to a subject."""
    server = PUBLIC + GroupView((K_R, Y, *B))
    moved = [veiled(NEWS, a, T[a] * XS) + veiled(CHAT, b, T[b] * XS) for a, b in ((0, 1), (1, 0))]
    assert not can_distinguish(server + moved[0], server + moved[1])


def test_a_server_with_a_special_key_for_one_user_could_link_its_uploads() -> None:
    """This is why the proxy checks the result of an enrolment."""
    special = secret("k_s")
    server = GroupView((K_R, special), (NEWS * K_R, CHAT * K_R))
    mine, others = GroupView(points=(NEWS * special,)), GroupView(points=(NEWS * K_R,))
    assert can_distinguish(server + mine, server + others)


def test_a_bribed_user_with_the_topics_key_cannot_open_veiled_subjects() -> None:
    """The rest of flaw (d) in `hardened`: the adversary has all users' keys, and still no subject of another user."""
    coalition = hardened_proxy(NEWS, CHAT) + USER + ELEMENTS
    assert keys_of(coalition) >= {K_R, *K}
    assert not can_distinguish(coalition, hardened_proxy(NEWS, NEWS) + USER + ELEMENTS)
    in_paper = [paper_proxy(NEWS, second) + USER + ELEMENTS for second in (NEWS, base("H(other)"))]
    assert can_distinguish(*in_paper), "where it opens every one"


def test_a_proxy_cannot_bind_a_received_subject_to_its_own_box() -> None:
    """Otherwise the proxy could send a subscription's subjects as a publication, and see which clients it reaches."""
    own = secret("own")

    def can_bind(bond: Number) -> bool:
        sent = (NEWS * K[0] + G * (RHO[0] * bond), G * (RHO[0] * Y))
        proxy = PUBLIC + JOINS + MASK + GroupView((own,), sent)
        return proxy.knows(G * (RHO[0] * bond * Y * own))

    assert not can_bind(secret("bond"))
    assert can_bind(ONE), "had the member not bound it"


def test_a_server_that_is_also_a_user_can_only_try_elements_through_the_proxy() -> None:
    rho = secret("rho_c")
    sent = GroupView((K[0], B[0], rho), (NEWS, CHAT, (NEWS * K[0] + G * rho) * (T[0] * XS), G * (rho * Y * T[0] * XS)))

    def server(second: Sum) -> GroupView:
        return PUBLIC + GroupView((K_R, Y, *B)) + veiled(second, 1, T[1] * XS)

    assert can_distinguish(server(NEWS) + sent, server(base("H(other)")) + sent), "it sent this one"
    assert not can_distinguish(server(CHAT) + sent, server(base("H(other)")) + sent), "and not this one"


def test_server_and_proxy_together_learn_everything() -> None:
    """The assumption of the whole protocol, and the control of these tests."""
    both = hardened_proxy() + hardened_server()
    assert keys_of(both) == {K_R, Y, XS, *K}
    assert can_distinguish(
        ELEMENTS + both, ELEMENTS + hardened_proxy(base("H(1)"), CHAT) + hardened_server(base("H(1)"), CHAT)
    )


def test_without_the_mask_the_server_could_try_a_dictionary() -> None:
    """Planted bug: a proxy that omits its mask."""

    def bare(first: Sum) -> GroupView:
        return PUBLIC + GroupView((K_R, Y)) + veiled(first, 0, T[0])

    assert can_distinguish(ELEMENTS + bare(NEWS), ELEMENTS + bare(base("H(other)")))


def test_a_veil_shared_by_two_subjects_would_let_the_proxy_link_them() -> None:
    """Planted bug: rho is used twice."""

    def twice(second: Sum) -> GroupView:
        return PUBLIC + JOINS + MASK + GroupView(points=tuple(e * K[0] + G * RHO[0] for e in (NEWS, second)))

    assert can_distinguish(twice(NEWS), twice(CHAT))


# --- the views are what the recipes make


class Play:
    """One run of the recipes with named secrets."""

    def __init__(self) -> None:
        rng = random.Random(7)
        self.secrets = Secrets()
        self.bytes = rng.randbytes
        self.keys = ServerKeys(self.scalar("k_r"), self.scalar("y"), Secret(rng.randbytes(32)))
        self.bases = {
            "G": Scalar.of(1).public(),
            "H(news)": Point.hash(b"news", b"vc/relay-point"),
            "H(chat)": Point.hash(b"chat", b"vc/relay-point"),
        }

    def scalar(self, name: str) -> Scalar:
        return Scalar.of(self.secrets[name])

    def drawing(self, *names: str) -> Callable[[int], bytes]:
        """Entropy that yields these secrets in turn, and nothing else of their size."""
        waiting = list(names)
        return lambda size: self.scalar(waiting.pop(0)).reveal() + bytes(32) if size == 64 else self.bytes(size)

    def values(self, view: GroupView) -> tuple[list[Scalar], list[Point]]:
        numbers = [Scalar.of(self.secrets.value(number)) for number in view.numbers]
        return numbers, [self.secrets.point(point, self.bases) for point in view.points]

    def begun(self, user: int) -> EnrolmentStart:
        return begin_enrolment(self.keys.public(), self.drawing(f"k_{user + 1}", f"b_{user + 1}"))


def parts(*ciphertexts: Ciphertext) -> list[Point]:
    return [profile for each in ciphertexts for profile in (each.body, each.key_part)]


@pytest.mark.parametrize("user", [0, 1])
def test_the_symbolic_views_of_an_enrolment_match_the_code(user: int) -> None:
    play = Play()
    begun = play.begun(user)
    answered = answer_enrolment(play.keys, begun.sealed)
    public = play.keys.public()
    assert play.values(joined(user)) == ([begun.ratio, answered], [begun.claim])
    assert play.values(GroupView((K[user], T[user])))[0] == [begun.key, combine_shares(begun.ratio, answered)]
    assert play.values(PUBLIC)[1] == [public.route, public.subject]


def test_the_symbolic_views_of_paper_match_the_code() -> None:
    play = Play()
    keys, moves = play.values(GroupView(K))[0], play.values(GroupView(T))[0]
    uploads = [subject_tags.blind_element(each, key) for each, key in zip((b"news", b"chat"), keys, strict=True)]
    assert play.values(paper_uploads(NEWS, CHAT))[1] == uploads
    moved_up = [subject_tags.move_element(each, t) for each, t in zip(uploads, moves, strict=True)]
    assert play.values(paper_tags(NEWS, CHAT))[1] == moved_up
    encrypted, _ = body_encryption.seal_body(b"body", keys[0], play.drawing("r", "r"))
    play.bases["M"] = encrypted.body - play.scalar("r").public()
    moved = body_encryption.move_key_up(encrypted, moves[0])
    refreshed = body_encryption.rerandomise_key(moved, play.keys, play.drawing("r'"))
    assert play.values(SENT + MOVED + REFRESHED)[1] == parts(encrypted, moved, refreshed)


def test_the_symbolic_views_of_hardened_match_the_code() -> None:
    play = Play()
    for user, (element, point) in enumerate(((b"news", NEWS), (b"chat", CHAT))):
        [key, t, mask], _ = play.values(GroupView((K[user], T[user], XS)))
        uploaded = subject_tags.veil_element(element, key, play.keys.public().subject, play.drawing(f"rho_{user + 1}"))
        assert play.values(veiled(point, user))[1] == parts(uploaded)
        moved = subject_tags.move_veiled_element(uploaded, t, mask)
        assert play.values(veiled(point, user, T[user] * XS))[1] == parts(moved)
        tagged = subject_tags.tag_veiled(moved, play.keys.unveil)
        assert tagged == subject_tags.tag_of(play.values(GroupView(points=(point * (K_R * XS),)))[1][0])
