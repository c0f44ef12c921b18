"""One session with an MQTT broker: its subscriptions, its unacknowledged messages, and the stream that carries them.

The broker is not trusted, and streams end at any time. Subscriptions (`subscribe`) and messages (`publish`) outlive
every stream. On a new stream the session identifies itself and subscribes to all its filters. When the broker has
granted them, the session is ready; only then do messages leave. Unacknowledged messages leave again under their old
number.

The session acknowledges every message at once. If it acknowledged a true event when its subscriber has it, and a fake
at once, the broker could tell them apart by time. Filters leave in a new random order each time.

MQTT repeats nothing on an open stream, so the session replaces the stream of a broker that owes an answer for
`retry_us`. A broker that refuses the session, or sends what no broker may send, is left too, and called after growing
pauses. The broker can only delay the member.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from veilcast.core.connector import Connector, backoff
from veilcast.core.timers import earliest
from veilcast.errors import MalformedError
from veilcast.foil.config import FoilConfig
from veilcast.machine import Address, Disconnect, Event, Frame
from veilcast.wire import mqtt
from veilcast.wire.mqtt import (
    ConnackPacket,
    Packet,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
)

OnAcknowledged = Callable[[int], None]


class Login(NamedTuple):
    """The member's credentials at the broker, if required; the same in all sessions."""

    user: str
    password: bytes

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class SessionCallbacks(NamedTuple):
    """The callbacks of a session."""

    on_message: Callable[[PublishPacket, int], None]
    """A message arrived, requested or not; may raise `RemoteError`, without consequences."""
    on_ready: Callable[[int], None]
    """All filters are granted, on a new stream."""
    on_granted: Callable[[int], None]
    """Further filters are granted, on the current stream."""
    on_lost: Callable[[int], None]
    """The stream on which the session was ready has ended."""


