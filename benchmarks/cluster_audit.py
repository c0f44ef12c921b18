"""What does an audit of ten million cells take on a cluster, how often are cells read, and is the work even?

    python benchmarks/cluster_audit.py [--cells N] [--workers N] [--skew SHARE] [--try SETTINGS ...]
                                       [--defaults SETTINGS] [--no-local] [--json]

A capture of P0's mesh of 60 real machines, tiled over time, is audited by `veilcast audit` on a standalone cluster of
this machine, whose workers have one core each, and on `local[2]`. Both reports must be equal, or there is no result.
`--skew .5` puts so large a share of all cells on one link. Each `--try A=1,B=2` audits the same capture on the cluster
once more, with these settings of Spark; `--defaults` are settings in a `spark-defaults.conf`. Spark's event log must
show every setting that was given, and those of `--try` before those of the file.

`decoded` is how often each packet was decoded, and `read` how often each cell was read for the attackers, by the rows
that the nodes of Spark's plans count. `partitions` are those of shuffles before Spark joins small ones. Seconds of the
processor are those of all processes. A cluster of this machine is no test of speed: its workers share the cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from engines.tiled_tables import EPOCH_US, simulate_cells
from measurement.command_cost import CommandCost, describe_cost, run_command
from measurement.event_log import SparkHistory, read_history
from measurement.standalone_cluster import StandaloneCluster, start_cluster
from veilcast.errors import LocalError


class ClusterAudit(msgspec.Struct):
    where: str
    cells: int
    cost: CommandCost
    tasks: int
    stages: int
    skew: str
    """The stage with the longest task."""
    decoded: float
    read: float
    partitions: list[int]
    executor_mb: int
    """Memory that Spark asked for each executor."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000_000, metavar="N", help="cells (%(default)d)")
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="workers of the cluster (%(default)d)")
    parser.add_argument("--skew", type=float, default=0.0, metavar="SHARE", help="share of cells on one link (none)")
    parser.add_argument("--try", dest="tried", action="append", default=[], metavar="A=1,B=2", help="settings of Spark")
    parser.add_argument("--defaults", default="", metavar="A=1,B=2", help="settings in a spark-defaults.conf (none)")
    parser.add_argument("--no-local", action="store_true", help="on the cluster alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    say: Callable[[str], object] = (lambda _: None) if arguments.json else print
    say(
        f"{'':>22}{'wall s':>8}{'cpu s':>8}{'driver':>8}{'exec.':>8}{'tasks':>7}{'stages':>7}{'decoded':>8}{'read':>6}"
        "  partitions, and the stage with the longest task"
    )
    found = []
    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder:
        base = Path(folder)
        for name in ("cluster", "conf"):
            (base / name).mkdir()
        capture = base / "wire.pcap"
        write_capture(capture, arguments.cells, arguments.skew)
        defaults = parse_settings(arguments.defaults)
        (base / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {defaults[name]}\n" for name in defaults))
        reports = []
        with start_cluster(base / "cluster", arguments.workers) as cluster:
            for text in ["", *arguments.tried]:
                report, result = measure_audit(base, capture, arguments.cells, cluster, parse_settings(text), defaults)
                reports.append(report)
                found.append(result)
                say(_line(result))
        if not arguments.no_local:
            report, result = measure_audit(base, capture, arguments.cells, None, {}, {})
            reports.append(report)
            found.append(result)
            say(_line(result))
        if any(report != reports[0] for report in reports):
            raise LocalError("the audits have found different things")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found)))


def measure_audit(
    base: Path,
    capture: Path,
    cells: int,
    cluster: StandaloneCluster | None,
    settings: Mapping[str, str],
    defaults: Mapping[str, str],
) -> tuple[dict[str, Any], ClusterAudit]:
    """The report, and what it took. Raises `LocalError` if Spark did not have a setting."""
    with tempfile.TemporaryDirectory(prefix="events-", dir=base) as logs:
        master = cluster.master if cluster is not None else "local[2]"
        conf = [f"--conf={name}={value}" for name, value in {**_LOG, **settings}.items()]
        command = ["audit", f"{capture}", "--master", master, "--event-log", logs, *conf]
        environment = {"SPARK_CONF_DIR": f"{base / 'conf'}"} if defaults else {}
        report, cost = run_command(command, cluster, environment=environment)
        history = read_history(Path(logs))
    check_settings(history, {**defaults, **settings})
    del report["skew"]
    where = ("cluster" if cluster is not None else "local[2]") + (" with settings" if settings else "")
    return report, ClusterAudit(
        where=where,
        cells=cells,
        cost=cost,
        tasks=history.tasks,
        stages=len(history.stages),
        skew=history.describe_skew(),
        decoded=round(history.rows.get(_DECODES, 0) / cells, 2),
        read=round(history.rows.get(_READS, 0) / cells, 2),
        partitions=sorted(set(history.shuffles)),
        executor_mb=history.executor_mb,
    )


