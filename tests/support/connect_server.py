"""A server of Spark Connect on loopback, for the time of a test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pyspark
import pytest

from support.waits import HANG_S
from veilcast.lab.spark import java


@contextmanager
def connect_server(base: Path) -> Iterator[str]:
    """The address of a server of Spark Connect with two cores. It listens on loopback alone."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(base / "local"),
        "spark.sql.shuffle.partitions": "4",
    }
    home = str(Path(pyspark.__file__).parent)
    command = [f"{home}/bin/spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2,4]", "--driver-memory", "1g"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = os.environ | {
        "JAVA_HOME": str(java.find_java().home(base)),
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": str(base),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with subprocess.Popen(
        [*command, "spark-internal"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        # A full pipe would stop the server.
        reader = Thread(target=process.stdout.read, daemon=True)
        try:
            said = next((found for line in process.stdout if (found := _READY.search(line))), None)
            if said is None:
                pytest.fail("the server ended before it was ready")
            reader.start()
            yield f"sc://127.0.0.1:{said[1]}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=HANG_S)
            if reader.ident is not None:
                reader.join()


_READY: Final = re.compile(r"Connect server started at: \S*:(\d+)")
