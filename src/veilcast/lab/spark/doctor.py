"""A trial of the lab's platform: Java, Spark, memory, cores, scratch space, and the executors' libraries.

The trial takes every step that a sweep takes, up to a job whose tasks look for the libraries that kernels need. So a
problem shows here, in a line, and not in the middle of a night's sweep.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from veilcast.errors import VeilcastError
from veilcast.lab.spark import java
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.lab.spark.platform import describe_platform
from veilcast.lab.spark.resources import Resources
from veilcast.lab.spark.sessions import record_class_archive, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Diagnosis(msgspec.Struct):
    found: dict[str, str] = {}
    wrong: list[str] = []


def diagnose(url: str) -> Diagnosis:
    diagnosis = Diagnosis()
    _look(diagnosis)
    try:
        _try(url, diagnosis)
    except VeilcastError as error:
        diagnosis.wrong.append(str(error))
    except SPARK_ERRORS as error:
        diagnosis.wrong.append(str(translate_error(error)))
    return diagnosis


def _look(diagnosis: Diagnosis) -> None:
    found, resources = diagnosis.found, Resources.of_machine()
    try:
        runtime = java.find_java()
        launcher = "" if runtime.whole else ", started without the vector module, which it lacks"
        found["java"] = f"{runtime.version}, {runtime.program} ({runtime.source}{launcher})"
    except VeilcastError:
        found["java"] = "none that will do"
    found["python"] = platform.python_version()
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            diagnosis.wrong.append(f"{name} is not installed; `pip install 'veilcast[lab]'`")
    found["cores"] = str(resources.cores)
    found["memory"] = f"{resources.memory_mb:,} MB, of which Java gets {resources.driver_mb:,} MB"
    try:
        scratch = tempfile.gettempdir()
        free_mb = shutil.disk_usage(scratch).free >> 20
    except OSError:
        found["scratch"] = "none that can be written to"
    else:
        found["scratch"] = f"{scratch}, {free_mb:,} MB free"
        if free_mb < _SCRATCH_MB_MIN:
            diagnosis.wrong.append(
                f"{scratch} has {free_mb} MB free; TMPDIR chooses another place for what Spark keeps"
            )
    if resources.memory_mb < _MEMORY_MB_MIN:
        diagnosis.wrong.append(f"{resources.memory_mb} MB of memory are few; expect workers to die")


def _try(url: str, diagnosis: Diagnosis) -> None:
    with session(url) as spark:
        platform = describe_platform(spark)
        diagnosis.found["master"] = f"{platform.master}, {platform.cores} tasks at once"
        tried = spark.range(0, 1, 1, 1).mapInArrow(_try_libraries, "missing string").toArrow()
    diagnosis.found["executors"] = "answer"
    missing = [name for name in tried["missing"].to_pylist() if name]
    if missing:
        diagnosis.wrong.append(f"the executors' Python lacks {', '.join(missing)}; PYSPARK_PYTHON names another")


def make_class_archive(url: str) -> Path:
    """Store the classes that a session loads for its first jobs: later sessions on this machine start in half the time.
    Call it before any other session of this process."""
    return record_class_archive(url, _exercise)


def _exercise(spark: SparkSession) -> None:
    """Jobs of the kinds that sweeps and attacks have."""
    with tempfile.TemporaryDirectory(prefix="veilcast-trial-") as folder:
        place = Path(folder, "numbers").as_uri()
        spark.range(0, 1000, 1, 2).selectExpr("id", "id % 7 AS part", "cast(id AS string) AS name").write.parquet(place)
        rows = spark.read.parquet(place)
        rows.createOrReplaceTempView("numbers")
        counted = spark.sql("SELECT part, count(*) AS many, min(name) AS first FROM numbers GROUP BY part")
        joined = rows.join(counted, "part").select("id", "name", "many")
        joined.mapInArrow(_pass_on, joined.schema).toArrow()
        rows.groupBy("part").applyInArrow(_pass_group_on, rows.schema).toArrow()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _pass_group_on(group: pa.Table) -> pa.Table:
    return group


def _try_libraries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from importlib.util import find_spec

    for _ in batches:
        missing = [name for name in ("veilcast", *LIBRARIES) if find_spec(name) is None]
        yield pa.RecordBatch.from_pydict({"missing": pa.array(missing, pa.string())})


LIBRARIES: Final = ("pyspark", "pyarrow", "numpy", "numba", "pandas", "scipy")
_SCRATCH_MB_MIN: Final = 1024
_MEMORY_MB_MIN: Final = 2048
