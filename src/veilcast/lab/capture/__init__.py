"""Captures, taps and traces of simulations, read as observation tables."""

from veilcast.lab.capture.reader import read
from veilcast.lab.capture.reading_report import ClockCorrection, FileReport, ReadingReport
from veilcast.lab.capture.taps import read_table

__all__ = ["ClockCorrection", "FileReport", "ReadingReport", "read", "read_table"]
