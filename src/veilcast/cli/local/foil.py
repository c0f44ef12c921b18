"""The parts of foiling on one computer other than its members: an MQTT broker, and a topic with a value worth hiding.

Below DIR the broker has `broker/`. The first worker runs it, and it ends with that worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.cli.local import mosquitto
from veilcast.cli.local.mode import LocalHost, LocalMode, Table, listens
from veilcast.cli.local.mosquitto import Mosquitto
from veilcast.machine import Entropy
from veilcast.topics import Reals, Schema

if TYPE_CHECKING:
    from veilcast.authority.issuer import Authority
    from veilcast.cli.context import Context
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan
    from veilcast.net.tor import Tor


class LocalFoil(LocalMode):
    topic = "stocks/acme"
    pub_arguments = " --value price=512"

    def check_programs(self) -> None:
        mosquitto.find_mosquitto()

    def count_addresses(self, plan: NetworkPlan) -> int:
        return 1

    def own_directories(self, directory: Path, plan: NetworkPlan) -> list[Path]:
        return [broker_directory(directory)]

    def declare_topic(self, authority: Authority, topic: str, profile: Profile, entropy: Entropy) -> Authority:
        from veilcast.authority import issuer

        return issuer.declare(authority, TopicRecord(topic, Schema((PRICE,)), profile=profile), entropy)

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        return lambda _: {"mode": "foil", "foil": {"broker": f"mqtt://{network.hosts[0]}"}}

    def open_worker(self, directory: Path, network: LocalNetwork, worker: int, parts: ExitStack) -> Tor | None:
        if worker == 0:
            parts.enter_context(run_broker(directory, network.hosts[0]))
        return None

    async def ask_hosts(self, directory: Path, network: LocalNetwork) -> list[LocalHost]:
        return [LocalHost("broker", network.hosts[0], "broker", await listens(network.hosts[0]))]


def broker_directory(directory: Path) -> Path:
    return directory / "broker"


@contextmanager
def run_broker(directory: Path, address: str) -> Iterator[Mosquitto]:
    """Run the network's own broker."""
    broker = Mosquitto(broker_directory(directory), address)
    broker.start()
    try:
        yield broker
    finally:
        broker.end()


PRICE: Final = Reals("price", 0.0, 1024.0, 12)
LOCAL: Final = LocalFoil()
