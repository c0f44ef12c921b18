"""What the three machines of the relay can be told: one frozen value each, with the unit and the effect of each field.

A client, its proxies and their server must be of one profile; all else each decides for itself.
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
    """A member who publishes and subscribes."""

    profile: Profile = "hardened"
    ahead_epochs: int = 1
    """For how many epochs beyond this one a subscription is leased at all times. Whoever is away for no longer than
    that misses nothing that the server still holds. Each costs the server another lease."""
    spread_us: int = 1_000_000
    """Leases, and the word that we are back, go out one by one within this time: all at once they would tell the server
    that they are of one client."""
    retry_us: int = 5_000_000
    """How long a request waits for its answer before it is sent again; doubled with every time, up to sixteen times."""
    connect_us: int = 1_000_000
    """The same for a proxy that cannot be reached."""
    resume_us: int = 60_000_000
    """How often the server is asked for what waits under a lease, if nothing else gave reason to."""
    flight_max: int = 32
    """Requests to one proxy that wait for their answer; more wait to be sent."""
    wait_us: int = 60_000_000
    """After which a publication that is not through is reported as overdue."""
    deliver_again_us: int = 30_000_000
    """After which a note that nobody acknowledged is delivered again."""
    retention_us: int = 3_600_000_000
    """How long after its end a lease is still asked for what waits under it."""
    unread_max: int = 1024
    """Notes delivered and not acknowledged; with that many, the server keeps the rest."""
    seen_max: int = 16_384
    """Acknowledged notes that are remembered, so that a repeat is known for one."""
    records_max: int = 256
    """Publications that are not through."""
    subscriptions_max: int = 256
    rate_us: int = 0
    """Records of one size at this distance, whether or not there is something to say; 0 is no such thing. Client and
    proxy must have the same, of this and of `record_bytes`."""
    record_bytes: int = 4096
    backlog_max: int = 256
    """Messages that wait for a record; what is more is asked for again by and by."""

    def __post_init__(self) -> None:
        check_minimum(self, "client", 0, "ahead_epochs", "spread_us", "retention_us")
        check_minimum(self, "client", 1, "retry_us", "connect_us", "resume_us", "flight_max", "wait_us")
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
        if self.ahead_epochs > AHEAD_MAX:
            raise ConfigError(f"client.ahead_epochs must be at most {AHEAD_MAX}")


class RateAllowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client may do: a burst, and then one every so often."""

    every_us: int
    burst: int

    def __post_init__(self) -> None:
        if self.every_us < 1 or self.burst < 1:
            raise ConfigError("an allowance has an every_us and a burst of at least 1")


class RelayProxyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one who knows clients by name, and nothing of what they say."""

    profile: Profile = "hardened"
    batch_us: int = 100_000
    """What comes in within this time leaves together and in random order, both ways; 0 passes everything on at once."""
    batch_max: int = 256
    """So many leave without waiting longer."""
    clients_max: int = 10_000
    lease_us_max: int = 30 * 24 * 3_600_000_000
    """No lease of the hardened profile reaches further."""
    leases_each: int = 1_024
    """Of one client; a subscription takes up to `ahead_epochs` + 2 of them, and those that are over count on for a
    while."""
    subjects_each: int = g.SUBJECTS_MAX
    """Subjects of one subscription or publication."""
    publications: RateAllowance = field(default_factory=lambda: RateAllowance(50_000, 40))
    """Of one client. The server, if it is also a user, can try so many words a second, and no more."""
    requests: RateAllowance = field(default_factory=lambda: RateAllowance(5_000, 1_000))
    """Of one client, of all kinds."""
    volume: RateAllowance = field(default_factory=lambda: RateAllowance(4_000, 2_048))
    """Of one client, in units of 1,024 bytes."""
    flight_max: int = 65_536
    """Requests at the server that have not been answered."""
    request_us: int = 30_000_000
    """After which an answer is waited for no longer: the client asks again by itself."""
    connect_us: int = 1_000_000
    retention_us: int = 3_600_000_000
    """How long after its end a lease's pseudonym is known: as long as the server may hold something for it."""
    rate_us: int = 0
    """As for clients; all of this proxy's have the same."""
    record_bytes: int = 4096
    backlog_max: int = 256
    """As for clients: what waits for one of them. What is more the server sends again."""

    def __post_init__(self) -> None:
        check_minimum(self, "proxy", 0, "batch_us", "retention_us")
        check_minimum(
            self, "proxy", 1, "batch_max", "clients_max", "lease_us_max", "leases_each", "subjects_each", "flight_max"
        )
        check_minimum(self, "proxy", 1, "request_us", "connect_us", "backlog_max")
        _check_rate(self.rate_us, self.record_bytes, "proxy")


class RelayServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one who matches: knows pseudonyms and tags, and neither names nor words."""

    profile: Profile = "hardened"
    leases_max: int = 1_000_000
    """In `paper` leases and filters alike."""
    leases_each: int = 500_000
    """Of these, by one proxy: one that lies cannot take all of the room."""
    columns_max: int = 4_000_000
    """Constraints of all leases together."""
    columns_each: int = 2_000_000
    """Of these, by one proxy."""
    lease_us_max: int = 30 * 24 * 3_600_000_000
    """No lease of the hardened profile reaches further."""
    retention_us: int = 3_600_000_000
    """For so long a publication is held for readers who are away."""
    held_max: int = 100_000
    """Publications held."""
    held_bytes_max: int = 512 * 1024 * 1024
    """Of these together, with those who still lack each: a publication that a million want takes more room than its
    bytes."""
    held_each: int = 50_000
    """Publications held that came by one proxy."""
    held_bytes_each: int = 256 * 1024 * 1024
    """Of these together."""
    waiting_max: int = 4_096
    """Publications that wait for one lease; the oldest is given up for one more."""
    window: int = 32
    """Of these, how many are under way at once."""
    remembered_max: int = 100_000
    """Publications that are through, remembered so that a repeat is known for one."""
    filter_elements: int = 256
    """In `paper`: subjects that one client's filter holds within the bound; more are refused."""
    filter_bound: float = 1e-4
    """In `paper`: the chance that a filter lets through what shares no subject with it."""

    def __post_init__(self) -> None:
        check_minimum(
            self, "server", 1, "leases_max", "columns_max", "lease_us_max", "retention_us", "held_max", "window"
        )
        check_minimum(self, "server", 1, "held_bytes_max", "waiting_max", "remembered_max", "filter_elements")
        check_minimum(self, "server", 1, "leases_each", "columns_each", "held_each", "held_bytes_each")
        self.filter_geometry  # noqa: B018 - refuses a bound that no filter keeps

    @property
    def filter_geometry(self) -> Geometry:
        """The shape of the paper's filters."""
        return Geometry.sized(elements=self.filter_elements, queries=g.SUBJECTS_MAX, bound=self.filter_bound)


def _check_rate(rate_us: int, record_bytes: int, whose: str) -> None:
    if rate_us < 0:
        raise ConfigError(f"{whose}.rate_us must not be negative")
    if not RECORD_MIN <= record_bytes <= g.MESSAGE_MAX:
        raise ConfigError(f"{whose}.record_bytes must be between {RECORD_MIN} and {g.MESSAGE_MAX}")


AHEAD_MAX: Final = 24
RECORD_MIN: Final = 256
