"""An MQTT broker as a machine, for the mode "foil" in the simulator.

The broker behaves like unmodified brokers, as far as our clients can tell: sessions outlive their streams, QoS 1, `+`
and `#`, one stream for a client, and bounds on the messages in flight and in the queue of each client. It acknowledges
a publication when it is in the subscribers' queues in memory. If it is killed, all queues are lost. With `save_us` it
saves its sessions that often, as real brokers do, and restarts from the last copy.

It can also duplicate and reorder messages, as honest brokers may, or lose acknowledged ones, as they must not. A stream
of the simulator loses frames that are sent into a partition, where TCP would send them again. So the broker disconnects
a subscriber that owes an acknowledgement for `patience_us`, and sends the message again on the next stream.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from veilcast.core.timers import Timers, earliest
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ConfigError, RemoteError, TamperedError
from veilcast.machine import Address, Disconnect, Event, Frame, Record
from veilcast.wire import mqtt
from veilcast.wire.mqtt import (
    ConnackPacket,
    ConnectPacket,
    Packet,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
    Version,
)


class MqttBrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    save_us: int = 0
    """Interval between saved copies of the sessions, in microseconds; 0 is never."""
    window: int = 20
    """Most messages in flight to one client."""
    queue_max: int = 1_000
    """Most messages in the queue of one client; further ones are lost."""
    patience_us: int = 5_000_000
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    lose_ppm: int = 0
    """Rate of forwarded messages that are lost although they were acknowledged."""

    def __post_init__(self) -> None:
        if min(self.window, self.queue_max, self.patience_us) < 1 or self.save_us < 0:
            raise ConfigError("broker.window, queue_max and patience_us must be at least 1, save_us not negative")
        for name in ("duplicate_ppm", "reorder_ppm", "lose_ppm"):
            if not 0 <= getattr(self, name) <= 1_000_000:
                raise ConfigError(f"broker.{name} must be between 0 and 1000000")


class SavedSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A session on the disk."""

    client: str
    filters: tuple[str, ...]
    waiting: tuple[tuple[str, bytes], ...]


