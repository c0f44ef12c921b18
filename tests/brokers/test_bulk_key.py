"""One shared key serves a bulk: each publication has a key of its own, and shares alone open nothing in `hardened`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.keys.bulk_key import BULK_MAX, BulkOpener, BulkSealer, PublicationKey, RefreshPolicy
from veilcast.crypto.group import Scalar
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, ForgedError, LocalError, StaleError

TOPIC = Secret(b"t" * 32)


def bulk(messages: int = 1, size: int | None = None, seed: int = 1) -> BulkSealer:
    return BulkSealer(RefreshPolicy(messages, size), bytes(32), random.Random(seed).randbytes)


def take(sealer: BulkSealer, size: int, topic: Secret | None = None) -> tuple[PublicationKey, Scalar | None]:
    """The key of the next publication, and the shared key if it is new: each bulk ends when it is due."""
    shared = None
    if sealer.is_due(size):
        _, shared = sealer.draw_successor()
        sealer.advance()
    return sealer.next_key(size, topic), shared


def test_a_key_serves_a_bounded_number_of_messages() -> None:
    fresh = [take(bulk_of, 10)[1] is not None for bulk_of in [bulk(3)] for _ in range(7)]
    assert fresh == [True, False, False, True, False, False, True]


def test_a_key_serves_a_bounded_number_of_bytes() -> None:
    one = bulk(1000, 100)
    fresh = [take(one, size)[1] is not None for size in (60, 40, 1, 100, 1, 500, 1)]
    assert fresh == [True, False, True, True, True, True, True]


def test_by_default_every_message_has_its_own_key() -> None:
    one = bulk()
    assert len({take(one, 1)[0].key_id for _ in range(5)}) == 5


@given(st.integers(1, 6), st.integers(0, 2**32), st.booleans())
@settings(max_examples=15)
def test_a_subscriber_opens_a_bulk_in_any_order(messages: int, seed: int, hardened: bool) -> None:
    topic = TOPIC if hardened else None
    one, rng = bulk(messages, seed=seed), random.Random(seed)
    sealed = []
    shared = {}
    for at in range(12):
        sealing, new = take(one, 1, topic)
        if new is not None:
            shared[sealing.key_id] = BulkOpener(sealing.key_id, new)
        text = str(at).encode()
        sealed.append(
            (sealing.key_id, sealing.number, text, seal(sealing.key, text, context=b"", entropy=rng.randbytes))
        )
    rng.shuffle(sealed)
    for key_id, number, text, body in sealed:
        assert unseal(shared[key_id].key(number, topic), body, context=b"") == text
        shared[key_id].forget(number)
    assert all(len(opening) == 0 for opening in shared.values())


def test_shares_alone_open_nothing_in_hardened() -> None:
    sealing, shared = take(bulk(), 4, TOPIC)
    assert shared is not None
    body = seal(sealing.key, b"text", context=b"", entropy=random.Random(1).randbytes)
    opening = BulkOpener(sealing.key_id, shared)
    for wrong in (None, Secret(b"another epoch's key".ljust(32))):
        with pytest.raises(ForgedError):
            unseal(opening.key(0, wrong), body, context=b"")
    assert unseal(opening.key(0, TOPIC), body, context=b"") == b"text"


def test_the_topic_key_alone_opens_nothing_either() -> None:
    (first, _), (_, shared) = (take(bulk(seed=seed), 4, TOPIC) for seed in (1, 2))
    assert shared is not None
    assert BulkOpener(first.key_id, shared).key(0, TOPIC) != first.key


def test_the_key_of_an_opened_publication_is_forgotten() -> None:
    opening = BulkOpener(b"k" * 16, Secret(b"s" * 32))
    opening.key(0, None)
    opening.forget(0)
    with pytest.raises(StaleError):
        opening.key(0, None)


def test_a_publication_that_does_not_open_removes_no_key() -> None:
    opening = BulkOpener(b"k" * 16, Secret(b"s" * 32))
    assert opening.key(3, None) == opening.key(3, None)


def test_skipped_keys_are_bounded() -> None:
    opening = BulkOpener(b"k" * 16, Secret(b"s" * 32), skipped=4)
    opening.key(4, None)
    opening.key(8, None)
    assert len(opening) == 5
    with pytest.raises(StaleError):
        opening.key(3, None)
    with pytest.raises(StaleError):
        opening.key(-1, None)
    with pytest.raises(LocalError):
        BulkOpener(b"k" * 16, Secret(b"s" * 32), skipped=-1)


def test_a_subscriber_may_begin_anywhere_in_a_bulk_and_keeps_the_last_keys_before() -> None:
    """It joined late, or few publications match its interest."""
    whole, late = (BulkOpener(b"k" * 16, Secret(b"s" * 32), skipped=4) for _ in range(2))
    keys = [whole.key(number, None) for number in range(301)]
    assert late.key(300, None) == keys[300]
    assert [late.key(number, None) for number in range(296, 300)] == keys[296:300]
    assert len(late) == 5
    for number in (295, BULK_MAX):
        with pytest.raises(StaleError):
            late.key(number, None)


def test_a_successor_is_drawn_before_it_is_needed_and_takes_over_when_told() -> None:
    one = bulk(2)
    take(one, 1)
    key_id, shared = one.draw_successor()
    assert BulkOpener(key_id, shared).key(0, TOPIC) == one.trial_key(TOPIC).key
    for _ in range(2):
        assert one.next_key(1, TOPIC).key_id != key_id
    assert one.is_due(1)
    one.advance()
    sealing = one.next_key(1, TOPIC)
    assert (sealing.key_id, sealing.number) == (key_id, 1)
    for refused in (one.advance, lambda: one.trial_key(None), lambda: bulk().next_key(1, None)):
        with pytest.raises(LocalError):
            refused()


@pytest.mark.parametrize(("messages", "size"), [(0, None), (1, 0), (1 << 40, None)])
def test_an_invalid_refresh_policy_is_refused(messages: int, size: int | None) -> None:
    with pytest.raises(ConfigError):
        RefreshPolicy(messages, size)
