"""Send slots: the few moments at which a publisher's messages leave it.

A notification leaves only while its publisher and the first relay are present, and every insider on its way sees when.
So each epoch in which a message leaves is a sample of the present members, and some tens of samples identify the pair.
If all waiting messages leave together, once in several epochs, there are fewer samples. The moment is drawn for each
stretch of epochs, by a function of the publisher's own secret. No observer knows when a slot was due, so an observer
that sees no message does not know which absence caused it. All messages of a topic use its slots, notifications and
calls for roots alike.

A lost message may be repeated at once within the same epoch, which reveals nothing new; later it waits for the next
slot.
"""

from __future__ import annotations

from veilcast.mesh.sticky_choices import StickyChoices


class SendSlots:
    """One slot in each stretch of `epochs` epochs. Messages leave at any time if `epochs` is 0."""

    def __init__(self, choices: StickyChoices, epochs: int, *, epoch_us: int) -> None:
        self._choices, self._epoch_us, self._stretch_us = choices, epoch_us, epochs * epoch_us
        self.epochs_ahead = max(1, 2 * epochs)
        """Epochs that a call may be ahead of its time: there is a slot in every stretch."""

    @property
    def is_unrestricted(self) -> bool:
        return self._stretch_us == 0

    def next_us(self, lineage: bytes, now: int) -> int:
        """The first slot that is not over."""
        if self.is_unrestricted:
            return now
        stretch = now // self._stretch_us
        departure_us = self._at(lineage, stretch)
        return departure_us if departure_us >= now else self._at(lineage, stretch + 1)

    def last_before_us(self, lineage: bytes, until_us: int) -> int:
        """The last slot up to `until_us`."""
        stretch = until_us // self._stretch_us
        departure_us = self._at(lineage, stretch)
        return departure_us if departure_us <= until_us else self._at(lineage, stretch - 1)

    def retry_us(self, lineage: bytes, wanted_us: int, now: int) -> int:
        """Time at which to repeat a message that leaves now, no earlier than `wanted_us`."""
        if wanted_us // self._epoch_us == now // self._epoch_us:
            return wanted_us
        return self.next_us(lineage, wanted_us)

    def _at(self, lineage: bytes, stretch: int) -> int:
        return stretch * self._stretch_us + self._choices.send_offset_us(lineage, stretch, self._stretch_us)
