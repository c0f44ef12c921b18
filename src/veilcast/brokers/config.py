"""What the machines of secret forwarding can be told: one frozen value each, with unit and effect of each field.

All of an overlay must be of one profile, and of one bound on delay; and brokers must have the same room for keys
(`keys_max`, `done_max`), for each holds what others bring against what an honest one can. All else each decides for
itself.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.content.coding import Strategy
from veilcast.brokers.keys.bulk import NUMBER_MAX
from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError

KeyDelivery: TypeAlias = Literal["in-band", "repository"]


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replica of a virtual node."""

    profile: Profile = "hardened"

    # --- streams
    connect_us: int = 1_000_000
    """How long after a call for a stream that failed the next one is made; doubled each time, up to sixteen times."""
    window: int = 256
    """Items on their way to one peer, sent and not heard."""
    queue_max: int = 8_192
    """Items that wait for one peer. When there are more, the oldest with content or keys is dropped."""
    queue_bytes: int = 1 << 26
    """All of them together."""
    clients_max: int = 4_096
    """Clients whose items and claims are remembered."""
    client_us: int = 120_000_000
    """A client that is gone for so long, and has no claims, is forgotten."""
    messages_every_us: int = 500
    """What a client may send: a burst, and then one item every so often; one who sends more is cut off."""
    messages_burst: int = 2_048

    # --- claims
    claims_max: int = 65_536
    """Advertisements, and as many subscriptions."""
    claims_each: int = 16_384
    """Of these, those of one neighbouring node or client."""
    client_claims: int = 512
    """The same for one client."""
    votes_max: int = 16_384
    """Claims and withdrawals that one replica of a neighbour has sent and too few others have."""
    waiting_max: int = 4_096
    """Subscriptions of clients that fit no advertisement yet; of one client, `client_claims`."""
    lease_us: int = 600_000_000
    """In `paper`, how far ahead a claim may reach."""

    # --- keys
    bound_us: int = 500_000
    """One round: no honest message between replicas takes longer, and nobody is so late in the same round."""
    hold_us: int = 120_000_000
    """For so long at most a share is kept, and content that is not through."""
    keys_max: int = 4_096
    """Keys that are on their way here; the same for all brokers of an overlay."""
    want_us: int = 1_000_000
    """Within this time, a key is asked for once."""

    # --- content
    strategy: Strategy = Strategy.COPIES
    missing_us: int = 500_000
    """After which blocks that did not come are asked for, and again."""
    contents_max: int = 4_096
    """Publications that are on their way here."""
    contents_bytes: int = 1 << 28
    """All of them together."""
    done_max: int = 65_536
    """Publications and keys that are remembered, so that a repeat is known for one; the same for all brokers."""

    # --- redeployment
    prepare_us: int = 30_000_000
    """After which a new scheme is used although not all of its replicas are ready."""
    settle_us: int = 3_000_000
    """How much later than the first the last honest replica goes over to it."""
    linger_us: int = 60_000_000
    """How long the replicas of an older overlay stay, at most."""
    copy_us: int = 2_000_000
    """After which neighbours that did not answer are asked for their claims again."""
    suspects_max: int = 1_024

    def __post_init__(self) -> None:
        check_minimum(self, "brokers", 1, *(name for name, kind in self.__annotations__.items() if kind == "int"))
        if not self.client_claims <= self.claims_each <= self.claims_max:
            raise ConfigError("brokers.client_claims, .claims_each and .claims_max must not fall in this order")
        if self.hold_us < _HOPS_HELD * self.bound_us:
            raise ConfigError(f"brokers.hold_us must be at least {_HOPS_HELD} times brokers.bound_us")


class BrokerClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member at an edge node: may publish and subscribe."""

    profile: Profile = "hardened"

    # --- streams
    connect_us: int = 1_000_000
    """As for brokers; and so are these three."""
    window: int = 256
    queue_max: int = 8_192
    queue_bytes: int = 1 << 26

    # --- redeployment
    prepare_us: int = 30_000_000
    """As for brokers; and so is this."""
    linger_us: int = 60_000_000

    # --- claims
    ahead_us: int = 20_000_000
    """So long before an epoch begins, at the latest, its claims are sent; from half an epoch before it, at the
    earliest."""
    lease_us: int = 300_000_000
    """In `paper`, how long a claim lasts; it is renewed when half of it is over."""
    spread_us: int = 1_000_000
    """So long after a claim was sent it is known along its way: a publisher does not publish under an advertisement
    before, and a subscription stands from then on."""
    subscriptions_max: int = 64
    advertised_max: int = 4_096
    """Advertisements of others that are remembered."""

    # --- publishing
    delivery: KeyDelivery = "in-band"
    """How keys travel: with the brokers, or out of band, by the overlay's repository. All clients must do the same."""
    strategy: Strategy = Strategy.COPIES
    refresh_messages: int = 16
    """A key serves for so many publications of a topic."""
    refresh_bytes: int = 1 << 20
    """And for so many bytes of them."""
    again_us: int = 4_000_000
    """After which a publication that is not through is sent again; doubled each time, up to sixteen times."""
    wait_us: int = 60_000_000
    """After which a publication that is not through is reported as overdue."""
    records_max: int = 256
    """Publications that are not through."""

    # --- reading
    missing_us: int = 500_000
    """After which blocks that did not come are asked for, and again."""
    want_us: int = 1_000_000
    """After which a key that did not come is asked for, and again."""
    contents_max: int = 1_024
    """Publications that cannot be opened yet."""
    keys_max: int = 1_024
    """Keys that are at hand, or on their way."""
    hold_us: int = 120_000_000
    """For so long at most content is kept that cannot be opened."""
    unread_max: int = 1_024
    """Notes delivered and not acknowledged."""
    seen_max: int = 16_384
    """Notes that are remembered, so that a copy is known for one."""
    deliver_again_us: int = 30_000_000
    """After which a note that nobody acknowledged is delivered again."""
    suspects_max: int = 1_024

    def __post_init__(self) -> None:
        check_minimum(self, "brokers", 0, *_MAY_BE_NONE)
        check_minimum(
            self,
            "brokers",
            1,
            *(name for name, kind in self.__annotations__.items() if kind == "int" and name not in _MAY_BE_NONE),
        )
        if self.refresh_messages > NUMBER_MAX:
            raise ConfigError(f"brokers.refresh_messages must be at most {NUMBER_MAX}")


_HOPS_HELD: Final = 40
"""Times the bound on delay that two hops may take where brokers lie: what is older than `hold_us` is refused."""
_MAY_BE_NONE: Final = ("ahead_us", "spread_us")