def check_settings(history: SparkHistory, wanted: Mapping[str, str]) -> None:
    for name, value in wanted.items():
        if history.settings.get(name) != value:
            raise LocalError(f"{name} was {history.settings.get(name)}, not {value}")


def parse_settings(text: str) -> dict[str, str]:
    """From `A=1,B=2`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}


def write_capture(place: Path, cells: int, skew: float) -> None:
    """Packets of which the headers are kept, epoch after epoch; `skew` is the share of one link."""
    tile, t_us = _packets()
    if skew:
        tile, t_us = _crowd(tile, t_us, skew)
    order = np.argsort(t_us, kind="stable")
    tile, t_us = tile[order], t_us[order]
    with place.open("wb") as file:
        file.write(np.array([0xA1B2C3D4], "<u4").tobytes() + np.array([2, 4], "<u2").tobytes())
        file.write(np.array([0, 0, 65_535, 1], "<u4").tobytes())
        for number in range(-(-cells // len(tile))):
            tile["s"], tile["us"] = np.divmod(_START_US + number * EPOCH_US + t_us, 1_000_000)
            # The identity of a packet of IPv4: the same bytes an epoch later are another packet.
            tile["packet"][:, 18], tile["packet"][:, 19] = number >> 8 & 255, number & 255
            file.write(tile[: cells - number * len(tile)].tobytes())


def _packets() -> tuple[Any, Any]:
    """A record of a pcap file for each cell of an epoch, and the times of the cells."""
    cells = simulate_cells()
    names = sorted({*cells["src"].to_pylist(), *cells["dst"].to_pylist()})
    place = {name: number for number, name in enumerate(names)}
    tile = np.zeros(len(cells), _RECORD)
    packet, size = tile["packet"], cells["size"].to_numpy()
    packet[:, 12], packet[:, 14], packet[:, 22], packet[:, 23] = 8, 0x45, 64, 17
    for at, length in ((16, size + 28), (38, size + 8)):
        packet[:, at], packet[:, at + 1] = length >> 8, length & 255
    for at, end in ((26, "src"), (30, "dst")):
        number = np.array([place[name] for name in cells[end].to_pylist()])
        packet[:, at], packet[:, at + 2], packet[:, at + 3] = 10, number >> 8, number & 255
    packet[:, 34:38] = (0x0F, 0xA0, 0x0F, 0xA0)
    tile["kept"], tile["length"] = _KEPT, 42 + size
    return tile, cells["t_us"].to_numpy()


def _crowd(tile: Any, t_us: Any, share: float) -> tuple[Any, Any]:
    """More cells of the first link, until it has this share of all."""
    ends = tile["packet"][:, 26:34]
    own = np.flatnonzero((ends == ends[0]).all(axis=1))
    more = round((share * len(tile) - len(own)) / (1 - share))
    if more <= 0:
        return tile, t_us
    chosen = np.resize(own, more)
    when = np.random.default_rng(1).integers(0, EPOCH_US, more)
    return np.concatenate([tile, tile[chosen]]), np.concatenate([t_us, when])


def _line(found: ClusterAudit) -> str:
    return (
        f"{found.where:>22}{describe_cost(found.cost)}{found.tasks:>7,}{found.stages:>7,}{found.decoded:>8.2f}"
        f"{found.read:>6.2f}  {', '.join(map(str, found.partitions)) or 'none'}; {found.skew}"
    )


_KEPT: Final = 42
_RECORD: Final = np.dtype([("s", "<u4"), ("us", "<u4"), ("kept", "<u4"), ("length", "<u4"), ("packet", "u1", (_KEPT,))])
_START_US: Final = 1_790_000_000_000_000
_LOG: Final = {"spark.eventLog.compress": "false"}
_DECODES: Final = "MapInArrow"
_READS: Final = "InMemoryTableScan"

if __name__ == "__main__":
    main()
