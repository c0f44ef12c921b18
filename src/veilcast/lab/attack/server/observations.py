"""Observations of a relay's server, its proxy, and an observer of its clients' wires, as arrays.

Users, topics, pseudonyms, requests and tags are numbers, in the order of their names. The server's log, the proxy's
log, the bodies at the proxy, and the wires belong to different adversaries. A part is None if it was not observed.

Wires are counted in windows of time: batches of the proxy, where it batches. In each epoch clients subscribe first and
publish afterwards, which is public. So the windows of subscriptions end with the last one in the server's log, and the
windows of publications follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.server import batch_disclosure, tag_inference
from veilcast.lab.attack.server.tag_inference import TagNames
from veilcast.lab.models.server_log import PUBLISHED, SUBSCRIBED, Numbers, ServerLog

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
T = TypeVar("T")


class BodyCounts(NamedTuple):
    """How many bodies came to a receiver, by the sender from which the proxy had the same body before; -1 for none."""

    epoch: Numbers
    sender: Numbers
    receiver: Numbers
    bodies: Numbers


@dataclass(frozen=True, eq=False)
class ClientWires:
    """Records between clients and the proxy, in consecutive windows; `sent` and `got` are windows x users."""

    window_us: int
    starts: Numbers
    """Number of the first window of each epoch's subscriptions, since the beginning of time."""
    publishing: Numbers
    """The same for its publications."""
    ends: Numbers
    """Number of the window after the last one of each epoch."""
    sent_subscribing: Floats
    sent: Floats
    """Records that each user sent, in windows of publications."""
    got: Floats

    @cached_property
    def first_windows(self) -> NDArray[np.int64]:
        """Epochs + 1 x 2: the first row of each epoch's subscriptions, and of its publications."""
        counts = np.stack([self.publishing - self.starts, self.ends - self.publishing], axis=1)
        return np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(counts, axis=0)])

    def windows_of(self, requests: ServerLog) -> Numbers:
        """The row of each of these rows of the server's log."""
        publishes = (requests.kind == PUBLISHED).astype(np.int64)
        begin = np.where(publishes, self.publishing[requests.epoch], self.starts[requests.epoch])
        since = (requests.t_us - 1) // self.window_us - begin
        return np.asarray(self.first_windows[requests.epoch, publishes] + since, np.int64)


