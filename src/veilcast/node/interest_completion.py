"""Completes an interest that names no topic with the one topic of the keyring that declares its attributes.

People type `sub --range temp 20..25`, and the mesh routes by topics. If several topics fit, the node does not guess: a
guess could give the subscriber less than it asked for, or join a mesh in which it did not mean to be seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from veilcast.authority.keyring import TopicKeys
from veilcast.errors import LocalError
from veilcast.nearest import did_you_mean
from veilcast.topics import TOPIC, All, Conjunction, Label


def complete_topic(interest: Conjunction, topics: Mapping[str, TopicKeys]) -> Conjunction:
    """Return the interest with its topic. Raises `LocalError` if the interest names no topic and not exactly one topic
    fits."""
    asked = {constraint.attribute for constraint in interest.constraints}
    if TOPIC in asked:
        return interest
    names = sorted(
        name for name, keys in topics.items() if asked <= {domain.attribute for domain in keys.record.schema.domains}
    )
    if len(names) == 1:
        return All(Label(names[0]), interest)
    what = " and ".join(sorted(asked))
    if names:
        raise LocalError(f"{what} may be of {', '.join(names)}; name the topic, too")
    declared = {domain.attribute for keys in topics.values() for domain in keys.record.schema.domains}
    questions = [question for name in sorted(asked - declared) if (question := did_you_mean(name, declared))]
    raise LocalError(f"no topic of this keyring declares {what}{[*questions, '; name the topic, too'][0]}")
