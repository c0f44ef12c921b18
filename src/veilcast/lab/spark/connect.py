"""Spark Connect: a session of a server, `sc://HOST:PORT`, that shares no Java machine with this process.

Such a session has frames, SQL and Python functions, and no `sparkContext`; `platform` answers what others ask that for.
Spark decides by a variable of the environment whether its functions are those of Connect. So a process works with
sessions of one kind at a time; `connect_session` leaves the environment as it was.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from veilcast.errors import ConfigError
from veilcast.lab.spark import code_archive
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.lab.spark.settings import SparkOptions


@contextlib.contextmanager
def connect_session(url: str, options: SparkOptions) -> Iterator[SparkSession]:
    """A session of its own on the server, with our code on its executors."""
    if options.ui or options.event_log:
        raise ConfigError(f"--master {url}: the server has the web page and the event log; ask whoever runs it")
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        with _open(url, options) as spark:
            yield spark
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _open(url: str, options: SparkOptions) -> Iterator[SparkSession]:
    os.environ.pop("SPARK_REMOTE", None)
    try:
        spark = SparkSession.builder.remote(url).create()
    except ImportError as error:
        raise ConfigError(f"--master {url} needs libraries that are missing: pip install 'pyspark[connect]'") from error
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    try:
        with tempfile.TemporaryDirectory(prefix="veilcast-code-") as scratch:
            spark.addArtifacts(str(code_archive.pack_archive(Path(scratch))), pyfile=True)
        for name, value in {"spark.sql.session.timeZone": "UTC", **dict(options.conf)}.items():
            spark.conf.set(name, value)
        yield spark
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            spark.interruptAll()
        raise
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    finally:
        # The server may be gone already.
        with contextlib.suppress(Exception):
            spark.stop()


_VARIABLES: Final = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
