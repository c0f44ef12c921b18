from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import StorageError, TamperedError
from veilcast.observe import (
    TABLE_OF,
    TABLES,
    CellRow,
    InsiderRow,
    ObservationRow,
    ServerRow,
    TableWriter,
    TopologyRow,
    TruthRow,
    read_table,
)

CELL = CellRow("r", 1, 2, "a", "b", 1200)


def test_every_table_has_the_columns_the_lab_expects() -> None:
    columns = {name: row.__struct_fields__ for name, row in TABLES.items()}
    assert columns == {
        "cells": ("run", "epoch", "t_us", "src", "dst", "size"),
        "topology": ("run", "epoch", "u", "v"),
        "presence": ("run", "epoch", "node"),
        "insiders": ("run", "epoch", "t_us", "observer", "peer", "kind", "message", "token", "chain", "about"),
        "server": ("run", "epoch", "t_us", "role", "pseudonym", "tag", "size"),
        "received": ("run", "t_us", "round_us", "node", "size"),
        "formation": ("run", "epoch", "stage", "node"),
        "facts": ("run", "name", "value"),
        "popularity": ("run", "topic", "share"),
        "pairs": ("run", "topic", "other", "share"),
        "published": ("run", "topic", "t_us"),
        "tokens": ("run", "epoch", "token", "topic"),
        "lasting_tokens": ("run", "epoch", "token", "lasting"),
        "words": ("run", "topic", "tag"),
        "roots": ("run", "topic", "epoch", "node"),
        "truth": ("run", "topic", "node", "role", "since_us", "until_us"),
    }
    assert {TABLE_OF[row] for row in TABLES.values()} == set(TABLES)


@pytest.mark.parametrize(
    "row",
    [
        CELL,
        TopologyRow("r", 0, "a", "b"),
        TruthRow("r", "t", "a", "subscriber", 0, 9),
        InsiderRow("r", 0, 1, "a", "b", "Advert", b"\0\xff", b"t", b"c", ""),
        ServerRow("r", 0, 1, "proxy", "p", b"\x80", 7),
    ],
    ids=lambda row: type(row).__name__,
)
def test_rows_come_back_equal(row: ObservationRow, tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.extend([row, row])
    assert list(read_table(tmp_path, type(row))) == [row, row]


@given(text=st.text(max_size=20), number=st.integers(-(2**63), 2**63 - 1))
def test_any_text_and_any_64_bit_number_survive(text: str, number: int) -> None:
    row = CellRow(text, number, number, text, text, number)
    with tempfile.TemporaryDirectory() as directory:
        with TableWriter(Path(directory)) as tables:
            tables.append(row)
        assert list(read_table(Path(directory), CellRow)) == [row]


def test_a_second_writer_adds_to_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        with TableWriter(tmp_path) as tables:
            tables.append(CELL)
    assert len(list(read_table(tmp_path, CellRow))) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('["r",1,2,"a","b"]', "length 6"),
        ('["r",1,2,"a","b","large"]', "not a row"),
        ('["r",1,2,"a","b",1200', "not a row"),
        ("{}", "not a row"),
    ],
)
def test_a_damaged_line_is_named(line: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text('["r",1,2,"a","b",1200]\n' + line + "\n")
    with pytest.raises(TamperedError, match=f"cells.jsonl:2.*{reason}"):
        list(read_table(tmp_path, CellRow))


def test_a_directory_that_cannot_be_written_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        TableWriter(tmp_path / "file" / "tables")