@dataclass(frozen=True, eq=False)
class ServerObservations:
    """The first `epochs` epochs."""

    epochs: int
    users: int
    tags: Sequence[bytes]
    """Tags of the server's log and of public words, in order."""
    present: Mask | None = None
    """Epochs x users."""
    server: ServerLog | None = None
    """Subscriptions and publications by tag."""
    proxy: ServerLog | None = None
    """Subscriptions of users, by tags as the proxy has them."""
    bodies: BodyCounts | None = None
    wires: ClientWires | None = None
    topics: int = 0
    words: TagNames | None = None
    """Tags that the server can compute, with or without an ally, and their topics."""
    popularity: Floats | None = None
    together: Floats | None = None
    """Topics x topics: the share of users that subscribe to both."""
    answers: NDArray[np.int64] | None = None
    """Epochs x topics: the tag that a subscription to the topic has; the server may ask for `queries` of an epoch."""
    queries: int | None = None
    lasting: bool = False
    filter_bound: float = 0.0

    @property
    def last(self) -> int:
        return self.epochs - 1

    @property
    def first_counted(self) -> int:
        """The first epoch whose tags can be counted together with those of the last."""
        return 0 if self.lasting else self.last

    @cached_property
    def there(self) -> float:
        """Users present in the counted epochs, summed over epochs."""
        return float(known(self.present)[self.first_counted : self.epochs].sum())

    @cached_property
    def subscriptions(self) -> ServerLog:
        return known(self.server).select(SUBSCRIBED, 0, self.last)

    @cached_property
    def counted(self) -> ServerLog:
        return known(self.server).select(SUBSCRIBED, self.first_counted, self.last)

    @cached_property
    def last_subscriptions(self) -> ServerLog:
        return known(self.server).select(SUBSCRIBED, self.last, self.last)

    @cached_property
    def last_pseudonyms(self) -> Numbers:
        return np.unique(self.last_subscriptions.who)

    @cached_property
    def last_tags(self) -> Numbers:
        return np.unique(self.last_subscriptions.what)

    @cached_property
    def counted_publications(self) -> ServerLog:
        return self._publications(self.first_counted)

    @cached_property
    def last_publications(self) -> ServerLog:
        return self._publications(self.last)

    @cached_property
    def names_by_count(self) -> TagNames:
        return tag_inference.name_tags(self.counted, self.there, known(self.popularity))

    @cached_property
    def names_by_pairs(self) -> TagNames:
        return tag_inference.name_tags_by_pairs(self.counted, self.there, known(self.popularity), known(self.together))

    @cached_property
    def names_by_queries(self) -> TagNames:
        popularity = known(self.popularity)
        asked = tag_inference.choose_queries(self.counted, self.there, popularity, known(self.queries))
        replies = known(self.answers)[self.last][asked]
        return tag_inference.name_tags_by_queries(self.counted, self.there, popularity, asked, replies)

    @cached_property
    def topics_of_subscriptions(self) -> Numbers:
        """The topic of each subscription, as far as the server can tell; -1 where it cannot."""
        asked = self.subscriptions
        if self.lasting:
            return known(self.words).topics_of(asked.what)
        names = np.empty(len(asked), np.int64)
        for epoch in range(self.epochs):
            here, users = asked.epoch == epoch, float(known(self.present)[epoch].sum())
            one = asked.select(SUBSCRIBED, epoch, epoch)
            names[here] = tag_inference.name_tags(one, users, known(self.popularity)).topics_of(asked.what[here])
        return names

    @cached_property
    def sent_in_counted(self) -> Floats:
        """Windows of the counted epochs' publications x users."""
        wires = known(self.wires)
        begin, end = wires.first_windows[[self.first_counted, self.epochs], 1]
        return wires.sent[begin:end]

    def windows_in_counted(self, published: ServerLog) -> Numbers:
        wires = known(self.wires)
        begin = wires.first_windows[self.first_counted, 1]
        return np.asarray(wires.windows_of(published) - begin, np.int64)

    @cached_property
    def usual_tags(self) -> Floats:
        """Users x tags: what each user usually publishes; tags in the order of those published."""
        tags, tag = np.unique(self.counted_publications.what, return_inverse=True)
        windows = self.windows_in_counted(self.counted_publications)
        came = batch_disclosure.count_effects(windows, tag, (len(self.sent_in_counted), tags.size))
        return batch_disclosure.fit_profiles(self.sent_in_counted, came)

    def _publications(self, first: int) -> ServerLog:
        """Of a publication with several tags, the first row counts."""
        made = known(self.server).select(PUBLISHED, first, self.last)
        return made.take(np.sort(np.unique(made.who, return_index=True)[1]))

    def first_epochs(self, epochs: int) -> ServerObservations:
        return replace(self, epochs=epochs)


def known(part: T | None) -> T:
    """Return the part; raises `ConfigError` if this adversary does not have it."""
    if part is None:
        raise ConfigError("these observations lack what the attacker needs")
    return part


SUBSCRIPTIONS: Final = "server"
PRESENCE: Final = "present"
PROXY: Final = "proxy"
BODIES: Final = "bodies"
WIRES: Final = "wires"
WORDS: Final = "words"
POPULARITY: Final = "popularity"
PAIRS: Final = "together"
ANSWERS: Final = "answers"
PARTS: Final = (SUBSCRIPTIONS, PRESENCE, PROXY, BODIES, WIRES, WORDS, POPULARITY, PAIRS, ANSWERS)
"""Parts of the observations, by the names of their fields."""