class MqttBroker:
    """A `Machine` with `Peers` and `Durable`. `stored` holds the sessions that an earlier incarnation saved."""

    def __init__(self, config: MqttBrokerConfig, rng: Random, now: int, stored: dict[int, bytes] | None = None) -> None:
        self._config, self._rng = config, rng
        self._sessions: dict[str, _MqttSession] = {}
        self._guests: dict[Address, _MqttConnection] = {}
        self._frames: list[Frame] = []
        self._events: deque[Event] = deque()
        self._alarms: Timers[Address] = Timers()
        self._saving_us = now + config.save_us if config.save_us else None
        self.version = 0
        self.matched = 0
        """Messages put into a subscriber's queue."""
        for saved in _DECODER.decode(data) if (data := (stored or {}).get(_PICTURE)) else ():
            session = self._sessions[saved.client] = _MqttSession(dict.fromkeys(saved.filters))
            session.queue.extend(saved.waiting)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        guest = self._guests.get(source)
        if guest is None:
            return
        try:
            self._hear(mqtt.decode(data, guest.version), guest, now)
        except RemoteError:
            self._hang_up(guest)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        for peer in self._alarms.pop_due(now):
            if (guest := self._guests.get(peer)) is not None:
                self._hang_up(guest)
        if self._saving_us is not None and now >= self._saving_us:
            self._saving_us = now + self._config.save_us
            pictures = [session.saved(client) for client, session in self._sessions.items()]
            self._events.append(Record(_PICTURE, msgspec.msgpack.encode(pictures)))

    def next_timer(self) -> int | None:
        return earliest(self._alarms.next_us(), self._saving_us)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def stored(self, record: int, now: int) -> None:
        pass

    def peer_up(self, peer: Address, now: int) -> None:
        self._guests[peer] = _MqttConnection(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        if (guest := self._guests.pop(peer, None)) is not None:
            self._alarms.cancel(peer)
            if guest.session is not None and guest.session.guest is guest:
                guest.session.guest = None

    # --- checkers

    def sizes(self) -> dict[str, int]:
        return {
            "sessions": len(self._sessions),
            "queue": max((len(session.queue) for session in self._sessions.values()), default=0),
        }

    # --- inside

    def _hear(self, packet: Packet, guest: _MqttConnection, now: int) -> None:
        session = guest.session
        if session is None:
            if not isinstance(packet, ConnectPacket):
                self._hang_up(guest)
                return
            self._welcome(packet, guest, now)
            return
        match packet:
            case PublishPacket(topic, payload, number):
                self._route(topic, payload, now)
                if number:
                    self._send(guest, PubackPacket(number))
            case PubackPacket(number):
                session.flying.pop(number, None)
                self._flow(session, now)
            case SubscribePacket(number, filters):
                session.filters.update(dict.fromkeys(filters))
                self._send(guest, SubackPacket(number, (1,) * len(filters)))
            case UnsubscribePacket(number, filters):
                for each in filters:
                    session.filters.pop(each, None)
                five = guest.version is Version.MQTT_5
                self._send(guest, UnsubackPacket(number, (0,) * len(filters) if five else ()))
            case PingreqPacket():
                self._send(guest, PingrespPacket())
            case mqtt.DisconnectPacket(_, expiry_s):
                if expiry_s == 0:
                    del self._sessions[session.client]
                self._hang_up(guest)
            case _:
                self._hang_up(guest)

    def _welcome(self, packet: ConnectPacket, guest: _MqttConnection, now: int) -> None:
        guest.version = packet.version
        known = self._sessions.get(packet.client)
        if known is not None and known.guest is not None:
            self._hang_up(known.guest)
        present = known is not None and not packet.clean
        session = known if known is not None and present else _MqttSession()
        session.client, session.guest, guest.session = packet.client, guest, session
        self._sessions[packet.client] = session
        session.window = min(self._config.window, packet.receive_max)
        five = packet.version is Version.MQTT_5
        self._send(guest, ConnackPacket(present, receive_max=self._config.window if five else mqtt.NUMBER_MAX))
        for number, (topic, payload) in session.flying.items():
            self._send(guest, PublishPacket(topic, payload, number, again=True))
        self._flow(session, now)

    def _route(self, topic: str, payload: bytes, now: int) -> None:
        for session in self._sessions.values():
            if any(mqtt.filter_matches(each, topic) for each in session.filters) and not self._is(
                self._config.lose_ppm
            ):
                self._queue(session, topic, payload)
                if self._is(self._config.duplicate_ppm):
                    self._queue(session, topic, payload)
                self._flow(session, now)

    def _queue(self, session: _MqttSession, topic: str, payload: bytes) -> None:
        if len(session.queue) >= self._config.queue_max:
            return
        self.matched += 1
        if self._is(self._config.reorder_ppm):
            session.queue.appendleft((topic, payload))
        else:
            session.queue.append((topic, payload))

    def _flow(self, session: _MqttSession, now: int) -> None:
        guest = session.guest
        if guest is None:
            return
        while session.queue and len(session.flying) < session.window:
            topic, payload = session.queue.popleft()
            number = session.number()
            session.flying[number] = (topic, payload)
            self._send(guest, PublishPacket(topic, payload, number))
        if session.flying:
            self._alarms.set(guest.peer, now + self._config.patience_us)
        else:
            self._alarms.cancel(guest.peer)

    def _hang_up(self, guest: _MqttConnection) -> None:
        self._events.append(Disconnect(guest.peer))
        self.peer_lost(guest.peer, 0)

    def _send(self, guest: _MqttConnection, packet: Packet) -> None:
        self._frames.append(Frame(guest.peer, mqtt.encode(packet, guest.version)))

    def _is(self, ppm: int) -> bool:
        return ppm > 0 and self._rng.randrange(1_000_000) < ppm


@dataclass(slots=True, eq=False)
class _MqttConnection:
    """A stream, with its session once the client has sent Connect."""

    peer: Address
    version: Version = Version.MQTT_5
    session: _MqttSession | None = None


@dataclass(slots=True, eq=False)
class _MqttSession:
    filters: dict[str, None] = field(default_factory=dict)
    queue: deque[tuple[str, bytes]] = field(default_factory=deque)
    flying: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    client: str = ""
    guest: _MqttConnection | None = None
    window: int = 1
    last: int = 0

    def number(self) -> int:
        while True:
            self.last = self.last % mqtt.NUMBER_MAX + 1
            if self.last not in self.flying:
                return self.last

    def saved(self, client: str) -> SavedSession:
        return SavedSession(client, tuple(self.filters), (*self.flying.values(), *self.queue))


_PICTURE: Final = 1
_DECODER: Final = MsgpackDecoder(list[SavedSession], TamperedError, "a picture of the sessions is damaged")
