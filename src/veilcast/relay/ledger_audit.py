"""What a relay's host could tell: findings from its own records, as a thief, a court or its operator would read them.

1. The input is what the host has on its disk, opened with its keys. A host that is changed to keep more can tell more:
   the times of requests and answers, above all (`docs/threat-model.md`).
2. A server's records are leases and waiting publications, under pseudonyms. Findings are what they have in common:
   equal tags (one interest), one name (one member), one expiry (one epoch), one publication (interests that overlap).
3. A proxy's records are its clients, the pseudonyms of their leases, and deliveries that clients have not acknowledged.
   They name every member and count its leases, and what waits for it while it is away.
4. Each finding is a number that can be large. The tests have for each a relay where it is, and one where it is not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from veilcast.relay.roster import EnrolledClient, HeldDelivery, LeasePseudonym, decode_roster_record
from veilcast.relay.server import LeaseRecord, PublicationRecord, decode_server_record


class ServerFindings(msgspec.Struct, frozen=True):
    """What the records of a server show."""

    leases: int
    leases_by_proxy: dict[str, int]
    expiries: int
    """Different times at which leases expire; in `hardened` one for each epoch."""
    most_leases_of_one_name: int
    """Leases that one pseudonym joins: they belong to one member."""
    interests: int
    """Different sets of tags."""
    most_leases_with_equal_tags: int
    """Leases with the same tags: about as many members want the same."""
    tags_of_several_expiries: int
    """Tags that occur in leases of different epochs: they link a member's leases from epoch to epoch."""
    widest_constraint: int
    """Tags of the widest constraint: one for a label or a string, more for a range."""
    publications: int
    """Publications that wait for some subscriber."""
    publications_by_proxy: dict[str, int]
    bytes_held: int
    most_subscribers_waiting: int
    """Names that wait for one publication."""
    names_that_wait_together: int
    """Pairs of names that wait for the same two publications or more: their interests overlap."""


class ProxyFindings(msgspec.Struct, frozen=True):
    """What the records of a proxy show."""

    clients: int
    leases: int
    """Pseudonyms whose owners these records name."""
    leases_by_client: dict[str, int]
    expiries: int
    deliveries_by_client: dict[str, int]
    """Held deliveries of members that are away or have not acknowledged them; only members that have some."""


def audit_server(records: Mapping[int, bytes]) -> ServerFindings:
    entries = [decode_server_record(data) for data in records.values()]
    leases = [entry for entry in entries if isinstance(entry, LeaseRecord)]
    held = [entry for entry in entries if isinstance(entry, PublicationRecord)]
    expiries_of_tag: defaultdict[bytes, set[int]] = defaultdict(set)
    for lease in leases:
        for tag in _tags(lease):
            expiries_of_tag[tag].add(lease.until_us)
    return ServerFindings(
        leases=len(leases),
        leases_by_proxy=dict(Counter(lease.proxy for lease in leases)),
        expiries=len({lease.until_us for lease in leases}),
        most_leases_of_one_name=_largest(lease.name for lease in leases),
        interests=len({lease.tags for lease in leases}),
        most_leases_with_equal_tags=_largest(lease.tags for lease in leases),
        tags_of_several_expiries=sum(len(expiries) > 1 for expiries in expiries_of_tag.values()),
        widest_constraint=max((len(group) for lease in leases for group in lease.tags), default=0),
        publications=len(held),
        publications_by_proxy=dict(Counter(entry.proxy for entry in held)),
        bytes_held=sum(len(entry.sealed) + len(entry.cipher or b"") for entry in held),
        most_subscribers_waiting=max((len(entry.names) for entry in held), default=0),
        names_that_wait_together=_count_pairs(held),
    )


def audit_proxy(records: Mapping[int, bytes]) -> ProxyFindings:
    entries = [decode_roster_record(data) for data in records.values()]
    leases = [entry for entry in entries if isinstance(entry, LeasePseudonym)]
    clients = [entry.client for entry in entries if isinstance(entry, EnrolledClient)]
    counts, owners = Counter(lease.client for lease in leases), {lease.pseudonym: lease.client for lease in leases}
    counts.update(entry.client for entry in entries if isinstance(entry, EnrolledClient) and entry.pseudonym)
    return ProxyFindings(
        clients=len(clients),
        leases=counts.total(),
        leases_by_client={client: counts[client] for client in sorted(clients)},
        expiries=len({lease.until_us for lease in leases}),
        deliveries_by_client=dict(
            Counter(owners.get(entry.pseudonym, "") for entry in entries if isinstance(entry, HeldDelivery))
        ),
    )


def _tags(lease: LeaseRecord) -> set[bytes]:
    return {tag for group in lease.tags for tag in group}


def _largest(values: Iterable[object]) -> int:
    return max(Counter(values).values(), default=0)


def _count_pairs(held: list[PublicationRecord]) -> int:
    """Pairs of names with two common publications. Only the first names of each publication are compared."""
    common: Counter[tuple[bytes, bytes]] = Counter()
    for entry in held[:HELD_COMPARED]:
        names = sorted(entry.names)[:NAMES_COMPARED]
        common.update((one, other) for place, one in enumerate(names) for other in names[place + 1 :])
    return sum(count > 1 for count in common.values())


HELD_COMPARED = 1_000
NAMES_COMPARED = 100
"""Bounds of the work for pairs: at most five million are counted."""
