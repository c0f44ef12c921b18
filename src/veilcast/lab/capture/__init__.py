"""Captures, taps and traces of simulations, read as observation tables."""

from veilcast.lab.capture.notes import Clock, FileNotes, Notes
from veilcast.lab.capture.reading import read
from veilcast.lab.capture.taps import table

__all__ = ["Clock", "FileNotes", "Notes", "read", "table"]
