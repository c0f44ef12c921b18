"""The server: matches publications with leases, both of them under tags, and knows nobody but proxies."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from veilcast.crypto.bulk import Multiply, one_by_one
from veilcast.machine import Entropy
from veilcast.relay.config import ServerConfig
from veilcast.relay.joining import ServerKeys


class Server:
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Listen("proxy")`.

    `records` is what earlier lives had stored and did not settle: leases, and publications that readers still lack.
    """

    def __init__(
        self,
        config: ServerConfig,
        keys: ServerKeys,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = one_by_one,
    ) -> None:
        raise NotImplementedError
