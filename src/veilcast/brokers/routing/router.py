"""The router of one replica: which claims it believes, what it tells others, and where messages go.

Outgoing claims collect in `outbox`. Claims certify themselves (`claims`), and the overlay is a tree that all know, so a
claim of an edge node can come from one side only. A report of a single neighbouring replica is still not believed: that
replica could keep a claim alive that the others have ended, or report a claim that theirs cover. A claim or withdrawal
counts when enough replicas of the node have reported it, or a covering claim, that one of them is honest (`votes`). A
client's own link is enough for its claims. A subscription whose proof matches no advertisement waits for one
(`quota.UnmatchedSubscriptions`); it is not routed, and nothing is sent to it.

Property: honest replicas of one node forward the same claims to a neighbour, in whatever orders they learn them.
Reason: covering depends on nothing but the two claims. A claim that expires earlier never covers one that expires
later, so an expiry uncovers nothing. Of two equal subscriptions the one that expires later covers the other; ties go to
the larger id. Advertisements are never covered: subscribers need each publisher's key.

A claim that becomes covered is not withdrawn from those that have it: it makes no difference to them, and only its
client can sign its end. Claims that a withdrawal uncovers are sent before it. The receiver delays the withdrawal,
because the neighbour's replicas are not equally fast and no necessary claim may be unknown at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import BrokerOverlay, hop_of_node, node_of_hop
from veilcast.brokers.quota import UnmatchedSubscription, UnmatchedSubscriptions
from veilcast.brokers.routing.claim_semantics import (
    ActiveClaim,
    ClaimSemantics,
    PredicateCodec,
    PublicationQuery,
    predicate_codec,
)
from veilcast.brokers.routing.claims import check_advertisement, check_subscription, check_times, check_withdraw
from veilcast.brokers.routing.tables import RoutingTables, RoutingUpdate
from veilcast.brokers.routing.votes import ClaimVotes, covering_candidate
from veilcast.core.timers import Timers, earliest
from veilcast.errors import ExcessError, ForgedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import Claim, ClaimKind, Routing, WithdrawClaim


class RoutedMessage(NamedTuple):
    """A message for all replicas of a neighbouring node or for a client, named by its hop (`overlay.hop_of_node`, or a
    link's address)."""

    to: Address
    message: Claim | WithdrawClaim


IncludesHonest: TypeAlias = Callable[[bytes, Collection[bytes]], bool]
"""True if an honest replica of the node must be among those with these keys."""


class Router:
    """Bounded by its config: table rows per hop and in total, open reports per replica, unmatched subscriptions, and
    ids of withdrawn claims."""

    def __init__(
        self,
        config: BrokerConfig,
        overlay: BrokerOverlay,
        home: bytes,
        includes_honest: IncludesHonest,
        root: bytes,
        epoch_us: int,
    ) -> None:
        self._config, self._home, self._includes_honest, self._root, self._epoch_us = (
            config,
            home,
            includes_honest,
            root,
            epoch_us,
        )
        self._hardened = config.profile == "hardened"
        self._codec: PredicateCodec[Any, Any] = predicate_codec(config.profile)
        self._directions = overlay.directions(home)
        neighbours = [hop_of_node(node.id) for node in overlay.neighbours(home)]
        semantics = ClaimSemantics(self._codec)
        self._tables: RoutingTables[ActiveClaim, PublicationQuery] = RoutingTables(
            neighbours, semantics, most=config.claims_max, most_of_one=config.claims_each
        )
        self._known: dict[bytes, _KnownClaim] = {}
        self._advertisements_of: dict[Hashable, dict[bytes, None]] = {}
        """Advertisements by the subject of their predicates."""
        self._client_claims: Counter[Address] = Counter()
        self._unmatched = UnmatchedSubscriptions(config.waiting_max, config.claims_each)
        self._votes = ClaimVotes(config.votes_max, semantics.covers)
        self._withdrawn: dict[bytes, None] = {}
        self._expiry: Timers[bytes] = Timers()
        self._delayed_ends: Timers[bytes] = Timers()
        self.outbox: list[RoutedMessage] = []
        self.new_advertisements: list[bytes] = []
        """Advertisements that have become known. The caller empties the list."""
        self.ended: dict[bytes | Address, None] = {}
        """Ended advertisements, and hops whose subscriptions have ended. The caller empties it."""

    # --- queries

    def publisher_of(self, advertisement: bytes) -> bytes:
        """The publisher's key, which signs everything under the advertisement. `StaleError` if it is not known here."""
        return _publisher(self._find_advertisement(advertisement).claim)

    def source_of(self, advertisement: bytes) -> Address:
        """The hop toward the publisher."""
        return self._find_advertisement(advertisement).hop

    def subscriber_hops(self, advertisement: bytes) -> list[Address]:
        """The hops with subscribers of the topic: keys go there."""
        self._find_advertisement(advertisement)
        return self._tables.interested_hops(advertisement)

    def route(self, routing: Routing) -> list[Address]:
        """The hops with a matching subscription. Raises unless the publication was advertised."""
        known = self._find_advertisement(routing.advertisement)
        query = PublicationQuery(
            routing.advertisement, known.active.subscriber_key, self._codec.decode_publication(routing.says)
        )
        return self._tables.route(query, known.hop)

    def claims_for(self, node: bytes) -> list[Claim]:
        """All claims that a replica of this neighbour should know from here; for the own node, the claims of
        clients."""
        if node == self._home:
            return [known.claim for known in self._known.values() if node_of_hop(known.hop) is None]
        return [self._known[id_].claim for id_ in self._tables.sent_to(hop_of_node(node))]

    @property
    def unconfirmed_count(self) -> int:
        """Claims that too few replicas of a neighbour have reported."""
        return self._votes.open_claims

    def claims_of(self, client: Address) -> int:
        return self._client_claims[client]

    def has_seen(self, claim: bytes) -> bool:
        return claim in self._known or claim in self._unmatched or claim in self._withdrawn

    def sizes(self) -> dict[str, int]:
        return {
            "claims": len(self._known),
            "waiting": len(self._unmatched),
            "votes": len(self._votes),
            "votes each": self._votes.most_open,
            "ended": len(self._withdrawn),
        }

    # --- claims of clients

    def claim_of_client(self, claim: Claim, client: Address, now: int) -> None:
        if claim.edge != self._home:
            raise ForgedError("a claim for another edge node")
        id_ = claim.id
        if id_ in self._known and self._known[id_].hop == client:
            self._send_overlapping(id_)  # A restarted client knows no publishers any more.
            return
        if id_ in self._withdrawn:
            raise StaleError("a claim that was withdrawn")
        if self._client_claims[client] >= self._config.client_claims:
            raise ExcessError("more claims than a client may have")
        self._check(claim, now)
        self._accept({claim.holder: claim}, client)

    def withdrawal_of_client(self, withdraw: WithdrawClaim, client: Address, now: int) -> None:
        claim, hop = self._find(withdraw.claim)
        if hop != client:
            raise ForgedError("another client's claim")
        check_withdraw(withdraw, claim)
        self._end_claim(withdraw.claim, withdraw)

    # --- reports of neighbouring replicas

    def claim_of_node(self, claim: Claim, node: bytes, replica: bytes, now: int) -> None:
        """Handle a report. `replica` is the key of the reporting replica of that node."""
        id_ = claim.id
        if id_ in self._unmatched:
            self._try_proof(id_, claim, node, replica)
        if id_ in self._known or id_ in self._unmatched or id_ in self._withdrawn:
            return
        if self._directions.get(claim.edge) != node:
            raise ForgedError("a claim from the wrong side")
        if claim not in self._votes.reported_claims(id_).values():  # The proof is not part of the id.
            self._check(claim, now)
        strengthened = self._votes.add("claim", id_, claim, node, replica, covering_candidate(claim, self._codec))
        self._expiry.set(id_, claim.until_us)
        believed = [each for each in strengthened if self._includes_honest(node, self._votes.supporters("claim", each))]
        refused: RemoteError | None = None
        for each in believed:
            reported = self._votes.reported_claims(each)
            self._votes.close("claim", each)
            try:
                self._accept(reported, hop_of_node(node))
            except RemoteError as error:  # A refusal of one claim does not affect the others.
                refused = error
        if refused is not None:
            raise refused

    def withdrawal_of_node(self, withdraw: WithdrawClaim, node: bytes, replica: bytes, now: int) -> None:
        id_ = withdraw.claim
        if id_ in self._withdrawn:
            return
        claim, hop = self._find(id_)
        if hop != hop_of_node(node):
            raise ForgedError("another hop's, and not this one's to end")
        check_withdraw(withdraw, claim)
        self._votes.add("end", id_, claim, node, replica)
        if not self._includes_honest(node, self._votes.supporters("end", id_)):
            return
        self._votes.close("end", id_)
        if id_ in self._known:
            # It ends once the slowest replica has sent the claims that the withdrawal uncovers.
            self._known[id_].withdraw = withdraw
            self._delayed_ends.set(id_, now + self._config.bound_us)
        else:
            self._end_claim(id_, withdraw)

    # --- time

    def next_us(self) -> int | None:
        return earliest(self._expiry.next_us(), self._delayed_ends.next_us())

    def handle(self, now: int) -> None:
        for id_ in self._delayed_ends.pop_due(now):
            if id_ in self._known:
                self._end_claim(id_, self._known[id_].withdraw)
        for id_ in self._expiry.pop_due(now):
            self._end_claim(id_, None)

    # --- internals

    def _check(self, claim: Claim, now: int) -> None:
        """Check everything that depends on the claim alone."""
        check_times(claim, self._hardened, self._epoch_us, self._config.lease_us, now)
        if claim.kind is ClaimKind.ADVERTISEMENT:
            self._codec.decode_advertisement(claim)
            check_advertisement(claim, self._root)
        else:
            self._codec.decode_subscription(claim)

    def _accept(self, reported: dict[bytes, Claim], hop: Address) -> None:
        claim = next(iter(reported.values()))
        id_ = claim.id
        self._expiry.set(id_, claim.until_us)
        try:
            if claim.kind is ClaimKind.ADVERTISEMENT:
                self._advertise(id_, claim, hop)
            else:
                self._subscribe(id_, reported, hop)
        except RemoteError:
            self._end_claim(id_, None)
            raise

    def _advertise(self, id_: bytes, claim: Claim, hop: Address) -> None:
        assert claim.reader is not None, "it was checked"
        predicate = self._codec.decode_advertisement(claim)
        active = ActiveClaim(id_, claim.until_us, claim.reader, predicate)
        subject = self._codec.subject(predicate)
        others = [self._known[other] for other in self._advertisements_of.get(subject, ())]
        # Every subscription is checked with all subscriber keys. In `paper` all publishers of a topic have one name.
        mine = [known for known in others if self._hardened and _publisher(known.claim) == _publisher(claim)]
        if any(known.active.subscriber_key != claim.reader for known in mine):
            raise ForgedError("a publisher names one subscriber key for a topic")
        steps = self._tables.advertise(id_, active, hop)
        self._known[id_] = _KnownClaim(claim, hop, active)
        same_subject = [known.active for known in others]
        self._advertisements_of.setdefault(subject, {})[id_] = None
        self._count_client_claim(hop, 1)
        self.new_advertisements.append(id_)
        self._send_updates(steps)
        for client in self._tables.interested_hops(id_):
            if node_of_hop(client) is None:
                self._send_claim(id_, client)
        if not any(
            each.subscriber_key == active.subscriber_key and each.predicate == predicate for each in same_subject
        ):
            self._try_unmatched(subject, active)

    def _try_unmatched(self, subject: Hashable, advertisement: ActiveClaim) -> None:
        """Try the subscriptions whose proof this advertisement may match. If an equal one was known, all have been
        tried."""
        for id_, unmatched in self._unmatched.with_subject(subject):
            if self._codec.overlaps(advertisement.predicate, self._codec.decode_subscription(unmatched.claim)):
                try:
                    self._subscribe(id_, unmatched.reported, unmatched.hop)
                except RemoteError:
                    continue  # There is no room for it in the tables: it stays unmatched.

    def _subscribe(self, id_: bytes, reported: dict[bytes, Claim], hop: Address) -> None:
        """Use the first valid proof: a Byzantine replica may report the claim of others without one."""
        predicate = self._codec.decode_subscription(next(iter(reported.values())))
        for claim in dict.fromkeys(reported.values()):
            key = self._find_subscriber_key(claim, predicate)
            if key is not None:
                break
        else:
            self._store_unmatched(id_, UnmatchedSubscription(reported, hop, self._codec.subject(predicate)))
            return
        active = ActiveClaim(id_, claim.until_us, key, predicate)
        steps = self._tables.subscribe(id_, active, hop)
        if self._unmatched.pop(id_) is None:
            self._count_client_claim(hop, 1)
        self._known[id_] = _KnownClaim(claim, hop, active)
        self._send_updates(steps)
        self._send_overlapping(id_)

    def _try_proof(self, id_: bytes, claim: Claim, node: bytes, replica: bytes) -> None:
        """A waiting claim is reported again with another proof. The proof of an honest replica is valid, or will be."""
        unmatched = self._unmatched.get(id_)
        if unmatched is None or unmatched.hop != hop_of_node(node) or claim in unmatched.reported.values():
            return
        unmatched.reported[replica] = claim
        self._subscribe(id_, {replica: claim}, unmatched.hop)

    def _find_subscriber_key(self, claim: Claim, predicate: object) -> bytes | None:
        """The subscriber key that verifies the proof, among those of matching advertisements."""
        same_subject = (
            self._known[id_].active for id_ in self._advertisements_of.get(self._codec.subject(predicate), ())
        )
        keys = {each.subscriber_key: None for each in same_subject if self._codec.overlaps(each.predicate, predicate)}
        for key in keys:
            try:
                check_subscription(claim, key)
            except ForgedError:
                continue
            return key
        return None

    def _store_unmatched(self, id_: bytes, unmatched: UnmatchedSubscription) -> None:
        """Keep the subscription until a matching advertisement arrives."""
        if id_ in self._unmatched:
            return
        if (evicted := self._unmatched.eviction_candidate(unmatched.hop)) is not None:
            self._end_claim(evicted, None)
        self._unmatched.add(id_, unmatched)
        self._count_client_claim(unmatched.hop, 1)

    def _send_overlapping(self, id_: bytes) -> None:
        """Send a client the advertisements that its subscription overlaps."""
        known = self._known[id_]
        if known.claim.kind is ClaimKind.SUBSCRIPTION and node_of_hop(known.hop) is None:
            for advertisement in self._tables.overlapping_advertisements(id_):
                self._send_claim(advertisement, known.hop)

    def _count_client_claim(self, hop: Address, change: int) -> None:
        if node_of_hop(hop) is None:
            self._client_claims[hop] += change
            if not self._client_claims[hop]:
                del self._client_claims[hop]

    def _send_updates(self, steps: Iterable[RoutingUpdate[ActiveClaim]]) -> None:
        """Send the new claims. Claims that are covered now stay where they are."""
        for step in steps:
            if step.kind in ("advertise", "subscribe"):
                self._send_claim(step.id, step.to)

    def _send_claim(self, id_: bytes, hop: Address) -> None:
        known = self._known[id_]
        known.told_hops[hop] = None
        self.outbox.append(RoutedMessage(hop, known.claim))

    def _end_claim(self, id_: bytes, withdraw: WithdrawClaim | None) -> None:
        self._expiry.cancel(id_)
        self._delayed_ends.cancel(id_)
        self._votes.close("claim", id_)
        self._votes.close("end", id_)
        if withdraw is not None:
            self._remember(id_)
        if (unmatched := self._unmatched.pop(id_)) is not None:
            self._count_client_claim(unmatched.hop, -1)
        if (known := self._known.pop(id_, None)) is None:
            return
        self._count_client_claim(known.hop, -1)
        is_advertisement = known.claim.kind is ClaimKind.ADVERTISEMENT
        self.ended[id_ if is_advertisement else known.hop] = None
        if is_advertisement:
            subject = self._codec.subject(known.active.predicate)
            del self._advertisements_of[subject][id_]
            if not self._advertisements_of[subject]:
                del self._advertisements_of[subject]
            self._send_updates(self._tables.unadvertise(id_, known.hop))
        else:
            self._send_updates(self._tables.unsubscribe(id_, known.hop))
        if withdraw is not None:
            self.outbox += [RoutedMessage(hop, withdraw) for hop in known.told_hops]

    def _remember(self, id_: bytes) -> None:
        """Remember a withdrawn claim: a late replica of its node together with f Byzantine ones must not revive it."""
        self._withdrawn[id_] = None
        while len(self._withdrawn) > self._config.claims_max:
            del self._withdrawn[next(iter(self._withdrawn))]

    def _find(self, id_: bytes) -> tuple[Claim, Address]:
        if id_ in self._known:
            return self._known[id_].claim, self._known[id_].hop
        if (unmatched := self._unmatched.get(id_)) is not None:
            return unmatched.claim, unmatched.hop
        node = self._votes.reporting_node(id_)
        if node is not None:
            return next(iter(self._votes.reported_claims(id_).values())), hop_of_node(node)
        raise StaleError("the end of a claim that is not known here")

    def _find_advertisement(self, id_: bytes) -> _KnownClaim:
        known = self._known.get(id_)
        if known is None or known.claim.kind is not ClaimKind.ADVERTISEMENT:
            raise StaleError("under an advertisement that is not known here")
        return known


@dataclass(slots=True)
class _KnownClaim:
    claim: Claim
    hop: Address
    active: ActiveClaim
    told_hops: dict[Address, None] = field(default_factory=dict)
    withdraw: WithdrawClaim | None = None


def _publisher(claim: Claim) -> bytes:
    assert claim.chain is not None, "an advertisement shows its certificate"
    return claim.chain.leaf.subject
