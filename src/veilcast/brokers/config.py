"""Settings of brokers and of their clients: one frozen value each.

All machines of an overlay must have the same profile and the same bound on delay. All brokers must have the same
`keys_max` and `done_max`: each compares what others send with the most that an honest broker can send. Every other
setting is local.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.content.blocks import Strategy
from veilcast.brokers.keys.bulk_key import BULK_MAX
from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError

KeyDelivery: TypeAlias = Literal["in-band", "repository"]


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one replica of a virtual node."""

    profile: Profile = "hardened"

    # --- streams
    connect_us: int = 1_000_000
    """Delay before the next attempt after a failed connection, in microseconds. It doubles each time, up to sixteen
    times."""
    window: int = 256
    """Items in flight to one peer: sent and not acknowledged."""
    queue_max: int = 8_192
    """Items queued for one peer. Beyond it, the oldest item with content or keys is dropped."""
    queue_bytes: int = 1 << 26
    """Bytes of all items queued for one peer."""
    clients_max: int = 4_096
    """Clients whose items and claims are remembered."""
    client_us: int = 120_000_000
    """A client that is disconnected for this time and has no claims is forgotten."""
    messages_every_us: int = 500
    """Rate limit of a client: after a burst, one item per this time. A client that sends more is disconnected."""
    messages_burst: int = 2_048
    """Size of that burst, in items."""

    # --- claims
    claims_max: int = 65_536
    """Stored advertisements, and the same number of stored subscriptions."""
    claims_each: int = 16_384
    """Largest part of one neighbouring node or client."""
    client_claims: int = 512
    """Largest part of one client."""
    votes_max: int = 16_384
    """Claims and withdrawals that one replica of a neighbour has sent and too few other replicas have confirmed."""
    waiting_max: int = 4_096
    """Subscriptions of clients that match no advertisement yet; of one client, `client_claims`."""
    lease_us: int = 600_000_000
    """`paper` only: how far in the future a claim may expire."""

    # --- keys
    bound_us: int = 500_000
    """One round. Every message between honest replicas arrives within this time, and honest replicas are never further
    apart in the same round."""
    hold_us: int = 120_000_000
    """Longest time that a key share, or content that is not confirmed, is kept."""
    keys_max: int = 4_096
    """Keys in transfer through this broker; the same for all brokers of an overlay."""
    want_us: int = 1_000_000
    """A key is requested at most once within this time."""

    # --- content
    strategy: Strategy = Strategy.COPIES
    missing_us: int = 500_000
    """Time after which missing blocks are requested, and requested again."""
    contents_max: int = 4_096
    """Publications in transit through this broker."""
    contents_bytes: int = 1 << 28
    """Bytes of all publications in transit."""
    done_max: int = 65_536
    """Finished publications and keys that are remembered to recognize repeats; the same for all brokers."""

    # --- redeployment
    prepare_us: int = 30_000_000
    """Time after which a new scheme is used although not all of its replicas are ready."""
    settle_us: int = 3_000_000
    """Longest time between the first and the last honest replica's switch to a new scheme."""
    linger_us: int = 60_000_000
    """Longest time that replicas of an older overlay stay."""
    copy_us: int = 2_000_000
    """Time after which neighbours that did not answer are asked for their claims again."""
    suspects_max: int = 1_024
    """Replicas for which fault evidence is kept."""

    def __post_init__(self) -> None:
        check_minimum(self, "brokers", 1, *(name for name, kind in self.__annotations__.items() if kind == "int"))
        if not self.client_claims <= self.claims_each <= self.claims_max:
            raise ConfigError("brokers.client_claims, .claims_each and .claims_max must not fall in this order")
        if self.hold_us < _HOPS_HELD * self.bound_us:
            raise ConfigError(f"brokers.hold_us must be at least {_HOPS_HELD} times brokers.bound_us")


class BrokerClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a member at an edge node, which may publish and subscribe."""

    profile: Profile = "hardened"

    # --- streams
    connect_us: int = 1_000_000
    """Same meaning as in `BrokerConfig`; so are the next three fields."""
    window: int = 256
    queue_max: int = 8_192
    queue_bytes: int = 1 << 26

    # --- redeployment
    prepare_us: int = 30_000_000
    """Same meaning as in `BrokerConfig`; so is the next field."""
    linger_us: int = 60_000_000

    # --- claims
    ahead_us: int = 20_000_000
    """The claims of an epoch are sent at the latest this time before the epoch begins, and at the earliest half an
    epoch before."""
    lease_us: int = 300_000_000
    """`paper` only: lifetime of a claim. It is renewed after half of it."""
    spread_us: int = 1_000_000
    """Time that a claim needs to be known along its route. A publisher waits this long before it publishes under a new
    advertisement. A subscription counts as in force after this time."""
    subscriptions_max: int = 64
    advertised_max: int = 4_096
    """Known advertisements of other members."""

    # --- publishing
    delivery: KeyDelivery = "in-band"
    """How keys travel: along the brokers ("in-band"), or through the overlay's repository. All clients must use the
    same."""
    strategy: Strategy = Strategy.COPIES
    refresh_messages: int = 16
    """Publications of a topic that share one key."""
    refresh_bytes: int = 1 << 20
    """Bytes of publications that share one key."""
    overtime_us: int = 120_000_000
    """`hardened` only: longest time that a key serves beyond its publications and bytes, while subscribers have not
    confirmed that they have the next key. 0: the next key is dealt when it is needed, and publications wait for it."""
    again_us: int = 4_000_000
    """Time after which an unconfirmed publication is sent again. It doubles each time, up to sixteen times."""
    wait_us: int = 60_000_000
    """Time after which an unconfirmed publication is reported as overdue."""
    records_max: int = 256
    """Unconfirmed publications."""

    # --- reading
    missing_us: int = 500_000
    """Time after which missing blocks are requested, and requested again."""
    want_us: int = 1_000_000
    """Time after which a missing key is requested, and requested again."""
    contents_max: int = 1_024
    """Publications that cannot be opened yet."""
    keys_max: int = 1_024
    """Keys that are known or in transfer."""
    hold_us: int = 120_000_000
    """Longest time that content is kept that cannot be opened."""
    unread_max: int = 1_024
    """Notifications delivered and not acknowledged."""
    seen_max: int = 16_384
    """Notifications that are remembered to recognize copies."""
    deliver_again_us: int = 30_000_000
    """Time after which an unacknowledged notification is delivered again."""
    suspects_max: int = 1_024
    """Replicas for which fault evidence is kept."""

    def __post_init__(self) -> None:
        check_minimum(self, "brokers", 0, *_MAY_BE_NONE)
        check_minimum(
            self,
            "brokers",
            1,
            *(name for name, kind in self.__annotations__.items() if kind == "int" and name not in _MAY_BE_NONE),
        )
        if self.refresh_messages > BULK_MAX:
            raise ConfigError(f"brokers.refresh_messages must be at most {BULK_MAX}")


_HOPS_HELD: Final = 40
"""Least `hold_us`, in multiples of the bound on delay. A node that does not know a key refuses it `hold_us` after its
dealing. With this least, a key is fresh at the third node whatever Byzantine replicas of the second do, if the second
tolerates f <= 3 of them: 1 to the first node, 1 until the second has started, 14 + 7 f until it is done
(`keys.transfer_receiver`, with disputes), and 1 to the third, so 17 + 7 f. Each further disputed node adds 15 + 7 f:
the default of 240 allows for ten of three replicas in a row."""
_MAY_BE_NONE: Final = ("ahead_us", "spread_us", "overtime_us")
