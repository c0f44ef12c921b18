"""Report on a reading: what was left out and why, what was corrected, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from veilcast.wire.geometry import CELL


class FileReport(msgspec.Struct, frozen=True):
    path: str
    format: str
    rows: int
    """Number of packets, or of table rows, that were read."""
    cells: int
    """Number of those that are cells, before duplicates are removed."""
    left_out: dict[str, int] = {}
    """Number of packets left out, by reason."""
    remarks: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"{self.path} ({self.format}): {self.cells:,} cells of {self.rows:,}"
        for reason, count in self.left_out.items():
            yield f"  left out {count:,} {reason}"
        for remark in self.remarks:
            yield f"  {remark}"


class ClockCorrection(msgspec.Struct, frozen=True):
    """A file's clock compared with another's, by packets that both hold."""

    path: str
    against: str | None
    """File it was compared with; None if there was none to compare with."""
    ahead_us: int = 0
    """How far this file is ahead of that one, in microseconds."""
    packets: int = 0
    """Number of compared packets."""
    spread_us: int = 0
    """Nine tenths of the differences lie within this of the estimate, travel time included."""
    both_ways: bool = True
    """Whether packets went both ways, so that the travel time cancels out."""

    def line(self) -> str:
        if self.against is None:
            return f"{self.path}: shares no packets with a file that it could be set by; its clock stays as it is"
        way = "" if self.both_ways else ", and the time on the way with it, for all went one way"
        return (
            f"{self.path}: clock {abs(self.ahead_us) / 1e6:.6f} s {'ahead of' if self.ahead_us >= 0 else 'behind'} "
            f"{self.against}, by {self.packets:,} packets within {self.spread_us / 1e6:.6f} s; corrected{way}"
        )


class ReadingReport(msgspec.Struct, frozen=True):
    files: tuple[FileReport, ...]
    clocks: tuple[ClockCorrection, ...] = ()
    """Corrections of all files except the first, by which the others are set."""
    remarks: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as text."""
        found = [line for file in self.files for line in file.lines()]
        return [*found, *(clock.line() for clock in self.clocks), *self.remarks]

    def summary(self) -> list[str]:
        """The same, with one line for all files without remarks and one for all clocks that were set."""
        plain = [file for file in self.files if not file.left_out and not file.remarks]
        if len(plain) < 2:
            plain = []
        lines = []
        if plain:
            kinds = sorted({file.format.split()[0] for file in plain})
            cells = sum(file.cells for file in plain)
            lines.append(f"{len(plain):,} files ({', '.join(kinds)}): {cells:,} cells")
        lines += [line for file in self.files if file not in plain for line in file.lines()]
        return [*lines, *self._clock_lines(), *self.remarks]

    def _clock_lines(self) -> Iterator[str]:
        corrected = [clock for clock in self.clocks if clock.against is not None]
        if len(corrected) > 1:
            most = max(abs(clock.ahead_us) for clock in corrected)
            spread = max(clock.spread_us for clock in corrected)
            one_way = sum(not clock.both_ways for clock in corrected)
            also = f"; of {one_way:,}, the time on the way is in it" if one_way else ""
            yield (
                f"{len(corrected):,} clocks corrected, by {most / 1e6:.6f} s at most, known within {spread / 1e6:.6f} s"
                f"{also}"
            )
        for clock in self.clocks:
            if clock.against is None or len(corrected) == 1:
                yield clock.line()


def remark_sizes(ours: int) -> tuple[str, ...]:
    if ours:
        return ()
    return (
        f"nothing has the {CELL:,} bytes of a Veilcast cell: this is no traffic of ours, or that of the "
        "paper profile, whose datagrams have the size of what they carry",
    )
