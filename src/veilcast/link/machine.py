"""The machine of links: it wraps a machine and carries the messages of that machine over secured links.

The wrapped machine names its peers and sends them messages of any size. It never sees a datagram. A link opens when the
wrapped machine has a message for a peer, or when a member starts a handshake. A link closes when neither side has had a
message for `IDLE_US`, or when the peer is silent. On every open link one datagram leaves in every slot, whatever there
is to send: a cell, or a handshake packet while there are no keys. A stranger gets answers only to packets that only a
member can write, and `admission` limits those answers.

Order in time: cells that are due leave before the wrapped machine runs, so its work does not delay them. The wrapped
machine is told `peer_up` when a link comes up. It is told `peer_lost` when the peer is silent, breaks the rules, or has
lost its state. It is not told when an idle link closes.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Final, Protocol

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.bounded import remember
from veilcast.core.rate_limit import TokenBucket
from veilcast.core.timers import Timers
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError, ExpiredError, ForgedError, MalformedError, RemoteError
from veilcast.faults import faults_of
from veilcast.link.address_groups import HostOf, host_of
from veilcast.link.admission import HANDSHAKE_US, AdmissionLimits, LinkAdmission
from veilcast.link.chunks import insert_path_frames, split_path_frames
from veilcast.link.config import LinkConfig
from veilcast.link.generations import SessionGenerations
from veilcast.link.handshake import HandshakeResult
from veilcast.link.identity import LinkIdentity
from veilcast.link.link import KeyedChannel, Link
from veilcast.link.link_table import PathTable, choose_link_to_evict, summarize_links
from veilcast.link.pacing import JITTER_KEY_BYTES, RATES, SECOND_US, CellSlots, SendJitter, spread_late_cells
from veilcast.link.path_validation import PeerPath
from veilcast.link.transfer import PROMPT_TIMEOUT_US, TIMEOUT_CELLS, Transfer
from veilcast.machine import Address, Durable, Entropy, Event, Frame, Machine, Peers
from veilcast.wire.geometry import CELL, DATAGRAM_MIN


class WrappedMachine(Machine, Peers, Durable, Protocol):
    """A machine that is told which of its peers are connected, and which records are durable."""


class LinkMachine:
    """`counts` counts what left and what was refused, by kind. The owner calls the wrapped machine directly."""

    def __init__(
        self,
        inner: WrappedMachine,
        config: LinkConfig,
        keyring: Keyring,
        rng: Random,
        entropy: Entropy,
        *,
        host: HostOf = host_of,
        revoked: RevokedKeys | None = None,
    ) -> None:
        self.inner: Final = inner
        self.faults: Final = faults_of(inner)
        self._config, self._rng, self._rate, self._epoch_us = config, rng, config.rate, keyring.epoch_us
        self._change: tuple[int, int] | None = None
        """The next rate, in cells per second, and the time from which it holds."""
        self._cells = config.wire == "cells"
        self._jitter = SendJitter(Secret(entropy(JITTER_KEY_BYTES))) if self._cells else None
        self._identity = LinkIdentity(keyring, entropy, uniform=self._cells, revoked=revoked)
        self._admission = LinkAdmission(self._identity, AdmissionLimits(entropy, host))
        self._links: dict[Address, Link] = {}
        self._paths = PathTable()
        self._statics: dict[Address, bytes] = {}
        """Static keys of peers that had a link, for shorter handshakes."""
        self._stray_limit = TokenBucket(STRAY_EVERY_US, STRAY_BURST)
        self._timers: Timers[Link] = Timers()
        self._frames: list[Frame] = []
        self._yielded = False
        """True if the wrapped machine has just let cells go first. It does so once in a row."""
        self.counts: defaultdict[str, int] = defaultdict(int)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            link = self._paths.get(source)
            if link is not None and (body := link.open(data, now)) is not None:
                self._receive_body(source, link, body, follow=True, now=now)
            else:
                self._receive_from_stranger(data, source, now)
        except (RemoteError, ExpiredError) as error:
            self.counts[f"refused {type(error).__name__}"] += 1

    def handle_timer(self, now: int) -> None:
        links = self._timers.pop_due(now)
        if self._jitter is not None and len(links) > 1:
            cells_per_second = len(self._links) * self._rate
            spread_late_cells([link.slots for link in links], self._jitter, cells_per_second, now)
        for link in links:
            if link.slots.take_due_slot(now):
                self._handle_slot(link, now)
            elif not self._cells:
                self._prompt(link, now)
            if self._links.get(link.name) is link:
                self._timers.set_if_earlier(link, link.slots.next_us)
        due_us = self.inner.next_timer()
        if due_us is None or now < due_us:
            return
        self._yielded = bool(self._frames) and not self._yielded
        if not self._yielded:  # Otherwise the driver sends the frames first, and calls again.
            self.inner.handle_timer(now)

    def next_timer(self) -> int | None:
        inner_us, our_us = self.inner.next_timer(), self._timers.next_us()
        if inner_us is None or (our_us is not None and our_us < inner_us):
            return our_us
        return inner_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self.faults.call_or_none(self.inner.frames_to_send, now, INNER_FRAMES) or ():
            link = self._links.get(frame.destination) or self._begin(frame.destination, now)
            if link is not None:
                link.send(frame.data, now)
                if not self._cells:
                    self._prompt(link, now)
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self.inner.next_event()

    def stored(self, record: int, now: int) -> None:
        self.inner.stored(record, now)

    # --- the owner

    def change_rate(self, rate: int, now: int) -> None:
        """Send at another rate from the next epoch edge on. All members that change their rate in this epoch change it
        at the same edge."""
        self._apply_rate_change(now)
        self._change = rate, (now // self._epoch_us + 1) * self._epoch_us
        for link in self._links.values():
            self._schedule(link, now)

    # --- the state of links, for status and tests

    def peers(self) -> list[Address]:
        """The peers whose link is up."""
        return [link.name for link in self._links.values() if link.is_up]

    def list_links(self) -> list[tuple[Address, bool, int]]:
        """Every link: its peer, whether it is up, and since when it has been in this state."""
        return [
            (link.name, link.is_up, link.last_message_us if link.channel is None else link.channel.since_us)
            for link in self._links.values()
        ]

    def __len__(self) -> int:
        return len(self._links)

    def status(self, now: int) -> dict[str, int | float]:
        """Sums over all links. No number concerns a single peer, so any user may see them."""
        return {"handshakes under way": len(self._admission), **summarize_links(self._links.values(), self.counts, now)}

    # --- slots

    def _handle_slot(self, link: Link, now: int) -> None:
        """Handle one slot of one link: the periodic checks, and the datagram that is due."""
        try:
            if now - link.last_message_us > IDLE_US:
                self._close(link)
            elif link.channel is None:
                self._send_handshake(link, now)
            else:
                self._handle_open_slot(link, link.channel, now)
        except ExpiredError:
            # The membership of this node has ended: no peer would accept it any more.
            self.counts["refused ExpiredError"] += 1
            self._lose(link, now)

    def _handle_open_slot(self, link: Link, channel: KeyedChannel, now: int) -> None:
        if not link.is_up and now - link.last_heard_us > UNPROVEN_US:
            if channel.generations.is_initiator:
                self._admission.finish(link.name)
                link.disconnect()
                self._send_handshake(link, now)
            else:
                self._lose(link, now)
            return
        generations = channel.generations
        silent = now - link.last_heard_us > SILENT_US and (self._cells or self._is_waiting(link, channel, now))
        if silent or now >= generations.session.ends_us:
            self._lose(link, now)
            return
        if now >= generations.due_us and (message := generations.renew(now)) is not None:
            if channel.transfer.is_settled:
                link.awaiting_since_us = now
            channel.transfer.put(message, control=True, now=now)
        link.slot_count += 1
        if (
            not link.is_up
            and generations.is_initiator
            and link.slot_count % 2
            and (packet := self._admission.repeat_last(link.name, now))
        ):
            self._send(link.route.path, packet, "letters")
        else:
            self._fill_slot(link, channel, now)

    def _fill_slot(self, link: Link, channel: KeyedChannel, now: int) -> None:
        """Send the cell of this slot, or at least the path frames that are due."""
        path, frames = link.route.next_cell(now)
        self._paths.update(link)
        if self._cells:
            body = insert_path_frames(channel.transfer.fill(BODY - len(frames), now), frames)
            self._send(path, channel.generations.session.seal(body, now), "cells")
            return
        if frames:
            body = insert_path_frames(channel.transfer.acknowledge(), frames)
            self._send(path, channel.generations.session.seal(body, now), "datagrams")
        self._prompt(link, now)

    def _is_waiting(self, link: Link, channel: KeyedChannel, now: int) -> bool:
        """True if an acknowledgement is overdue. Without cells, silence means failure only while this node waits for an
        answer."""
        return now - link.awaiting_since_us > SILENT_US and not channel.transfer.is_settled

    def _send_handshake(self, link: Link, now: int) -> None:
        packet = self._admission.repeat_last(link.name, now)
        if packet is None:
            # A key without an answer may be an old one.
            packet = self._admission.initiate(link.name, now, self._statics.pop(link.name, None))
        self._send(link.route.path, packet, "letters")

    def _prompt(self, link: Link, now: int) -> None:
        channel = link.channel
        if channel is None or now >= channel.generations.session.ends_us:
            return
        while (body := channel.transfer.prompt(BODY, now)) is not None:
            self._send(link.route.path, channel.generations.session.seal(body, now), "datagrams")
        if (due_us := channel.transfer.next_prompt_us) is not None:
            self._timers.set_if_earlier(link, due_us)

    def _send(self, path: Address, datagram: bytes, kind: str) -> None:
        self.counts[kind] += 1
        self._frames.append(Frame(path, datagram))

    def _apply_rate_change(self, now: int) -> None:
        """Apply a rate change whose time has come."""
        if self._change is not None and now >= self._change[1]:
            (self._rate, _), self._change = self._change, None

    def _schedule(self, link: Link, now: int) -> None:
        if self._change is not None:
            rate, edge_us = self._change
            link.slots.change_rate(rate, edge_us=edge_us, now=now)
        self._timers.set_if_earlier(link, link.slots.next_us)

    # --- datagrams

    def _receive_body(self, source: Address, link: Link, body: bytes, *, follow: bool, now: int) -> None:
        """Handle a body that came from this address, and its path frames."""
        frames, body = split_path_frames(body)
        self._read_body(link, body, now)
        if self._links.get(link.name) is link:
            link.route.on_cell(source, frames, follow=follow and self._paths.is_free(source, link), now=now)
            self._paths.update(link)

    def _read_body(self, link: Link, body: bytes, now: int) -> None:
        """Handle a body that the peer of this link has sealed."""
        link.last_heard_us = now
        if not link.is_up:
            self._mark_up(link, now)
        if not link.allowance.take(now):
            raise ExcessError("more cells than the fastest class of links has")
        self.counts["cells taken"] += 1
        channel = link.channel
        assert channel is not None
        try:
            for message, control in channel.transfer.take(body, now):
                if control:
                    if (answer := channel.generations.handle_control(message, now)) is not None:
                        channel.transfer.put(answer, control=True, now=now)
                else:
                    link.last_message_us = now
                    # If the wrapped machine raises on a message, the other messages of this body still arrive.
                    self.faults.contain(self.inner.receive, message, link.name, now)
        except (RemoteError, ExpiredError):
            self._lose(link, now)
            raise
        if not self._cells:
            self._prompt(link, now)

    def _receive_from_stranger(self, data: bytes, source: Address, now: int) -> None:
        try:
            step = self._admission.receive(data, source, now)
        except (ForgedError, MalformedError):
            if not self._receive_from_new_address(data, source, now):
                raise
            return
        # With cells, packets of own handshakes leave in their slots.
        if step.reply is not None and not (step.own and self._cells):
            self._send(source, step.reply, "letters")
        if step.result is not None:
            self._use_keys(source, step.result, now)

    def _receive_from_new_address(self, data: bytes, source: Address, now: int) -> bool:
        """True if the datagram comes from a peer of this node at another address.

        Only the peer's newest cell makes the address a candidate: older cells may be recordings.
        """
        if not self._stray_limit.take(now):
            raise ExcessError("more datagrams of unknown source than the limit")
        for link in self._links.values():
            newest = link.newest_received
            if (body := link.open(data, now)) is not None:
                self._receive_body(source, link, body, follow=link.newest_received != newest, now=now)
                return True
        return False

    # --- the life of a link

    def _begin(self, name: Address, now: int) -> Link | None:
        if len(self._links) >= self._config.links_max:
            evicted = choose_link_to_evict(self._links.values(), now)
            if evicted is None:
                self.counts["refused for want of room"] += 1
                return None
            self._lose(evicted, now)
        self._apply_rate_change(now)
        slots = CellSlots(self._rate, phase_us=self._rng.randrange(SECOND_US), now=now, jitter=self._jitter)
        allowance = TokenBucket(*(CELL_ALLOWANCE if self._cells else PROMPT_ALLOWANCE))
        link = self._links[name] = Link(PeerPath(name, self._identity.entropy), slots, allowance, now)
        self._paths.begin(link)
        self._schedule(link, now)
        return link

    def _use_keys(self, source: Address, result: HandshakeResult, now: int) -> None:
        """A handshake has produced keys. If the link had keys already, both sides must agree on the same ones."""
        link = self._links.get(source) or self._begin(source, now)
        if link is None:
            return
        timeout_us = TIMEOUT_CELLS * link.slots.period_us if self._cells else PROMPT_TIMEOUT_US
        transfer = Transfer(timeout_us=timeout_us, padded=not self._cells)
        channel = KeyedChannel(SessionGenerations(self._identity, result), transfer, now)
        old = link.channel
        if old is None:
            link.connect(channel, now)
            if not self._cells:
                self._prompt(link, now)
        else:
            at_once = old.generations.is_initiator is not result.is_initiator and now - old.since_us < HANDSHAKE_US
            # If both sides began a handshake at once, the one of the side with the smaller key counts.
            if not at_once or result.is_initiator is (self._identity.static.public < result.remote_static):
                link.rival_channel = channel

    def _mark_up(self, link: Link, now: int) -> None:
        assert link.channel is not None
        self._admission.finish(link.name)
        remote = link.channel.generations.remote_static
        for other in list(self._links.values()):
            if other is not link and other.channel is not None and other.channel.generations.remote_static == remote:
                self._lose(other, now)
        remember(self._statics, link.name, remote, STATICS_MAX)
        if link.is_reported_up:
            self.faults.contain(self.inner.peer_lost, link.name, now)
        link.is_up = link.is_reported_up = True
        self.faults.contain(self.inner.peer_up, link.name, now)

    def _lose(self, link: Link, now: int) -> None:
        self._close(link)
        if link.is_reported_up:
            self.faults.contain(self.inner.peer_lost, link.name, now)

    def _close(self, link: Link) -> None:
        self._links.pop(link.name, None)
        self._paths.remove(link)
        self._admission.finish(link.name)
        self._timers.cancel(link)
        self.counts["slots missed"] += link.slots.missed
        if link.channel is not None:
            self.counts["messages dropped"] += link.channel.transfer.dropped
            self.counts["padding"] += link.channel.transfer.padding


BODY: Final = CELL - DATAGRAM_MIN
"""Largest body of a datagram, in bytes."""
INNER_FRAMES: Final = 1 << 16
"""Frames taken from the wrapped machine in one call: all of them. The queues of the links are bounded."""
IDLE_US: Final = 60 * SECOND_US
"""A link closes after this time without a message. Mesh neighbours exchange a message every second."""
SILENT_US: Final = 15 * SECOND_US
"""A peer is lost after this time without an authentic datagram."""
UNPROVEN_US: Final = 8 * SECOND_US
"""The same limit for a peer that has not used its keys yet."""
CELL_ALLOWANCE: Final = (SECOND_US // max(RATES) * 9 // 10, 4 * max(RATES))
"""Cells accepted from one peer: the rate of the fastest class plus a margin for clocks, with a burst of four seconds.
"""
PROMPT_ALLOWANCE: Final = (SECOND_US // 1000, 512)
"""Datagrams accepted from one peer without cells: more than one side can have in flight, once every half second."""

STRAY_EVERY_US: Final = 5_000
STRAY_BURST: Final = 32
"""Datagrams of unknown source that are tried against the keys of all links: 200 per second."""
STATICS_MAX: Final = 256
