"""Spark's settings and who may change them: our defaults, the user's own, and the safety of this machine.

The order, from weakest to strongest: our defaults; `spark-defaults.conf` in SPARK_CONF_DIR; `--conf`; and on a local
master what keeps other users and other machines out. A safety setting that the user contradicts is told in one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from veilcast.errors import ConfigError, StorageError
from veilcast.lab.spark.code_archive import package_root
from veilcast.lab.spark.master import Master
from veilcast.lab.spark.resources import Resources


class SparkOptions(msgspec.Struct, frozen=True):
    """What a command's options say of Spark, beside the master."""

    conf: tuple[tuple[str, str], ...] = ()
    ui: bool = False
    """Whether Spark serves its web page."""
    event_log: str = ""
    """The directory or location for Spark's event log; empty: none is written."""
    record_classes: str = ""
    """The file to which the Java machine writes its classes at its end; empty: none is written."""

    @classmethod
    def parse(cls, conf: Iterable[str], *, ui: bool = False, event_log: str = "") -> Self:
        """From the texts of `--conf K=V`, `--ui` and `--event-log`."""
        pairs = []
        for text in conf:
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise ConfigError(f"--conf {text}: must be NAME=VALUE, as in spark.executor.memory=4g")
            if name in _OPTIONS:
                raise ConfigError(f"--conf {text}: {_OPTIONS[name]} says that")
            if is_secret(name):
                raise ConfigError(
                    f"--conf {name}: a secret must not stand in a command, where other users of this machine read it; "
                    "put it into spark-defaults.conf in SPARK_CONF_DIR"
                )
            pairs.append((name, value))
        return cls(tuple(pairs), ui, event_log)


class SparkSettings(msgspec.Struct, frozen=True):
    given: dict[str, str]
    """All settings that Spark is started with."""
    users: frozenset[str]
    """Names of those that the user chose."""
    overruled: tuple[str, ...]
    """A line for each of the user's settings that safety overrules."""


def is_secret(name: str) -> bool:
    """Whether the value of a setting of Spark or Hadoop must not be shown."""
    return _SECRET.search(name) is not None


def choose_settings(
    master: Master, address: str | None, resources: Resources, scratch: str, options: SparkOptions
) -> SparkSettings:
    users = read_defaults_file() | dict(options.conf)
    users = {name: value for name, value in users.items() if name not in _OPTIONS}
    if options.ui:
        users["spark.ui.enabled"] = "true"
    if options.event_log:
        users |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": _make_location(options.event_log)}
    safety = {"spark.master": master.url}
    if master.is_local and address is not None:
        safety |= {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            # Every user of this machine reaches loopback; a fresh secret keeps other users out.
            "spark.authenticate": "true",
        }
    overruled = tuple(
        f"{name} stays {safety[name]} on a local master, not {value}: nobody else may reach this session"
        for name, value in users.items()
        if safety.get(name, value).lower() != value.lower()
    )
    given = _defaults(master, address, resources, scratch) | users | safety
    return SparkSettings(given, frozenset(users), overruled)


def read_defaults_file() -> dict[str, str]:
    """The user's `spark-defaults.conf`; empty if SPARK_CONF_DIR names no directory with one."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder:
        return {}
    path = Path(folder) / "spark-defaults.conf"
    try:
        lines = path.read_text().splitlines() if path.exists() else []
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    found = {}
    for line in lines:
        if (text := line.strip()) and text[0] not in "#!" and (pair := _LINE.fullmatch(text)):
            found[pair[1]] = pair[2].strip()
    return {name: value for name, value in found.items() if name.startswith("spark.")}


def partition_settings(cores: int, users: Iterable[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Partitions of shuffles on a platform of so many cores: three for each core, so that a slow one holds up little.
    Spark joins small ones afterwards, and never divides them."""
    if conf.get("spark.dynamicAllocation.enabled") == "true":
        most = conf.get("spark.dynamicAllocation.maxExecutors", "")
        if most.isdigit():
            cores = max(cores, int(most) * int(conf.get("spark.executor.cores", "1")))
    if not _PARTITIONS.isdisjoint(users):
        return {}
    return dict.fromkeys(_PARTITIONS, str(max(2, _PARTITIONS_PER_CORE * cores)))


def _defaults(master: Master, address: str | None, resources: Resources, scratch: str) -> dict[str, str]:
    defaults = {
        "spark.app.name": "veilcast lab",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{resources.driver_mb}m",
        "spark.driver.maxResultSize": f"{resources.driver_mb // 2}m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **{f"spark.executorEnv.{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")},
    }
    if address is not None:
        defaults |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    if master.is_local:
        defaults |= {
            "spark.local.dir": scratch,
            "spark.executorEnv.PYTHONPATH": str(package_root().parent),
            "spark.python.daemon.module": "veilcast.lab.experiment.worker_daemon",
            # Arrow's allocator starts a thread otherwise, and a parent of workers must have one alone.
            "spark.executorEnv.JE_ARROW_MALLOC_CONF": "background_thread:false",
        }
    return defaults


def _make_location(place: str) -> str:
    """The place as Spark wants it; a directory of this machine is made, for Spark does not."""
    if _SCHEME.match(place):
        return place
    folder = Path(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {folder}: {error.strerror}") from error
    return folder.resolve().as_uri()


_NAME: Final = re.compile(r"spark\.[\w.\-]+")
_LINE: Final = re.compile(r"([^\s=:]+)(?:\s*[=:]\s*|\s+)(.*)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
_SECRET: Final = re.compile(
    r"(secret([.-]key)?|password|passphrase|token|account\.key)(\.[\w.-]+\.core\.[\w.]+)?$", re.IGNORECASE
)
"""Azure's names end with that of the account."""
_OPTIONS: Final = {"spark.master": "--master"}
"""Settings that an option of ours names."""
_PARTITIONS: Final = frozenset(
    {"spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions.initialPartitionNum"}
)
_PARTITIONS_PER_CORE: Final = 3
