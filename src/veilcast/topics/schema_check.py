"""The check of a member's publications and subscriptions against the attributes and domains of a topic's record.

Every mode checks its client's publications and subscriptions here, before anything leaves. Three reasons:

1. An attribute that no record declares is a mistake of the client. No subscriber can ask for a range of it, so the
   publication would miss its subscribers without an error.
2. A value outside its domain matches no cover, although by definition a range that reaches past the domain matches it.
3. A subscription to an undeclared attribute, of the wrong kind, or outside the domain would never get anything.

Publications of other members are not checked here: a receiver ignores pairs that their publisher should have refused
(`elements.queries_received`).
"""

from __future__ import annotations

from collections.abc import Mapping

from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.nearest import did_you_mean
from veilcast.topics.domain import Schema
from veilcast.topics.elements import covers, pair_elements
from veilcast.topics.interests import TOPIC, Conjunction


def check_publication(publication: Publication, schemas: Mapping[str, Schema]) -> None:
    """Raise `LocalError` for an attribute that none of the publication's topics declares, or a value outside its
    domain.

    `schemas` has all topics of the publication, by name.
    """
    for attribute, value in publication.pairs:
        domains = [domain for schema in schemas.values() if (domain := schema.find(attribute)) is not None]
        if not domains:
            raise LocalError(_undeclared_text(attribute, schemas))
        for domain in domains:
            pair_elements(domain, value)


def check_complete(publication: Publication, schemas: Mapping[str, Schema]) -> None:
    """Raise `LocalError` if the publication lacks an attribute that one of its topics declares."""
    present = {attribute for attribute, _ in publication.pairs}
    lacking = [name for name in _declared_names(schemas) if name not in present]
    if lacking:
        raise LocalError(
            f"the publication lacks {_join_names(lacking)}, and the broker would see that; give every declared"
            " attribute a value"
        )


def check_interest(interest: Conjunction, topic: str, schema: Schema) -> None:
    """Raise `LocalError` for attributes that the topic does not declare, and for ranges outside their domains."""
    for constraint in interest.constraints:
        if schema.find(constraint.attribute) is None:
            raise LocalError(_undeclared_text(constraint.attribute, {topic: schema}))
    covers(interest, schema)


def _undeclared_text(attribute: str, schemas: Mapping[str, Schema]) -> str:
    one, declared = len(schemas) == 1, _declared_names(schemas)
    topics = (
        f"the topic {_join_names(list(schemas))} declares"
        if one
        else f"the topics {_join_names(list(schemas))} declare"
    )
    if not declared:
        return f"{topics} no attribute {attribute!r}, nor any other; put it in the body"
    question, names = did_you_mean(attribute, declared), ", ".join(declared)
    subject = "it declares" if one else "they declare"
    rest = f"{question} {subject.capitalize()}" if question else f"; {subject}"
    return f"{topics} no attribute {attribute!r}{rest} {names}"


def _declared_names(schemas: Mapping[str, Schema]) -> list[str]:
    names = [domain.attribute for schema in schemas.values() for domain in schema.domains]
    return [name for name in dict.fromkeys(names) if name != TOPIC]


def _join_names(names: list[str]) -> str:
    *others, last = (repr(name) for name in names)
    return f"{', '.join(others)} and {last}" if others else last
