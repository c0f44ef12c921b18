"""The files of a set: how they are written, their digests, and whether they are those of the repository.

    DIR/challenge.json                  version, size, and a commitment to the salt
    DIR/train/ROW/SETTING/TABLE.parquet what the adversary observed, and `labels` beside it
    DIR/test/ROW/SETTING/TABLE.parquet  the same of other runs, and `questions` in place of labels
    DIR/SHA256SUMS                      for `sha256sum -c`

A digest of contents covers rows and column types, not bytes of Parquet: a later version of Arrow may compress
otherwise. The package has the digests of every directory (`small.sha256`), and of the labels that a set does not have.
With the versions of the locks files are the same to the byte: rows are sorted, row groups have a fixed size, and no
file holds a time, a path or a commit. A directory is put in place whole, and an interrupted call continues.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab.challenge.observed_runs import QUESTION, ObservedRuns, make_runs
from veilcast.lab.challenge.plan import PARTS, Part, Setting, list_settings, read_packaged, version


class SetDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `challenge.json`."""

    version: int
    size: str
    salt_sha256: str
    """Digest of the salt; empty for the public set."""

    def check_salt(self, salt: bytes, directory: Path) -> None:
        """Raise `ConfigError` unless the set was made with this salt."""
        if self.salt_sha256 != digest_salt(salt):
            told = "without a salt" if not self.salt_sha256 else "with another salt" if salt else "with a salt"
            raise ConfigError(
                f"{directory} was made {told}; --salt-file names the file of the salt that it was made with"
            )


class MadeSet(msgspec.Struct, frozen=True):
    """The outcome of a call, and the size of the whole set."""

    directories: int
    """Directories made by this call."""
    found: int
    """Directories that were there."""
    rows: int
    cells: int
    size_bytes: int
    """Rows, cells and bytes are those of the whole set."""
    files: int


def make_set(
    directory: Path, size: str, settings: Sequence[Setting], salt: bytes, show: Callable[[int], object]
) -> MadeSet:
    """Make what is missing of these settings. `show` gets the number of finished settings."""
    _describe(directory, SetDescription(version(), size, digest_salt(salt)))
    made = found = 0
    for number, setting in enumerate(settings):
        for part in PARTS:
            place = directory / part / setting.name
            if place.is_dir():
                found += 1
                continue
            _write_directory(place, tables_of(make_runs(setting, part, salt), part))
            made += 1
        show(number + 1)
    files = sorted(path for part in PARTS for path in (directory / part).rglob("*.parquet"))
    sums = "".join(f"{_digest_file(path)}  {path.relative_to(directory).as_posix()}\n" for path in files)
    _write(directory / "SHA256SUMS", sums.encode())
    rows = {path: pq.read_metadata(path).num_rows for path in files if path.stem not in _ANSWERS}
    cells = sum(count for path, count in rows.items() if path.stem == "cells")
    return MadeSet(made, found, sum(rows.values()), cells, sum(path.stat().st_size for path in files), len(files))


def tables_of(runs: ObservedRuns, part: Part) -> dict[str, pa.Table]:
    """The tables of a directory: the labels of test runs are left out."""
    answers = {"labels": runs.labels} if part == "train" else {"questions": runs.labels.select(list(QUESTION))}
    return runs.observed | answers


def read_description(directory: Path) -> SetDescription:
    path = directory / "challenge.json"
    try:
        found = _DESCRIPTION.decode(path.read_bytes(), str(path))
    except OSError as error:
        raise StorageError(
            f"{directory} is no set: it has no challenge.json; `veilcast lab challenge make` makes one"
        ) from error
    if found.version != version():
        raise ConfigError(
            f"{directory} is of version {found.version} of the challenge, and this package has {version()}"
        )
    return found


def read_directory(directory: Path, part: Part, setting: Setting) -> dict[str, pa.Table]:
    """The tables of one part of a setting."""
    place = directory / part / setting.name
    names = (*setting.block.tables, "labels" if part == "train" else "questions")
    try:
        return {name: pq.read_table(place / f"{name}.parquet", partitioning=None) for name in names}
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"{place} is not whole; remove it, and `veilcast lab challenge make {directory}` makes it again"
        ) from error


