"""Settings of the tree's machines: one frozen value each, with the unit and the effect of each field.

All nodes of a network must have the same profile and, in `paper`, the same routing. Each node decides everything else
for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError
from veilcast.topics import Geometry
from veilcast.wire import geometry as g

PaperRouting: TypeAlias = Literal["trees", "seen", "labels"]
"""How a node chooses the next hops of a message, in `paper`.

By topic alone, a message goes to every parent that the node has for its topic. With "labels", as in the paper, a
message carries a filter of the nodes that have forwarded it; with three subscribers of 30 nodes a publication takes
some 18,000 copies. Two repairs: "seen" makes nodes remember the messages that they have forwarded (50 copies), and
"trees" keeps the trees apart, so that a message goes to the parent in the tree that it arrived on (7 copies).
"""


class TreeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a node: it forwards for all, and may publish and subscribe."""

    profile: Profile = "hardened"

    # --- directories
    needed: int | None = None
    """Number of directories that must have signed a listing; more than half of all by default. The same in all nodes
    and directories."""
    fetch_us: int = 60_000_000
    """Interval between downloads of the listing; jittered by half."""
    listed_max: int = g.LISTED_MAX
    """Largest listing accepted, in nodes."""

    # --- trees
    depth: int = 3
    """Hops from the farthest nodes to the root; a larger network gets more branches, not more hops."""
    chain: int = 3
    """Guards between the root of a tree and its subscriber; `paper` has none."""
    tail: int = 0
    """Above 0, this many guards more. The subscriber then stands behind any one of all `chain` + `tail` guards and
    forwards to those behind it, so that the guard before it does not know whether its parent is the subscriber."""
    group: int = 32
    """Nodes whose instructions travel in one message."""
    fan: int = 4
    """Number of other nodes of its group to which each node passes instructions on."""
    spread_us: int = 5_000_000
    """Instructions of one tree leave one by one within this time."""
    ahead_us: int = 20_000_000
    """Latest time before an epoch at which its trees are sent out; the earliest is half an epoch before it."""

    # --- publishing
    copies: int = 2
    """Number of origins that receive a publication; one in `paper`."""
    again_us: int = 3_000_000
    """Delay of the second copy after the first."""
    wait_us: int = 60_000_000
    """Time after which an unconfirmed publication is reported as overdue."""
    records_max: int = 256
    """Publications that are not confirmed."""

    # --- streams
    retry_us: int = 10_000_000
    """Time a request waits for its answer before its stream is replaced. Where answers take long, a request with its
    own stream waits up to four times as long."""
    connect_us: int = 2_000_000
    """Time before a failed stream is opened again; doubled each time, up to four times."""
    idle_us: int = 60_000_000
    """Time after which an unused stream to a parent is closed."""
    streams_max: int = 512
    """Outbound streams, opening or open."""
    callers_max: int = 4_096
    """Inbound streams whose rate limits are remembered."""

    # --- forwarding
    entries_max: int = 65_536
    """Entries of the routing table."""
    columns_max: int = 262_144
    """Constraints of all entries together."""
    seen_max: int = 65_536
    """Messages remembered to recognise repeats."""
    hold_us: int = 60_000_000
    """Time for which a message is retried toward an unreachable parent."""
    holds_each: int = 256
    """Messages waiting for one parent; further ones are dropped."""
    holds_max: int = 4_096
    """Messages waiting for all parents together."""
    installs_every_us: int = 10_000
    """Interval at which this node accepts instructions from all others together, after a burst of `installs_burst`."""
    installs_burst: int = 4_096
    messages_every_us: int = 2_000
    """Interval at which this node accepts messages of all kinds on one stream, after a burst of `messages_burst`; an
    offer counts as many messages as it makes copies."""
    messages_burst: int = 256
    trees_each: int = 4
    """Assumed trees per listed node that want one publication. An origin makes at most that many copies of one offer
    for each listed node; if more entries match, it draws among them."""
    copies_every_us: int = 1_000
    """Interval at which a node makes copies for all offers and for redirected entries, after a burst of
    `copies_burst`. The node refuses offers beyond that, and their publishers try another origin."""
    copies_burst: int = 4_096

    # --- subscribing
    subscriptions_max: int = 64
    unread_max: int = 1_024
    """Notifications delivered and not acknowledged; further ones are dropped."""
    delivered_max: int = 16_384
    """Notifications remembered to recognise copies."""
    deliver_again_us: int = 30_000_000
    """Time after which an unacknowledged notification is delivered again."""

    # --- probing
    probe_us: int = 2_000_000
    """Interval between probes, for all trees together; 0 turns probes off."""
    first_probe_us: int = 50_000
    """Interval between probes while some nodes have not been reached yet."""
    probe_wait_us: int = 12_000_000
    """Time after which a probe that has not returned counts as failed; up to four times as long where probes take
    long."""
    probes_max: int = 256
    """Probes in flight."""
    probes_kept: int = 4_096
    """Probe results from which nodes that drop messages are found."""
    ready_share: float = 0.9
    """Share of the nodes whose probes must have returned before a subscription is reported as active."""
    patience: int = 2
    """Consecutive failures to reach a guard before it is replaced."""
    avoid_us: int = 3_600_000_000
    """Time for which nothing depends on a node that was found unreachable or dropping messages."""

    # --- paper
    routing: PaperRouting = "labels"
    label_us: int = 600_000_000
    """Interval at which a node draws a new label."""
    counting: bool = False
    """Use counting filters, so that a subscription can be withdrawn."""
    filter_elements: int = 256
    """Elements that one parent's filter holds within the bound; more are refused."""
    filters_max: int = 1_024
    """Parents, or trees, that have a filter."""
    filter_bound: float = 1e-6
    """Probability that a filter lets through a publication that shares no element with it."""

    def __post_init__(self) -> None:
        check_minimum(self, "tree", 0, *_MAY_BE_NONE)
        check_minimum(
            self,
            "tree",
            1,
            *(name for name, kind in self.__annotations__.items() if kind == "int" and name not in _MAY_BE_NONE),
        )
        if self.group > GROUP_MAX:
            raise ConfigError(f"tree.group must be at most {GROUP_MAX}: their instructions must fit one message")
        if self.chain + self.tail > CHAIN_MAX or self.depth > DEPTH_MAX:
            raise ConfigError(
                f"tree.chain and tree.tail together must be at most {CHAIN_MAX}, and tree.depth at most {DEPTH_MAX}"
            )
        if not 0 < self.ready_share <= 1:
            raise ConfigError("tree.ready_share must be above 0 and at most 1")
        if self.listed_max > g.LISTED_MAX:
            raise ConfigError(f"tree.listed_max must be at most {g.LISTED_MAX}")
        self.filter_geometry  # noqa: B018 - refuses a bound that no filter keeps

    @property
    def filter_geometry(self) -> Geometry:
        """Geometry of the paper's filters."""
        return Geometry.sized(elements=self.filter_elements, queries=g.SUBJECTS_MAX, bound=self.filter_bound)


class DirectoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the machine that lists nodes and knows nothing of their traffic."""

    lease_us: int = 600_000_000
    """Time a node stays listed after it has enrolled; it enrols again after a third of that time."""
    publish_us: int = 5_000_000
    """Minimum interval between versions of the listing; a new version is made only after a change."""
    listing_us: int = 1_800_000_000
    """Time for which a listing is valid; the same in all directories of a tree."""
    others: tuple[str, ...] = ()
    """Addresses of the other directories. With one or more, all agree on each listing, and `publish_us` has no
    effect."""
    needed: int | None = None
    """Number of directories that must sign a listing; more than half of all by default. The same in all directories
    and all nodes."""
    round_us: int = 30_000_000
    """Interval at which several directories agree on a listing; the same in all of them. Half of it must suffice to
    fetch the votes of all others, eight requests for a thousand nodes."""
    versions: int = 4
    """Versions that are kept for nodes that are still downloading them."""
    nodes_max: int = g.LISTED_MAX
    callers_max: int = 4_096
    """Streams whose rate limits are remembered."""
    requests_every_us: int = 1_000
    """Interval between requests of one stream, after a burst of `requests_burst`."""
    requests_burst: int = 2_048
    enrols_every_us: int = 1_000
    """Interval between enrolments that fail their check, of all streams together, after a burst of `enrols_burst`;
    each costs a signature check. Beyond that, the directory answers only nodes that are listed with the same
    certificates."""
    enrols_burst: int = 1_024
    renewals_every_us: int = 1_000_000
    """Interval between enrolments of one node that take effect, after a burst of `renewals_burst`. Each change of
    address is written to disk."""
    renewals_burst: int = 8

    def __post_init__(self) -> None:
        check_minimum(self, "directory", 1, *(name for name, kind in self.__annotations__.items() if kind == "int"))
        check_directories("directory.others", self.others, "directory.needed", self.needed, len(self.others) + 1)
        if self.nodes_max > g.LISTED_MAX:
            raise ConfigError(f"directory.nodes_max must be at most {g.LISTED_MAX}")

    @property
    def signers_needed(self) -> int:
        return majority_of(len(self.others) + 1) if self.needed is None else self.needed


def majority_of(count: int) -> int:
    """The least number that is more than half of `count`."""
    return count // 2 + 1


def check_directories(key: str, addresses: Sequence[str], needed_key: str, needed: int | None, count: int) -> None:
    """Raises `ConfigError` unless these addresses differ, and `needed` of `count` directories can sign."""
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"{key} names a directory twice; each has one signature")
    if count > g.DIRECTORIES_MAX:
        raise ConfigError(f"{key}: a tree has at most {g.DIRECTORIES_MAX} directories")
    if needed is not None and not 1 <= needed <= count:
        raise ConfigError(f"{needed_key} must be from 1 to {count}, the number of directories")


_MAY_BE_NONE: Final = ("tail", "spread_us", "ahead_us", "again_us", "probe_us")
GROUP_MAX: Final = 32
CHAIN_MAX: Final = 16
DEPTH_MAX: Final = 32
