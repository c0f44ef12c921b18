"""A relay with one proxy: the truth, and what its server, its proxy and an observer of its clients' wires see.

Users read topics, and some write to them. In each epoch the present users subscribe, then publications come.
Observations follow the protocols. In the paper's relay a tag is k_r H(topic), the same for ever, and the proxy can
compute it too; all subscriptions of a user have one pseudonym; a body leaves as it arrived. In the paper's favour,
users join again in each epoch, under new pseudonyms. In the hardened relay tags change with the epoch, each
subscription has its own pseudonym, and nothing that the proxy sees is ever the same twice. That is the model's
assumption about the recipes: its hardened tags, pseudonyms and bodies are random numbers, so it says nothing about
them. The machines are asked whether it is true (`runs.relay.attacks_machines`).

The proxy forwards requests to the server one by one, or in shuffled batches: all requests of a window of time. Wires
show which users send and receive in each window. Observers have good clocks: without batches each request has its own
window. Records at a constant rate are not modelled: their times are those of the machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.rng import stream
from veilcast.lab.models.server_log import DELIVERED, PUBLISHED, SENT, SUBSCRIBED, Numbers, ServerLog

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RelayUsers:
    """The truth: no attacker receives it."""

    reads: Mask
    """Users x topics."""
    writes: Mask
    """Users x topics."""
    rates: Floats
    """Mean publications of each topic in an epoch."""
    churn: float
    """The share of users that are away in an epoch."""
    seed: int

    @property
    def users(self) -> int:
        return len(self.reads)

    def present(self, epoch: int) -> Mask:
        here: Mask = np.random.default_rng(stream(self.seed, "there", epoch)).random(self.users) >= self.churn
        return here


class RelayService(NamedTuple):
    profile: Literal["paper", "hardened"] = "hardened"
    batch: float = 0.0
    """Mean number of requests in a batch; 0: the proxy forwards each request at once."""


class ClientTraffic(NamedTuple):
    """Windows x users: records that each user sent to the proxy, and received from it."""

    sent: Floats
    got: Floats


@dataclass(frozen=True, eq=False)
class RelayObservations:
    """The observations of E epochs."""

    server: ServerLog
    proxy: ServerLog
    subscribing: ClientTraffic
    publishing: ClientTraffic
    first_windows: NDArray[np.int64]
    """E + 1 x 2: the first windows of each epoch's subscriptions and of its publications."""
    present: Mask
    """E x users: whether a user was connected."""

    def windows(self, requests: ServerLog) -> Numbers:
        """The window of the wires of each of these rows of the server: subscriptions, or publications."""
        publishes = (requests.kind != SUBSCRIBED).astype(np.int64)
        asking = np.diff(self.first_windows[:, 0])
        since = (requests.t_us - 1 - requests.epoch * EPOCH_US) // WINDOW_US - publishes * asking[requests.epoch]
        return np.asarray(self.first_windows[requests.epoch, publishes] + since, np.int64)


@dataclass(frozen=True, eq=False)
class RelayTruth:
    """The meaning of the numbers in a server's log. The truth, too."""

    user: dict[int, int]
    """The user of each pseudonym, and of each publication's number."""
    topic: tuple[Numbers, ...]
    """The tag of each topic, by epoch."""
    computed: Numbers
    """The tag of each topic that the server would compute with its own keys; hardened: numbers that no tag has."""


def settle_users(reads: Mask, writers: int, publications: float, churn: float, seed: int) -> RelayUsers:
    """Each topic has `writers` random writers, and a random rate; the rates sum to `publications`."""
    users, topics = reads.shape
    if not 1 <= writers <= users:
        raise ConfigError(f"a topic of {users} users has at least one writer, and at most so many")
    rng = np.random.default_rng(stream(seed, "clientele"))
    writes = np.zeros(reads.shape, np.bool_)
    for topic in range(topics):
        writes[rng.permutation(users)[:writers], topic] = True
    rates = rng.dirichlet(np.ones(topics))
    return RelayUsers(reads, writes, publications * rates, churn, seed)


def run_relay(people: RelayUsers, service: RelayService, epochs: int) -> tuple[RelayObservations, RelayTruth]:
    rng = np.random.default_rng(stream(people.seed, "relay"))
    lasting = _fresh(rng, people.reads.shape[1])
    days, tags = [], []
    windows = [(0, 0)]
    for epoch in range(epochs):
        tags.append(lasting if service.profile == "paper" else _fresh(rng, lasting.size))
        day = _Day(people, service, epoch, tags[-1], rng)
        days.append(day)
        windows.append((windows[-1][0] + day.asking.windows, windows[-1][1] + day.writing.windows))
    began = np.array(windows, np.int64)
    shown = RelayObservations(
        server=_join_logs([part for day in days for part in day.at_server()]),
        proxy=_join_logs([part for day in days for part in day.at_proxy()]),
        subscribing=_wires([day.asked() for day in days], people.users),
        publishing=_wires([day.written() for day in days], people.users),
        first_windows=began,
        present=np.array([day.here for day in days]),
    )
    user = {int(number): int(who) for day in days for number, who in day.known()}
    computed = lasting if service.profile == "paper" else _fresh(rng, lasting.size)
    return shown, RelayTruth(user, tuple(tags), computed)


class _Schedule(NamedTuple):
    """The window of an epoch in which each request is forwarded; when it arrived, and when it is forwarded, since the
    epoch began."""

    window: Numbers
    windows: int
    came_us: Numbers
    goes_us: Numbers


