"""What claims mean to one another: as their words do, among readers of one topic, and for as long as they last.

Pure; the `Meaning` that tables of claims are built with. Which claim covers which depends on the two of them alone, and
not on who came first: so replicas of a node that know the same claims tell a neighbour the same ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import msgspec

from veilcast.brokers.language import Language


class Standing(msgspec.Struct, frozen=True):
    """A claim, as tables have it: `reader` is the key that its topic's readers prove themselves with."""

    id: bytes
    until_us: int
    reader: bytes
    words: Any
    """In the language of the profile."""


class Said(NamedTuple):
    """A publication, as tables are asked for it."""

    advertisement: bytes
    reader: bytes
    words: Any


class Lasting:
    """Words of a language, said for a time."""

    def __init__(self, language: Language[Any, Any]) -> None:
        self._language = language

    def about(self, what: Standing | Said) -> Hashable:
        """What has other readers has nothing to do with it."""
        return what.reader

    def covers(self, s: Standing, t: Standing) -> bool:
        """Of two that want the same the longer one does, or that with the larger id."""
        if s.reader != t.reader or s.until_us < t.until_us or not self._language.covers(s.words, t.words):
            return False
        return (s.until_us, s.id) > (t.until_us, t.id) or not self._language.covers(t.words, s.words)

    def covers_advertisement(self, a: Standing, b: Standing) -> bool:
        """Never: each is a publisher's, whose key its readers need."""
        return False

    def overlaps(self, advertisement: Standing, subscription: Standing) -> bool:
        return advertisement.reader == subscription.reader and self._language.overlaps(
            advertisement.words, subscription.words
        )

    def conforms(self, publication: Said, advertisement: Standing) -> bool:
        return publication.advertisement == advertisement.id and self._language.conforms(
            publication.words, advertisement.words
        )

    def matches(self, publication: Said, subscription: Standing) -> bool:
        return publication.reader == subscription.reader and self._language.matches(
            publication.words, subscription.words
        )