class MqttSession:
    """`client` is its name at the broker, which keeps the session for `expiry_us` after a stream has ended."""

    def __init__(
        self,
        config: FoilConfig,
        peer: Address,
        client: str,
        login: Login | None,
        expiry_us: int,
        callbacks: SessionCallbacks,
        rng: Random,
        now: int,
    ) -> None:
        self._config, self._login, self._expiry_us, self._callbacks, self._rng = (
            config,
            login,
            expiry_us,
            callbacks,
            rng,
        )
        self.peer, self._client, self._version = peer, client, mqtt.Version(config.version)
        self._connector = Connector(peer, config.connect_us, rng, now)
        self._failures = 0
        self._events: deque[Event] = deque()
        self.frames: list[Frame] = []
        self.ended = False
        self._filters: dict[str, None] = {}
        self._granted: dict[str, None] = {}
        self._requested: dict[int, tuple[str, ...]] = {}
        self._queue: deque[_Message] = deque()
        self._in_flight: dict[int, _Message] = {}
        self._too_large: list[_Message] = []
        """Messages too large for the broker of this stream; the next stream's broker may accept them."""
        self._numbers: dict[int, None] = {}
        """Packet numbers in use: in flight, to be sent again, or of open requests."""
        self._last = 0
        self._owed: dict[str, int] = {}
        """Answers that the broker owes, and since when, oldest first."""
        self._connected = self._ready = False
        self._window, self._packet_max, self._alive_us = config.window, 0, config.keep_alive_us
        self._asked_us = now
        self.confirmed_us = 0
        """Everything that the broker had delivered by then has arrived, on this stream or the one before: the time
        at which the last answered request left. Arrival times say less, because a message may have been delayed."""
        self.refusals: Counter[str] = Counter()

    def __len__(self) -> int:
        """Unacknowledged messages."""
        return len(self._queue) + len(self._in_flight) + len(self._too_large)

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def filters(self) -> int:
        return len(self._filters)

    # --- what is wanted

    def subscribe(self, filters: Iterable[str], now: int) -> None:
        """Subscribe to these filters as well, from now on."""
        fresh = [each for each in dict.fromkeys(filters) if each not in self._filters]
        self._filters.update(dict.fromkeys(fresh))
        if self._connected:
            self._subscribe(fresh, now)

    def unsubscribe(self, filters: Iterable[str], now: int) -> None:
        """Unsubscribe from these filters."""
        gone = [each for each in dict.fromkeys(filters) if each in self._filters]
        for each in gone:
            del self._filters[each]
            self._granted.pop(each, None)
        if self._connected:
            self._unsubscribe(gone, now)

    def has_granted(self, filters: Iterable[str]) -> bool:
        return all(each in self._granted for each in filters)

    def publish(self, topic: str, payload: bytes, on_acknowledged: OnAcknowledged, now: int) -> None:
        """Send this until the broker has acknowledged it."""
        self._queue.append(_Message(topic, payload, on_acknowledged))
        self._send_queued(now)

    def end(self, now: int) -> None:
        """Leave nothing behind at the broker, if it is reachable."""
        if self._connected:
            self._unsubscribe(list(self._filters), now)
            five = self._version is mqtt.Version.MQTT_5
            self._send(mqtt.DisconnectPacket(expiry_s=0 if five else None), now)
        self._events.append(Disconnect(self.peer))
        self.ended = True
        self._connected = self._ready = False

    # --- the stream

    def peer_up(self, now: int) -> None:
        if self.ended:
            return
        self._stream_lost(now)
        self._connector.peer_up()
        login = self._login
        five = self._version is mqtt.Version.MQTT_5
        greeting = mqtt.ConnectPacket(
            self._client,
            self._version,
            keep_alive_s=-(-self._config.keep_alive_us // 1_000_000),
            user=None if login is None else login.user,
            password=None if login is None else login.password,
            expiry_s=-(-self._expiry_us // 1_000_000) if five else 0,
            receive_max=self._config.window if five else mqtt.NUMBER_MAX,
            packet_max=PACKET_MAX if five else None,
        )
        self._expect("connack", now)
        self._send(greeting, now)

    def peer_lost(self, now: int) -> None:
        if not self.ended:
            self._connector.peer_lost(now)
            self._connector.next_us = now + backoff(self._rng, self._config.connect_us, self._failures)
            self._stream_lost(now)

    def receive(self, data: bytes, now: int) -> None:
        """Raises `RemoteError`. After a packet that no broker may send, the stream is given up. Not so after a
        malformed publication that only its publisher can have caused: that one is acknowledged, because it would
        otherwise arrive on every next stream."""
        if self.ended or not self._connector.up:
            return
        try:
            packet = mqtt.decode(data, self._version)
        except MalformedError:
            number = mqtt.number_of(data) if self._connected else None
            if number is None:
                self._give_up("malformed", now)
            else:
                self.refusals["malformed publication"] += 1
                if number:
                    self._send(PubackPacket(number), now)
            raise
        try:
            self._dispatch(packet, now)
        except MalformedError:
            self._give_up("malformed", now)
            raise

    def handle(self, now: int) -> None:
        if self.ended:
            return
        self._connector.handle(now)
        if self._owed and now >= self._due_us():
            self._give_up("silent", now)
        elif self._connected and now >= self._asked_us + self._ping_us:
            self._expect("pingresp", now)
            self._send(mqtt.PingreqPacket(), now)

    def next_us(self) -> int | None:
        if self.ended:
            return None
        ping_us = self._asked_us + self._ping_us if self._connected else None
        return earliest(self._connector.next_us, self._due_us() if self._owed else None, ping_us)

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        return None if self.ended else self._connector.next_event()

    # --- inside

    @property
    def _ping_us(self) -> int:
        return self._alive_us * 3 // 4

    def _due_us(self) -> int:
        return next(iter(self._owed.values())) + self._config.retry_us

    def _dispatch(self, packet: Packet, now: int) -> None:
        if not self._connected and not isinstance(packet, ConnackPacket):
            raise MalformedError("a packet before the answer to CONNECT")
        match packet:
            case ConnackPacket():
                self._handle_connack(packet, now)
            case PublishPacket(number=number):
                if number:
                    self._send(PubackPacket(number), now)
                self._callbacks.on_message(packet, now)
            case PubackPacket(number, code):
                self._acknowledged(number, code, now)
            case SubackPacket(number, codes):
                self._subscribed(number, codes, now)
            case UnsubackPacket(number):
                self._answered(f"unsuback {number}")
                self._numbers.pop(number, None)
            case PingrespPacket():
                self._answered("pingresp")
                self._failures = 0
            case mqtt.DisconnectPacket(code):
                self._give_up(f"disconnected with code {code}", now)
            case _:
                raise MalformedError("a packet that brokers do not send")

    def _handle_connack(self, packet: ConnackPacket, now: int) -> None:
        self._answered("connack")
        if packet.code:
            self._give_up(f"refused with code {packet.code}", now)
        elif packet.qos_max < 1 or not packet.wildcards:
            self._give_up("a broker without QoS 1 or wildcards", now)
        else:
            self._connected = True
            self._window = min(self._config.window, packet.receive_max)
            self._packet_max = packet.packet_max or 0
            asked_us = self._config.keep_alive_us
            self._alive_us = min(asked_us, (packet.keep_alive_s or 0) * 1_000_000 or asked_us)
            self._subscribe(list(self._filters), now)
            self._check_ready(now)

    def _subscribe(self, filters: list[str], now: int) -> None:
        self._rng.shuffle(filters)
        for start in range(0, len(filters), FILTERS_EACH):
            some, number = tuple(filters[start : start + FILTERS_EACH]), self._number()
            self._requested[number] = some
            self._expect(f"suback {number}", now)
            self._send(SubscribePacket(number, some), now)

    def _unsubscribe(self, filters: list[str], now: int) -> None:
        self._rng.shuffle(filters)
        for start in range(0, len(filters), FILTERS_EACH):
            number = self._number()
            self._expect(f"unsuback {number}", now)
            self._send(UnsubscribePacket(number, tuple(filters[start : start + FILTERS_EACH])), now)

    def _subscribed(self, number: int, codes: tuple[int, ...], now: int) -> None:
        requested = self._requested.get(number)
        if requested is None or len(requested) != len(codes):
            raise MalformedError("an answer that was not requested")
        del self._requested[number]
        self._numbers.pop(number, None)
        self._answered(f"suback {number}")
        for each, code in zip(requested, codes, strict=True):
            # A refused filter is not waited for: the others go on.
            self.refusals["filter refused"] += code >= mqtt.REFUSED
            if each in self._filters and code < mqtt.REFUSED:
                self._granted[each] = None
        self._check_ready(now)

    def _check_ready(self, now: int) -> None:
        if self._requested:
            return
        if self._ready:
            self._callbacks.on_granted(now)
            return
        self._ready = True
        self._callbacks.on_ready(now)
        self._send_queued(now)

    def _send_queued(self, now: int) -> None:
        while self._ready and self._queue and len(self._in_flight) < self._window:
            message = self._queue.popleft()
            again = message.number is not None
            if message.number is None:
                message.number = self._number()
            packet = PublishPacket(message.topic, message.payload, message.number, again)
            if 0 < self._packet_max < len(message.topic) + len(message.payload) + PACKET_HEAD:
                self.refusals["too large for the broker"] += 1
                self._too_large.append(message)
                continue
            self._in_flight[message.number] = message
            self._expect(f"puback {message.number}", now)
            self._send(packet, now)

    def _acknowledged(self, number: int, code: int, now: int) -> None:
        message = self._in_flight.get(number)
        if message is None:
            raise MalformedError("an acknowledgement of an unsent message")
        if code >= mqtt.REFUSED:
            self._give_up(f"publication refused with code {code}", now)
            return
        del self._in_flight[number]
        del self._numbers[number]
        self._answered(f"puback {number}")
        self._failures = (
            0  # Not before: a broker that grants all filters and refuses publications is called with growing pauses.
        )
        message.on_acknowledged(now)
        self._send_queued(now)

    def _number(self) -> int:
        """The next free packet number: there are far more than the window, the filters and the waiting messages can
        use."""
        while True:
            self._last = self._last % mqtt.NUMBER_MAX + 1
            if self._last not in self._numbers:
                self._numbers[self._last] = None
                return self._last

    def _give_up(self, why: str, now: int) -> None:
        self.refusals[why] += 1
        self._failures += 1
        self._events.append(Disconnect(self.peer))
        self.peer_lost(now)

    def _stream_lost(self, now: int) -> None:
        """There is no stream: messages in flight leave first on the next one."""
        if self._ready:
            self._callbacks.on_lost(now)
        self._connected = self._ready = False
        self._queue.extendleft(reversed([*self._in_flight.values(), *self._too_large]))
        self._in_flight.clear()
        self._too_large.clear()
        self._requested.clear()
        self._owed.clear()
        self._granted.clear()
        self._numbers = {message.number: None for message in self._queue if message.number is not None}
        self.frames.clear()

    def _expect(self, what: str, now: int) -> None:
        self._owed.setdefault(what, now)
        self._asked_us = now

    def _answered(self, what: str) -> None:
        since_us = self._owed.pop(what, None)
        if since_us is None:
            raise MalformedError("an answer that was not requested")
        self.confirmed_us = max(self.confirmed_us, since_us)

    def _send(self, packet: Packet, now: int) -> None:
        self.frames.append(Frame(self.peer, mqtt.encode(packet, self._version)))


@dataclass(slots=True)
class _Message:
    topic: str
    payload: bytes
    on_acknowledged: OnAcknowledged
    number: int | None = None
    """Packet number, from the first transmission until it is acknowledged."""


FILTERS_EACH: Final = 64
"""Filters of one packet."""

PACKET_MAX: Final = 1 << 16
"""Largest packet accepted, in bytes, as the stream driver has it; a version 5 broker withholds longer ones.
Otherwise an adversary that publishes a longer one under a subscribed topic ends the stream, and every next one, when
it is repeated.
"""

PACKET_HEAD: Final = 16
"""Bytes of a publication around topic and payload, at most."""
