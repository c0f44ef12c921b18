"""What the machines of the tree can be told: one frozen value each, with the unit and the effect of each field.

All nodes of a network must be of one profile and, in `paper`, of one way of routing; all else each decides for itself.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.core.settings import check_minimum
from veilcast.errors import ConfigError
from veilcast.topics import Geometry
from veilcast.wire import geometry as g

PaperRouting: TypeAlias = Literal["trees", "seen", "labels"]
"""How a node decides whom a message goes on to, in `paper`.

By topic alone, to every parent it has for it; "labels" lets a message carry a filter of those who have forwarded it, as
the paper says, and "seen" lets nodes remember what they have forwarded. "trees" keeps the trees apart: a message goes
on to the parent in the tree that it came on.
"""


class TreeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node: forwards for all, and may publish and subscribe."""

    profile: Profile = "hardened"

    # --- the directory
    fetch_us: int = 60_000_000
    """How often the listing is fetched; jittered by a half."""
    listed_max: int = g.LISTED_MAX
    """A listing of more nodes is refused."""

    # --- trees
    depth: int = 3
    """Hops from the farthest nodes to the root; more branches are drawn instead of more hops."""
    chain: int = 3
    """Guards between the root of a tree and its subscriber; `paper` has none."""
    group: int = 32
    """Nodes whose instructions travel in one message."""
    fan: int = 4
    """Within a group, to how many others each node hands instructions on."""
    spread_us: int = 5_000_000
    """Instructions of one tree leave one by one within this time."""
    ahead_us: int = 20_000_000
    """So long before an epoch begins, at the latest, its trees are sent out; from half an epoch before it, at the
    earliest."""

    # --- publishing
    copies: int = 2
    """To how many origins a publication is sent; one in `paper`."""
    again_us: int = 3_000_000
    """How long after the first the next copy leaves."""
    wait_us: int = 60_000_000
    """After which a publication that is not through is reported as overdue."""
    records_max: int = 256
    """Publications that are not through."""

    # --- streams
    retry_us: int = 10_000_000
    """How long a request waits for its answer before the stream is given up for another. Where answers take long, what
    has a stream of its own is tried for up to four times as long."""
    connect_us: int = 2_000_000
    """How long after a call for a stream that failed the next one is made; doubled each time, up to four times."""
    idle_us: int = 60_000_000
    """A stream to a parent that carried nothing for so long is closed."""
    streams_max: int = 512
    """Streams to others, under way or up."""
    callers_max: int = 4_096
    """Streams of others whose allowance is remembered."""

    # --- forwarding
    entries_max: int = 65_536
    """Of the routing table."""
    columns_max: int = 262_144
    """Constraints of all entries together."""
    seen_max: int = 65_536
    """Messages that are remembered, so that a repeat is known for one."""
    hold_us: int = 60_000_000
    """For so long a message is tried on toward a parent who cannot be reached."""
    holds_each: int = 256
    """Messages that wait for one parent; more are dropped."""
    holds_max: int = 4_096
    """Messages that wait, for all parents."""
    installs_every_us: int = 10_000
    """Instructions that this node takes from all others: a burst, and then one every so often."""
    installs_burst: int = 4_096
    messages_every_us: int = 2_000
    """The same for messages of all kinds on one stream; an offer counts as many as it makes copies."""
    messages_burst: int = 256
    trees_each: int = 4
    """Trees that want one publication, for each listed node. An origin makes no more copies than that of one offer; if
    more entries match, it draws among them."""
    copies_every_us: int = 1_000
    """Copies that a node makes of all offers, and for entries that are turned: a burst, and then one every so often.
    What is more is refused, and its publisher tries another origin."""
    copies_burst: int = 4_096

    # --- subscribing
    subscriptions_max: int = 64
    unread_max: int = 1_024
    """Notes delivered and not acknowledged; more are dropped."""
    delivered_max: int = 16_384
    """Notes that are remembered, so that a copy is known for one."""
    deliver_again_us: int = 30_000_000
    """After which a note that nobody acknowledged is delivered again."""

    # --- probing
    probe_us: int = 2_000_000
    """A probe leaves this often, for all trees together; 0 is no probes."""
    first_probe_us: int = 50_000
    """The same while there are nodes that nothing has come from yet."""
    probe_wait_us: int = 12_000_000
    """A probe that has not come back by then has failed; up to four times as long where they take long."""
    probes_max: int = 256
    """Probes under way."""
    probes_kept: int = 4_096
    """Probes by which those are found who lose what they should pass on."""
    ready_share: float = 0.9
    """A subscription is reported to stand when probes of so many nodes have come back."""
    patience: int = 2
    """A guard that could not be reached so many times in a row is replaced."""
    avoid_us: int = 3_600_000_000
    """For so long nothing is made to depend on a node that was found to lose things, or to be away."""

    # --- paper
    routing: PaperRouting = "trees"
    label_us: int = 600_000_000
    """How often a node draws its label anew."""
    counting: bool = False
    """Filters count, so that a subscription can be taken back."""
    filter_elements: int = 256
    """Elements that one parent's filter holds within the bound; more are refused."""
    filters_max: int = 1_024
    """Parents, or trees, that have a filter."""
    filter_bound: float = 1e-6
    """The chance that a filter lets through what shares no element with it."""

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
        if self.chain > CHAIN_MAX or self.depth > DEPTH_MAX:
            raise ConfigError(f"tree.chain must be at most {CHAIN_MAX}, and tree.depth at most {DEPTH_MAX}")
        if not 0 < self.ready_share <= 1:
            raise ConfigError("tree.ready_share must be above 0 and at most 1")
        if self.listed_max > g.LISTED_MAX:
            raise ConfigError(f"tree.listed_max must be at most {g.LISTED_MAX}")
        self.filter_geometry  # noqa: B018 - refuses a bound that no filter keeps

    @property
    def filter_geometry(self) -> Geometry:
        """The shape of the paper's filters."""
        return Geometry.sized(elements=self.filter_elements, queries=g.SUBJECTS_MAX, bound=self.filter_bound)


class DirectoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one who lists nodes, and knows nothing of what they say."""

    lease_us: int = 600_000_000
    """How long a node stands in the listing after it has enrolled; it enrols anew when a third of it is over."""
    publish_us: int = 5_000_000
    """How often a new version of the listing is made, if anything has changed."""
    listing_us: int = 1_800_000_000
    """How long a listing is good for."""
    versions: int = 4
    """Versions that are kept for those who are still fetching them."""
    nodes_max: int = g.LISTED_MAX
    callers_max: int = 4_096
    """Streams whose allowance is remembered."""
    requests_every_us: int = 1_000
    """What one stream may ask: a burst, and then one every so often."""
    requests_burst: int = 2_048
    enrols_every_us: int = 1_000
    """Enrolments that fail their check, of all streams together; each costs a signature. When there were more, only
    nodes that are listed with the same certificates are heard."""
    enrols_burst: int = 1_024
    renewals_every_us: int = 1_000_000
    """Enrolments of one node that count: a burst, and then one every so often. Each move is written to the disk."""
    renewals_burst: int = 8

    def __post_init__(self) -> None:
        check_minimum(self, "directory", 1, *(name for name, kind in self.__annotations__.items() if kind == "int"))
        if self.nodes_max > g.LISTED_MAX:
            raise ConfigError(f"directory.nodes_max must be at most {g.LISTED_MAX}")


_MAY_BE_NONE: Final = ("spread_us", "ahead_us", "again_us", "probe_us")
GROUP_MAX: Final = 32
CHAIN_MAX: Final = 16
DEPTH_MAX: Final = 32
