"""The Java machine through which a process reaches Hadoop's file systems: Spark's own, or a small one.

1. A process that has started Spark's Java machine uses it. That machine has the jars of `spark.jars.packages`.
2. Every other process starts a small Java machine when it first touches such a file system, and keeps it. This is the
   case of Python workers of executors: they have none, but Spark's jars are on their machine, and Spark has put the
   user's jars beside their files. The small machine ends with its process, because its input closes.
3. Calls go over a socket of loopback, with a secret that py4j makes. A file's bytes would become text there, and take
   several times their size. So more than some kilobytes go through a scratch file, which Java copies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext, SparkFiles
from pyspark.find_spark_home import _find_spark_home

from veilcast.errors import SparkError
from veilcast.lab.spark import java
from veilcast.lab.spark.settings import SparkOptions, is_secret, read_defaults_file


class HadoopSettings(msgspec.Struct, frozen=True):
    """The settings of Hadoop that differ from its defaults. Some are secrets, so they never print."""

    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_process(cls, options: SparkOptions) -> Self:
        """From the files in HADOOP_CONF_DIR, and then from `spark.hadoop.*`: of the running session, or of the next."""
        files = find_gateway().jvm.org.apache.hadoop.conf.Configuration(False)
        for name in _FILES:
            files.addResource(name)
        context = SparkContext._active_spark_context
        spark = read_defaults_file() | dict(options.conf) if context is None else dict(context.getConf().getAll())
        chosen = {name.removeprefix(_PREFIX): value for name, value in spark.items() if name.startswith(_PREFIX)}
        return cls(tuple(sorted({**files.getPropsWithPrefix(""), **chosen}.items())))

    def hide_secrets(self, text: str) -> str:
        for name, value in self.values:
            if value and is_secret(name):
                text = text.replace(value, "...")
        return text

    def __repr__(self) -> str:
        return f"HadoopSettings({len(self.values)} values)"


class JavaCallError(Exception):
    """An exception of Java. The text is its message's first line."""

    def __init__(self, kinds: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.kinds = kinds
        """The class names of the exception and of its causes, without packages."""

    @property
    def is_missing(self) -> bool:
        """Whether a file or directory does not exist."""
        return self.kinds[0] == "FileNotFoundException"

    @property
    def reason(self) -> str:
        if self.is_missing:
            return os.strerror(errno.ENOENT)
        return f"Spark's jars lack {self}" if "ClassNotFoundException" in self.kinds else str(self)


@contextlib.contextmanager
def java_errors(settings: HadoopSettings) -> Iterator[None]:
    """Raise an exception of Java as a `JavaCallError`, without the secrets of these settings."""
    try:
        yield
    except Py4JJavaError as error:
        kinds, cause, message = list[str](), error.java_exception, ""
        while cause is not None and len(kinds) < _CAUSES_MAX:
            kinds.append(cause.getClass().getSimpleName())
            message, cause = cause.getMessage() or message, cause.getCause()
        line = next(iter(message.strip().splitlines()), kinds[0])
        raise JavaCallError(tuple(kinds), settings.hide_secrets(line)) from None
    except (Py4JError, ConnectionError) as error:
        _forget_small_machine()
        raise SparkError("the Java machine that reaches Hadoop's file systems is gone") from error


def find_gateway() -> JavaGateway:
    # The typing of Spark calls it optional, and not so.
    gateway: JavaGateway | None = SparkContext._gateway
    return _start_small_machine() if gateway is None else gateway


@cache
def open_file_system(gateway: JavaGateway, uri: str, settings: HadoopSettings) -> Any:
    """The file system that a URI names, with these settings alone: Java's own cache ignores settings."""
    configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
    for name, value in settings.values:
        configuration.set(name, value)
    return gateway.jvm.org.apache.hadoop.fs.FileSystem.newInstance(gateway.jvm.java.net.URI(uri), configuration)


def make_scratch_file() -> Path:
    """An empty file for bytes on their way. An executor removes its directory when it ends."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    descriptor, path = tempfile.mkstemp(prefix="veilcast-", dir=folder)
    os.close(descriptor)
    return Path(path)


@cache
def _start_small_machine() -> JavaGateway:
    home = os.environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else java.find_java().program
    jars = Path(_find_spark_home(), "jars")
    paths = [os.environ.get("HADOOP_CONF_DIR", ""), f"{jars}/*", _user_jars(), os.environ.get("CLASSPATH", "")]
    if "SPARK_USER" in os.environ:
        # Executors act for the user who drives; where Hadoop asks for no proof, the name is all that it takes.
        os.environ.setdefault("HADOOP_USER_NAME", os.environ["SPARK_USER"])
    try:
        port, secret, process = launch_gateway(
            jarpath=str(next(jars.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(filter(None, paths)),
            javaopts=_SMALL,
            java_path=str(program),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError, StopIteration) as error:
        raise SparkError(f"{program} with the jars in {jars} does not start, to reach Hadoop's file systems") from error
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    gateway.java_process = process
    return gateway


def _forget_small_machine() -> None:
    """End the small machine, if there is one. The next attempt of a task may be made by this process, and starts
    another."""
    if _start_small_machine.cache_info().currsize:
        with contextlib.suppress(OSError):
            _start_small_machine().java_process.stdin.close()
        _start_small_machine.cache_clear()


def _user_jars() -> str:
    """The jars of `spark.jars` and `spark.jars.packages`, as Spark hands them to a worker."""
    root = SparkFiles._root_directory
    return f"{root}/*" if root else ""


_PREFIX: Final = "spark.hadoop."
_FILES: Final = ("core-site.xml", "hdfs-site.xml")
_CAUSES_MAX: Final = 8
_SMALL: Final = ["-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
