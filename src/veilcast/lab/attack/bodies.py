"""Bodies: what goes down as it went up is recognised, whoever cannot read it.

P2 encrypts a message anew for each reader, and leaves open how long it is; a body of any length is sealed once, under a
key that travels so (notes: flaw e). The proxy then sees the same bytes come from one client and go to others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.ledger import DELIVERED, SENT, Ledger


def links(proxy: Ledger, users: int) -> NDArray[np.float64]:
    """Senders x readers: how many bodies of the one came to the other."""
    sent, got = proxy.of(SENT), proxy.of(DELIVERED)
    order = np.argsort(sent.what)
    place = np.minimum(np.searchsorted(sent.what[order], got.what), max(0, len(sent) - 1))
    found = np.zeros((users, users))
    if len(sent):
        same = sent.what[order][place] == got.what
        np.add.at(found, (sent.who[order][place][same], got.who[same]), 1.0)
    return found