class _Day:
    """One epoch: requests in the order of their windows, and in random order within a window."""

    def __init__(
        self, people: RelayUsers, service: RelayService, epoch: int, tags: Numbers, rng: np.random.Generator
    ) -> None:
        self.here = people.present(epoch)
        self._epoch, self._rng, self._tags = epoch, rng, tags
        self._hides = service.profile == "hardened"
        self._reader, self._wanted = np.nonzero(people.reads & self.here[:, None])
        if self._hides:
            self._pseudonym = _fresh(rng, self._reader.size)
        else:
            self._pseudonym = _fresh(rng, people.users)[self._reader]
        self.asking = _schedule_requests(self._reader.size, service.batch, rng)
        may = people.writes & self.here[:, None]
        count = np.where(may.any(axis=0), rng.poisson(people.rates), 0)
        self._topic = rng.permutation(np.repeat(np.arange(count.size), count))
        self._writer = np.array([rng.choice(np.flatnonzero(may[:, topic])) for topic in self._topic], np.int64)
        self._request = _fresh(rng, self._topic.size)
        self.writing = _schedule_requests(self._topic.size, service.batch, rng)
        readers = [np.flatnonzero(self._wanted == topic) for topic in range(count.size)]
        sizes = np.array([readers[topic].size for topic in self._topic], np.int64)
        # Each delivery belongs to a publication and to a subscription.
        self._of = np.repeat(np.arange(sizes.size), sizes)
        self._to = np.concatenate([readers[topic] for topic in self._topic] or [np.empty(0, np.int64)])

    def at_server(self) -> list[ServerLog]:
        later = self.asking.windows * WINDOW_US
        goes = later + self.writing.goes_us
        return [
            self._rows(SUBSCRIBED, self.asking.goes_us, self._pseudonym, self._tags[self._wanted]),
            self._rows(PUBLISHED, goes, self._request, self._tags[self._topic]),
            self._rows(DELIVERED, goes[self._of], self._pseudonym[self._to], self._request[self._of]),
        ]

    def at_proxy(self) -> list[ServerLog]:
        later = self.asking.windows * WINDOW_US
        came, goes = later + self.writing.came_us, later + self.writing.goes_us
        body = self._request + 1
        return [
            self._rows(SUBSCRIBED, self.asking.came_us, self._reader, self._veiled(self._tags[self._wanted])),
            self._rows(PUBLISHED, came, self._writer, self._veiled(self._tags[self._topic])),
            self._rows(SENT, came, self._writer, self._veiled(body)),
            self._rows(DELIVERED, goes[self._of], self._reader[self._to], self._veiled(body[self._of])),
        ]

    def asked(self) -> tuple[int, Numbers, Numbers, Numbers, Numbers]:
        """Number of windows; the windows in which each user sends, and in which each user receives."""
        nobody = np.empty(0, np.int64)
        return self.asking.windows, self.asking.window, self._reader, nobody, nobody

    def written(self) -> tuple[int, Numbers, Numbers, Numbers, Numbers]:
        window = self.writing.window
        return self.writing.windows, window, self._writer, window[self._of], self._reader[self._to]

    def known(self) -> list[tuple[int, int]]:
        pairs = [*zip(self._pseudonym.tolist(), self._reader.tolist(), strict=True)]
        return [*pairs, *zip(self._request.tolist(), self._writer.tolist(), strict=True)]

    def _rows(self, kind: int, since_us: Numbers, who: Numbers, what: Numbers) -> ServerLog:
        epoch = np.full(who.size, self._epoch, np.int64)
        return ServerLog(epoch, self._epoch * EPOCH_US + since_us, np.full(who.size, kind, np.int8), who, what)

    def _veiled(self, seen: Numbers) -> Numbers:
        return _fresh(self._rng, seen.size) if self._hides else seen


def _schedule_requests(requests: int, batch: float, rng: np.random.Generator) -> _Schedule:
    if batch <= 0:
        window = rng.permutation(requests).astype(np.int64)
        came = window * WINDOW_US + 1
        return _Schedule(window, requests, came, came + DELAY_US)
    windows = max(1, round(requests / batch))
    window = rng.integers(windows, size=requests)
    came = window * WINDOW_US + rng.integers(1, WINDOW_US, size=requests)
    return _Schedule(window, windows, came, (window + 1) * WINDOW_US)


def _fresh(rng: np.random.Generator, count: int) -> Numbers:
    """New random numbers, which reveal nothing."""
    return rng.integers(1 << 62, size=count)


def _wires(days: list[tuple[int, Numbers, Numbers, Numbers, Numbers]], users: int) -> ClientTraffic:
    windows = sum(day[0] for day in days)
    sent, got = np.zeros((windows, users)), np.zeros((windows, users))
    first = 0
    for count, sending, sender, getting, getter in days:
        np.add.at(sent, (first + sending, sender), 1.0)
        np.add.at(got, (first + getting, getter), 1.0)
        first += count
    return ClientTraffic(sent, got)


def _join_logs(parts: list[ServerLog]) -> ServerLog:
    """One log in the order of time. Rows of one time are in the order of their random numbers."""
    names = ("epoch", "t_us", "kind", "who", "what")
    epoch, t_us, kind, who, what = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    order = np.lexsort((what, who, kind, t_us))
    return ServerLog(epoch[order], t_us[order], kind[order], who[order], what[order])


EPOCH_US: Final = 3_600_000_000
WINDOW_US: Final = 100_000
DELAY_US: Final = 1_000
"""From the proxy to the server, without batches."""
