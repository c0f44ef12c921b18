"""`veilcast lab data`: the published data sets that experiments can read, and where each of them is."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from veilcast.cli.context import Context, Report
from veilcast.cli.lab import lab_extra
from veilcast.errors import ConfigError


def data(arguments: argparse.Namespace, _: Context) -> Report:
    folder = arguments.data or (Path(os.environ["VEILCAST_DATA"]) if os.environ.get("VEILCAST_DATA") else None)
    if arguments.action == "import":
        return _import(arguments.files, folder)
    if arguments.files:
        raise ConfigError("name files after `lab data import`; `lab data` alone lists the published sets")
    return _list(folder)


def _list(folder: Path | None) -> Report:
    with lab_extra():
        from veilcast.lab.published_data import check_file, list_published
    rows, lines = list[dict[str, Any]](), list[str]()
    for each in list_published():
        state = check_file(each, folder)
        rows.append(each._asdict() | {"state": state, "path": str(folder / each.file) if folder is not None else None})
        lines += [
            f"{each.source}: {each.file}: {state}",
            f"  what      {each.content}",
            f"  from      {each.origin}",
            f"  licence   {each.licence}",
            f"  cite      {each.citation}",
            f"  sha256    {each.sha256} ({each.size:,} bytes, unpacked)",
            "",
        ]
    place = f"looked for in {folder}" if folder is not None else "no data folder is named: --data DIR, or VEILCAST_DATA"
    missing = sum(row["state"] != "there" for row in rows)
    lines.append(f"{place}; {len(rows) - missing} of {len(rows)} files are there")
    if missing:
        lines.append("`veilcast lab data import FILE` checks a file that you have downloaded, and puts it in its place")
    return Report({"folder": str(folder) if folder is not None else None, "files": rows}, lines)


def _import(files: list[Path], folder: Path | None) -> Report:
    if folder is None:
        raise ConfigError("name the data folder: --data DIR, or VEILCAST_DATA")
    if not files:
        raise ConfigError("name the files that you have downloaded: veilcast lab data import FILE")
    with lab_extra():
        from veilcast.lab.published_data import import_file
    found = [(path, import_file(path, folder)) for path in files]
    lines = [f"{path} is {each.file}; it is in {folder / each.file}" for path, each in found]
    rows = [{"from": str(path), "source": each.source, "path": str(folder / each.file)} for path, each in found]
    return Report({"imported": rows}, lines)
