"""A session keeps to this machine, says nothing and changes nothing around it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from veilcast.errors import LocalError
from veilcast.lab.spark import sessions
from veilcast.lab.spark.resources import DRIVER_MB_MAX, DRIVER_MB_MIN, Resources


def listening(pid: int) -> set[str]:
    """The addresses at which a process takes connections, in the kernel's notation."""
    names = [link.resolve(strict=False).name for link in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {name[8:-1] for name in names if name.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            column = line.split()
            if column[3] == "0A" and column[9] in sockets:
                found.add(column[1].split(":")[0])
    return found


def test_a_session_listens_on_loopback_alone_and_is_silent(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    assert spark.range(10).count() == 10
    assert SparkContext._gateway is not None
    addresses = listening(SparkContext._gateway.proc.pid)
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert capfd.readouterr() == ("", "")


def test_the_environment_and_the_handlers_are_as_before(spark: SparkSession) -> None:
    assert "SPARK_HOME" not in os.environ
    assert "SPARK_LOCAL_IP" not in os.environ
    assert spark.sparkContext.getConf().get("spark.ui.enabled") == "false"
    assert spark.sparkContext.master == "local[2,4]"


def test_other_users_of_this_machine_are_refused(spark: SparkSession) -> None:
    """Spark draws the secret itself, and would not have started without one."""
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"


def test_a_master_that_removes_us_before_the_first_executor_is_told(tmp_path: Path) -> None:
    class Removed:
        def addPyFile(self, _: str) -> None:
            raise Py4JError("java.lang.IllegalStateException: SparkContext was shut down")

    with pytest.raises(LocalError, match=r"^the connection to the Spark master was lost$"):
        sessions._ship(cast(SparkContext, Removed()), tmp_path)


@pytest.mark.parametrize(("memory_mb", "driver_mb"), [(512, DRIVER_MB_MIN), (16_000, 4000), (1 << 20, DRIVER_MB_MAX)])
def test_java_gets_a_quarter_within_bounds(memory_mb: int, driver_mb: int) -> None:
    assert Resources(2, memory_mb).driver_mb == driver_mb


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    group = tmp_path / "memory.max"
    group.write_text("3221225472\n")
    assert Resources.of_machine(group).memory_mb == min(3072, Resources.of_machine(tmp_path / "none").memory_mb)
    group.write_text("max\n")
    assert Resources.of_machine(group) == Resources.of_machine(tmp_path / "none")