def list_present(directory: Path, settings: Sequence[Setting]) -> list[Setting]:
    """The settings of which the set has both parts."""
    return [each for each in settings if all((directory / part / each.name).is_dir() for part in PARTS)]


def digest_setting(setting: Setting, salt: bytes = b"") -> Iterator[tuple[str, str]]:
    """Make a setting: the names and digests of its directories and of its hidden labels."""
    for part in PARTS:
        runs = make_runs(setting, part, salt)
        yield f"{part}/{setting.name}", digest_tables(tables_of(runs, part))
        if part == "test":
            yield f"{_HIDDEN}/{setting.name}", digest_labels(runs.labels)


def digest_labels(labels: pa.Table) -> str:
    return digest_tables({"labels": labels})


def known_digests(size: str) -> dict[str, str]:
    """The digests in this package, by directory."""
    lines = read_packaged(f"{size}.sha256").decode().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def check_set(directory: Path, show: Callable[[int], object]) -> tuple[int, list[str]]:
    """Compare a set with the digests of the package: number of compared directories, and what differs.

    The test part of a salted set has no digest in the package.
    """
    description = read_description(directory)
    known = known_digests(description.size)
    compared, different = 0, list[str]()
    settings = list_settings(description.size)
    for number, setting in enumerate(settings):
        for part in PARTS:
            name = f"{part}/{setting.name}"
            if not (directory / name).is_dir() or name not in known or (part == "test" and description.salt_sha256):
                continue
            compared += 1
            if digest_tables(read_directory(directory, part, setting)) != known[name]:
                different.append(name)
        show(number + 1)
    return compared, different


def digest_tables(tables: Mapping[str, pa.Table]) -> str:
    """A digest of the contents of tables, whatever writes them."""
    digest = hashlib.sha256()
    for name in sorted(tables):
        table = tables[name].combine_chunks()
        digest.update(f"{name} {len(table)}\n".encode())
        for field in table.schema:
            digest.update(f"{field.name} {field.type}\n".encode())
            for chunk in table[field.name].chunks:
                _add_column(digest.update, chunk)
    return digest.hexdigest()


def digest_salt(salt: bytes) -> str:
    return hashlib.sha256(b"veilcast challenge salt " + salt).hexdigest() if salt else ""


def _add_column(update: Callable[[bytes], object], column: pa.Array) -> None:
    if column.null_count:
        update(np.packbits(column.is_null().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, "<i4")[column.offset : column.offset + len(column) + 1].astype("<i8")
        update(np.diff(bounds).astype("<i8").tobytes())
        update(memoryview(data)[bounds[0] : bounds[-1]].tobytes() if len(column) and data is not None else b"")
        return
    kind = "u1" if pa.types.is_boolean(column.type) else "<f8" if pa.types.is_floating(column.type) else "<i8"
    plain = column.fill_null(False) if pa.types.is_boolean(column.type) else column
    update(np.ascontiguousarray(plain.to_numpy(zero_copy_only=False), kind).tobytes())


def _describe(directory: Path, description: SetDescription) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {directory}: {error.strerror}") from error
    if (directory / "challenge.json").exists():
        known = read_description(directory)
        if known != description:
            raise ConfigError(f"{directory} holds a set of another size or salt; choose another directory")
        return
    if any(directory.iterdir()):
        raise ConfigError(f"{directory} holds other files; choose another directory")
    _write(directory / "challenge.json", msgspec.json.format(msgspec.json.encode(description), indent=1) + b"\n")


def _write_directory(place: Path, tables: Mapping[str, pa.Table]) -> None:
    partial = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, table in tables.items():
            # The metadata of Arrow is left out: it repeats the schema.
            pq.write_table(
                table, partial / f"{name}.parquet", compression="zstd", row_group_size=_ROWS, store_schema=False
            )
        partial.rename(place)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StorageError(f"cannot write {place}: {error.strerror}; the same command goes on") from error


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


_HIDDEN: Final = "hidden"
_ANSWERS: Final = ("labels", "questions")
_ROWS: Final = 1 << 20
"""Rows of a row group."""
_DESCRIPTION: Final = JsonDecoder(SetDescription, TamperedError, "is no description of a set")
