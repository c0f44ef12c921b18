"""Departures: the few moments at which what a publisher has to say leaves it.

A note leaves only while its publisher and the first relay are there, and every insider on its way sees when it does. So
each epoch in which something leaves is a sample of who is there, and some tens of them are enough to name the pair. If
notes leave once in several epochs, all that wait together, there are fewer samples of the same. The moment is drawn for
each stretch of epochs, by a function of the publisher's own secret: nobody knows when one was due, so who sees none
does not know for whom it waited. Whatever leaves because of a topic keeps to its departures, notes and calls for roots
alike.

What was lost may be sent again at once within the same epoch, which shows nothing new; later it waits for the next.
"""

from __future__ import annotations

from veilcast.mesh.sticky_choices import StickyChoices


class SendSlots:
    """One in each stretch of so many epochs; with none, whatever there is may leave at any time."""

    def __init__(self, habits: StickyChoices, epochs: int, *, epoch_us: int) -> None:
        self._habits, self._epoch_us, self._stretch_us = habits, epoch_us, epochs * epoch_us
        self.epochs_ahead = max(1, 2 * epochs)
        """How many epochs a call may be ahead of its time: there is a departure in every stretch."""

    @property
    def is_unrestricted(self) -> bool:
        return self._stretch_us == 0

    def next_us(self, lineage: bytes, now: int) -> int:
        """The first departure that is not over."""
        if self.is_unrestricted:
            return now
        stretch = now // self._stretch_us
        departure_us = self._at(lineage, stretch)
        return departure_us if departure_us >= now else self._at(lineage, stretch + 1)

    def last_before_us(self, lineage: bytes, until_us: int) -> int:
        """The last departure up to then."""
        stretch = until_us // self._stretch_us
        departure_us = self._at(lineage, stretch)
        return departure_us if departure_us <= until_us else self._at(lineage, stretch - 1)

    def retry_us(self, lineage: bytes, wanted_us: int, now: int) -> int:
        """When to send again what left now, and is to be sent again at that time."""
        if wanted_us // self._epoch_us == now // self._epoch_us:
            return wanted_us
        return self.next_us(lineage, wanted_us)

    def _at(self, lineage: bytes, stretch: int) -> int:
        return stretch * self._stretch_us + self._habits.send_offset_us(lineage, stretch, self._stretch_us)
