"""The overlay: for every topic, the neighbours that this node gets it from and gives it to. P0's attribute mesh, as one
node sees it.

The central function is `reconcile`. For a topic, the routes tell through which neighbour each origin is reached. The
reasons to want it are the node's own subscription, its own advertisement, and the requests of neighbours. From these
`reconcile` computes the neighbours that this node must have asked, and sends the missing `Subscribe` and `Unsubscribe`
messages. It runs after every change of the topic's tables. So a shorter way, a lost parent, a second publisher and the
last unsubscription are all the same case.

Advertisements follow the same pattern: `_advertise_change` compares what this node advertised before with what holds
now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from veilcast.errors import LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.mesh.advertisements import replace_chain_value
from veilcast.mesh.branches import Branches
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.hiding_policy import BaselinePolicy, HidingPolicy
from veilcast.mesh.limits import neighbour_shares
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.routes import AdvertisedOrigin, RouteTable
from veilcast.wire.base import Message
from veilcast.wire.mesh import (
    Advert,
    Decline,
    Greet,
    Invite,
    Subscribe,
    Surroundings,
    SwapAbort,
    SwapAnswer,
    SwapAsk,
    SwapCommit,
    SwapLock,
    SwapVote,
    Unadvert,
    Unsubscribe,
)


class MeshOverlay:
    """The tables of a node and the code that keeps them consistent. `version` rises with every change."""

    def __init__(self, config: MeshConfig, members: NeighbourTable, beats: Heartbeats, routes: RouteTable) -> None:
        self._members, self._beats, self.routes = members, beats, routes
        self._shares = neighbour_shares(config)
        self._pause_us = config.again_periods * config.heartbeat_us
        self._overlap_us = config.overlap_periods * config.heartbeat_us
        self.branches = Branches(tokens_max=config.tokens_max)
        self.policy: HidingPolicy = BaselinePolicy(self)
        self._subscribed: dict[bytes, None] = {}
        self._joined: dict[bytes, None] = {}
        self._lost_chains: dict[bytes, None] = {}
        self._leaving_us: dict[tuple[bytes, Address], int] = {}
        self._epoch = 0
        self.version = 0

    # --- own subscriptions and advertisements

    def add_subscription(self, token: bytes, now: int) -> None:
        """Add the owner's subscription to this token."""
        self._subscribed[token] = None
        self.reconcile(token, now)

    def remove_subscription(self, token: bytes, now: int) -> None:
        self._subscribed.pop(token, None)
        self.reconcile(token, now)

    def subscribed_tokens(self) -> list[bytes]:
        return list(self._subscribed)

    def is_subscribed(self, token: bytes) -> bool:
        return token in self._subscribed

    def forget_topic(self, token: bytes) -> None:
        """Forget a token whose time is over. It ends for all nodes at once, so no message is sent."""
        for origin in list(self.routes.origins(token)):
            self.routes.remove(origin)
        for neighbour in self.branches.outward(token):
            self.branches.remove_outward(token, neighbour)
        for neighbour in self.branches.inward(token):
            self.branches.remove_inward(token, neighbour)
        for table in (self._subscribed, self._joined, self._lost_chains):
            table.pop(token, None)
        self.version += 1

    def originates(self, token: bytes) -> bool:
        return any(origin.is_own for origin in self.routes.origins(token))

    def originate(self, advert: Advert, now: int) -> None:
        """Advertise a chain. An older own chain is withdrawn afterwards, so that the mesh moves before it is cut."""
        old = self._remove_own_origins(advert.token)
        origin = self.routes.add(advert, None)
        if origin is None:
            raise LocalError("the table of routes is full: there are more topics than it may hold")
        self._advertise_change(origin, None, now)
        self._send_unadverts(old)
        self.policy.on_advert(advert.token, now)
        self.reconcile(advert.token, now)

    def withdraw_advert(self, token: bytes, now: int) -> None:
        """Withdraw this node's advertisement."""
        self._send_unadverts(self._remove_own_origins(token))
        self.reconcile(token, now)

    # --- contexts: PolicyContext, RootContext, JoinContext

    def present_neighbours(self) -> list[Address]:
        return list(self._members.present)

    def mesh_neighbours(self, token: bytes) -> list[Address]:
        """The adjacent nodes in this mesh: its notifications come from and go to them."""
        near = self.branches.outward(token) + self.branches.inward(token)
        return list(dict.fromkeys((*near, *self.policy.former_neighbours(token))))

    def is_in_mesh(self, token: bytes) -> bool:
        asked = self.branches.outward(token) or self.policy.parent(token) is not None
        place = self.policy.position(token)
        placed = place is not None and place.inward
        return bool(asked or placed) or token in self._subscribed or self.originates(token)

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]:
        return [origin for origin in self.routes.origins(token) if origin.is_reachable]

    def send(self, neighbour: Address, message: Message) -> None:
        """Queue for the next heartbeat. A message to an absent neighbour is dropped: it asks for everything when it
        returns."""
        if self._members.reaches(neighbour):
            self._beats.send(message, (neighbour,))

    def acquaintances(self) -> list[Address]:
        return list(self._members.acquaintances)

    def set_acquaintances(self, names: Collection[Address], now: int) -> None:
        for name in self._members.set_acquaintances(names, now):
            self._beats.forget(name)

    def request_fresh_chains(self, origins: Collection[AdvertisedOrigin], now: int) -> None:
        for origin in origins:
            if origin.is_own:
                self._lost_chains[origin.advert.token] = None
            elif origin.via is not None:
                self._report_lost_chain(origin, origin.via, origin.value, now)

    def publishers(self, token: bytes) -> list[bytes]:
        """Keys of the publishers whose notifications on this topic are authentic, according to its advertisements."""
        return list(dict.fromkeys(origin.advert.certificate.leaf.subject for origin in self.routes.origins(token)))

    def take_lost_chains(self) -> list[bytes]:
        """This node's topics whose chain a neighbour has reported lost since the last call."""
        lost, self._lost_chains = list(self._lost_chains), {}
        return lost

    # --- neighbours

    def greet(self, neighbour: Address) -> None:
        """Ask a new neighbour for all its state, and tell it all of ours."""
        self.send(neighbour, Greet())
        self._send_all_adverts(neighbour)

    def forget_neighbour(self, neighbour: Address, now: int) -> None:
        """Act as if this neighbour had withdrawn every advertisement and subscription (P0 4.4), and this node its own
        towards it."""
        self._beats.drop_topic_state(neighbour)
        for token in self.routes.tokens():
            for origin in self.routes.origins(token):
                before = origin.advertised_value
                origin.withdraw(neighbour)
                self._advertise_change(origin, before, now)
        self.policy.on_neighbour_lost(neighbour)
        for token in dict.fromkeys(self.routes.tokens() + self.branches.tokens()):
            self.branches.remove_outward(token, neighbour)
            self.branches.remove_inward(token, neighbour)
            self.reconcile(token, now)

    def handle(self, message: Message, source: Address, now: int) -> None:
        """Handle a neighbour's message. Raises `RemoteError` if it is refused.

        The caller has checked that an advertisement is authentic.
        """
        handler = _ACTS.get(type(message))
        if handler is None:
            raise MalformedError("not a message that heartbeats carry")
        self.version += 1
        handler(self, message, source, now)

    def expire(self, now: int, epoch: int) -> None:
        """Forget origins whose anchors have expired, or whose certificates ended before `epoch`.

        They end for all nodes at once, so no message is sent. Requests for a past token end with them.
        """
        for origin in self.routes.expired(now):
            self.routes.remove(origin)
            self.reconcile(origin.advert.token, now)
        if epoch <= self._epoch:
            return
        self._epoch = epoch
        for token in self.routes.tokens():
            ended = [origin for origin in self.routes.origins(token) if origin.advert.certificate.leaf.last < epoch]
            for origin in ended:
                self.routes.remove(origin)
            if ended:
                for neighbour in () if self.routes.origins(token) else self.branches.outward(token):
                    self.branches.remove_outward(token, neighbour)
                self.reconcile(token, now)

    def beat(self, now: int) -> None:
        """Leave old ways whose overlap is over. A way that is needed again by then is kept."""
        for (token, neighbour), due_us in list(self._leaving_us.items()):
            if due_us <= now:
                self.reconcile(token, now)
                self._leaving_us.pop((token, neighbour), None)

    # --- reconciliation

    def reconcile(self, token: bytes, now: int) -> None:
        """Make the asked neighbours of the topic equal to the needed ones."""
        self.version += 1
        if self.policy.is_locked(token):
            return
        wanted, asked = self._needed_parents(token), self.branches.inward(token)
        for neighbour in wanted:
            if neighbour not in asked:
                self.branches.add_inward(token, neighbour)
                self.send(neighbour, Subscribe(token))
        for neighbour in asked:
            if neighbour not in wanted and not self._keeps_old_way(token, neighbour, wanted, now):
                self.branches.remove_inward(token, neighbour)
                self.send(neighbour, Unsubscribe(token))
        if wanted and token not in self._joined and not self.originates(token):
            self._joined[token] = None
            self.policy.on_joined(token, now)
        elif not wanted and token in self._joined:
            del self._joined[token]
            for cover in self.policy.on_left(token):
                self.branches.remove_outward(token, cover)
                self.send(cover, Decline(token))

    def _keeps_old_way(self, token: bytes, neighbour: Address, wanted: list[Address], now: int) -> bool:
        """True if an old way is kept for a while longer, until the new one is established."""
        if not wanted or not self._overlap_us or not self._members.reaches(neighbour):
            return False
        return now < self._leaving_us.setdefault((token, neighbour), now + self._overlap_us)

    def _needed_parents(self, token: bytes) -> list[Address]:
        """The way to each origin, if this node or a neighbour off that way needs the topic; otherwise a cover's parent.

        A position that the policy has assigned replaces the ways to its origins, and is reason enough to stay there.
        """
        covers = self.policy.covers(token)
        asking = [neighbour for neighbour in self.branches.outward(token) if neighbour not in covers]
        own = token in self._subscribed or self.originates(token)
        place = self.policy.position(token)
        ways = [origin.via for origin in self.routes.origins(token) if place is None or origin not in place.origins]
        needed = [via for via in ways if via is not None and (own or any(other != via for other in asking))]
        if place is not None:
            needed = [*place.inward, *needed]
        elif not needed and (parent := self.policy.parent(token)) is not None:
            return [parent]
        return list(dict.fromkeys(needed))

    def _advertise_change(self, origin: AdvertisedOrigin, before: bytes | None, now: int) -> None:
        """Advertise what has changed about an origin since `before` was advertised.

        The first time it goes to all neighbours except the one it came from (P1 2.1). Later it goes to that one too:
        this node may have advertised a better value to it before, and if the two follow each other, each must learn
        that the other has no way of its own.
        """
        value = origin.advertised_value
        if value == before:
            return
        origin.changed_us = now
        message = (
            replace_chain_value(origin.advert, value)
            if value
            else Unadvert(origin.advert.token, before or origin.value)
        )
        passed_over = origin.via if before is None else None
        self._beats.send(message, [neighbour for neighbour in self._members.present if neighbour != passed_over])

    def _enforce_share(self, token: bytes, neighbour: Address, now: int) -> None:
        """If this neighbour has brought one origin too many, drop its offer of its oldest."""
        if (evicted := self.routes.find_excess(neighbour, token, self._shares)) is not None:
            before = evicted.advertised_value
            evicted.withdraw(neighbour)
            self.routes.reassign(evicted)
            self._advertise_change(evicted, before, now)
            self.reconcile(evicted.advert.token, now)

    def _remove_own_origins(self, token: bytes) -> list[AdvertisedOrigin]:
        own = [origin for origin in self.routes.origins(token) if origin.is_own]
        for origin in own:
            self.routes.remove(origin)
        return own

    def _send_unadverts(self, own: list[AdvertisedOrigin]) -> None:
        for origin in own:
            self._beats.send(Unadvert(origin.advert.token, origin.value), self.present_neighbours())

    def _send_all_adverts(self, neighbour: Address) -> None:
        for token in self.routes.tokens():
            for origin in self.routes.origins(token):
                if (value := origin.advertised_value) is not None and origin.via != neighbour:
                    self.send(neighbour, replace_chain_value(origin.advert, value))

    # --- messages

    def _on_greet(self, message: Greet, source: Address, now: int) -> None:
        self.forget_neighbour(source, now)
        self._send_all_adverts(source)

    def _on_advert(self, message: Advert, source: Address, now: int) -> None:
        found = self.routes.find_advert(message)
        if found is None:
            before, origin = None, self.routes.add(message, source)
            if origin is None:
                raise StaleError("the table of routes is full")
        else:
            origin, hops = found
            before = origin.advertised_value
            origin.offer(message.value, hops, source)
        if not origin.is_reachable:
            self._report_lost_chain(origin, source, message.value, now)
        self._advertise_change(origin, before, now)
        self.policy.on_advert(message.token, now)
        self.reconcile(message.token, now)
        self._enforce_share(message.token, source, now)

    def _on_unadvert(self, message: Unadvert, source: Address, now: int) -> None:
        """A neighbour has lost its way. It may have been our way too, and the neighbour needs another: tell the
        origin."""
        found = self.routes.find(message.token, message.value)
        if found is None:
            return
        origin, _ = found
        if origin.is_own:
            self._lost_chains[message.token] = None
            return
        before = origin.advertised_value
        origin.withdraw(source)
        self._advertise_change(origin, before, now)
        if origin.via is not None:
            self._report_lost_chain(origin, origin.via, message.value, now)
        self.reconcile(message.token, now)

    def _report_lost_chain(self, origin: AdvertisedOrigin, neighbour: Address, value: bytes, now: int) -> None:
        """Report a lost chain towards its origin, over a neighbour that still has a way, to request a fresh chain."""
        if now - origin.fresh_chain_requested_us >= self._pause_us:
            origin.fresh_chain_requested_us = now
            self.send(neighbour, Unadvert(origin.advert.token, value))

    def _on_subscribe(self, message: Subscribe, source: Address, now: int) -> None:
        if not self.routes.origins(message.token):
            raise StaleError("a subscription to a topic that this node never offered")
        # If the position has ended, the former neighbours may be adjacent again.
        if source in self.policy.former_neighbours(message.token) and self.policy.position(message.token) is not None:
            raise StaleError("a subscription from before a swap")
        if not self.branches.add_outward(message.token, source):
            raise StaleError("the table of branches is full")
        self.policy.on_message(message, source, now)
        self.reconcile(message.token, now)
        if (evicted := self.branches.find_excess(source, self._shares.branches)) is not None:
            self.branches.remove_outward(evicted, source)
            self.reconcile(evicted, now)

    def _on_unsubscribe(self, message: Unsubscribe, source: Address, now: int) -> None:
        self.branches.remove_outward(message.token, source)
        self.reconcile(message.token, now)

    def _on_invite(self, message: Invite, source: Address, now: int) -> None:
        self.policy.on_message(message, source, now)
        self.reconcile(message.token, now)

    def _on_decline(self, message: Decline, source: Address, now: int) -> None:
        """A neighbour refuses an invitation; or an inviter dismisses this node, which asks again if it needs the
        inviter for more than cover."""
        self.policy.on_message(message, source, now)
        if source in self.branches.inward(message.token):
            self.branches.remove_inward(message.token, source)
            self.send(source, Unsubscribe(message.token))
        self.reconcile(message.token, now)

    def _on_policy_message(self, message: Message, source: Address, now: int) -> None:
        self.policy.on_message(message, source, now)


_ACTS: Final[dict[type[Message], Callable[[MeshOverlay, Any, Address, int], None]]] = {
    Greet: MeshOverlay._on_greet,
    Advert: MeshOverlay._on_advert,
    Unadvert: MeshOverlay._on_unadvert,
    Subscribe: MeshOverlay._on_subscribe,
    Unsubscribe: MeshOverlay._on_unsubscribe,
    Invite: MeshOverlay._on_invite,
    Decline: MeshOverlay._on_decline,
    Surroundings: MeshOverlay._on_policy_message,
    SwapAsk: MeshOverlay._on_policy_message,
    SwapAnswer: MeshOverlay._on_policy_message,
    SwapLock: MeshOverlay._on_policy_message,
    SwapVote: MeshOverlay._on_policy_message,
    SwapCommit: MeshOverlay._on_policy_message,
    SwapAbort: MeshOverlay._on_policy_message,
}
