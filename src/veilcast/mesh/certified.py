"""The certified neighbourhood: links between members only, which a flood of strangers cannot take over.

A node chooses `outbound` links itself, from its `address_book`, over many prefixes. Peers that come to it compete for
the other slots (`link_admission`). Four messages open a link, each in a heartbeat like any other: `Knock`, `Answer`,
`Show`, `Admit`. After the third the answerer knows that the knocker is a member, holds the key and receives at its
address. After the fourth the knocker knows the same about the answerer (`credentials`). Before that a stranger costs
one hash, and a rate limit counts the knocks of its prefix.

A node learns addresses by asking only: the answerer, whether it admits or not, tells a few addresses of its book. So
the share of addresses from Byzantine members depends on the nodes that the node chose to ask, and not on the number of
their messages. At intervals a node probes. It links again to a chosen peer that failed, beyond its quota if necessary,
so that partitioned networks grow together. Or it probes an unproven address without a link, so that the book stays
correct.

If two nodes knock at each other at once, each has drawn the other, and the link is an own link of both. The oldest
chosen peers are anchors: the driver stores them over restarts, and they are tried first.

Adoption makes a peer that came an own link. A node chooses its first relay among its own links. An adversary decides
which of its members come to a node, and from where, but not which addresses the node draws. So `PeerAdoption` adopts in
two cases only.

1. No other member is left: the node lacks own links, tries no address and knows no further one. It draws a peer from
   its book, like any other choice.
2. Need: for `NEED_PERIODS` heartbeats in a row the node heard some peer that came, and no own link. Meanwhile the node
   knocks at many addresses of its book. It draws a prefix among the older half of the peers that it hears: later peers
   never take the slots of that half (`link_admission`), so an adversary that floods the node is not in it. Without this
   case the node would wait for as long as its book or its contacts name dead addresses, although members are linked to
   it.

Claim: case 2 gives nothing to an adversary that can end a node's links, but cannot keep the node from new ones.
Reason: a try takes four heartbeats, or a few more, and the node begins its tries when it begins to count. A successful
try gives an own link, and ends the need. If the node hears no neighbour at all, the count starts at zero again: an
adversary that cuts the node off for some time, and comes first afterwards, has no head start.
Limit: an adversary that keeps a node from every address except those of insiders makes an insider an own link. It needs
no adoption for that: such a node can open links to insiders alone. A node that has no first relay yet waits for
`FIRST_NEED_PERIODS`: it has lost nothing, and its choice is long-lived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from veilcast.core.bounded import remember
from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.link.address_groups import PrefixOf
from veilcast.link.admission import PrefixRateLimit
from veilcast.machine import Address
from veilcast.mesh.address_book import AddressBook
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import Credentials, LinkAttempt, LinkProofs, ProofContext
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.link_admission import CertifiedLink, NeighbourAdmission
from veilcast.mesh.neighbourhood import NeighbourhoodContext
from veilcast.wire.base import Message
from veilcast.wire.mesh import Admit, Answer, Knock, Replace, Show


class CertifiedNeighbourhood:
    """Bounded: its slots, its book, `LOOKS_MAX` tries at once, `FAILED_MAX` failed peers, the rate limits."""

    accepts_strangers = True

    def __init__(
        self,
        config: MeshConfig,
        name: Address,
        contacts: Iterable[Address],
        context: NeighbourhoodContext,
        credentials: Credentials,
        prefix: PrefixOf,
        rng: Random,
        now: int,
        anchors: Iterable[Address] = (),
        relay: FirstRelay | None = None,
    ) -> None:
        self._rules, self._name, self._context, self._credentials = config.certified, name, context, credentials
        self._prefix, self._rng, self._period_us = prefix, rng, config.heartbeat_us
        self._address_bytes_max, self._answers_max = config.address_bytes_max, config.neighbours_max * 3 // 4
        self._contacts = [contact for contact in dict.fromkeys(contacts) if contact != name]
        if not all(map(self._is_short, self._contacts)):
            raise LocalError(
                f"a contact's address is empty, or has more than the {self._address_bytes_max} bytes allowed"
            )
        # An earlier run stored these, perhaps under other settings.
        kept = [anchor for anchor in dict.fromkeys(anchors) if anchor != name and self._is_short(anchor)]
        self._waiting_anchors = kept[: self._rules.anchors]
        self._stored_anchors: list[Address] = []
        rules = config.certified
        self.slots = NeighbourAdmission(
            chosen_max=rules.outbound,
            come_max=config.neighbours_max - rules.outbound - rules.reunions - (relay is not None),
            prefix_max=rules.prefix_max,
            rng=rng,
        )
        self.book = AddressBook(rules.book_max, rules.source_max, prefix, rng)
        self._adoption = PeerAdoption(self.slots, self.book, rng)
        self._tries: dict[Address, LinkAttempt] = {}
        self._failed: dict[Address, int] = {}
        self._resting: dict[Address, int] = {}
        self._knocks = PrefixRateLimit(rules.knock_periods * config.heartbeat_us, rules.knock_burst)
        self._shows = PrefixRateLimit(rules.knock_periods * config.heartbeat_us, rules.knock_burst)
        self._answers = 0
        self._probe_us = now + self._until_probe()
        self._relay, self._relay_us = relay, now
        if relay is not None:
            relay.is_settled = False
        self._epoch = credentials.epoch(now)
        self._patience_us, self._look_us = ISOLATION_PERIODS * config.heartbeat_us, now
        self._begin_us = now + self._patience_us
        self._left = False

    # --- the neighbourhood

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if self._left or not self._credentials.is_member(now):
            raise StaleError("this node is no member any more")
        match message:
            case Knock():
                self._answer(message, source, now)
            case Answer():
                self._show(message, source, now)
            case Show():
                self._admit(message, source, now)
            case Admit():
                self._enter(message, source, now)
            case Replace() if source in self.slots:
                self._close(source, now)
            case _:
                raise MalformedError("not a message of certified membership, or not a stranger's to send")

    def on_neighbour_lost(self, name: Address, now: int) -> None:
        chosen = name in self.slots and self.slots.links[name].chosen
        if name in self.slots:
            self._close(name, now)
        if chosen:
            self.book.mark_failed(name)
            remember(self._failed, name, now + FAILED_PERIODS * self._period_us, FAILED_MAX)

    def beat(self, now: int) -> None:
        self._answers = 0
        if self._left:
            return
        self._end_expired(now)
        if not self._credentials.is_member(now):
            return
        if self._relay is not None:
            self._call_relay(self._relay, now)
        if now >= self._probe_us:
            self._probe(now)
        has_relay = self._relay is not None and self._relay.record is not None
        self._adoption.observe(lambda name: self._context.is_fresh(name, now), has_relay=has_relay)
        if now >= self._look_us and (self._adoption.lacks_own_links or self._is_lonely(now)):
            self._look_around(now)
        while self._wanted() > 0 and (name := self._next_choice(now)) is not None:
            self._knock(name, now, stay=True)
        if (adopted := self._adoption.candidate(idle=not self._tries)) is not None:
            self._context.open(adopted, now, self.slots.adopt(adopted).subject)
        self._store_anchors()

    def leave(self, now: int) -> None:
        for name in self.slots.links:
            self._context.send(name, Replace(None))
        self._left = True

    def sizes(self) -> dict[str, int]:
        return {
            "neighbours": len(self.slots.links),
            "passive": len(self.book),
            "failed": len(self._failed),
            "tries": len(self._tries),
            "prefixes": max(len(self._knocks), len(self._shows), self.slots.count_visited_prefixes()),
        }

    # --- the four messages of a handshake

    def _knock(self, name: Address, now: int, *, stay: bool, again: bool = False) -> None:
        nonce = self._credentials.nonce()
        self._tries[name] = LinkAttempt(nonce, stay, again, now + PATIENCE_PERIODS * self._period_us)
        self._context.send(name, Knock(nonce))

    def _answer(self, knock: Knock, source: Address, now: int) -> None:
        self._knocks.charge(self._prefix(source), now)
        if self._answers >= self._answers_max:
            raise StaleError("more knocks than this node can answer")
        self._answers += 1
        cookie = self._credentials.cookie(source, knock.nonce, now)
        self._context.send(source, Answer(knock.nonce, cookie, self._credentials.certificate(now)))

    def _show(self, answer: Answer, source: Address, now: int) -> None:
        attempt = self._attempt(source, answer.nonce)
        if attempt.certificate is not None:
            raise StaleError("answered already")
        peer, epoch = answer.certificate, self._credentials.epoch(now)
        meeting = ProofContext(self._name, source, attempt.nonce, answer.cookie, epoch)
        try:
            self._credentials.check_member(peer, now)
            if not self._is_single(peer, source):
                raise ForgedError("a certificate that another address is linked by")
            proofs = self._credentials.prove(peer, meeting, now)
        except RemoteError:
            self._fail(source)
            raise
        attempt.certificate, attempt.expected = peer, proofs.answerer
        ours, proof = self._credentials.certificate(now), proofs.knocker.reveal()
        self._context.send(source, Show(attempt.nonce, answer.cookie, epoch, ours, proof, attempt.wants_link))

    def _admit(self, show: Show, source: Address, now: int) -> None:
        self._credentials.check_cookie(source, show.nonce, show.cookie, now)
        self._shows.charge(self._prefix(source), now)
        if abs(show.epoch - self._credentials.epoch(now)) > 1:
            raise StaleError("a proof of another epoch")
        peer = show.certificate
        try:
            proofs = self._check_shown(show, source, now)
        except ForgedError:
            self._shows.exhaust(self._prefix(source), now)
            raise
        linked = self._let_in(source, peer, now) if show.stay else False
        names = [name for name in self.book.sample(self._rules.shared) if name != source]
        self._hear_of(source, source)
        self._context.send(source, Admit(show.nonce, proofs.answerer.reveal(), linked, tuple(names)))

    def _check_shown(self, show: Show, source: Address, now: int) -> LinkProofs:
        self._credentials.check_member(show.certificate, now)
        meeting = ProofContext(source, self._name, show.nonce, show.cookie, show.epoch)
        proofs = self._credentials.prove(show.certificate, meeting, now)
        if Secret(show.proof) != proofs.knocker:
            raise ForgedError("a certificate without its key")
        if not self._is_single(show.certificate, source):
            raise ForgedError("a certificate that another address is linked by")
        return proofs

    def _enter(self, admit: Admit, source: Address, now: int) -> None:
        attempt = self._attempt(source, admit.nonce)
        if attempt.certificate is None or attempt.expected is None:
            raise StaleError("admitted without having shown anything")
        if Secret(admit.proof) != attempt.expected:
            self._fail(source)
            raise ForgedError("a certificate without its key")
        del self._tries[source]
        self.book.mark_reached(source)
        self._failed.pop(source, None)
        for name in admit.names:
            self._hear_of(Address(name), source)
        if not attempt.wants_link or source in self.slots:
            return
        if not admit.linked:
            remember(self._resting, source, now + REST_PERIODS * self._period_us, RESTING_MAX)
        elif self._has_room(source, attempt.certificate, attempt) and self._is_single(attempt.certificate, source):
            self._choose(source, attempt.certificate, now)
        else:
            self._context.send(source, Replace(None))

    # --- links

    def _let_in(self, source: Address, peer: CertificateChain, now: int) -> bool:
        known = self.slots.links.get(source)
        if known is not None and known.subject == peer.leaf.subject:
            return True
        if known is not None:
            self._close(source, now)
        if self._is_lonely(now):
            # Evict a silent peer that came: this node may be the only one left for the live peer.
            came = (name for name, link in self.slots.links.items() if not link.chosen)
            if silent := [name for name in came if not self._context.is_fresh(name, now)]:
                self._close(silent[-1], now)
        if self._is_own(source, peer):
            if self._tries.pop(source, None) is not None:
                self.book.mark_reached(source)
            self._choose(source, peer, now)
            return True
        if (
            leaver := self.slots.admit(source, CertifiedLink.to_member(self._prefix(source), peer, chosen=False))
        ) == source:
            return False
        if leaver is not None:
            self._context.close(leaver, now)
            self._context.send(leaver, Replace(None))
        self._context.open(source, now, peer.leaf.subject, chosen=False)
        return True

    def _choose(self, name: Address, peer: CertificateChain, now: int) -> None:
        self.slots.choose(name, CertifiedLink.to_member(self._prefix(name), peer, chosen=True))
        self._context.open(name, now, peer.leaf.subject)

    def _has_room(self, name: Address, peer: CertificateChain, attempt: LinkAttempt) -> bool:
        extra = self._rules.reunions if attempt.is_reunion else 0
        return self._is_relay(peer) or self.slots.may_choose(self._prefix(name), extra)

    def _is_own(self, source: Address, peer: CertificateChain) -> bool:
        """True if this node has drawn the peer itself: its relay, or a peer at which it knocks too."""
        attempt = self._tries.get(source)
        is_drawn = attempt is not None and attempt.wants_link and self._has_room(source, peer, attempt)
        return is_drawn or self._is_relay(peer)

    def _is_relay(self, peer: CertificateChain) -> bool:
        return self._relay is not None and self._relay.key == peer.leaf.subject

    def _close(self, name: Address, now: int) -> None:
        if self.slots.free(name):
            self._context.close(name, now)

    def _is_single(self, peer: CertificateChain, name: Address) -> bool:
        return self.slots.holder(peer.leaf.subject) in (None, name)

    def _end_expired(self, now: int) -> None:
        """End tries without an answer, and links whose certificates have ended. End all links if no neighbour is heard
        any more."""
        for name, attempt in list(self._tries.items()):
            if now >= attempt.deadline_us:
                self._fail(name)
        epoch = self._credentials.epoch(now)
        if epoch != self._epoch:
            self._epoch = epoch
            for name, link in list(self.slots.links.items()):
                if link.last < epoch:
                    self._close(name, now)
        if self.slots.links and now >= self._begin_us and self._context.unheard_us(now) > self._patience_us:
            # New links need time to be heard.
            self._begin_us = now + self._patience_us
            for name in list(self.slots.links):
                self.on_neighbour_lost(name, now)

    # --- choosing

    def _wanted(self) -> int:
        """Number of further nodes to knock at."""
        staying = sum(attempt.wants_link and not attempt.is_reunion for attempt in self._tries.values())
        return min(self._rules.outbound - len(self.slots.chosen()) - staying, TRIES_MAX - len(self._tries))

    def _next_choice(self, now: int) -> Address | None:
        while self._waiting_anchors:
            anchor = self._waiting_anchors.pop(0)
            if self._fits(anchor, now):
                return anchor
        chosen = self.book.choose(lambda name: self._fits(name, now))
        if chosen is None and not self._tries:
            # All nodes share the contacts: one is enough to learn of others.
            contacts = [name for name in self._contacts if self._fits(name, now)]
            chosen = self._rng.choice(contacts) if contacts else None
        return chosen

    def _fits(self, name: Address, now: int) -> bool:
        if name == self._name or self._is_known(name, now):
            return False
        prefix = self._prefix(name)
        return self.slots.may_choose(prefix) and all(self._prefix(other) != prefix for other in self._tries)

    def _is_known(self, name: Address, now: int) -> bool:
        """True if this address is linked, is being tried, or recently had no room for this node."""
        return name in self.slots or name in self._tries or self._resting.get(name, 0) > now

    def _call_relay(self, relay: FirstRelay, now: int) -> None:
        """Knock at the absent first relay at intervals. Without a first relay, report the links, so that it
        can be chosen once they are complete."""
        if relay.record is None:
            relay.observe_links(len(self.slots.chosen()), self._rules.outbound, idle=not self._tries)
            return
        name = Address(relay.record.address)
        is_free = name != self._name and not self._is_known(name, now)
        if now >= self._relay_us and is_free and self.slots.holder(relay.record.key) is None:
            self._relay_us = now + self._until_probe()
            self._knock(name, now, stay=True, again=True)

    def _probe(self, now: int) -> None:
        self._probe_us = now + self._until_probe()
        self._failed = {name: until for name, until in self._failed.items() if now < until}
        failed, unproven = (
            [name for name in names if name not in self.slots and name not in self._tries]
            for names in (self._failed, self.book.unproven)
        )
        if len(self._tries) > TRIES_MAX:
            return
        if failed and (not unproven or self._rng.random() < 0.5):
            self._knock(self._rng.choice(failed), now, stay=True, again=True)
        elif unproven:
            self._knock(self._rng.choice(unproven), now, stay=False)

    def _until_probe(self) -> int:
        """Random time until the next probe."""
        return int(self._rules.probe_periods * self._period_us * self._rng.uniform(0.5, 1.5))

    def _is_lonely(self, now: int) -> bool:
        fresh = sum(self._context.is_fresh(name, now) for name in self.slots.links)
        return len(self.slots.links) >= LONELY_LEAST and LONELY_SHARE * fresh < len(self.slots.links)

    def _look_around(self, now: int) -> None:
        """Most neighbours fell silent together. Knock at many others before their failure is certain."""
        self._look_us = now + PATIENCE_PERIODS * self._period_us
        for name in self.book.sample(LOOKS_MAX):
            if name != self._name and not self._is_known(name, now) and len(self._tries) < LOOKS_MAX:
                self._knock(name, now, stay=True, again=True)

    # --- addresses and attempts

    def _attempt(self, source: Address, nonce: bytes) -> LinkAttempt:
        attempt = self._tries.get(source)
        if attempt is None or attempt.nonce != nonce:
            raise StaleError("an answer without a knock")
        return attempt

    def _fail(self, name: Address) -> None:
        del self._tries[name]
        self.book.mark_failed(name)

    def _hear_of(self, name: Address, source: Address) -> None:
        if name != self._name and self._is_short(name):
            self.book.add_hearsay(name, source)

    def _is_short(self, name: Address) -> bool:
        """True if a heartbeat of this node could tell the address to others."""
        return 0 < len(name.encode()) <= self._address_bytes_max

    def _store_anchors(self) -> None:
        """Store the anchors whenever they change. Old anchors are better than none."""
        anchors = [name for name in self.slots.chosen() if self._context.is_present(name)][: self._rules.anchors]
        if anchors and anchors != self._stored_anchors:
            self._stored_anchors = anchors
            self._context.store_anchors(anchors)


class PeerAdoption:
    """`observe` is called once for each own heartbeat."""

    def __init__(self, slots: NeighbourAdmission, book: AddressBook, rng: Random) -> None:
        self._slots, self._book, self._rng = slots, book, rng
        self._beats, self._has_relay = 0, False
        self._heard: list[Address] = []

    @property
    def lacks_own_links(self) -> bool:
        """True if the node has a first relay, hears some peers that came, and hears no own link."""
        return self._has_relay and self._beats > 0

    def observe(self, is_fresh: Callable[[Address], bool], *, has_relay: bool) -> None:
        heard = {name: link.chosen for name, link in self._slots.links.items() if is_fresh(name)}
        self._heard = list(heard)
        self._beats = self._beats + 1 if heard and not any(heard.values()) else 0
        self._has_relay = has_relay

    def candidate(self, *, idle: bool) -> Address | None:
        """The peer to adopt now, if any. `idle`: the node tries no address now."""
        links = self._slots.links
        if idle:
            return self._book.choose(
                lambda name: name in links and not links[name].chosen and self._slots.may_choose(links[name].prefix)
            )
        if self._beats < (NEED_PERIODS if self._has_relay else FIRST_NEED_PERIODS):
            return None
        came = [name for name in self._heard if name in links and self._slots.may_choose(links[name].prefix)]
        by_prefix = {links[name].prefix: name for name in reversed(came[: max(1, len(came) // 2)])}
        return by_prefix[self._rng.choice(sorted(by_prefix))] if by_prefix else None


TRIES_MAX: Final = 4
LOOKS_MAX: Final = 32
"""Simultaneous tries after most neighbours fell silent: with one in five addresses alive, some are found."""
LONELY_LEAST: Final = 4
LONELY_SHARE: Final = 3
"""A node is lonely if it has at least `LONELY_LEAST` links and hears less than one in `LONELY_SHARE` of them."""
PATIENCE_PERIODS: Final = 8
"""Heartbeats that a try may take: four messages, one in each, and a margin for the network."""
REST_PERIODS: Final = 60
"""Heartbeats for which a node that had no room is not tried again."""
RESTING_MAX: Final = 64
FAILED_MAX: Final = 16
FAILED_PERIODS: Final = 3600
"""Heartbeats for which a failed node is tried again at intervals."""
ISOLATION_PERIODS: Final = 20
"""Heartbeats without one from others, after which a node drops all links and begins again."""
NEED_PERIODS: Final = PATIENCE_PERIODS
"""Heartbeats: the longest duration of a try."""
FIRST_NEED_PERIODS: Final = 4 * NEED_PERIODS
