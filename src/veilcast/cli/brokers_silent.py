"""Which replicas of an overlay do not answer, and whether enough of each node do: without a majority a node carries
nothing, and takes no step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from veilcast.brokers.overlay import Overlay


class Silence(NamedTuple):
    """So many of the replicas of a virtual node, or of the repository."""

    node: str
    silent: int
    of: int
    repository: bool

    @property
    def majority(self) -> bool:
        """Whether more than half of them answer."""
        return 2 * (self.of - self.silent) > self.of

    @property
    def name(self) -> str:
        return "the repository" if self.repository else self.node


def silences(overlay: Overlay, heard: Collection[bytes]) -> list[Silence]:
    """Of the nodes some of whose replicas are not among the keys that were heard."""
    found = [
        Silence(
            node.name,
            sum(replica.key not in heard for replica in node.replicas),
            len(node.replicas),
            node is overlay.repository,
        )
        for node in overlay.every
    ]
    return [each for each in found if each.silent]


def silence_lines(silent: Iterable[Silence]) -> list[str]:
    lines = []
    for each in silent:
        lines.append(f"  silent: {each.silent} of {each.of} replicas of {each.name}")
        if not each.majority:
            lines.append(f"  warning: no majority of {each.name} answers: nothing gets through it until more of it run")
    return lines


def silence_data(silent: Iterable[Silence]) -> list[dict[str, object]]:
    return [{"node": each.node, "silent": each.silent, "of": each.of, "majority": each.majority} for each in silent]
