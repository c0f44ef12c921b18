"""What the members of the mode "foil" have on one machine: a broker, and a topic with a value that is worth hiding.

Below DIR the broker has `broker/`. It belongs to the first of the processes that serve nodes, and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.cli.local.mosquitto import Mosquitto
from veilcast.machine import Entropy
from veilcast.topics import Reals, Schema

if TYPE_CHECKING:
    from veilcast.authority.issuer import Authority


def declare(authority: Authority, topic: str, profile: Profile, entropy: Entropy) -> Authority:
    from veilcast.authority import issuer

    return issuer.declare(authority, TopicRecord(topic, Schema((PRICE,)), profile=profile), entropy)


def node_table(address: str) -> dict[str, Any]:
    known = {PRICE.attribute: {"deviation": _STEP}}
    return {"mode": "foil", "foil": {"broker": f"mqtt://{address}", "attributes": known}}


def broker_directory(directory: Path) -> Path:
    return directory / "broker"


@contextmanager
def run_broker(directory: Path, address: str) -> Iterator[Mosquitto]:
    """The network's own, running."""
    mosquitto = Mosquitto(broker_directory(directory), address)
    mosquitto.start()
    try:
        yield mosquitto
    finally:
        mosquitto.end()


PRICE: Final = Reals("price", 0.0, 1024.0, 12)
_STEP: Final = 1.0
"""What a price moves by, about."""
