"""The operator of an overlay on this computer: signs the next overlay, and hands it to the running brokers."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.brokers.operations.redeployment_plan import RedeployStep
from veilcast.brokers.overlay import BrokerOverlay, Replica, sign_overlay
from veilcast.cli.broker_facts import ask_brokers
from veilcast.cli.files import passphrase_file
from veilcast.cli.local import brokers, network
from veilcast.cli.local.network import LocalNetwork
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.net.host_queries import ask_host
from veilcast.node.broker_overlay import decode_broker_line, read_operator_key, read_signed, replica_at, write_signed


class LocalOperator:
    def __init__(self, directory: Path, layout: LocalNetwork) -> None:
        self.directory, self._home = directory, brokers.operator_directory(directory)
        self._hosts = dict(zip(layout.hosts, layout.plan.hosts, strict=True))
        """Names of the brokers, by their listening addresses."""
        self._lies = {host for host in layout.plan.hosts if layout.plan.brokers.byzantine_kind(host) is not None}
        secret = Secret(read_private_file(passphrase_file(self._home / brokers.KEY)))
        self._key = read_operator_key(self._home / brokers.KEY, secret)
        self.placement_seed = derive(self._key.seed, b"vc/broker-lot")
        """Derived from the key, so that a plan is carried out as it was shown."""

    def overlay(self) -> BrokerOverlay:
        return read_signed(self._home / brokers.SIGNED, self._key.public).verify(self._key.public)

    def spares(self, overlay: BrokerOverlay) -> list[Replica]:
        """Return the brokers outside the overlay. A detached broker that lies by the plan, or was proven to lie, is not
        taken again."""
        liars = self.liars()
        return [
            replica
            for replica in self._outside(overlay)
            if self.host(replica) not in self._lies and replica.key not in liars
        ]

    def liars(self) -> set[bytes]:
        """Return the keys of all brokers that were proven to lie when a plan was carried out."""
        path = self._home / _LIARS
        return {bytes.fromhex(line) for line in read_private_file(path).decode().split()} if path.exists() else set()

    def remember_liars(self, liars: Iterable[bytes]) -> None:
        known = self.liars()
        if not known.issuperset(liars):
            replace_file(self._home / _LIARS, "".join(f"{key.hex()}\n" for key in sorted(known.union(liars))).encode())

    def pending(self, answers: Mapping[str, Any]) -> RedeployStep | None:
        """Return the step that was signed and then interrupted, for example by Ctrl-C: some answering brokers have an
        older overlay."""
        overlay = self.overlay()
        inside = [replica for node in overlay.all_nodes for replica in node.replicas]
        found = [answers.get(self.host(replica)) for replica in inside]
        if all(facts is None or facts["version"] >= overlay.version for facts in found):
            return None
        come = tuple(replica for replica, facts in zip(inside, found, strict=True) if facts is None)
        leave = tuple(replica for replica in self._outside(overlay) if answers.get(self.host(replica)) is not None)
        return RedeployStep(overlay, "", come, leave)

    def _outside(self, overlay: BrokerOverlay) -> list[Replica]:
        inside = {replica.key for node in overlay.all_nodes for replica in node.replicas}
        lines = {host: brokers.broker_line(self.directory, host, network.KEYRING) for host in self._hosts.values()}
        every = [replica_at(decode_broker_line(host, lines[host]), address) for address, host in self._hosts.items()]
        return [replica for replica in every if replica.key not in inside]

    def host(self, replica: Replica) -> str:
        return self._hosts[replica.address.rpartition("@")[2]]

    def sign(self, step: RedeployStep) -> list[str]:
        """Sign the step's overlay, and give it to the brokers that join by it. Returns their names; they are still to
        be started."""
        signed = sign_overlay(step.overlay, self._key)
        write_signed(self._home / brokers.SIGNED, signed)
        coming = [self.host(replica) for replica in step.joining]
        for host in coming:
            write_signed(self.directory / host / brokers.SIGNED, signed)
        return coming

    def hand_out_overlay(self) -> None:
        """Hand the last signed overlay to all brokers that answer."""
        signed = read_signed(self._home / brokers.SIGNED, self._key.public)
        order, found = base64.b64encode(signed.encode()).decode(), 0
        for host in self._hosts.values():
            try:
                found += bool(ask_host(brokers.broker_socket(self.directory, host), {"order": order}))
            except LocalError:
                continue  # It is down, or knows already.
        if not found:
            raise LocalError("no broker took the order; are they running?")

    def answering_keys(self, overlay: BrokerOverlay, answers: Mapping[str, Any]) -> set[bytes]:
        """Return the keys of the replicas that answered."""
        inside = [replica for node in overlay.all_nodes for replica in node.replicas]
        return {replica.key for replica in inside if answers.get(self.host(replica)) is not None}

    def count_ready(self, step: RedeployStep) -> int:
        """Return how many of the step's replicas have adopted it and lack nothing."""
        answers = ask_brokers(self.directory)
        replicas = [replica for node in step.overlay.nodes for replica in node.replicas]
        found = [facts for replica in replicas if (facts := answers.get(self.host(replica))) is not None]
        return sum(bool(facts["version"] >= step.overlay.version and facts["complete"]) for facts in found)

    def count_staying(self, step: RedeployStep) -> int:
        """Return how many of the replicas that leave by the step have not left."""
        answers = ask_brokers(self.directory)
        leaving = [answers.get(self.host(replica)) for replica in step.leaving]
        return sum(facts is not None and not facts["left"] for facts in leaving)


_LIARS: Final = "liars"
