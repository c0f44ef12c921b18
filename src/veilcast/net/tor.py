"""A Tor of our own, or one that runs already: where to call through, and the onion services it answers for.

Either is told what to do by its control port (`torcontrol`), and all we ask of it hangs on that connection: when it
ends, however it ends, a Tor of our own ends too, and one that runs for others forgets our services. Nothing here uses
asyncio: Tor is up before a driver starts, and outlives it.

    with tor.started(state / "tor", network=settings.network) as anonymity:      # or tor.attached("127.0.0.1:9051")
        door = doorway()                                                           # net.onions
        service = anonymity.serve(door.getsockname(), key=kept)                    # kept: of an earlier life, or None
        ... keep service.key; service.address is our Address: "xyz...onion:80" ...
        OnionDriver(machine, listen=[door], reach=anonymity.reach, act_on=...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from veilcast.machine import Address
from veilcast.net.address import SocketAddress
from veilcast.net.onions import ThroughTor


@dataclass(frozen=True)
class OnionService:
    """The address is its key's; who keeps the key has the same address in every life."""

    address: Address
    key: str = field(repr=False)


class Tor:
    """One that answers, until it is closed."""

    reach: ThroughTor
    """For drivers: how peers are called through it."""

    def serve(self, target: SocketAddress, *, key: str | None = None, port: int = 80) -> OnionService:
        """Answer for an onion service from now on: whoever calls it comes to the target, a listening socket of ours."""
        raise NotImplementedError

    def await_reachable(self, services: list[OnionService], within_s: float) -> None:
        """Return when others can find these services; `LocalError` if they cannot by then."""
        raise NotImplementedError

    async def gone(self) -> None:
        """Returns never; `LocalError` when this Tor ends, or no longer listens to us."""
        raise NotImplementedError


@contextmanager
def started(
    directory: Path,
    *,
    network: Path | None = None,
    within_s: float = 120.0,
    told: Callable[[int], object] = lambda percent: None,
) -> Iterator[Tor]:
    """A process of our own, with its files in `directory`, joined to the public network or to a private one: `network`
    is the file that `testnet` writes. `told` hears of the progress; `LocalError` where there is no `tor` at all."""
    raise NotImplementedError


@contextmanager
def attached(control: str, *, cookie: Path | None = None) -> Iterator[Tor]:
    """One that runs already, by its control port ("127.0.0.1:9051" or "unix:/run/tor/control"); it shows where its
    cookie is, unless it was told to take any."""
    raise NotImplementedError
