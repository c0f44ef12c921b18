"""Content through one broker: forwards blocks by the strategy, requests missing ones, and confirms completed
publications.

A component without links, like the key forwarders: `receive`, `handle`, `next_us` and an `outbox`. f is the number of
Byzantine replicas that the node in question tolerates.

1. Property: nobody invents or changes content, and a corrupt block incriminates its sender.
   Reason: a publication is sealed, and its publisher signs its manifest, which has a digest of each block. So a valid
   block may come from any peer, and an honest replica forwards no other.

2. Property: all honest replicas of the next node get the manifest at the first attempt if both nodes have one size, and
   at the second whatever their sizes (`RecipientChooser`).
   Reason: each replica sends it to f + 1 replicas of the next node, from its own index on. So each of these has f + 1
   senders, one of them honest; with f, all senders could be Byzantine. In a larger next node some replicas have fewer
   senders (of 7 after 3, one has none). But the manifest of a repeated attempt goes to all, because the attempt number
   is not signed and more than f replicas must name it (`state.AttemptVotes`). Blocks go along, or on their own paths
   (`blocks.choose_carriers`), around replicas that are proven Byzantine where others are left.

3. Property: a replica that has the manifest and needs a block gets it, if the previous node has it.
   Reason: a replica does not request a block merely because it did not come, because most replicas need none. A
   subscriber requests missing blocks at its edge node. A replica that lacks a requested block asks the previous node,
   up to the publisher: first one replica, then f + 1, of which one is honest, then all.

4. Property: no honest replica counts as late because a publisher withholds its content.
   Reason: a replica counts as late only if another replica of its node delivers the block after the deadline, once for
   each content. If none delivers it, the publisher may have withheld it.

5. Property: a publication is confirmed to the publisher only if every subscriber has confirmed it, or was given up.
   Assumption: fewer than half of each node on the path are Byzantine.
   Reason: a node branch is done when f + 1 of its replicas confirm, so an honest one does, and an honest replica
   confirms when all its own branches are done. With f confirmations, Byzantine replicas alone could end it. A client
   branch is done when the client confirms, or its claims are gone. When a replica is done, it confirms to the node that
   sent it the content, erases the blocks, and answers later attempts at once. The publisher is done when f + 1 replicas
   of its edge node confirm.

6. Property: no subscriber keeps a publication in transit for ever.
   Reason: a client that does not confirm is given up after `hold_us`. While it requests what it lacks, the last wait of
   `hold_us` begins before `_PATIENCE_FACTOR` times `hold_us` are over: four times in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.content.blocks import ATTEMPTS_MAX, ContentBlock, ContentManifest, Strategy, choose_carriers
from veilcast.brokers.content.state import AttemptVotes, BranchState, ContentState, HopName
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.quota import PendingMessages
from veilcast.brokers.routing.view import Branch, Outgoing, Peer, RoutingView, all_replicas, is_from
from veilcast.core.timers import Timers
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.wire.base import Message
from veilcast.wire.brokers import ConfirmContent, ForwardContent, RequestBlocks
from veilcast.wire.geometry import ITEM_MAX


class RecipientChooser:
    """The recipients that one broker chooses."""

    def __init__(self, strategy: Strategy, routes: RoutingView, evidence: FaultEvidence) -> None:
        self._strategy, self._routes, self._evidence = strategy, routes, evidence

    def block_recipients(self, content: ContentState, branch: Branch, index: int) -> list[Peer]:
        """The recipients of this block from this broker. A subscriber gets it from f + 1 replicas where all have it,
        otherwise from those that have it."""
        strategy = Strategy.CODED if len(content.manifest.digests) > 1 else self._strategy
        own_id = self._own_id()
        if not isinstance(branch, Scheme):
            chosen = strategy is not Strategy.COPIES or own_id in _client_suppliers(own_id.scheme, content)
            return [branch] if chosen else []
        indices = choose_carriers(strategy, content.id, index, branch, content.attempt, own_id.index)
        return list(self._avoid_faulty(branch, indices))

    def manifest_recipients(self, content: ContentState, branch: Branch) -> list[Peer]:
        own_id = self._own_id()
        if not isinstance(branch, Scheme):
            return [branch] if own_id in _client_suppliers(own_id.scheme, content) else []
        if content.attempt:
            return list(all_replicas(branch))
        return list(
            self._avoid_faulty(branch, choose_carriers(Strategy.COPIES, content.id, 1, branch, 0, own_id.index))
        )

    def _avoid_faulty(self, scheme: Scheme, indices: Sequence[int]) -> list[ReplicaId]:
        """The same number of replicas, from the first of these on, without those proven Byzantine if enough others are
        left."""
        start = indices[0] - 1
        order = [ReplicaId(scheme, (start + step) % scheme.size + 1) for step in range(scheme.size)]
        return self._evidence.without_faulty(order, len(indices))[: len(indices)]

    def _own_id(self) -> ReplicaId:
        return self._routes.own_replicas()[0]


def _client_suppliers(scheme: Scheme, content: ContentState) -> list[ReplicaId]:
    """The f + 1 replicas of the own node that send this content to a client."""
    start = content.id[0] % scheme.size
    return [ReplicaId(scheme, (start + step) % scheme.size + 1) for step in range(scheme.max_faulty + 1)]


class BlockForwarder:
    """The content of one broker. Bounded by `contents_max` and `contents_bytes`; one publisher has a quarter of
    both."""

    def __init__(self, config: BrokerConfig, routes: RoutingView, evidence: FaultEvidence) -> None:
        self.outbox: list[Outgoing] = []
        self.abandoned = 0
        """Number of times that a client did not confirm in time."""
        self.completed = 0
        """Completed contents, each counted once while it is remembered: repeated attempts do not raise it."""
        self._config, self._routes, self._evidence = config, routes, evidence
        self._recipients = RecipientChooser(config.strategy, routes, evidence)
        self._contents: dict[bytes, ContentState] = {}
        self._counts: Counter[bytes] = Counter()
        self._bytes: Counter[bytes] = Counter()
        self._completed: dict[bytes, tuple[int, AttemptVotes]] = {}
        """Completed contents: the attempt that was confirmed last, and the attempts that were made."""
        self._timers: Timers[bytes] = Timers()
        self._early_content: PendingMessages[bytes, Peer, ForwardContent] = PendingMessages(
            count=256, size=1 << 22, senders=512, keep_us=8 * config.bound_us
        )
        self._requested_us: dict[tuple[Peer, bytes], int] = {}
        """When clients last requested something that they lack under an advertisement."""
        self._early_confirmations: PendingMessages[bytes, Peer, ConfirmContent] = PendingMessages(
            count=256, size=256, senders=4096, keep_us=config.hold_us, total=config.done_max
        )
        """Confirmations of content that has not arrived here: a peer that has it from others may confirm before it
        arrives."""

    def sizes(self) -> dict[str, int]:
        return {
            "contents": len(self._contents),
            "content bytes": self._bytes.total(),
            "contents done": len(self._completed),
            "contents early": len(self._early_content) + len(self._early_confirmations),
            "contents asked for": len(self._requested_us),
        }

    def receive(self, message: Message, source: Peer, now: int) -> None:
        """Handle a message. Raises if it is rejected. Outgoing messages are in `outbox`."""
        match message:
            case ForwardContent():
                self._on_content(message, source, now)
            case RequestBlocks():
                self._on_block_request(message, source, now)
            case ConfirmContent():
                self._on_confirmation(message, source, now)
            case _:
                raise ForgedError("not a message about content")

    def on_advertisement(self, advertisement: bytes, now: int) -> None:
        """An advertisement has become known: handle the content that came before it."""
        for source, carry in self._early_content.take(advertisement):
            try:
                self._on_content(carry, source, now)
            except RemoteError:
                continue

    def note_request(self, client: Peer, advertisement: bytes, now: int) -> None:
        """A client lacks a block or a key under this advertisement, and waits for it."""
        self._requested_us.pop((client, advertisement), None)
        self._requested_us[client, advertisement] = now
        if len(self._requested_us) > self._config.contents_max:
            del self._requested_us[next(iter(self._requested_us))]

    def on_claims_ended(self, ended: Set[bytes | HopName], now: int) -> None:
        """These advertisements, or subscriptions of these hops, have ended: stop waiting for branches without a
        subscription."""
        for content in list(self._contents.values()):
            if content.routing.advertisement in ended or not ended.isdisjoint(content.branches):
                self._prune(content)
                self._finish(content, now)

    def handle(self, now: int) -> None:
        for id_ in self._timers.pop_due(now):
            content = self._contents[id_]
            if content.deadline_us <= now:
                self._give_up(content, now)
            else:
                self._request_blocks(content, now)
        self._early_content.expire(now)
        self._early_confirmations.expire(now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    # --- forwarding ---------------------------------------------------------------------------------------------------

    def _on_content(self, carry: ForwardContent, source: Peer, now: int) -> None:
        routing = carry.routing
        id_ = routing.content
        if carry.attempt > ATTEMPTS_MAX:
            raise MalformedError("an attempt above the maximum")
        size = len(carry.manifest) + len(routing.says) + len(carry.block or b"")
        if size > _CARRY_MAX:
            raise MalformedError("content that leaves no room in a message for another attempt's number")
        if id_ in self._completed and id_ not in self._contents:
            self._answer_repeat(carry, source)
            return
        try:
            upstream = self._routes.source_of(routing.advertisement)
            publisher = self._routes.publisher_of(routing.advertisement)
        except StaleError:
            self._early_content.put(routing.advertisement, source, carry, size, now)
            return
        if not self._routes.has_all_claims():
            raise StaleError("this broker does not know all claims yet")
        if not is_from(source, upstream):
            raise ForgedError("content from another hop than its advertisement")
        known = self._contents.get(id_)
        content = known or self._new_content(carry, source, upstream, publisher, now)
        if content.encoded != carry.manifest:
            raise ForgedError("a second manifest for one content")
        block = self._block(content, carry, source)
        attempt = max(content.attempt, content.attempt_votes.record(source, carry.attempt))
        is_new_attempt = known is None or attempt > content.attempt
        # Raises for a publication that was not advertised, or with an invalid predicate: it must not be admitted.
        branches = self._routes.matching_branches(routing) if is_new_attempt else ()
        if known is None:
            self._admit(content)
        is_new = block is not None and block not in content.blocks
        if block is not None and is_new:
            self._evidence.record_all(content.record_arrival(block, source), FaultReason.LATE)
            self._store(content, block, carry.block or b"")
        if is_new_attempt:
            content.attempt = attempt
            self._start_attempt(content, branches)
        elif block is not None and is_new:
            self._send_blocks(content, [block])
        self._finish(content, now)

    def _new_content(
        self, carry: ForwardContent, source: Peer, upstream: Branch, publisher: bytes, now: int
    ) -> ContentState:
        """The state of a new publication, if the message is valid."""
        try:
            manifest = ContentManifest.decode(carry.manifest)
            if manifest.id != carry.routing.content:
                raise ForgedError("a manifest of another content")
            manifest.check(publisher)
        except (ForgedError, MalformedError):
            self._record_bad_block(source)
            raise
        return ContentState(carry, manifest, upstream, publisher, now, now + self._config.hold_us)

    def _block(self, content: ContentState, carry: ForwardContent, source: Peer) -> int | None:
        """The index of the message's block, if it has a valid one."""
        if carry.block is None:
            return None
        try:
            if not carry.index or not carry.block:
                raise MalformedError("a block has an index from 1, and is not empty")
            content.manifest.check_block(ContentBlock(content.id, carry.index, carry.block))
        except (ForgedError, MalformedError):
            self._record_bad_block(source)
            raise
        return carry.index

    def _admit(self, content: ContentState) -> None:
        most, publisher = self._config.contents_max, content.publisher
        if len(self._contents) >= most or self._counts[publisher] >= max(1, most // _PARTS):
            raise ExcessError("no room for more content, or for more of this publisher's")
        self._contents[content.id] = content
        self._counts[publisher] += 1
        self._timers.set(content.id, content.deadline_us)

    def _store(self, content: ContentState, index: int, data: bytes) -> None:
        most, publisher = self._config.contents_bytes, content.publisher
        if self._bytes.total() + len(data) > most or self._bytes[publisher] + len(data) > max(1, most // _PARTS):
            self._forget(content)
            raise ExcessError("no room for more content, or for more of this publisher's")
        content.blocks[index] = data
        self._bytes[publisher] += len(data)

    def _start_attempt(self, content: ContentState, branches: Sequence[Branch]) -> None:
        """Forward a first or repeated attempt to all branches that are not done."""
        for branch in branches:
            hop = branch.node if isinstance(branch, Scheme) else branch
            content.branches.setdefault(hop, BranchState()).branch = branch
        for peer, _ in self._early_confirmations.take(content.id):
            content.confirm(peer)
        content.sent.clear()
        content.served.clear()
        self._send_blocks(content, list(content.blocks), manifest=True)

    def _send_blocks(self, content: ContentState, blocks: Sequence[int], *, manifest: bool = False) -> None:
        """Send available blocks to their recipients, and the manifest to those that get no block."""
        for state in content.branches.values():
            if state.is_confirmed:
                continue
            with_block: dict[Peer, None] = {}
            for index in blocks:
                for peer in self._recipients.block_recipients(content, state.branch, index):
                    with_block[peer] = None
                    if (peer, index) not in content.sent:
                        content.sent[(peer, index)] = None
                        self.outbox.append(Outgoing(peer, content.make_carry(index)))
            for peer in self._recipients.manifest_recipients(content, state.branch) if manifest else ():
                if peer not in with_block:
                    self.outbox.append(Outgoing(peer, content.make_carry(None)))

    def _own_id(self) -> ReplicaId:
        return self._routes.own_replicas()[0]

    def _record_bad_block(self, source: Peer) -> None:
        if isinstance(source, ReplicaId):
            self._evidence.record(source, FaultReason.BAD_BLOCK)

    # --- block requests -----------------------------------------------------------------------------------------------

    def _on_block_request(self, message: RequestBlocks, source: Peer, now: int) -> None:
        """A branch requests blocks: send the available ones, and ask the previous node for the rest."""
        content = self._contents.get(message.content)
        if content is None:
            raise StaleError("blocks of a content that is not here")
        if not any(is_from(source, state.branch) for state in content.branches.values()):
            raise ForgedError("a block request from a hop without subscribers")
        self.note_request(source, content.routing.advertisement, now)
        for index in message.blocks:
            if index > len(content.manifest.digests):
                raise ForgedError("a block that the content does not have")
            if content.served[(source, index)] >= _SERVES_MAX:
                continue
            if index in content.blocks:
                content.served[(source, index)] += 1
                self.outbox.append(Outgoing(source, content.make_carry(index)))
            else:
                content.requested.setdefault(index, {})[source] = None
        if content.missing_requested() and not content.request_rounds:
            self._request_blocks(content, now)

    def _request_blocks(self, content: ContentState, now: int) -> None:
        """Ask the previous node for blocks that others requested."""
        content.expire_request()
        missing = content.missing_requested()
        if not missing or content.request_rounds >= _REQUEST_ROUNDS_MAX:
            content.request_rounds = 0
            self._timers.set(content.id, content.deadline_us)
            return
        upstream = content.source
        peers: Sequence[Peer] = (
            self._order(upstream, content.request_rounds) if isinstance(upstream, Scheme) else [upstream]
        )
        content.start_request(peers, missing)
        content.request_rounds += 1
        self.outbox += [Outgoing(peer, RequestBlocks(content.id, tuple(missing))) for peer in peers]
        self._timers.set(content.id, min(content.deadline_us, now + self._config.missing_us))

    def _order(self, upstream: Scheme, rounds: int) -> list[ReplicaId]:
        order = all_replicas(upstream)
        start = (self._own_id().index + rounds) % upstream.size
        order = self._evidence.without_faulty(order[start:] + order[:start])
        return order[: (1, upstream.max_faulty + 1)[rounds] if rounds < 2 else upstream.size]

    # --- confirmation -------------------------------------------------------------------------------------------------

    def _on_confirmation(self, message: ConfirmContent, source: Peer, now: int) -> None:
        content = self._contents.get(message.content)
        if content is None and message.content in self._completed:
            return
        if content is None:
            self._early_confirmations.put(message.content, source, message, 1, now)
            return
        content.confirm(source)
        self._finish(content, now)

    def _finish(self, content: ContentState, now: int) -> None:
        """If all branches are done, so is this replica."""
        if content.id not in self._contents:
            return
        if all(state.is_confirmed for state in content.branches.values()):
            self._forget(content)
            self.completed += self._completed.pop(content.id, None) is None
            self._completed[content.id] = (content.attempt, content.attempt_votes)
            if len(self._completed) > self._config.done_max:
                del self._completed[next(iter(self._completed))]
            self._confirm_to_source(content.id, content.attempt, content.source)
        elif content.requested:
            self._serve(content, now)

    def _serve(self, content: ContentState, now: int) -> None:
        """Send newly arrived blocks to the peers that requested them."""
        for index in [index for index in content.requested if index in content.blocks]:
            for source in content.requested.pop(index):
                if (source, index) not in content.sent:
                    content.served[(source, index)] += 1
                    self.outbox.append(Outgoing(source, content.make_carry(index)))
        if not content.missing_requested() and content.request_rounds:
            self._request_blocks(content, now)

    def _answer_repeat(self, carry: ForwardContent, source: Peer) -> None:
        """The content is completed: confirm to a peer that tries again. If it is a new attempt, confirm to all others
        on that side too, because a restarted sender may reach too few replicas that could confirm."""
        id_ = carry.routing.content
        upstream = self._routes.source_of(carry.routing.advertisement)
        if not is_from(source, upstream):
            return
        confirmed, attempts = self._completed[id_]
        last_attempt, attempt = attempts.last_attempt_of(source), attempts.record(source, carry.attempt)
        if attempt > confirmed:
            self._completed[id_] = (attempt, attempts)
            self._confirm_to_source(id_, attempt, upstream)
        elif carry.attempt > last_attempt:
            self.outbox.append(Outgoing(source, ConfirmContent(id_, carry.attempt)))

    def _confirm_to_source(self, id_: bytes, attempt: int, upstream: Branch) -> None:
        to: Iterable[Peer] = all_replicas(upstream) if isinstance(upstream, Scheme) else [upstream]
        self.outbox += [Outgoing(peer, ConfirmContent(id_, attempt)) for peer in to]

    def _give_up(self, content: ContentState, now: int) -> None:
        """The time is over. A client that never confirms does not keep publishers busy for ever. A node may be slow for
        better reasons, and the publisher's next attempt will show. A client that still requests something is waited
        for: with Byzantine brokers a key may need several attempts."""
        is_waited_for = any(
            self._is_waiting(hop, content, now) for hop, branch in content.branches.items() if not branch.is_confirmed
        )
        if is_waited_for and now < content.since_us + _PATIENCE_FACTOR * self._config.hold_us:
            content.deadline_us = now + self._config.hold_us
            self._timers.set(content.id, content.deadline_us)
            return
        for hop in [hop for hop, state in content.branches.items() if state.is_client and not state.is_confirmed]:
            del content.branches[hop]
            self.abandoned += 1
        self._finish(content, now)
        self._forget(content)

    def _is_waiting(self, hop: HopName, content: ContentState, now: int) -> bool:
        if isinstance(hop, bytes):
            return False
        requested_us = self._requested_us.get((hop, content.routing.advertisement))
        return requested_us is not None and now - requested_us < self._config.hold_us

    def _prune(self, content: ContentState) -> None:
        try:
            branches = self._routes.matching_branches(content.routing)
        except RemoteError:
            branches = ()
        wanted = [branch.node if isinstance(branch, Scheme) else branch for branch in branches]
        for hop in [hop for hop in content.branches if hop not in wanted]:
            del content.branches[hop]

    def _forget(self, content: ContentState) -> None:
        if self._contents.pop(content.id, None) is None:
            return
        self._timers.cancel(content.id)
        for counts, less in ((self._counts, 1), (self._bytes, sum(map(len, content.blocks.values())))):
            counts[content.publisher] -= less
            if not counts[content.publisher]:
                del counts[content.publisher]
        content.blocks.clear()


_PARTS: Final = 4
"""One publisher has this fraction of all quotas."""
_CARRY_MAX: Final = ITEM_MAX - 128
"""Largest content of a message; with names and numbers of any length it fits into one item."""
_PATIENCE_FACTOR: Final = 3
"""Multiple of `hold_us` after which the last wait for a requesting subscriber begins."""
_SERVES_MAX: Final = 2
"""How often a peer gets the same block on request."""
_REQUEST_ROUNDS_MAX: Final = 6
