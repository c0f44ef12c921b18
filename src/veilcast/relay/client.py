"""The client: a member who publishes and subscribes through proxies that know it, at a server that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from veilcast.authority.keyring import Keyring
from veilcast.crypto.bulk import Multiply, one_by_one
from veilcast.machine import Address, Entropy
from veilcast.relay.config import ClientConfig
from veilcast.relay.joining import ServerPublic


class Client:
    """A `LiveMember` (node.modes), with the notices of `Peers` and `Durable`.

    `proxies` are one or two: by the first it publishes, by the last it subscribes. `records` is what earlier lives had
    stored and did not settle: publications.
    """

    def __init__(
        self,
        config: ClientConfig,
        keyring: Keyring,
        server: ServerPublic,
        proxies: Sequence[Address],
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = one_by_one,
    ) -> None:
        raise NotImplementedError
