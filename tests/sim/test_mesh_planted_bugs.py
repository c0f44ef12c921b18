"""Bugs that are planted in the real code, one at a time, and the checker of the soak that finds each.

The same seeds pass without a bug, so it is the bug that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from veilcast.core import publication
from veilcast.core.publication import NumberedPublication, notification_id, open_notify
from veilcast.crypto.seal import seal
from veilcast.crypto.secret import Secret
from veilcast.errors import UnknownTopicError
from veilcast.link.replay_window import ReplayWindow
from veilcast.machine import Address, Delivered, Entropy, Note
from veilcast.mesh import paper, topic_overlay
from veilcast.mesh.node import MeshNode
from veilcast.mesh.ordered_inbox import OrderedInbox, PublisherStream
from veilcast.mesh.paper import PaperProfile
from veilcast.mesh.replay import SeenIds
from veilcast.mesh.shell_game import ShellGamePolicy
from veilcast.mesh.swap import Swaps
from veilcast.sim.mesh import soak
from veilcast.sim.mesh.population import TOPIC
from veilcast.topics import Label
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Greet, Notify

Plant = Callable[[pytest.MonkeyPatch], None]


def skipped_duplicate_check(patch: pytest.MonkeyPatch) -> None:
    """Neither here nor in the subscriber's window, which would make up for it."""
    patch.setattr(SeenIds, "__contains__", lambda self, name: False)
    patch.setattr(ReplayWindow, "take", lambda self, number: True)


def forgotten_lock_release(patch: pytest.MonkeyPatch) -> None:
    """A node that is bound in a game that does not end stays bound."""
    patch.setattr(Swaps, "expire", lambda self, now: None)


def lost_edge_in_a_swap(patch: pytest.MonkeyPatch) -> None:
    """A node that changes places forgets the last of its new children."""
    relink = ShellGamePolicy.relink

    def forgetful(
        self: ShellGamePolicy,
        token: bytes,
        inward: Sequence[Address],
        outward: Sequence[Address],
        now: int,
        *,
        moved: bool,
    ) -> None:
        relink(self, token, inward, outward[:-1] if moved else outward, now, moved=moved)

    patch.setattr(ShellGamePolicy, "relink", forgetful)


def reused_nonce(patch: pytest.MonkeyPatch) -> None:
    def careless(key: Secret, plaintext: bytes, *, context: bytes, entropy: Entropy) -> bytes:
        return seal(key, plaintext, context=context, entropy=bytes)

    patch.setattr(publication, "seal", careless)


def unsigned_advert_accepted(patch: pytest.MonkeyPatch) -> None:
    def credulous(advert: Advert, root: bytes, epoch: int) -> None:
        pass

    patch.setattr(paper, "check_advert", credulous)


def table_without_bound(patch: pytest.MonkeyPatch) -> None:
    def hoard(self: SeenIds, name: bytes) -> None:
        self._seen[name] = None

    patch.setattr(SeenIds, "add", hoard)


def replayed_note_accepted(patch: pytest.MonkeyPatch) -> None:
    """A note is known for as long as copies take, but not for longer."""
    add = SeenIds.add

    def forgetful(self: SeenIds, name: bytes) -> None:
        self._memory = 3
        add(self, name)

    patch.setattr(SeenIds, "add", forgetful)
    patch.setattr(ReplayWindow, "take", lambda self, number: True)


def wrong_order(patch: pytest.MonkeyPatch) -> None:
    """Notes are delivered in their order of arrival."""

    def hasty(
        self: OrderedInbox, stream: PublisherStream, number: int, note: Note, readers: list[int], now: int
    ) -> None:
        self._deliver(tuple(Delivered(reader, note) for reader in readers), now)

    patch.setattr(OrderedInbox, "put", hasty)


def delivered_without_subscription(patch: pytest.MonkeyPatch) -> None:
    """A node that can open a note that it forwards delivers it."""
    pass_on = PaperProfile._pass_on

    def curious(self: PaperProfile, notify: Notify, source: Address | None, now: int) -> None:
        known = notification_id(notify) in self._seen
        pass_on(self, notify, source, now)
        with suppress(UnknownTopicError):
            keys = self._epochs.current_keys(TOPIC, now)
            if not known and source is not None and not self._reading:
                self._deliver(TOPIC, lambda: open_notify(keys, notify), now)

    patch.setattr(PaperProfile, "_pass_on", curious)
    deliver = MeshNode._deliver

    def to_somebody(self: MeshNode, topic: str, read: Callable[[], NumberedPublication], now: int) -> None:
        self._subscriptions = self._subscriptions or {1: (topic, Label(topic))}
        deliver(self, topic, read, now)

    patch.setattr(MeshNode, "_deliver", to_somebody)


def forwarder_keeps_notes_to_itself(patch: pytest.MonkeyPatch) -> None:
    """The last of several recipients does not get a note."""
    post = MeshNode._post

    def lazy(self: MeshNode, neighbours: Sequence[Address], message: Message) -> None:
        post(self, neighbours[:-1] if len(neighbours) > 1 else neighbours, message)

    patch.setattr(MeshNode, "_post", lazy)


def who_comes_back_is_told_nothing(patch: pytest.MonkeyPatch) -> None:
    """A neighbour that restarted, or missed something, asks in vain."""

    def deaf(self: topic_overlay.MeshOverlay, _: Greet, source: Address, now: int) -> None:
        self.forget_neighbour(source, now)

    acts: dict[type[Message], Any] = {**topic_overlay._ACTS, Greet: deaf}
    patch.setattr(topic_overlay, "_ACTS", acts)


BUGS: list[tuple[Plant, int, str]] = [
    (skipped_duplicate_check, 3, "AtMostOnce"),
    (forgotten_lock_release, 3, "LocksExpire"),
    (lost_edge_in_a_swap, 4, "SubscribersAlwaysReachable"),
    (reused_nonce, 3, "UniqueNonces"),
    (unsigned_advert_accepted, 3, "Intact"),
    (table_without_bound, 3, "Bounded"),
    (replayed_note_accepted, 3, "AtMostOnce"),
    (wrong_order, 9, "PublisherOrder"),
    (delivered_without_subscription, 3, "OnlySubscribers"),
    (forwarder_keeps_notes_to_itself, 3, "Everyone"),
    (who_comes_back_is_told_nothing, 9, "SubscribersAlwaysReachable"),
]


@pytest.mark.parametrize(("plant", "seed", "checker"), BUGS)
def test_a_planted_bug_is_found(plant: Plant, seed: int, checker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    (violation,) = soak.SOAK.run(seed).violations
    assert violation.startswith(f"{checker}: "), violation


@pytest.mark.parametrize("seed", sorted({seed for _, seed, _ in BUGS}))
def test_the_seeds_pass_without_a_bug(seed: int) -> None:
    assert soak.SOAK.run(seed).violations == ()
