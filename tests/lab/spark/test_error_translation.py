"""Every error of Spark becomes one line of ours, of a class with an exit code."""

from __future__ import annotations

import pytest

from veilcast.errors import ConfigError, SparkError, StorageError
from veilcast.lab.spark import translate_error

TRACE = """An error occurred while calling o95.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 0.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
{last}

\tat org.apache.spark.api.python.BasePythonRunner
Driver stacktrace:
"""


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (TRACE.format(last="veilcast.errors.ConfigError: /data lacks edges.csv"), ConfigError, "/data lacks edges.csv"),
        (TRACE.format(last="ValueError: no"), SparkError, "Spark gave up: ValueError: no"),
        (TRACE.format(last="java.io.IOException: No space left on device"), StorageError, "no space left"),
        ("Python worker exited unexpectedly (crashed)", SparkError, "a worker died"),
        ("ExecutorLostFailure (executor 1 exited)", SparkError, "executors were lost"),
        ("Total size of serialized results is bigger than spark.driver.maxResultSize (1 MB)", SparkError, "too many"),
        ("Job 3 cancelled as part of cancellation of all jobs", SparkError, "cancelled"),
        ("", SparkError, "Spark gave up: RuntimeError"),
        ("first\nsecond", SparkError, "Spark gave up: first"),
    ],
)
def test_every_spark_error_becomes_one_line(text: str, kind: type[Exception], line: str) -> None:
    error = translate_error(RuntimeError(text))
    assert type(error) is kind
    assert line in str(error)
    assert "\n" not in str(error)


def test_a_name_that_is_none_of_our_errors_is_not_raised() -> None:
    assert type(translate_error(RuntimeError("veilcast.errors.annotations: x"))) is SparkError
