"""Topics: interests, what it means to match one, and how to find the subscriptions that a publication matches.

Imports only the errors and the machine contract; no clock, no randomness, no I/O.

    interests      labels, ranges, boxes, conjunctions; `matches` is the specification (P2, section 3)
    predicates     interests in writing: `[class,=,bar],[price,>,50]` (P4, Fig. 1)
    domain         the declared attributes of a topic and their resolution
    schema_check   the check of a member's publications and subscriptions against the declaration
    routing_cells  a topic cut into coarse boxes, each of which can be routed by itself
    dyadic         ranges as binary prefixes
    elements       interests and publications as sets of elements; `coarse_match`, the oracle of the indexes
    bloom          the shape of a filter and the bound it proves
    index_columns  the columns of an index: their subscriptions and expiries
    bloom_index    one publication against a million filters
    tag_index      one publication against the exact tags of a million subscriptions

A name is imported at its first use: a label costs no index, and so no numpy.
"""

from veilcast.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from veilcast.topics.bloom import PUBLIC_KEY, Geometry
    from veilcast.topics.bloom_index import BloomIndex
    from veilcast.topics.domain import Domain, Integers, Reals, Schema, Strings
    from veilcast.topics.elements import Cover, coarse_match, covers, pair_elements, queries, queries_received
    from veilcast.topics.interests import (
        TOPIC,
        All,
        Box,
        Conjunction,
        Constraint,
        Equal,
        Label,
        Range,
        topic_of,
        topics_of,
    )
    from veilcast.topics.routing_cells import Cell, all_cells, cell_of, cells_of
    from veilcast.topics.schema_check import check_complete, check_interest, check_publication
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "veilcast.topics.bloom": ("PUBLIC_KEY", "Geometry"),
            "veilcast.topics.routing_cells": ("Cell", "all_cells", "cell_of", "cells_of"),
            "veilcast.topics.schema_check": ("check_complete", "check_interest", "check_publication"),
            "veilcast.topics.domain": ("Domain", "Integers", "Reals", "Schema", "Strings"),
            "veilcast.topics.elements": (
                "Cover",
                "coarse_match",
                "covers",
                "pair_elements",
                "queries",
                "queries_received",
            ),
            "veilcast.topics.bloom_index": ("BloomIndex",),
            "veilcast.topics.interests": (
                "TOPIC",
                "All",
                "Box",
                "Conjunction",
                "Constraint",
                "Equal",
                "Label",
                "Range",
                "topic_of",
                "topics_of",
            ),
        },
    )

__all__ = [
    "Label",
    "Equal",
    "Range",
    "Box",
    "All",
    "Conjunction",
    "Constraint",
    "TOPIC",
    "topic_of",
    "topics_of",
    "check_publication",
    "check_complete",
    "check_interest",
    "Domain",
    "Strings",
    "Integers",
    "Reals",
    "Schema",
    "Cell",
    "all_cells",
    "cell_of",
    "cells_of",
    "Cover",
    "covers",
    "queries",
    "queries_received",
    "pair_elements",
    "coarse_match",
    "Geometry",
    "PUBLIC_KEY",
    "BloomIndex",
]
