"""The paper's printed or unfinished variants of key forwarding (before Algorithm 2, Algorithm 2 as printed, and what it
leaves open), for experiments.

Claim: none of these keeps a key secret, or delivers it, against a minority of replicas at each hop.
`tests/brokers/test_theorems.py` must find who breaks them, or it could not be believed about the others.

Algorithm 1 forwards whole shares. As printed, every receiver takes shares until it has k, which is all it needs to read
the key. As Figure 3 draws it, each receiver takes one; then a replica of one hop and a replica of another that got
different shares have two. Linear network coding (Figure 4 A) needs all n blocks, which makes that harder, but not hard:
one Byzantine replica at each hop is enough, and any of them alone keeps the key from the subscriber.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilcast.brokers.keys.scheme import Scheme
from veilcast.crypto import shamir
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import ShamirShare
from veilcast.errors import LocalError
from veilcast.machine import Entropy


def threshold_propagation(held: Sequence[Sequence[ShamirShare]], receivers: int, k: int) -> list[list[ShamirShare]]:
    """Algorithm 1: what each receiver has, after each forwarder has offered each of its shares to all in turn."""
    received: list[list[ShamirShare]] = [[] for _ in range(receivers)]
    for forwarder in held:
        for share in forwarder:
            for receiver in received:
                if len(receiver) < k:
                    receiver.append(share)
    return received


def pass_on_one_each(held: Sequence[Sequence[ShamirShare]]) -> list[list[ShamirShare]]:
    """As Figures 3 and 4 draw it: the replica at each place hands on to the replica at the same place."""
    return [list(shares_of_one) for shares_of_one in held]


def encode_blocks(key: Secret, n: int) -> tuple[ShamirShare, ...]:
    """Linear network coding (Figure 4 A): the key, cut into n parts, as n blocks that are all needed.

    Block x is the value at x of the polynomials whose values at n + 1 to 2n are the parts.
    """
    size, rest = divmod(len(key), n)
    if rest:
        raise LocalError(f"a key of {len(key)} bytes is not cut into {n} parts")
    parts = np.frombuffer(key.reveal(), dtype=np.uint8).reshape(n, size)
    blocks = shamir.interpolate_many(list(parts), range(n + 1, 2 * n + 1), range(1, n + 1))
    return tuple(ShamirShare(x + 1, Secret(block.tobytes())) for x, block in enumerate(blocks))


def decode_blocks(blocks: Sequence[ShamirShare]) -> Secret:
    """The key, from all its blocks."""
    n = len(blocks)
    columns = [np.frombuffer(block.data.reveal(), dtype=np.uint8) for block in blocks]
    return Secret(
        shamir.interpolate_many(columns, [block.index for block in blocks], range(n + 1, 2 * n + 1)).tobytes()
    )


def split_as_printed(share: Secret, forwarders: int, byzantine: int, entropy: Entropy) -> tuple[ShamirShare, ...]:
    """Algorithm 2, line 4: (|V_f| - |Byz(V_f)|, |V_f|), by a broker of V_f who is told what nobody can know.

    Piece x goes to the x-th broker of the next node, if there is one. (Line 7 sends it to the broker's own node.)
    """
    return shamir.split(share, forwarders - byzantine, forwarders, entropy)


def reuse_one_split(share: Secret, branches: Sequence[Scheme], entropy: Entropy) -> list[tuple[ShamirShare, ...]]:
    """One split for all branches, or repeats, of the same size: what the paper does not rule out."""
    if len({branch.size for branch in branches}) != 1:
        raise LocalError("one split serves branches of one size")
    pieces = shamir.split(share, branches[0].threshold, branches[0].size, entropy)
    return [pieces for _ in branches]
