"""Our own code, packed for executors that do not have it.

The archive holds only the package: the executors' interpreter must have the libraries (PYSPARK_PYTHON names it). The
archive comes first on their path, so that they run this version whatever else is installed there. Its name contains a
hash of its content. By that name numba, which keeps machine code beside it, notices another version.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import veilcast


def package_root() -> Path:
    return Path(veilcast.__file__).parent


def package_sources() -> Iterator[tuple[str, Path]]:
    """Every file of the package that determines its behaviour, by its name in the archive, in a fixed order."""
    root = package_root()
    for path in sorted(root.rglob("*")):
        if path.suffix in _SHIPPED:
            yield path.relative_to(root.parent).as_posix(), path


def code_fingerprint() -> str:
    """A hash of our code: equal for equal sources, wherever they are installed."""
    digest = hashlib.sha256()
    for name, path in package_sources():
        if path.suffix == ".py":
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:_DIGITS]


def pack_archive(directory: Path) -> Path:
    archive = directory / f"veilcast-{code_fingerprint()}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, path in package_sources():
            # A fixed time, so that the same sources give the same bytes.
            file.writestr(zipfile.ZipInfo(name, _TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive


_SHIPPED: Final = (".py", ".toml", ".typed")
_DIGITS: Final = 16
_TIME: Final = (2026, 1, 1, 0, 0, 0)
