"""Which topic is meant by an interest that names none: the one of ours that declares what it asks for.

People say `sub --range temp 20..25`, and the mesh routes by topics. A guess among several would give a reader less than
it asked for, or join a mesh that it did not mean to be seen in, so there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from veilcast.authority.keyring import TopicKeys
from veilcast.errors import LocalError
from veilcast.nearest import did_you_mean
from veilcast.topics import TOPIC, All, Conjunction, Label


def complete_topic(interest: Conjunction, topics: Mapping[str, TopicKeys]) -> Conjunction:
    """The interest with its topic; `LocalError` if it names none, and none or several could be meant."""
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
