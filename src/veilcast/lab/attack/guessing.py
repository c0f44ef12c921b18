"""How an attacker's scores become rows of the table `guesses`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.tables import Guess


def told(
    run: str,
    attack: str,
    epochs: int,
    coalition: int,
    topic: str,
    role: str,
    names: Sequence[str],
    scores: NDArray[np.float64],
) -> pa.Table:
    """A row for each of these nodes."""
    schema = tables.arrow_schema(Guess)
    same = (run, attack, epochs, coalition, topic, role)
    columns = [pa.repeat(pa.scalar(value, schema.types[place]), len(names)) for place, value in enumerate(same)]
    return pa.table([*columns, pa.array(names, pa.string()), pa.array(scores, pa.float64())], schema=schema)
