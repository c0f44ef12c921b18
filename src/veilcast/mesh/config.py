"""Settings of a mesh node: frozen values, with the unit and the effect of each field."""

from __future__ import annotations

from math import inf
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.crypto.hash_chain import LENGTH_MAX
from veilcast.errors import ConfigError
from veilcast.wire import geometry as g


class FirstRelayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a node may replace its first relay (see `first_relay`). All times are epochs of uptime in which the node
    hears neighbours."""

    rule: Literal["kept", "any"] = "kept"
    """"any" is a weakness for the lab to measure: the neighbour whose address ranks first, also one that came last."""
    away_epochs: int = 72
    """Uninterrupted absence of the first relay before it is replaced: three days."""
    refill_epochs: int = 1440
    """Time in which one replacement is earned: sixty days."""
    spares: int = 2
    """Replacements that a node may have saved, and has at its first start."""

    def __post_init__(self) -> None:
        for name in ("away_epochs", "refill_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"hardening.relay.{name} must be at least 1")
        if self.spares < 0:
            raise ConfigError("hardening.relay.spares must not be negative")


CoverRule: TypeAlias = Literal["none", "one", "each"]
CoverChoice: TypeAlias = Literal["kept", "fresh"]
NeighbourhoodKind: TypeAlias = Literal["fixed", "scamp", "certified"]
GameStart: TypeAlias = Literal["never", "child", "neighbour", "change"]
FirstWait: TypeAlias = Literal["immediate", "exponential"]
GameDecay: TypeAlias = Literal["time", "count"]


class CoverConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Probabilistic forwarding (P0 4.6)."""

    rule: CoverRule = "none"
    """"one": a node takes one cover with probability `mu`, which fits the published numbers. "each": every neighbour
    becomes a cover with probability `mu`, as the text says."""
    mu: float = 0.6
    delay_us: int = 0
    """Time from joining a mesh by subscription to the search for covers. 0: when subscribing, as the text says. More
    than the mesh takes to form: on the finished mesh, which fits the numbers. A cover searches at once."""
    choice: CoverChoice = "kept"
    """"kept": covers are chosen once. "fresh": covers are chosen again `delay_us` after every publication, which
    exposes the subscribers (Fig. 10 and 13)."""

    def __post_init__(self) -> None:
        if not 0 <= self.mu <= 1:
            raise ConfigError("cover.mu must be between 0 and 1")
        if self.delay_us < 0:
            raise ConfigError("cover.delay_us must not be negative")


class ScampConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A self-organising neighbourhood (P0 4.1, SCAMP)."""

    copies: int = 1
    """c of SCAMP: views have about (c + 1) ln n members. A larger c survives more failures."""
    walk_hops: int = 32
    """Steps of the random walk that takes a join to a contact that no node chose. Most steps stay on the spot."""
    forward_hops: int = 128
    """Times that a copy of a subscription is forwarded before it is kept without a choice."""
    lease_ms: int = 3_600_000
    """Lifetime of an arc, in milliseconds; its subject then joins again."""
    isolation_periods: int = 20
    """Heartbeats without one from others, or without being in any view, after which a node joins again."""
    passive_max: int = 24
    """Addresses kept in reserve."""
    probe_periods: int = 60
    """Mean heartbeats between two attempts to reach a failed neighbour. Partitioned networks find one another this way,
    long before leases end. 0 is never."""

    def __post_init__(self) -> None:
        for name in ("copies", "passive_max", "probe_periods"):
            if getattr(self, name) < 0:
                raise ConfigError(f"scamp.{name} must not be negative")
        for name in ("walk_hops", "forward_hops"):
            if not 1 <= getattr(self, name) <= g.HOPS_MAX:
                raise ConfigError(f"scamp.{name} must be between 1 and {g.HOPS_MAX}")
        if not 1_000 <= self.lease_ms <= g.LEASE_MS_MAX:
            raise ConfigError(f"scamp.lease_ms must be between 1000 and {g.LEASE_MS_MAX}")
        if self.isolation_periods < 2:
            raise ConfigError("scamp.isolation_periods must be at least 2: one lost heartbeat is no isolation")


class CertifiedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A neighbourhood of certified members, which strangers cannot take over."""

    outbound: int = 8
    """Links that a node chooses itself. The other links are for peers that come to it."""
    reunions: int = 4
    """Additional links to chosen peers that failed and are back, which rejoin partitioned networks."""
    anchors: int = 4
    """The oldest chosen peers, stored over restarts."""
    prefix_max: int = 2
    """Links to addresses of one prefix, among the chosen peers and among the peers that came."""
    book_max: int = 64
    """Addresses kept in reserve. At most half of them are hearsay."""
    source_max: int = 4
    """Hearsay addresses that one prefix may tell."""
    shared: int = g.SHARED_ADDRESSES_MAX
    """Addresses told to a node that knocks."""
    knock_periods: int = 30
    """Heartbeats between two answered knocks of one prefix, after its burst."""
    knock_burst: int = 4
    probe_periods: int = 30
    """Mean heartbeats between two probes of a failed peer or of a hearsay address."""

    def __post_init__(self) -> None:
        for name in ("outbound", "prefix_max", "source_max", "knock_periods", "knock_burst", "probe_periods"):
            if getattr(self, name) < 1:
                raise ConfigError(f"certified.{name} must be at least 1")
        for name in ("reunions", "anchors"):
            if getattr(self, name) < 0:
                raise ConfigError(f"certified.{name} must not be negative")
        if self.book_max < 2:
            raise ConfigError("certified.book_max must be at least 2: one for hearsay and one for the rest")
        if not 0 <= self.shared <= g.SHARED_ADDRESSES_MAX:
            raise ConfigError(f"certified.shared must be between 0 and {g.SHARED_ADDRESSES_MAX}")


class ShellGameConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shell game (P0 4.5): nodes of a mesh exchange positions with their children, until they have cooled down."""

    start: GameStart = "never"
    """The event that makes a node play first: its first child in a mesh (fits the numbers), its first neighbour there
    (the text), or any change of its neighbours, also later (Fig. 6)."""
    first: FirstWait = "immediate"
    """Whether the node then plays at once, or after a wait like all others."""
    wait_us: int = 5_000_000
    """Mean of the exponential waits between two of its games, in microseconds."""
    decay: GameDecay = "time"
    """A node whose wait is over plays with probability exp(-rate x): x is its time in the mesh in seconds, or the
    number of games it began (Fig. 16)."""
    rate: float = 0.05
    publisher_plays: bool = False
    """False: a publisher keeps its position."""
    settle_periods: int = 8
    """Heartbeats for which a node's ways to the origins must have stayed the same before it takes part in a game. More
    than an advertisement takes to reach every node: until then nodes still move to shorter ways."""
    lease_periods: int = 10
    """Longest time that a node stays locked, in heartbeats, and for which it still sends notifications to its former
    neighbours."""
    patience_periods: int = 40
    """Heartbeats for which one neighbour may keep a node locked, game after game; after that at most half of the time.
    """
    remind_periods: int = 8
    """Heartbeats after which a node repeats its requests, so that two neighbours that disagree come to agree."""
    acquaintances_max: int = 32
    """Adjacent nodes in a node's meshes that are neither its neighbours nor within `reach`."""
    reach: int = 0
    """Hops in the overlay within which all nodes exchange heartbeats from their start on, in a mesh or not. Positions
    are swapped only between nodes that are linked so, and heartbeats do not show who has moved. 0, as in P0: heartbeats
    follow the swaps, and show it."""
    hold_periods: int = 0
    """Heartbeats that a publication waits after the chain of its publisher began, while nodes swap. 0: publications
    that leave earlier show the mesh as the advertisements laid it."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate < inf:
            raise ConfigError("shellgame.rate must be finite and not negative")
        if not 0 <= self.reach <= g.REACH_MAX or self.hold_periods < 0:
            raise ConfigError(f"shellgame.reach must be 0 to {g.REACH_MAX}, and hold_periods not negative")
        if self.lease_periods < 8:
            raise ConfigError("shellgame.lease_periods must be at least 8: a game takes up to six heartbeats")
        for name in ("wait_us", "settle_periods", "patience_periods", "remind_periods", "acquaintances_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"shellgame.{name} must be at least 1")


DEPARTURE_EPOCHS_MAX: Final = 24
"""Calls are made, and kept, for twice as many epochs ahead."""


class HardeningConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The timing of the hardened mesh (see `batch_join`, `roots`, `stem`). Periods are heartbeats."""

    window_periods: int = 32
    """Window from the advertisement on in which all members join in random order: several times the duration of a
    flood."""
    follow_periods: int = 2
    """Window in which a node follows that did not plan to join, but was asked by a child."""
    repair_periods: int = 4
    """Window in which a member whose parent was lost asks another."""
    lead_periods: int = 64
    """Time before an epoch at which its mesh begins to form, so that it is complete when the epoch begins."""
    grace_periods: int = 32
    """Time after an epoch for which its mesh is kept, for messages in flight."""
    onward: float = 0.5
    """Probability that a relay forwards a stem and does not end it."""
    retry_periods: int = 8
    """Time after which a publisher repeats what the root did not acknowledge."""
    wait_epochs: int = 24
    """Time that a publication waits for its way, in addition to send slots and root delay, before the owner is told;
    the owner is told again after each such time."""
    departure_epochs: int = 0
    """A publisher sends only once in this many epochs, at a moment of its own; 0 is at any time. Defends against
    insiders that compare the times of notifications with the presence of members (see `send_slots`). All nodes must use
    the same value, because roots are called that much earlier."""
    hold_back_epochs: float = 0.0
    """Every notification is delayed by a random time up to this: in parcels by a whole number of epochs, which its
    publisher draws, and otherwise by the root. Defends against observers that compare publications with the presence of
    members. All nodes must use the same value."""
    parcel_periods: int = 0
    """Length of a stretch, in heartbeats: in each, every member sends a parcel to each root (see `cover_stems`). It
    costs some five messages for each member and stretch, and each publication about a stretch and a half. 0 sends no
    parcels: then insiders on a stem see when its publisher publishes. All nodes must use the same value."""
    call_periods: int = 96
    """Time after which a publisher calls for a root again: longer than an election."""
    bit_periods: int = 4
    """A lot that is half as good waits longer by this time before it stands for election: the duration of a flood."""
    patience_periods: int = 16
    """Time without a way to a root after which another is elected."""
    uptime_periods: int = 600
    """A node with less uptime waits longer before it stands for election."""
    volunteer: bool = True
    """True: stand for election. A root carries its topic's whole traffic, and is known."""
    covers: bool = True
    """True: act as a subscriber of every topic that the keyring has a grant for, and of others where the draw says so.
    A node that does not carries less, and exposes its own subscriptions. The lab turns it off for insiders, which have
    no reason to be covers."""
    passages_max: int = 4096
    """Stem messages whose way back is remembered."""
    pending_max: int = 1024
    """Own publications that wait for acknowledgement."""
    relay: FirstRelayConfig = FirstRelayConfig()
    """Rules for replacing the first relay of own publications."""

    def __post_init__(self) -> None:
        positive = (
            *("window_periods", "follow_periods", "repair_periods", "grace_periods", "retry_periods", "wait_epochs"),
            *("call_periods", "bit_periods", "patience_periods", "passages_max", "pending_max"),
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise ConfigError(f"hardening.{name} must be at least 1")
        if self.lead_periods <= self.window_periods:
            raise ConfigError("hardening.lead_periods must be more than window_periods: a mesh must stand in time")
        if not 0 <= self.onward < 1:
            raise ConfigError("hardening.onward must be at least 0 and less than 1")
        if not 0 <= self.departure_epochs <= DEPARTURE_EPOCHS_MAX:
            raise ConfigError(f"hardening.departure_epochs must be between 0 and {DEPARTURE_EPOCHS_MAX}")
        if self.parcel_periods != 0 and self.parcel_periods < 4:
            raise ConfigError("hardening.parcel_periods is at least 4, or 0 for no parcels")
        if not 0 <= self.hold_back_epochs < inf or self.uptime_periods < 1:
            raise ConfigError(
                "hardening.hold_back_epochs must be finite and not negative, and uptime_periods at least 1"
            )


class MessageRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rate limit for one kind of message from one neighbour."""

    per_period: int
    """Sustained messages per heartbeat period."""
    burst: int
    """Messages at once, after enough quiet."""

    def __post_init__(self) -> None:
        if self.per_period < 1 or self.burst < 1:
            raise ConfigError("a rate's per_period and burst must be at least 1")


class Defences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defences against misbehaving members, which the papers leave open. All off is the papers' mesh; `ALL_DEFENCES`
    has all on."""

    anchors: bool = False
    """Accept only chains with a signed end, and only a limited number of each signer (see `anchors`)."""
    anchor_life_us: int = 7_200_000_000
    """Lifetime of an anchor. A publisher starts a fresh chain after half of it. An anchor that expires later than twice
    this from now is refused."""
    anchor_quota: int = 4
    """Chains of one signer for one topic that a node keeps. The publishers of a `paper` topic share one key, and so
    this quota: it must be at least twice their number, because a fresh chain overlaps the one that it replaces."""
    caps: bool = False
    """One neighbour gets only a share of each table, and its own oldest entry makes room (see `limits`)."""
    origins_each: int = 16
    """Chains for one topic that one neighbour may bring: half of a table of 32."""
    chains_each: int = 1024
    """Chains that one neighbour may bring in total."""
    branches_each: int = 1024
    """Topics that one neighbour may request."""
    buckets: bool = False
    """Refuse messages of one neighbour over a rate for each kind (see `limits`). The defaults leave honest neighbours
    alone: with 50 topics and a fifth of all heartbeats lost, so that everything is repeated often, a neighbour sends at
    most 32 advertisements in a period (a full heartbeat), 11 subscriptions, and one greeting. A heartbeat that does not
    follow the last counts as one more greeting. Eight periods of that may come at once, as after a pause."""
    adverts: MessageRate = MessageRate(32, 256)
    subscriptions: MessageRate = MessageRate(16, 128)
    swaps: MessageRate = MessageRate(8, 64)
    greetings: MessageRate = MessageRate(2, 16)
    notes: MessageRate = MessageRate(64, 2048)
    """Separate frames, as fast as publishers: 50 topics with a notification in each period, or twice the content of an
    outbox, which all comes at once when its way opens again."""
    stems: MessageRate = MessageRate(64, 2048)
    replay: bool = False
    """A recorded heartbeat has no effect, and a recorded notification is not forwarded again (see `replay`)."""
    seen_each: int = 65_536
    """Notifications in each of the two remembered generations. One generation should last for an epoch: an hour at 18
    per second."""
    epoch_tokens: bool = False
    """Allow topics of the `hardened` profile, whose tokens change at every epoch edge (see `epoch_tokens`)."""
    lead_us: int = 60_000_000
    """Time before an epoch edge at which the next token is advertised: longer than a mesh takes to form plus the
    difference of clocks."""
    grace_us: int = 30_000_000
    """Time after an epoch edge for which the last token is valid, and largest difference of clocks."""

    def __post_init__(self) -> None:
        for name in ("lead_us", "grace_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"defences.{name} must not be negative")
        for name in ("anchor_life_us", "anchor_quota", "origins_each", "chains_each", "branches_each", "seen_each"):
            if getattr(self, name) < 1:
                raise ConfigError(f"defences.{name} must be at least 1")


ALL_DEFENCES: Final = Defences(anchors=True, caps=True, buckets=True, replay=True, epoch_tokens=True)


class MeshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults are P0's: heartbeats carry management messages, notifications travel on their own."""

    profile: Profile = "paper"
    """"paper": publishers advertise for themselves, and `cover` and `shellgame` may hide the subscribers. "hardened":
    an elected root advertises; see `hardening`."""
    heartbeat_us: int = 1_000_000
    """Time between two heartbeats to the same neighbour. Every management message waits for one."""
    silent_periods: int = 5
    """Consecutive heartbeats that a neighbour may miss before it counts as failed. One is never enough."""
    d_max: int = 16
    """Largest distance on a hash chain at which two values are recognised as one chain: the largest diameter expected.
    """
    neighbours_max: int = 32
    address_bytes_max: int = g.ADDRESS_MAX
    tokens_max: int = 4096
    """Topics that a node keeps routes or branches for."""
    origins_max: int = 32
    """Origins that a node keeps for one topic."""
    queue_max: int = 4096
    """Management messages that may wait for one neighbour. When full, the oldest is dropped."""
    again_periods: int = 4
    """Heartbeats between two fresh chains of one publisher, and between two requests for one."""
    overlap_periods: int = 0
    """Heartbeats for which an old way is kept when a shorter one is found. With 0, as in the papers, notifications that
    are sent before the new way is established are lost. That is frequent if neighbours come and go."""
    seen_max: int = 4096
    """Notifications that a node remembers, so that it does not forward or deliver them again."""
    deliver_again_us: int = 30_000_000
    """Time after which an unacknowledged notification is delivered to the application again."""
    gap_us: int = 5_000_000
    """Time that a notification waits for missing earlier ones of its publisher (see `late_us`)."""
    unread_max: int = 1024
    """Notifications that wait for acknowledgement. When full, the oldest is dropped."""
    lingering_max: int = 1024
    """Own publications in the paper profile that are not settled. When full, the oldest sent one is settled."""
    linger_periods: int = 32
    """Heartbeats after which an own publication is settled, and for which a publication of an earlier run waits for the
    mesh to form. Twice the time that an advertisement takes to reach every node, because subscriptions come back the
    same way."""
    membership: NeighbourhoodKind = "fixed"
    """"fixed": the owner names the neighbours. "scamp": the node finds them through contacts that the owner names.
    "certified": the same, among certified members only."""
    scamp: ScampConfig = ScampConfig()
    certified: CertifiedConfig = CertifiedConfig()
    cover: CoverConfig = CoverConfig()
    shellgame: ShellGameConfig = ShellGameConfig()
    hardening: HardeningConfig = HardeningConfig()
    defences: Defences = Defences()
    """The hardened profile turns all defences on unless some are set."""

    def __post_init__(self) -> None:
        if self.profile == "hardened" and self.defences == Defences():
            msgspec.structs.force_setattr(self, "defences", ALL_DEFENCES)
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"mesh.{name} must be at least 1")
        if self.profile == "hardened" and (self.cover.rule != "none" or self.shellgame.start != "never"):
            raise ConfigError("mesh.cover and mesh.shellgame are the paper's: the hardened profile has neither")
        if self.overlap_periods < 0:
            raise ConfigError("mesh.overlap_periods must not be negative")
        if self.silent_periods < 2:
            raise ConfigError("mesh.silent_periods must be at least 2: one lost heartbeat is no failure")
        if not 1 <= self.d_max <= LENGTH_MAX:
            raise ConfigError(f"mesh.d_max must be between 1 and {LENGTH_MAX}")
        if not 1 <= self.neighbours_max <= g.NEIGHBOURS_MAX:
            raise ConfigError(f"mesh.neighbours_max must be between 1 and {g.NEIGHBOURS_MAX}")
        if not 1 <= self.address_bytes_max <= g.ADDRESS_MAX:
            raise ConfigError(f"mesh.address_bytes_max must be between 1 and {g.ADDRESS_MAX}")
        taken = self.certified.outbound + self.certified.reunions
        if self.membership == "certified" and self.neighbours_max < taken + max(2, g.SHARED_ADDRESSES_MAX - taken):
            raise ConfigError(f"mesh.neighbours_max must leave room beside the {taken} links of certified membership")

    @property
    def late_us(self) -> int:
        """Time that a subscriber keeps a notification for missing earlier ones: `gap_us`, and in the hardened profile
        four more tries of the publisher, which repeats what was lost on its stem."""
        tries = 4 if self.profile == "hardened" else 0
        return self.gap_us + tries * self.hardening.retry_periods * self.heartbeat_us

    @property
    def records_max(self) -> int:
        """Own publications that are not settled."""
        return self.hardening.pending_max if self.profile == "hardened" else self.lingering_max

    @property
    def heartbeat_bytes(self) -> int:
        """The one size of every heartbeat: room for the largest possible management message (P0 4.1)."""
        return g.heartbeat_size(self.neighbours_max, self.address_bytes_max)


_AT_LEAST_ONE: Final = (
    "heartbeat_us",
    "tokens_max",
    "origins_max",
    "queue_max",
    "again_periods",
    "seen_max",
    "deliver_again_us",
    "gap_us",
    "unread_max",
    "lingering_max",
    "linger_periods",
)
