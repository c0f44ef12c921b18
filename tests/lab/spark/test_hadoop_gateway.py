"""The user's jars and settings reach every process that touches a file system of Hadoop, and secrets reach no command
line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.waits import HANG_S

pytestmark = pytest.mark.all_only

SCRIPT = """
import json, sys
from pathlib import Path
import pyarrow as pa
from veilcast.lab.spark import SparkOptions, session
from veilcast.lab.spark.hadoop_gateway import HadoopSettings
from veilcast.lab.spark.sessions import start_java_machine

options = SparkOptions.parse(sys.argv[1:])
start_java_machine("local[1]", options)
before = HadoopSettings.of_process(options)

def find_marker(batches):
    from veilcast.lab.spark.hadoop_gateway import find_gateway
    for _ in batches:
        found = find_gateway().jvm.java.lang.ClassLoader.getSystemResource("marker")
        yield pa.RecordBatch.from_pydict({"found": [None if found is None else found.toString()]})

with session("local[1]", options) as spark:
    during = HadoopSettings.of_process(SparkOptions())
    command = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_bytes().decode()
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(find_marker, "found string").collect()
print(json.dumps({"values": before.values, "same": before == during, "command": command, "found": row["found"]}))
"""


def test_jars_and_settings_travel_and_secrets_are_in_no_command(tmp_path: Path) -> None:
    package = tmp_path / "repository" / "org" / "example" / "thing" / "1.0"
    package.mkdir(parents=True)
    with zipfile.ZipFile(package / "thing-1.0.jar", "w") as jar:
        jar.writestr("marker", "")
    (package / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>thing</artifactId>"
        "<version>1.0</version></project>"
    )
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3a.secret.key hunter2\n")
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>of.the.site</name><value>1</value></property></configuration>"
    )
    options = {
        "spark.jars.packages": "org.example:thing:1.0",
        "spark.jars.repositories": (tmp_path / "repository").as_uri(),
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.hadoop.of.the.options": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *(f"{name}={value}" for name, value in options.items())],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path), "HADOOP_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    values = dict(told["values"])
    assert told["same"]
    assert (values["of.the.site"], values["of.the.options"], values["fs.s3a.secret.key"]) == ("1", "2", "hunter2")
    assert "SparkSubmit" in told["command"]
    assert "of.the.options" in told["command"]
    assert "hunter2" not in told["command"]
    assert told["found"].endswith("thing-1.0.jar!/marker")
