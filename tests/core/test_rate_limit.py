"""Rate limits: a burst and a steady rate for each peer and kind, and a bound on the peers that are remembered."""

from __future__ import annotations

from veilcast.core.rate_limit import PeerRateLimits, Rate, TokenBucket

RATES = {"requests": Rate(10, 2), "bytes": Rate(1, 100)}


def test_an_exhausted_bucket_gives_a_token_after_the_time_of_one() -> None:
    bucket = TokenBucket(10, 3)
    bucket.exhaust(1000)
    assert not bucket.has_token(1009)
    assert bucket.take(1010)
    assert not bucket.take(1010)


def test_each_peer_and_kind_has_a_burst_of_its_own() -> None:
    limits: PeerRateLimits[str] = PeerRateLimits(8, RATES)
    assert [limits.take("a", "requests", 0) for _ in range(3)] == [True, True, False]
    assert limits.take("a", "bytes", 0, 100)
    assert not limits.take("a", "bytes", 0)
    assert limits.take("b", "requests", 0)
    assert limits.take("a", "requests", 10)


def test_a_kind_without_a_rate_is_not_limited_and_remembers_nobody() -> None:
    limits: PeerRateLimits[str] = PeerRateLimits(8, RATES)
    assert all(limits.take("a", "greetings", 0) for _ in range(100))
    assert len(limits) == 0


def test_a_peer_that_owes_tokens_is_refused_until_it_has_paid() -> None:
    limits: PeerRateLimits[str] = PeerRateLimits(8, RATES)
    limits.charge("a", "requests", 0, 5)
    assert limits.take("a", "requests", 0), "a peer that was never heard has no account to charge"
    limits.charge("a", "requests", 0, 5)
    assert not limits.take("a", "requests", 40)
    assert limits.take("a", "requests", 50)


def test_an_exhausted_peer_must_wait_and_a_forgotten_one_begins_again() -> None:
    limits: PeerRateLimits[str] = PeerRateLimits(8, RATES)
    limits.exhaust("a", "requests", 0)
    assert limits.take("a", "requests", 0)
    limits.exhaust("a", "requests", 0)
    assert not limits.take("a", "requests", 0)
    limits.forget("a")
    assert limits.take("a", "requests", 0)


def test_of_too_many_peers_the_one_that_was_heard_longest_ago_is_forgotten() -> None:
    limits: PeerRateLimits[str] = PeerRateLimits(2, RATES)
    for peer in ("a", "b", "a", "c"):
        assert limits.take(peer, "requests", 0)
    assert len(limits) == 2
    assert not limits.take("a", "requests", 0), "a was heard after b, and is remembered"
    assert [limits.take("b", "requests", 0) for _ in range(2)] == [True, True]
