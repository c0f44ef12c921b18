"""Settings of the relay's three machines: one frozen value each, with the unit and the effect of each field.

A client, its proxies and their server must have the same profile. Each decides everything else for itself.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field

from veilcast.authority.topic_record import Profile
from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError
from veilcast.topics import Geometry
from veilcast.wire import geometry as g


class RelayClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a member that publishes and subscribes."""

    profile: Profile = "hardened"
    copies: int = 1
    """Number of proxies that each subscription goes through, if there are several for subscribing. With two, either may
    be down or drop notifications. Each costs a lease, and a copy of each notification."""
    ahead_epochs: int = 1
    """Number of epochs beyond the current one for which the proxy has the leases of a subscription. A client that is
    away for at most that long misses nothing that is still held for it. Each epoch costs the proxy one more lease, and
    the proxy sees that the leases of a new subscription belong together."""
    lead_epochs: int = 1
    """Number of these epochs for which the server has them too: so long may proxy or server be down. The server does
    not see an absence that ends three quarters of an epoch before the first lease that it lacks, so `ahead_epochs -
    lead_epochs` + 3/4 is how long an absence stays hidden."""
    spread_us: int = 1_000_000
    """Leases, and messages that the client is back, leave one by one within this time."""
    retry_us: int = 5_000_000
    """Time before an unanswered request is sent again; doubled with each repetition, up to sixteen times."""
    connect_us: int = 1_000_000
    """Time before an unreachable proxy is called again; doubled with each attempt, up to sixteen times."""
    resume_us: int = 60_000_000
    """Mean interval at which the client asks for deliveries waiting under a lease, if nothing else gave reason to. It
    is drawn anew for each lease and each time."""
    drawn_resumes: bool = True
    """Whether these intervals are drawn. If not, each request leaves `resume_us` after the last answer, and its time
    shows whose lease it is (`experiments/relay-timing`)."""
    flight_max: int = 32
    """Unanswered requests to one proxy; further requests wait."""
    wait_us: int = 60_000_000
    """Time after which an unconfirmed publication is reported as overdue."""
    deliver_again_us: int = 30_000_000
    """Time after which an unacknowledged notification is delivered again."""
    retention_us: int = 3_600_000_000
    """Time after the end of a lease during which the client still asks for deliveries waiting under it."""
    unread_max: int = 1024
    """Notifications delivered and not acknowledged; at this number the server keeps the rest."""
    seen_max: int = 16_384
    """Acknowledged notifications remembered to recognise repeats."""
    records_max: int = 256
    """Publications that the server has not confirmed."""
    subscriptions_max: int = 256
    rate_us: int = 0
    """Interval between records of constant size on the stream to a proxy, sent whether or not there is a message; 0
    turns pacing off. Client and proxy must agree on this value and on `record_bytes`."""
    record_bytes: int = 4096
    backlog_max: int = 256
    """Messages waiting for a record; the client requests anything beyond that again later."""

    def __post_init__(self) -> None:
        check_minimum(self, "client", 0, "ahead_epochs", "spread_us", "retention_us")
        check_minimum(
            self, "client", 1, "lead_epochs", "copies", "retry_us", "connect_us", "resume_us", "flight_max", "wait_us"
        )
        check_minimum(
            self,
            "client",
            1,
            "deliver_again_us",
            "unread_max",
            "seen_max",
            "records_max",
            "subscriptions_max",
            "backlog_max",
        )
        _check_rate(self.rate_us, self.record_bytes, "client")
        if self.lead_epochs > max(1, self.ahead_epochs):
            raise ConfigError("client.lead_epochs must be at most client.ahead_epochs")
        if self.ahead_epochs > AHEAD_MAX:
            raise ConfigError(f"client.ahead_epochs must be at most {AHEAD_MAX}")


class MailboxLimits(msgspec.Struct, frozen=True):
    """Bounds of mailboxes: publications and bytes held, of all and of one peer, and the rest by name."""

    held_max: int
    held_bytes_max: int
    held_each: int
    held_bytes_each: int
    waiting_max: int
    remembered_max: int
    window: int = 32


class RateAllowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rate limit for one client: a burst, then one item per interval."""

    every_us: int
    burst: int

    def __post_init__(self) -> None:
        if self.every_us < 1 or self.burst < 1:
            raise ConfigError("an allowance has an every_us and a burst of at least 1")


class RelayProxyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the machine that knows clients by name and cannot read their messages."""

    profile: Profile = "hardened"
    batch_us: int = 100_000
    """Messages that arrive within this time leave together and in random order, in both directions; 0 forwards each
    message at once."""
    batch_max: int = 256
    """A batch of this many messages leaves at once."""
    holds_presence: bool = True
    """Whether the proxy holds leases and deliveries of its clients, so that the server does not see who is there
    (`presence`); in `hardened` only. If not, it passes all on at once."""
    poll_us: int = 60_000_000
    """Mean interval at which the proxy asks the server about each lease, drawn anew each time."""
    retry_us: int = 5_000_000
    """The same for a lease that the server has not confirmed."""
    held_each: int = 1_024
    """Deliveries held for one client. The server keeps the rest."""
    held_bytes_each: int = 4 * 1024 * 1024
    held_max: int = 100_000
    """Deliveries held for all clients."""
    held_bytes_max: int = 512 * 1024 * 1024
    clients_max: int = 10_000
    lease_us_max: int = 30 * 24 * 3_600_000_000
    """Longest lease in the hardened profile, in microseconds from now."""
    leases_each: int = 1_024
    """Leases of one client. A subscription takes up to `ahead_epochs` + 2 of them; expired leases count for some
    time."""
    subjects_each: int = g.SUBJECTS_MAX
    """Subjects of one subscription or publication."""
    publications: RateAllowance = field(default_factory=lambda: RateAllowance(50_000, 40))
    """Publications of one client. A server that is also a user can try words at this rate and no faster."""
    requests: RateAllowance = field(default_factory=lambda: RateAllowance(5_000, 1_000))
    """Requests of one client, of all kinds."""
    volume: RateAllowance = field(default_factory=lambda: RateAllowance(4_000, 2_048))
    """Bytes of one client's requests, in units of 1,024."""
    flight_max: int = 65_536
    """Requests forwarded to the server and not answered."""
    request_us: int = 30_000_000
    """Time after which the proxy stops waiting for an answer; the client repeats the request by itself."""
    connect_us: int = 1_000_000
    retention_us: int = 3_600_000_000
    """Time for which a delivery is held for an absent client, and time after the end of a lease during which the proxy
    knows its pseudonym: as long as the server may hold a delivery for it."""
    rate_us: int = 0
    """Same meaning as in RelayClientConfig; all clients of this proxy use the same value."""
    record_bytes: int = 4096
    backlog_max: int = 256
    """Messages waiting for a record to one client; the server sends anything beyond that again."""

    def __post_init__(self) -> None:
        check_minimum(self, "proxy", 0, "batch_us", "retention_us")
        check_minimum(
            self, "proxy", 1, "batch_max", "clients_max", "lease_us_max", "leases_each", "subjects_each", "flight_max"
        )
        check_minimum(self, "proxy", 1, "request_us", "connect_us", "backlog_max", "poll_us", "retry_us")
        check_minimum(self, "proxy", 1, "held_each", "held_bytes_each", "held_max", "held_bytes_max")
        _check_rate(self.rate_us, self.record_bytes, "proxy")

    @property
    def mailbox_limits(self) -> MailboxLimits:
        return MailboxLimits(
            self.held_max, self.held_bytes_max, self.held_each, self.held_bytes_each, self.held_each, self.held_max
        )


class RelayServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the machine that matches: it knows pseudonyms and tags, and neither names nor words."""

    profile: Profile = "hardened"
    leases_max: int = 1_000_000
    """Leases; in `paper` also the number of filters."""
    leases_each: int = 500_000
    """Leases of one proxy: a Byzantine proxy cannot take all the capacity."""
    columns_max: int = 4_000_000
    """Constraints of all leases together."""
    columns_each: int = 2_000_000
    """Constraints of all leases of one proxy."""
    lease_us_max: int = 30 * 24 * 3_600_000_000
    """Longest lease in the hardened profile, in microseconds from now."""
    retention_us: int = 3_600_000_000
    """Time for which a publication is held for absent subscribers."""
    held_max: int = 100_000
    """Publications held."""
    held_bytes_max: int = 512 * 1024 * 1024
    """Bytes of all held publications, including the list of subscribers that still lack each one: a publication for
    a million subscribers takes more memory than its own bytes."""
    held_each: int = 50_000
    """Publications held that arrived through one proxy."""
    held_bytes_each: int = 256 * 1024 * 1024
    """Bytes of the held publications that arrived through one proxy."""
    waiting_max: int = 4_096
    """Publications waiting under one lease; a further one evicts the oldest."""
    window: int = 32
    """Publications of one lease that are in flight at once."""
    remembered_max: int = 100_000
    """Delivered publications whose ids are remembered to recognise repeats."""
    filter_elements: int = 256
    """`paper`: subjects that one client's filter holds within the bound; more are refused."""
    filter_bound: float = 1e-4
    """`paper`: probability that a filter lets through a publication that shares no subject with it."""

    def __post_init__(self) -> None:
        check_minimum(
            self, "server", 1, "leases_max", "columns_max", "lease_us_max", "retention_us", "held_max", "window"
        )
        check_minimum(self, "server", 1, "held_bytes_max", "waiting_max", "remembered_max", "filter_elements")
        check_minimum(self, "server", 1, "leases_each", "columns_each", "held_each", "held_bytes_each")
        self.filter_geometry  # noqa: B018 - refuses a bound that no filter keeps

    @property
    def mailbox_limits(self) -> MailboxLimits:
        return MailboxLimits(
            self.held_max,
            self.held_bytes_max,
            self.held_each,
            self.held_bytes_each,
            self.waiting_max,
            self.remembered_max,
            self.window,
        )

    @property
    def filter_geometry(self) -> Geometry:
        """Geometry of the paper's filters."""
        return Geometry.sized(elements=self.filter_elements, queries=g.SUBJECTS_MAX, bound=self.filter_bound)


def _check_rate(rate_us: int, record_bytes: int, whose: str) -> None:
    if rate_us < 0:
        raise ConfigError(f"{whose}.rate_us must not be negative")
    if not RECORD_MIN <= record_bytes <= g.MESSAGE_MAX:
        raise ConfigError(f"{whose}.record_bytes must be between {RECORD_MIN} and {g.MESSAGE_MAX}")


AHEAD_MAX: Final = 24
PROXIES_MAX: Final = 8
"""Proxies of one client."""
RECORD_MIN: Final = 256
