"""From a broker's file to what can be served: keyring, the signed overlay, machine, streams, and its owner's socket.

Whether it is a replica of a virtual node or of the repository stands in the overlay.

A broker keeps nothing on a disk but the overlay's description: when its machine goes by a newer one, the file is
replaced, so that the next life begins where this one ends.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from veilcast.authority.standing import broker_key
from veilcast.brokers.broker import Broker
from veilcast.brokers.overlay import Overlay, SignedOverlay
from veilcast.brokers.repository import Repository
from veilcast.cli.keeping import LOOK_S, Keeping
from veilcast.cli.opening import open_keyring
from veilcast.cli.ways import Streams, identity_of, limits_of, over_tls
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LocalError, RemoteError
from veilcast.machine import Address, Event, Machine
from veilcast.net.inquiries import Answering
from veilcast.net.service import Host
from veilcast.net.writing import Touched
from veilcast.node.broker_files import BrokerFile, read_for
from veilcast.node.kept_overlay import KeptOverlay

Astray: TypeAlias = Callable[[Broker, SignedOverlay], Machine]
"""What makes a liar of a broker, in tests and demonstrations."""


@contextmanager
def compose_broker(config: BrokerFile, passphrase: Secret, astray: Astray | None = None) -> Iterator[Host[BrokerOwner]]:
    keyring, revoked, clock, rng = open_keyring(config, passphrase)
    identity = identity_of(keyring, revoked, "broker")
    signing, path = broker_key(keyring.membership.link), Path(config.overlay)
    signed = read_for(path, config.operator_key, config.profile)
    overlay = signed.verify(config.operator_key)
    node, replica = next(
        ((node, replica) for node in overlay.every for replica in node.replicas if replica.key == signing.public),
        (None, None),
    )
    if replica is None:
        raise ConfigError(f"overlay: {path} does not have this broker; `veilcast brokers init` prints its line")
    if replica.address.rpartition("@")[2] != config.listen:
        _LOG.warning("the overlay names another address than it listens at; what comes there must be passed on to here")
    Path(config.state).mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Repository if node is overlay.repository else Broker
    broker = made(
        config.settings,
        signed,
        config.operator_key,
        Address(replica.address),
        signing,
        keyring.root,
        keyring.epoch_us,
        rng,
        os.urandom,
        clock.now(),
    )
    machine = astray(broker, signed) if astray is not None and isinstance(broker, Broker) else broker
    streams = Streams(machine, over_tls(identity, limits_of("broker"), [config.listen]))
    yield Host(
        machine=machine,
        drive=streams.drive,
        hire=lambda driver: BrokerOwner(broker, config, driver),
        answering=lambda owner, stop: owner.answering(streams, stop),
        metrics=config.metrics.listen,
        clock=clock,
        control=config.control_path,
    )


class BrokerOwner:
    """Fulfils `service.Owner`: looks after one broker, and answers for it."""

    def __init__(self, broker: Broker | Repository, config: BrokerFile, driver: Touched) -> None:
        self._broker, self._config, self._driver = broker, config, driver
        kept = KeptOverlay(Path(config.overlay), config.operator_key, broker.signed)
        self._keeping = Keeping(lambda: kept.keep(broker.signed))
        self._stop: Callable[[], object] = lambda: None

    async def run(self) -> None:
        """Keep what the machine goes by, and end when the operator has detached it."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._keeping.look()
            if self._broker.left:
                self._stop()

    def act_on(self, event: Event) -> None:
        """A broker has no owner who reads or publishes."""

    async def finish(self) -> None:
        """Nothing was promised to anybody here: who sent it sends it again."""

    def numbers(self) -> dict[str, float]:
        sizes = self._broker.sizes()
        return {
            "brokers_claims": sizes["claims"],
            "brokers_clients": sizes["clients"],
            "brokers_contents": sizes.get("contents", 0),
            "brokers_keys": sizes["keys"],
            "brokers_refused_total": self._broker.refused.total(),
        }

    def answering(self, streams: Streams, stop: Callable[[], object]) -> Answering:
        self._stop = stop

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            match question:
                case {"ask": "facts"}:
                    return self._facts(streams)
                case {"order": str(order)}:
                    return self._order(order)
            raise LocalError("a broker is asked for facts, or handed an order")

        return answer

    def _facts(self, streams: Streams) -> dict[str, Any]:
        broker, overlay = self._broker, self.overlay
        place = next((at for node in overlay.every if (at := node.place(broker.key)) is not None), None)
        names = {node.id: node.name for node in overlay.every}
        return {
            "node": names[place.scheme.node] if place is not None else None,
            "index": place.index if place is not None else None,
            "version": overlay.version,
            "complete": broker.complete,
            "left": broker.left,
            "peers": self._peers({peer.address: peer.up for peer in streams.peers()}),
            "sizes": dict(broker.sizes()),
            "refused": dict(broker.refused),
            "observed": broker.observed,
            "marks": [
                {
                    "node": names.get(place.scheme.node, place.scheme.node.hex()),
                    "index": place.index,
                    "scheme": place.scheme.version,
                    "reason": reason.value,
                    "proof": reason.proof,
                    "count": count,
                }
                for place, reasons in broker.marks().items()
                for reason, count in reasons.items()
            ],
        }

    def _peers(self, streams: dict[str, bool]) -> dict[str, bool]:
        """With those of its own node and of those beside it who have not called, as they should."""
        overlay, key = self.overlay, self._broker.key
        node = next((node for node in overlay.nodes if node.place(key) is not None), None)
        beside = () if node is None else (node, *overlay.neighbours(node.name))
        silent = [
            replica.address
            for each in beside
            for replica in each.replicas
            if replica.key != key and replica.address not in streams and replica.caller not in streams
        ]
        return streams | dict.fromkeys(silent, False)

    @property
    def overlay(self) -> Overlay:
        return self._broker.signed.verify(self._config.operator_key)

    def _order(self, order: str) -> dict[str, Any]:
        try:
            data = base64.b64decode(order, validate=True)
        except binascii.Error as error:
            raise LocalError("this is no order") from error
        version = SignedOverlay.decode(data).verify(self._config.operator_key).version
        try:
            self._broker.order(data, self._driver.now())
        except RemoteError as error:
            ours = f"brokers go by version {self.overlay.version}: sign the next one onto that"
            raise LocalError(f"version {version} is not taken: {error}; {ours}") from error
        self._driver.touch()
        # A replica of the repository is linked with members alone, and hears of newer overlays from these.
        return {"version": version, "tells": isinstance(self._broker, Broker)}


_LOG: Final = logging.getLogger("veilcast.brokers")
