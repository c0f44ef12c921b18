"""What a mesh node can be told: one frozen value, with the unit and the effect of each field.

When a node may replace its first relay; the rules' meaning is in `first_relay`."""

from __future__ import annotations

from math import inf
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.crypto.hash_chain import LENGTH_MAX
from veilcast.errors import ConfigError
from veilcast.wire import geometry as g


class FirstRelayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times are epochs of the node's own uptime, in which it hears neighbours."""

    rule: Literal["kept", "any"] = "kept"
    """"any" is a weakness for the lab to measure: the neighbour whose address ranks first, whoever came last."""
    away_epochs: int = 72
    """How long the first relay must have been away without a break before it is replaced: three days."""
    refill_epochs: int = 1440
    """One replacement is earned in this time: sixty days."""
    spares: int = 2
    """Replacements that a node may have saved up, and has at its first start."""

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
    """"one": a node takes one cover with probability `mu`, which fits the published numbers; "each": every neighbour
    becomes one with probability `mu`, which is what the text says."""
    mu: float = 0.6
    delay_us: int = 0
    """How long after it has joined a mesh by subscription a node looks for covers: 0 is when subscribing, as the text
    has it; more than the mesh takes to form is on the finished mesh, which fits the numbers. A cover looks at once."""
    choice: CoverChoice = "kept"
    """"kept": covers are chosen once; "fresh": anew for every publication, `delay_us` after it, which gives the
    subscribers away (Fig. 10 and 13)."""

    def __post_init__(self) -> None:
        if not 0 <= self.mu <= 1:
            raise ConfigError("cover.mu must be between 0 and 1")
        if self.delay_us < 0:
            raise ConfigError("cover.delay_us must not be negative")


class ScampConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A neighbourhood that forms itself (P0 4.1, SCAMP)."""

    copies: int = 1
    """c of SCAMP: views have about (c + 1) ln n members, and survive the more failures the larger it is."""
    walk_hops: int = 32
    """Steps, most of them on the spot, by which a join gets from whoever was asked to a contact that nobody chose."""
    forward_hops: int = 128
    """How often a copy of a subscription is passed on before it is kept without a choice."""
    lease_ms: int = 3_600_000
    """After which an arc ends and its subject has joined anew."""
    isolation_periods: int = 20
    """Heartbeats without any from others, or without being kept by anybody, after which a node joins again."""
    passive_max: int = 24
    """Addresses kept in reserve."""
    probe_periods: int = 60
    """Heartbeats, more or less, between two tries to reach one that failed. Networks that were parted find one another
    so, long before leases end. 0 is never."""

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
    """Links that a node chooses itself; the others are for those who come to it."""
    reunions: int = 4
    """Links beyond those, to some that it chose, that failed, and that are back: parted networks grow together so."""
    anchors: int = 4
    """The oldest of the chosen, kept over restarts."""
    prefix_max: int = 2
    """Links to addresses of one prefix, among the chosen and among those who came."""
    book_max: int = 64
    """Addresses kept in reserve, of which half may be hearsay."""
    source_max: int = 4
    """Addresses of hearsay by word of one prefix."""
    shared: int = g.SHARED_ADDRESSES_MAX
    """Addresses that who knocks is told."""
    knock_periods: int = 30
    """Heartbeats between two knocks that are answered to one prefix, once it has used its burst."""
    knock_burst: int = 4
    probe_periods: int = 30
    """Heartbeats, more or less, between two probes: of one that failed, or of an address that is hearsay."""

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
    """The shell game (P0 4.5): nodes of a mesh change places with their children, until they have cooled down."""

    start: GameStart = "never"
    """What makes a node play first: its first child in a mesh (fits the numbers), its first neighbour there (the text),
    or any change of its neighbours, also later (Fig. 6)."""
    first: FirstWait = "immediate"
    """Whether it then plays at once, or after a wait like all others."""
    wait_us: int = 5_000_000
    """The mean of the exponential waits between two of its games."""
    decay: GameDecay = "time"
    """A node whose wait is over plays with probability exp(-rate x): x is the seconds it has been in the mesh, or the
    number of games it began (Fig. 16)."""
    rate: float = 0.05
    publisher_plays: bool = False
    """Or it keeps its place."""
    settle_periods: int = 8
    """Heartbeats for which a node's ways to the origins must have stayed the same before it takes part in a game. More
    than an advert takes to reach everybody: until then nodes still move to nearer ways."""
    lease_periods: int = 10
    """Heartbeats for which a node stays locked at most, and for which it goes on sending notes to where it left."""
    patience_periods: int = 40
    """Heartbeats for which one neighbour may hold a node locked, game after game; later at most half of the time."""
    remind_periods: int = 8
    """Heartbeats after which a node asks again for what it has, so that two neighbours who disagree come to agree."""
    acquaintances_max: int = 32
    """Those next to a node in its meshes who are not its neighbours."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate < inf:
            raise ConfigError("shellgame.rate must be finite and not negative")
        if self.lease_periods < 8:
            raise ConfigError("shellgame.lease_periods must be at least 8: a game takes up to six heartbeats")
        for name in ("wait_us", "settle_periods", "patience_periods", "remind_periods", "acquaintances_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"shellgame.{name} must be at least 1")


DEPARTURE_EPOCHS_MAX: Final = 24
"""Calls are made for twice as many epochs ahead, and kept."""


class HardeningConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the hardened mesh keeps time (see `joining`, `roots`, `stem`); periods are heartbeats."""

    window_periods: int = 32
    """The window, from the advert on, in which all members join in random order: several times what a flood takes."""
    follow_periods: int = 2
    """In which a node follows that was not going to join, but was asked by one that does."""
    repair_periods: int = 4
    """In which a member whose parent was lost asks another."""
    lead_periods: int = 64
    """How long before an epoch its mesh begins to form, so that it stands when the epoch comes."""
    grace_periods: int = 32
    """How long after an epoch its mesh is kept, for what is still under way."""
    onward: float = 0.5
    """The probability that a relay passes a stem on, and does not end it."""
    retry_periods: int = 8
    """After which a publisher sends again what the root did not acknowledge."""
    wait_epochs: int = 24
    """For how long a publication waits for its way to open, besides what departures and hold-back take, before the
    owner is told; and from then on, each time."""
    departure_epochs: int = 0
    """A publisher lets what it has leave once in so many epochs, at a moment of its own, and not at any time: against
    insiders who compare when notes pass with who is there (see `departures`). All nodes must know it, since roots are
    called for so much earlier."""
    hold_back_epochs: float = 0.0
    """The root holds every note for a random time up to this: against those who compare what is published with who is
    there. The publishers must know it too, so as not to send again too soon."""
    call_periods: int = 96
    """After which a publisher calls for a root again: more than an election takes."""
    bit_periods: int = 4
    """A lot that is half as good waits for so much longer before it stands for election: what a flood takes."""
    patience_periods: int = 16
    """How long there must be no way to a root before another is looked for."""
    uptime_periods: int = 600
    """Who has been up for less waits longer before it stands for election."""
    volunteer: bool = True
    """Whether to stand for election at all. A root carries its topic's whole traffic, and is known."""
    covers: bool = True
    """Whether to act as a subscriber where a topic asks for it. Who does not carries less, and shows what it reads: in
    the lab, insiders, who have no reason to."""
    passages_max: int = 4096
    """Cargoes whose way back is remembered."""
    pending_max: int = 1024
    """Publications of our own that wait for acknowledgement."""
    relay: FirstRelayConfig = FirstRelayConfig()
    """When the first relay of our own publications may be replaced."""

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
        if not 0 <= self.hold_back_epochs < inf or self.uptime_periods < 1:
            raise ConfigError(
                "hardening.hold_back_epochs must be finite and not negative, and uptime_periods at least 1"
            )


class MessageRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of one kind is taken from one neighbour."""

    per_period: int
    """In each heartbeat period, for ever."""
    burst: int
    """At once, after it was quiet for long enough."""

    def __post_init__(self) -> None:
        if self.per_period < 1 or self.burst < 1:
            raise ConfigError("a rate's per_period and burst must be at least 1")


class Defences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the papers leave open to members who misbehave. All off is the papers' mesh; `ALL_DEFENCES` has all on."""

    anchors: bool = False
    """Only chains whose end is signed are believed, and only so many of one signer (see `anchors`)."""
    anchor_life_us: int = 7_200_000_000
    """For how long an anchor stands. A publisher starts a fresh chain when half of it is over; one that would stand
    for more than twice as long from now is refused."""
    anchor_quota: int = 4
    """Chains of one signer for one topic that a node keeps. The publishers of a `paper` topic share one key, and so
    this quota: it is to be twice their number at least, for a fresh chain overlaps the one that it replaces."""
    caps: bool = False
    """One neighbour gets no more than a share of each table, and its own oldest makes room (see `caps`)."""
    origins_each: int = 16
    """Chains for one topic that one neighbour may bring: half of a table of 32."""
    chains_each: int = 1024
    """Chains that one neighbour may bring in all."""
    branches_each: int = 1024
    """Topics that one neighbour may ask us for."""
    buckets: bool = False
    """More than a rate of each kind of message of one neighbour is refused (see `buckets`). The defaults leave honest
    neighbours alone: with 50 topics and a fifth of all heartbeats lost, so that all is told again and
    again, one sends 32 adverts in a period at most (a full heartbeat), 11 subscriptions, and one greeting; a heartbeat
    that does not follow the last counts as one more. Eight periods of that may come at once, as after a pause."""
    adverts: MessageRate = MessageRate(32, 256)
    subscriptions: MessageRate = MessageRate(16, 128)
    swaps: MessageRate = MessageRate(8, 64)
    greetings: MessageRate = MessageRate(2, 16)
    notes: MessageRate = MessageRate(64, 2048)
    """Frames of their own, as fast as publishers are: 50 topics with a note in each period, or twice what waits in an
    outbox, which all comes at once when its way opens again."""
    stems: MessageRate = MessageRate(64, 2048)
    replay: bool = False
    """A recorded heartbeat never acts again, and a recorded note is not passed on again (see `replays`)."""
    seen_each: int = 65_536
    """Notes in one of the two generations that are remembered; one is to last for an epoch: an hour of 18 a second."""
    epoch_tokens: bool = False
    """Topics of the `hardened` profile, whose tokens change at every edge of an epoch, can be used (see `epochs`)."""
    lead_us: int = 60_000_000
    """How long before an edge the next token is advertised: longer than a mesh takes to form and clocks differ."""
    grace_us: int = 30_000_000
    """How long after an edge the last token still counts, and how much clocks may differ."""

    def __post_init__(self) -> None:
        for name in ("lead_us", "grace_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"defences.{name} must not be negative")
        for name in ("anchor_life_us", "anchor_quota", "origins_each", "chains_each", "branches_each", "seen_each"):
            if getattr(self, name) < 1:
                raise ConfigError(f"defences.{name} must be at least 1")


ALL_DEFENCES: Final = Defences(anchors=True, caps=True, buckets=True, replay=True, epoch_tokens=True)


class MeshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults are P0's: heartbeats carry management, notes travel by themselves."""

    profile: Profile = "paper"
    """"paper": publishers advertise for themselves, and `cover` and `shellgame` may hide the readers; "hardened": an
    elected root does, and `hardening` says how."""
    heartbeat_us: int = 1_000_000
    """Between two heartbeats to the same neighbour; every management message waits for one."""
    silent_periods: int = 5
    """Heartbeats in a row a neighbour may miss before it is held to have failed. One is never enough."""
    d_max: int = 16
    """How far apart on a hash chain two values may be and still be told to be of one: the largest diameter expected."""
    neighbours_max: int = 32
    address_bytes_max: int = g.ADDRESS_MAX
    tokens_max: int = 4096
    """Topics a node keeps routes or branches for."""
    origins_max: int = 32
    """Adverts of different origin a node keeps for one topic."""
    queue_max: int = 4096
    """Management messages that may wait for one neighbour; when full, the oldest is dropped."""
    again_periods: int = 4
    """Heartbeats between two fresh chains of one publisher, and between two appeals for one."""
    overlap_periods: int = 0
    """Heartbeats for which an old way is kept when a nearer one is found. With 0, which is the papers', notes that are
    sent before the new one is laid are missed; where neighbours come and go that happens all the time."""
    seen_max: int = 4096
    """Notes a node remembers, so as not to forward or deliver them again."""
    deliver_again_us: int = 30_000_000
    """After which a note that its reader has not acknowledged is delivered again."""
    gap_us: int = 5_000_000
    """How long a note waits for those before it of its publisher, when they are missing (see `late_us`)."""
    unread_max: int = 1024
    """Notes that wait for acknowledgement; when full, the oldest is given up."""
    lingering_max: int = 1024
    """Publications of our own in the paper's profile that are not settled; when full, the oldest that is out is."""
    linger_periods: int = 32
    """Heartbeats after which one is: and for which one of an earlier life waits for the mesh to form. Twice what an
    advert takes to reach everybody, since subscriptions come back by the same way."""
    membership: NeighbourhoodKind = "fixed"
    """"fixed": the neighbours are those that the owner names; "scamp": they are found, by contacts that it names;
    "certified": found, and members only."""
    scamp: ScampConfig = ScampConfig()
    certified: CertifiedConfig = CertifiedConfig()
    cover: CoverConfig = CoverConfig()
    shellgame: ShellGameConfig = ShellGameConfig()
    hardening: HardeningConfig = HardeningConfig()
    defences: Defences = Defences()
    """Where none is named, the hardened profile has them all."""

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
        """How long a reader keeps a note for those before it: `gap_us`; and in the hardened profile four more tries of
        the publisher's, who sends again what was lost on its stem."""
        tries = 4 if self.profile == "hardened" else 0
        return self.gap_us + tries * self.hardening.retry_periods * self.heartbeat_us

    @property
    def records_max(self) -> int:
        """Publications of our own that are not settled."""
        return self.hardening.pending_max if self.profile == "hardened" else self.lingering_max

    @property
    def heartbeat_bytes(self) -> int:
        """The one size of every heartbeat: room for the largest management message there can be (P0 4.1)."""
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
