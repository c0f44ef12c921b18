"""The one place that makes a SparkSession.

On this machine the session binds to loopback alone and takes a bounded part of the memory; `settings` has the rules.
The output of Java and Spark goes to a file; its last lines tell why a start failed. Remote executors are sent our code;
local ones find it in place. Each task has one core, so its libraries get one thread.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from veilcast.errors import SparkError, StorageError, UnreachableError
from veilcast.lab.spark import code_archive, java
from veilcast.lab.spark.connect import connect_session
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.lab.spark.master import LOCAL, Master
from veilcast.lab.spark.resources import Resources
from veilcast.lab.spark.settings import SparkOptions, choose_settings, is_secret, partition_settings

_NO_OPTIONS: Final = SparkOptions()


@contextlib.contextmanager
def session(
    url: str = LOCAL, options: SparkOptions = _NO_OPTIONS, say: Callable[[str], object] = lambda _: None
) -> Iterator[SparkSession]:
    """A session for the time of a `with`. One at a time; a process may have several, one after the other.

    `say` gets the address of Spark's page, and a line for each of the user's settings that is overruled.
    """
    master = Master.parse(url)
    address = master.local_address()
    if master.is_remote:
        with connect_session(master.url, options) as spark:
            yield spark
        return
    with _scratch("veilcast-spark-") as scratch:
        settings = choose_settings(master, address, Resources.of_machine(), scratch, options)
        for line in settings.overruled:
            say(line)
        # Spark replaces this handler with its own and does not restore it.
        handler = signal.getsignal(signal.SIGINT)
        context = _start(master, settings.given, address, options)
        try:
            if not master.is_local:
                _ship(context, Path(scratch))
            spark = SparkSession(context)
            chosen = dict(context.getConf().getAll())
            for name, value in partition_settings(context.defaultParallelism, settings.users, chosen).items():
                spark.conf.set(name, value)
            if context.uiWebUrl:
                say(f"Spark's page: {context.uiWebUrl}")
            with _interruptible(context, handler):
                yield spark
        finally:
            # The context may be gone already.
            with contextlib.suppress(Exception):
                context.stop()


def record_class_archive(url: str, work: Callable[[SparkSession], object]) -> Path:
    """Do this work in a first session, and store the classes that its Java machine has loaded. Returns the archive's
    path."""
    archive = java.ClassArchive(java.find_java())
    written = archive.prepare()
    with session(url, SparkOptions(record_classes=str(written))) as spark:
        work(spark)
    _end_java()
    archive.adopt(written)
    return archive.path


def start_java_machine(url: str, options: SparkOptions) -> None:
    """Start the Java machine of the next session, unless there is one, or a server has it. Any thread may do that."""
    if SparkContext._gateway is not None:
        return
    master = Master.parse(url)
    if master.is_remote:
        return
    address = master.local_address()
    with _scratch("veilcast-spark-") as scratch, _environment(master, address):
        settings = choose_settings(master, address, Resources.of_machine(), scratch, options).given
        if SparkContext._gateway is None:
            _start_java(settings, options)


@contextlib.contextmanager
def _interruptible(context: SparkContext, handler: Any) -> Iterator[None]:
    """Ctrl-C cancels the jobs and raises `KeyboardInterrupt`, even if a waiting call raises another error because of
    it.

    If the caller's process ignores Ctrl-C, as a background job of a script does, so does the session.
    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        # The jobs end with this process in any case.
        with contextlib.suppress(*SPARK_ERRORS):
            context.cancelAllJobs()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, handler if handler is signal.SIG_IGN else interrupt)
    try:
        yield
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, handler)


def _start(master: Master, settings: dict[str, str], address: str | None, options: SparkOptions) -> SparkContext:
    """The context. Its Java machine serves all sessions of this process and ends with it."""
    with _environment(master, address):
        if SparkContext._gateway is None:
            _start_java(settings, options)
        given_up = threading.Event()

        def give_up() -> None:
            given_up.set()
            _kill_java()

        watchdog = threading.Timer(_REGISTER_S, give_up)
        watchdog.daemon = True
        try:
            if master.url.startswith("spark://"):
                watchdog.start()
            return SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(_with_jars(settings).items())))
        except SPARK_ERRORS as error:
            if given_up.is_set():
                hosts = ", ".join(f"{host}:{port}" for host, port in master.places)
                raise UnreachableError(f"what answers at {hosts} is not a Spark master that lets us in") from error
            raise translate_error(error) from error
        finally:
            watchdog.cancel()


def _with_jars(settings: dict[str, str]) -> dict[str, str]:
    """The settings with the jars that Java has fetched for `spark.jars.packages` when it started."""
    if "spark.jars.packages" not in settings or SparkContext._jvm is None:
        return settings
    jars = SparkContext._jvm.java.lang.System.getProperty("spark.jars")
    return settings | ({"spark.jars": jars} if jars else {})


