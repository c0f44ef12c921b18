"""The proxy: knows its clients by name, and neither what they want nor what they say."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from veilcast.crypto.bulk import Multiply, one_by_one
from veilcast.crypto.group import Scalar
from veilcast.machine import Address, Entropy
from veilcast.relay.config import ProxyConfig
from veilcast.relay.joining import ServerPublic


class Proxy:
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Connect(server)` and `Listen("member")`.

    `mask` is xs, the same for all proxies of one server and unknown to that (None in `paper`). `records` is what
    earlier lives had stored and did not settle: the clients' transformation keys, and the pseudonyms of their leases.
    """

    def __init__(
        self,
        config: ProxyConfig,
        public: ServerPublic,
        server: Address,
        mask: Scalar | None,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = one_by_one,
    ) -> None:
        raise NotImplementedError

    def ban(self, client: Address, now: int) -> None:
        """This client's membership was revoked: forget it, and answer it with that, if it is still there."""
        raise NotImplementedError
