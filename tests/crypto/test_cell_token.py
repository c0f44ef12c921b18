"""Cell names reveal no place, and cell tokens fit one topic's certificate alone."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.topic_token import cell_lineage, cell_name, cell_token, scope_covers

SCOPES = st.binary(min_size=32, max_size=32)
NAMES = st.binary(min_size=16, max_size=16)


def test_every_place_at_every_resolution_has_a_name_of_its_own_under_every_blind() -> None:
    names = {
        cell_name(bytes([blind]) * 16, [(3, x), (bits, y)])
        for blind, bits, x, y in product(range(2), (1, 2), range(8), range(2))
    }
    assert len(names) == 2 * 2 * 8 * 2
    assert all(len(name) == 16 for name in names)


@given(SCOPES, SCOPES, NAMES, NAMES)
def test_a_certificate_fits_its_own_token_and_cells_and_no_others(
    scope: bytes, other: bytes, cell: bytes, another: bytes
) -> None:
    token = cell_token(scope, cell)
    assert scope_covers(scope, scope, None)
    assert scope_covers(scope, token, cell)
    assert not scope_covers(scope, token, None)
    assert not scope_covers(scope, scope, cell)
    assert scope_covers(other, token, cell) == (other == scope)
    assert scope_covers(scope, token, another) == (another == cell)


@given(NAMES, NAMES)
def test_the_lineage_of_a_cell_is_not_that_of_its_topic(lineage: bytes, cell: bytes) -> None:
    assert cell_lineage(lineage, None) == lineage
    assert cell_lineage(lineage, cell) not in (lineage, cell)
    assert len(cell_lineage(lineage, cell)) == 16
