"""The ground on which a population of brokers stands: keys by name, and overlays as their operator signs them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from veilcast.brokers.overlay import NodeEntry, Overlay, Replica, SignedOverlay, sign_overlay
from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.machine import Address
from veilcast.sim.chance import derive


class Ground(NamedTuple):
    """What a seed draws: the overlay in all its versions, its liars by what they do, and the edge of each client."""

    overlays: tuple[SignedOverlay, ...]
    liars: dict[Address, str]
    edges: dict[Address, str]

    def first(self, name: Address) -> SignedOverlay:
        """The first version that this broker is in."""
        return next(signed for signed in self.overlays if _read(signed).place(signing_key(name).public) is not None)

    def places(self, name: Address) -> list[Place]:
        """Where this broker stands, version by version."""
        key = signing_key(name).public
        return [place for signed in self.overlays if (place := _read(signed).place(key)) is not None]


@cache
def signing_key(name: Address) -> SigningKey:
    return SigningKey(Secret(derive(0, "broker", name)[:32]))


@cache
def operator_key() -> SigningKey:
    return SigningKey(Secret(derive(0, "operator")[:32]))


@cache
def overlay_of(
    version: int, nodes: tuple[tuple[int, tuple[Address, ...]], ...], links: tuple[tuple[str, str], ...]
) -> SignedOverlay:
    """Signed by the operator. `nodes` are v0, v1 and so on, each with its scheme's version and its replicas."""
    entries = tuple(
        NodeEntry(f"v{node}", scheme, tuple(Replica(signing_key(name).public, name, name) for name in names))
        for node, (scheme, names) in enumerate(nodes)
    )
    return sign_overlay(Overlay(version, entries, links), operator_key())


def version_of(signed: SignedOverlay) -> int:
    return _read(signed).version


@cache
def _read(signed: SignedOverlay) -> Overlay:
    return signed.verify(operator_key().public)
