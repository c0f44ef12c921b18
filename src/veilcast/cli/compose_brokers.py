"""From a broker's file to a broker that can be served: keyring, signed overlay, machine, streams, and query socket.

The overlay says whether the broker is a replica of a virtual node or of the repository.

A broker stores nothing on a disk except the overlay's description: when its machine adopts a newer one, the file is
replaced, so that the next run begins where this one ends.
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

from veilcast.authority.role import derive_broker_key
from veilcast.brokers.broker import Broker
from veilcast.brokers.operations.key_repository import Repository
from veilcast.brokers.operations.signed_facts import sign_facts
from veilcast.brokers.overlay import BrokerOverlay, SignedOverlay
from veilcast.cli.identity import open_identity
from veilcast.cli.retrying_file_writer import LOOK_S, RetryingFileWriter
from veilcast.cli.transports import limits_for, make_tls_identity, tls_driver
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, LocalError, RemoteError
from veilcast.machine import Address, Event, Machine
from veilcast.net.driver import MachineDriver
from veilcast.net.host_queries import QueryHandler
from veilcast.net.service import HostSetup
from veilcast.net.transport import StreamTransport
from veilcast.node.broker_overlay import BrokerFile, read_signed_for
from veilcast.node.brokers import StoredOverlay

ByzantineWrapper: TypeAlias = Callable[[Broker, SignedOverlay], Machine]
"""Makes a Byzantine broker of an honest one, in tests and demonstrations."""


@contextmanager
def compose_broker(
    config: BrokerFile, passphrase: Secret, astray: ByzantineWrapper | None = None
) -> Iterator[HostSetup[BrokerService]]:
    keyring, revoked, clock, rng = open_identity(config, passphrase)
    identity = make_tls_identity(keyring, revoked, "broker")
    signing, path = derive_broker_key(keyring.membership.link), Path(config.overlay)
    signed = read_signed_for(path, config.operator_key, config.profile)
    overlay = signed.verify(config.operator_key)
    node, replica = next(
        ((node, replica) for node in overlay.all_nodes for replica in node.replicas if replica.key == signing.public),
        (None, None),
    )
    if replica is None:
        raise ConfigError(f"overlay: {path} does not have this broker; `veilcast brokers init` prints its line")
    if replica.address.rpartition("@")[2] != config.listen:
        _LOG.warning(
            "the overlay names another address than this broker listens at; connections to that one must be forwarded"
        )
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
    streams = StreamTransport(machine, tls_driver(identity, limits_for("broker"), [config.listen]))
    yield HostSetup(
        machine=machine,
        make_driver=streams.make_driver,
        make_service=lambda driver: BrokerService(broker, config, signing, driver),
        make_handler=lambda owner, stop: owner.make_handler(streams, stop),
        metrics=config.metrics.listen,
        clock=clock,
        control=config.control_path,
    )


class BrokerService:
    """The service of one broker (`service.MachineService`), and the answers to its operator's queries."""

    def __init__(
        self, broker: Broker | Repository, config: BrokerFile, signing: SigningKey, driver: MachineDriver
    ) -> None:
        self._broker, self._config, self._signing, self._driver = broker, config, signing, driver
        kept = StoredOverlay(Path(config.overlay), config.operator_key, broker.signed)
        self._keeping = RetryingFileWriter(lambda: kept.update(broker.signed))
        self._stop: Callable[[], object] = lambda: None

    async def run(self) -> None:
        """Keep the overlay's file up to date, and stop when the operator has detached the broker."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._keeping.save()
            if self._broker.has_left:
                self._stop()

    def act_on(self, event: Event) -> None:
        """A broker serves no programs on its own computer, so there are no events for its owner."""

    async def finish(self) -> None:
        """Nothing is promised here: the sender repeats what was not confirmed."""

    def numbers(self) -> dict[str, float]:
        sizes = self._broker.sizes()
        return {
            "brokers_claims": sizes["claims"],
            "brokers_clients": sizes["clients"],
            "brokers_contents": sizes.get("contents", 0),
            "brokers_keys": sizes["keys"],
            "brokers_refused_total": self._broker.refused.total(),
        }

    def make_handler(self, streams: StreamTransport, stop: Callable[[], object]) -> QueryHandler:
        self._stop = stop

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            match question:
                case {"ask": "facts"}:
                    return sign_facts(self._facts(streams), self._signing)
                case {"order": str(order)}:
                    return self._order(order)
            raise LocalError("a broker is asked for facts, or handed an order")

        return answer

    def _facts(self, streams: StreamTransport) -> dict[str, Any]:
        broker, overlay = self._broker, self.overlay
        place = next((at for node in overlay.all_nodes if (at := node.replica_id(broker.key)) is not None), None)
        names = {node.id: node.name for node in overlay.all_nodes}
        return {
            "node": names[place.scheme.node] if place is not None else None,
            "index": place.index if place is not None else None,
            "version": overlay.version,
            "at_us": self._driver.now(),
            "complete": broker.has_routing_state,
            "left": broker.has_left,
            "peers": self._peers({peer.address: peer.up for peer in streams.peers()}),
            "sizes": dict(broker.sizes()),
            "refused": dict(broker.refused),
            "observed": broker.observed_count,
            "marks": [
                {
                    "node": names.get(place.scheme.node, place.scheme.node.hex()),
                    "index": place.index,
                    "scheme": place.scheme.version,
                    "reason": reason.value,
                    "proof": reason.is_proof,
                    "count": count,
                }
                for place, reasons in broker.fault_counts().items()
                for reason, count in reasons.items()
            ],
        }

    def _peers(self, streams: dict[str, bool]) -> dict[str, bool]:
        """Add the replicas of its own node and the neighbouring nodes that should have called and have not."""
        overlay, key = self.overlay, self._broker.key
        node = next((node for node in overlay.nodes if node.replica_id(key) is not None), None)
        beside = () if node is None else (node, *overlay.neighbours(node.name))
        silent = [
            replica.address
            for each in beside
            for replica in each.replicas
            if replica.key != key and replica.address not in streams and replica.caller not in streams
        ]
        return streams | dict.fromkeys(silent, False)

    @property
    def overlay(self) -> BrokerOverlay:
        return self._broker.signed.verify(self._config.operator_key)

    def _order(self, order: str) -> dict[str, Any]:
        try:
            data = base64.b64decode(order, validate=True)
        except binascii.Error as error:
            raise LocalError("this is no order") from error
        version = SignedOverlay.decode(data).verify(self._config.operator_key).version
        try:
            self._broker.accept_order(data, self._driver.now())
        except RemoteError as error:
            ours = f"brokers go by version {self.overlay.version}: sign the next one onto that"
            raise LocalError(f"version {version} is not taken: {error}; {ours}") from error
        self._driver.touch()
        # A replica of the repository is linked with members alone, and hears of newer overlays from these.
        return {"version": version, "tells": isinstance(self._broker, Broker)}


_LOG: Final = logging.getLogger("veilcast.brokers")