def _start_java(settings: dict[str, str], options: SparkOptions) -> None:
    """Start the machine that Spark runs in; its output goes to a file. Secrets are left to the session: here the
    settings stand in a command, which other users of this machine can read."""
    found = java.find_java()
    # Removed when this process ends; the Java machine ends too, when our end of its pipe closes.
    kept = _scratch("veilcast-java-")
    atexit.register(kept.cleanup)
    scratch = Path(kept.name)
    log = scratch / "spark.log"
    with _disk_errors_translated():
        os.environ["JAVA_HOME"] = str(found.home(scratch))
    archive, record = java.ClassArchive(found), options.record_classes
    local = settings.get("spark.master", "").startswith("local")
    if local:
        # Java takes the last of two options, so the user's are the last.
        given = java.java_options(archive, Path(record) if record else None), settings.get(_JAVA_OPTIONS, "")
        settings = settings | {_JAVA_OPTIONS: " ".join(filter(None, given))}
    shown = SparkConf(loadDefaults=False).setAll([pair for pair in settings.items() if not is_secret(pair[0])])
    folder = archive.settings_directory if local and (record or archive.exists) else scratch
    os.environ["SPARK_CONF_DIR"] = os.environ.get("SPARK_CONF_DIR", str(folder))
    try:
        with log.open("wb") as output:
            gateway = launch_gateway(shown, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    except (PySparkException, OSError) as error:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        reason = next((line for line in reversed(lines) if line.strip()), str(error))
        raise SparkError(f"Java {found.version} ({found.program}) does not start Spark: {reason}") from error
    SparkContext._gateway = gateway
    SparkContext._jvm = gateway.jvm


def _scratch(prefix: str) -> tempfile.TemporaryDirectory[str]:
    with _disk_errors_translated():
        return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


@contextlib.contextmanager
def _disk_errors_translated() -> Iterator[None]:
    """Translate errors of a full or unwritable temporary directory."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"no scratch space: {error.strerror or error} (TMPDIR chooses another place for what Spark keeps)"
        ) from error


def _kill_java() -> None:
    """End the Java machine, whatever it does; the next session starts another."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()
        gateway.proc.stdin.close()


def _end_java() -> None:
    """Let the Java machine end by itself, and wait for it."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_END_S)
        except subprocess.TimeoutExpired as error:
            gateway.proc.kill()
            gateway.proc.wait()
            raise SparkError(f"the Java machine of Spark did not end within {_END_S:g} s") from error


@contextlib.contextmanager
def _environment(master: Master, address: str | None) -> Iterator[None]:
    """The environment that Spark reads while it starts. Other threads keep all variables that are not Spark's."""
    changed: dict[str, str | None] = {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_REMOTE": None,
    }
    if address is not None:
        # Spark's page listens there alone.
        changed["SPARK_LOCAL_IP"] = address
    if master.is_local:
        # Its `spark-defaults.conf` is among the settings; a script in it could undo what keeps others out.
        changed["SPARK_CONF_DIR"] = None
    if master.is_local or "PYSPARK_PYTHON" not in os.environ:
        changed["PYSPARK_PYTHON"] = sys.executable
    before = {name: os.environ.get(name) for name in (*changed, "JAVA_HOME", "SPARK_CONF_DIR")}
    _set_variables(changed)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _ship(context: SparkContext, scratch: Path) -> None:
    """Send our code to the executors, at least one of which must exist."""
    with _disk_errors_translated():
        archive = code_archive.pack_archive(scratch)
    try:
        context.addPyFile(str(archive))
        _wait_for_executors(context)
    except SPARK_ERRORS as error:
        raise translate_error(error) from error


def _wait_for_executors(context: SparkContext) -> None:
    """Until there is an executor, and no other has come for a second: their cores decide on partitions."""
    # The count includes the driver.
    pause, before, quiet = threading.Event(), 1, 0
    for _ in range(int(_EXECUTORS_S / _POLL_S)):
        count = len(context.statusTracker().getExecutorInfos())
        quiet = quiet + 1 if count == before else 0
        before = count
        if count > 1 and quiet >= _QUIET_POLLS:
            return
        pause.wait(_POLL_S)
    if before > 1:
        return
    raise UnreachableError(f"no executor came within {_EXECUTORS_S:g} s: the workers have no memory or no core free")


_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_END_S: Final = 600.0
_REGISTER_S: Final = 90.0
"""Until a master has let us in. Spark itself tries three times in a minute, and a busy machine begins late."""
_EXECUTORS_S: Final = 60.0
_POLL_S: Final = 0.1
_QUIET_POLLS: Final = 10
