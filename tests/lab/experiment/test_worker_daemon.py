"""The parent of Spark's workers: it has one thread, so that a fork is safe, and what tasks need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from veilcast.lab.spark.master import Master
from veilcast.lab.spark.resources import Resources
from veilcast.lab.spark.settings import SparkOptions, choose_settings

LOOK = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
print(len(os.listdir("/proc/self/task")), *(name in sys.modules for name in ("duckdb", "numba", "pyarrow.parquet")))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_the_parent_of_workers_has_one_thread_and_the_modules_of_tasks() -> None:
    given = choose_settings(Master.parse("local[2]"), "127.0.0.1", Resources(2, 8_000), "/tmp", SparkOptions()).given
    prefix = "spark.executorEnv."
    environment = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    command = [sys.executable, "-c", LOOK, given["spark.python.daemon.module"]]
    found = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "True", "True", "True"]
