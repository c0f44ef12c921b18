"""P0's worked example (Fig. 7), as its printed fractions require it: three small meshes, drawn and not built.

Publisher p, a forwarder f1 with the subscribers s1 and s2 below it, and a subscriber s3 with s4 below. In the middle s1
and s3 have taken a cover each, f2 and f3; on the right f3 has taken another, f4. An exhaustive search over such trees
finds no other that gives the three accuracies under the leaf rule without the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Picture:
    """One of the three: its links in the direction of notes, and who subscribes."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    publisher: int
    subscribes: NDArray[np.bool_]

    @property
    def nodes(self) -> int:
        return len(self.subscribes)


def _picture(links: str) -> Picture:
    pairs = [link.split(">") for link in links.split()]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    ends = np.array([[names.index(name) for name in pair] for pair in pairs], dtype=np.int32)
    subscribes = np.array([name.startswith("s") for name in names])
    return Picture(ends[:, 0], ends[:, 1], names.index("p"), subscribes)


_LEFT: Final = "p>f1 f1>s1 f1>s2 p>s3 s3>s4"
_MIDDLE: Final = f"{_LEFT} s1>f2 s3>f3"
PICTURES: Final[Mapping[int, Picture]] = {
    0: _picture(_LEFT),
    2: _picture(_MIDDLE),
    3: _picture(f"{_MIDDLE} f3>f4"),
}
"""By the number of covers."""
