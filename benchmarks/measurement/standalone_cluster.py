"""A standalone cluster of Spark on loopback: a master, and workers with one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from measurement.process_tree import kill_tree, process_tree
from veilcast.errors import SparkError
from veilcast.lab.spark import java


class StandaloneCluster(NamedTuple):
    master: str
    """The master's address."""
    workers: tuple[subprocess.Popen[str], ...]

    def kill_worker(self, number: int) -> None:
        """Kill a worker, its executor and all that they run, without warning."""
        kill_tree(self.workers[number].pid)

    def kill_executors(self, number: int) -> int:
        """Kill the executors of a worker, which lives and starts others. Returns how many there were."""
        found = [process for process in process_tree(self.workers[number].pid) if _is_executor(process)]
        for process in found:
            kill_tree(process)
        return len(found)


@contextmanager
def start_cluster(
    base: Path, workers: int, *, memory: str = "2g", environment: Mapping[str, str] | None = None
) -> Iterator[StandaloneCluster]:
    """A cluster for the time of a `with`. `base` is a directory for its files; `memory` is that of each worker."""
    whole = {
        **os.environ,
        "JAVA_HOME": str(java.find_java().home(base)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(base),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        **(environment or {}),
    }
    at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as running:
        _, address = running.enter_context(_run_daemon("master.Master", at, whole, r"Starting Spark master at (\S+)"))
        started = []
        for number in range(workers):
            size = ["--cores", "1", "--memory", memory, "--work-dir", str(base / f"work{number}")]
            ready = "(Successfully registered with master)"
            worker, _ = running.enter_context(_run_daemon("worker.Worker", [*at, *size, address], whole, ready))
            started.append(worker)
        yield StandaloneCluster(address, tuple(started))


@contextmanager
def _run_daemon(
    name: str, arguments: list[str], environment: Mapping[str, str], ready: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of Spark's, for the time of a `with`, from when it has said what shows that it is ready; and that."""
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        # A full pipe would stop it.
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        try:
            said = next((found for line in process.stdout if (found := re.search(ready, line))), None)
            if said is None:
                raise SparkError(f"{name} ended before it was ready")
            reader.start()
            yield process, said[1]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=_END_S)
            except subprocess.TimeoutExpired:
                kill_tree(process.pid)
            if reader.ident is not None:
                reader.join()


def _is_executor(process: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False  # It has ended.


_END_S: Final = 30.0
