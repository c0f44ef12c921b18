"""The node: every member's machine, which forwards for all, and publishes and subscribes for its owner."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from veilcast.authority.keyring import Keyring
from veilcast.machine import Address, Entropy
from veilcast.tree.config import TreeConfig


class TreeNode:
    """A `LiveMember` (node.modes), with the notices of `Peers` and `Durable`. It asks for `Listen("tree")`.

    `directory` is where the listing is, `address` where this node can be reached by others. `records` is what earlier
    lives had stored and did not settle: publications.
    """

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        directory: Address,
        address: Address,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
    ) -> None:
        raise NotImplementedError
