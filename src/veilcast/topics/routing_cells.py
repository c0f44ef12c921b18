"""Routing cells: a topic with numeric attributes is cut into coarse boxes, each of which can have a mesh of its own.

Pure functions of a schema. Each routed attribute is cut into at most `2**routing` dyadic cells, and a topic into their
products. A publication lies in exactly one product cell, since it must have exactly one value of each routed attribute.
An interest touches the cells that its ranges touch, and all cells of an attribute that it does not constrain.

Claim: a subscriber that follows the cells of its interest misses no matching publication.
Reason: `cell` is monotonic (see `domain`), so a publication that matches an interest lies in a cell that the interest
touches. Publications that do not match lie in the same cells, and the subscriber filters them exactly.
"""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.topics.domain import Integers, Reals, Schema
from veilcast.topics.interests import Conjunction, Range

Cell: TypeAlias = tuple[int, ...]
"""The place of a product cell: one coordinate for each routed attribute, in the schema's order."""


def cell_of(publication: Publication, schema: Schema) -> Cell:
    """The cell of a publication.

    Raises `LocalError` unless it has one value of each routed attribute, within its domain.
    """
    place = []
    for domain in schema.routed:
        values = [value for attribute, value in publication.pairs if attribute == domain.attribute]
        if len(values) != 1:
            raise LocalError(
                f"the topic is routed by {domain.attribute!r}: a publication needs exactly one value of it"
            )
        place.append(_routing_cell(domain, domain.cell(values[0])))
    return tuple(place)


def cells_of(interest: Conjunction, schema: Schema) -> tuple[Cell, ...]:
    """The cells that an interest touches, in order. Raises `LocalError` for an interest that nothing can match."""
    return tuple(product(*(_touched_cells(interest, domain) for domain in schema.routed)))


def all_cells(schema: Schema) -> tuple[Cell, ...]:
    """Every cell; for a topic that is not cut, the one without coordinates."""
    return tuple(product(*(_all_coordinates(domain) for domain in schema.routed)))


def _touched_cells(interest: Conjunction, domain: Integers | Reals) -> range:
    """The one value of the attribute meets all constraints on it, so its cell lies in all their ranges."""
    touched = _all_coordinates(domain)
    for constraint in interest.constraints:
        if constraint.attribute != domain.attribute:
            continue
        if not isinstance(constraint, Range):
            raise LocalError(f"{domain.attribute!r} must be constrained by a range, as the topic declares it")
        first, last = (_routing_cell(domain, cell) for cell in domain.cells(constraint))
        touched = range(max(touched.start, first), min(touched.stop, last + 1))
    if not touched:
        raise LocalError(f"the ranges of {domain.attribute!r} have nothing in common")
    return touched


def _all_coordinates(domain: Integers | Reals) -> range:
    return range(_routing_cell(domain, domain.cell(domain.high)) + 1)


def _routing_cell(domain: Integers | Reals, cell: int) -> int:
    return cell >> (domain.bits - domain.routing)
