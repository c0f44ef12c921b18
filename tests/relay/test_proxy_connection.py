"""A client's connection to its proxy: when it repeats a request, and when it waits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from veilcast.core.connector import DOUBLINGS_MAX
from veilcast.crypto.group import Scalar
from veilcast.machine import Address
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.paper import PaperClientProfile
from veilcast.relay.proxy_connection import ProxyConnection
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.wire.base import Message
from veilcast.wire.relay import EnrolClient, ReplyCode, RequestReply, Resume

SECOND_US = 1_000_000
PUBLIC = ServerKeys.draw(Random(1).randbytes).public()


class Slow:
    """A proxy that answers every request after a fixed time, and the client's connection to it."""

    def __init__(self, takes_us: int) -> None:
        self.takes_us, self.now = takes_us, 0
        self.came: list[int] = []
        self._due: list[tuple[int, Message]] = []
        rng = Random(2)
        keyring = make_keyring(make_topic_records(("a",), 0.0, "paper"), 3_600 * SECOND_US, (("a", "publisher"),), 0)
        profile, config = PaperClientProfile(keyring, rng.randbytes), RelayClientConfig("paper", retry_us=SECOND_US)
        self.way = ProxyConnection(config, profile, PUBLIC, Address("proxy"), self._post, rng, rng.randbytes, 0)
        self.way.peer_up(0)

    def ask(self) -> None:
        def build(number: int, key: Scalar, now: int) -> Message:
            return Resume(number, bytes(16))

        self.way.request(self.now, build, lambda now: None)

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND_US)
        while self.now < end:
            self.now += SECOND_US // 10
            due, self._due = (
                [each for each in self._due if each[0] <= self.now],
                [each for each in self._due if each[0] > self.now],
            )
            for _, reply in due:
                assert isinstance(reply, RequestReply)
                self.way.handle_reply(reply, self.now)
            self.way.handle(self.now)

    def _post(self, peer: Address, message: Any, now: int) -> None:
        takes_us = 0 if isinstance(message, EnrolClient) else self.takes_us
        if takes_us:
            self.came.append(message.number)
        self._due.append((self.now + takes_us, RequestReply(message.number, ReplyCode.DONE)))


def test_a_slow_proxy_is_soon_not_asked_twice() -> None:
    """Repetitions would double the work of a busy proxy and delay its answers further."""
    proxy = Slow(round(0.9 * SECOND_US))
    for _ in range(60):
        proxy.ask()
        proxy.run(0.5)
    first, last = (
        [proxy.came.count(number) for number in dict.fromkeys(proxy.came)][profile]
        for profile in (slice(0, 20), slice(30, None))
    )
    assert max(first) > 1
    assert max(last) == 1


@pytest.mark.parametrize("takes_s", [0, 1_000])
def test_a_lost_request_is_repeated_in_bounded_time_after_slow_answers(takes_s: int) -> None:
    proxy = Slow(SECOND_US)
    proxy.way._answer_times._usual_us = takes_s * SECOND_US
    proxy.takes_us = 10**15
    proxy.run(1)
    proxy.ask()
    proxy.run((1 << DOUBLINGS_MAX) + 1)
    assert len(proxy.came) > 1
