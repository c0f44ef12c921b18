"""Flow source: who sends a note before anybody has sent it one has made it.

Against publishers nothing is simpler. Of every publication the observer sees copies, each with two ends and a time;
all who have it have received it, but for one. What is missed (a copy on a link that is not watched) makes others look
like the source; over many publications they change, and the publisher does not. Where all links carry cells of one
size at one rate there is nothing to be seen here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores(
    publication: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    at: NDArray[np.int64],
    nodes: int,
) -> NDArray[np.float64]:
    """By node, in what share of the publications it sent before it received; a row for each copy that was seen."""
    numbers, which = np.unique(publication, return_inverse=True)
    sent, received = (np.full((len(numbers), nodes), np.inf) for _ in range(2))
    np.minimum.at(sent, (which, src), at)
    np.minimum.at(received, (which, dst), at)
    share: NDArray[np.float64] = np.sum(sent < received, axis=0) / max(1, len(numbers))
    return share
