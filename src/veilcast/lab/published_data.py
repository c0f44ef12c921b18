"""The published data sets that experiments can read: source, licence, citation, checksum, and place in the data folder.

None of them comes with the package, and nothing is downloaded. `import_file` takes a file that the user has downloaded,
recognises it by the digest of its content, unpacked, and puts a packed copy in its place. A file of other content is
refused. Two of the sets are tables that were put together from several sources: they are listed, and recognised if
somebody hands them on.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from veilcast.errors import ConfigError, StorageError
from veilcast.lab.data import files_of


class PublishedFile(NamedTuple):
    source: str
    """The name that experiments read it by."""
    file: str
    """Path below the data folder."""
    content: str
    licence: str
    citation: str
    origin: str
    sha256: str
    """Of the content, unpacked."""
    size: int
    """Bytes of the content, unpacked."""


def list_published() -> list[PublishedFile]:
    """All published files, sorted by their path."""
    found = {}
    for source in SOURCES:
        for file in files_of([source]):
            content, licence, citation, sha256, size = _FACTS[file.name]
            found[file.name] = PublishedFile(source, file.name, content, licence, citation, file.origin, sha256, size)
    return [found[name] for name in sorted(found)]


def check_file(published: PublishedFile, folder: Path | None) -> str:
    """ "there", "missing", or "another content"."""
    path = folder / published.file if folder is not None else None
    if path is None or not path.exists():
        return "missing"
    digest, _ = _digest(path)
    return "there" if digest == published.sha256 else "another content"


def import_file(path: Path, folder: Path) -> PublishedFile:
    """Put a downloaded file in its place below the folder, packed. A file that is there already stays.

    Raises `ConfigError` if its content is no published one, and `StorageError` if it cannot be read or written.
    """
    digest, size = _digest(path)
    found = next((each for each in list_published() if each.sha256 == digest), None)
    if found is None:
        near = next((each for each in list_published() if Path(each.file).stem.split(".")[0] in path.name), None)
        hint = f"; {near.file} has sha256 {near.sha256[:12]}... of {near.size:,} bytes, unpacked" if near else ""
        raise ConfigError(
            f"{path} is none of the published files: its content has sha256 {digest[:12]}... and {size:,} bytes{hint}; "
            "`veilcast lab data` lists them"
        )
    target = folder / found.file
    if target.exists() and _digest(target)[0] == digest:
        return found
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            for part in _parts(path):
                packed.write(part)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
    return found


def _digest(path: Path) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    for part in _parts(path):
        found.update(part)
        size += len(part)
    return found.hexdigest(), size


def _parts(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked, in parts. A file that is larger than any published one is refused."""
    size = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as opened:
            while part := opened.read(_PART):
                size += len(part)
                if size > _SIZE_MAX:
                    raise ConfigError(f"{path} is none of the published files: it is larger than {_SIZE_MAX:,} bytes")
                yield part
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StorageError(f"{path} is packed, and damaged; fetch it again") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


SOURCES: Final = ("college", "daily", "deezer", "facebook", "gnutella", "minutes", "planetlab")
_FACTS: Final[dict[str, tuple[str, str, str, str, int]]] = {
    "pubsub/deezer_ro_edges.csv.gz": (
        "friendships of 41,773 users of a music service",
        "MIT",
        "Rozemberczki, Davies, Sarkar, Sutton: GEMSEC: graph embedding with self clustering. ASONAM 2019",
        "90cf9ade81aaac852f4aca3a5b2d023f0eff8f97089be28e4eaa0cd7518a81a1",
        1_443_116,
    ),
    "pubsub/deezer_ro_genres.json.gz": (
        "252,132 subscriptions of these users to 84 genres",
        "MIT",
        "Rozemberczki, Davies, Sarkar, Sutton: GEMSEC: graph embedding with self clustering. ASONAM 2019",
        "97ec1f3e4ded9fbbbfdbf5d4bf21c0c592d8d52f3797b1d95dd25d8e05c00bf9",
        3_615_864,
    ),
    "social/collegemsg.csv.gz": (
        "messages of students in 2004: 59,835 interactions of 1,899 users",
        "BSD-3-Clause (wheel)",
        "Panzarasa, Opsahl, Carley: Patterns and dynamics of users' behavior and interaction. JASIST 60(5), 2009",
        "bcdc27af29e84c0b4ff988a1f8efda3d97a8ad0550ebd578714fb69b6974bbd2",
        1_503_737,
    ),
    "social/fb_wall_2007.csv.gz": (
        "wall posts of New Orleans in 2007: 137,170 interactions of 3,582 users",
        "BSD-3-Clause (repository)",
        "Viswanath, Mislove, Cha, Gummadi: On the evolution of user interaction in Facebook. WOSN 2009",
        "ec2d524d4fc547898977ee729a836a5d6a1c77f1ea1699e0d4140ddc07e9c452",
        2_216_573,
    ),
    "stocks/daily_stocks.csv.gz": (
        "daily bars of AAPL, FB, GOOG, IBM and MSFT up to 2013",
        "public domain",
        "bokeh_sampledata",
        "e73fe05d106b7da1abe8f947264c514afd02cef5c9db4864b9437c84d6bd6069",
        797_881,
    ),
    "stocks/minute_bars.csv.gz": (
        "one-minute bars of GOOG (three days of 2015) and MSFT (21 days of 2016)",
        "Apache-2.0 and MIT",
        "QuantConnect Lean; react-stockcharts",
        "b938edf6b77c53a5924e233615e2dc4050a4ce97dd52c7bd8d04348c93b2e68d",
        659_903,
    ),
    "topology/PlanetLabData_1.txt.gz": (
        "round-trip times between 490 machines, in milliseconds",
        "MIT",
        "Zhu, Liu, Niu, Li, Wu: Network latency estimation for personal devices. TNSM 14(3), 2017",
        "dd7fd6bb6917c55590e547d7c00a41f93175d4bda68ef0c81c8f372086165afc",
        1_645_854,
    ),
    "topology/p2p-Gnutella08.txt.gz": (
        "an overlay of Gnutella: 6,301 nodes, 20,777 edges",
        "none stated (SNAP: cite the source)",
        "Ripeanu, Foster, Iamnitchi: Mapping the Gnutella network. IEEE Internet Computing 6(1), 2002",
        "fecc14ef3c36ac13210bf9618cec773d7354ec9b033fe716a3af3fb815049499",
        215_359,
    ),
}
"""Content, licence, citation, digest and size of each file, by its path."""
_GZIP: Final = b"\x1f\x8b"
_PART: Final = 1 << 20
_SIZE_MAX: Final = 1 << 28
