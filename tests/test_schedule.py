"""Tests are spread over workers so that shared fixtures are made once, and in the same order each time."""

from __future__ import annotations

from support.schedule import place_of, scope_of


def test_files_that_need_spark_share_one_worker() -> None:
    assert scope_of("tests/lab/spark/test_sessions.py::test_a") == "spark"
    assert scope_of("tests/lab/attack/test_insider_job.py::test_b") == "spark"


def test_a_file_that_shares_a_fixture_is_one_workers() -> None:
    assert scope_of("tests/live/test_locked_disk.py::test_a[x]") == "tests/live/test_locked_disk.py"
    assert scope_of("tests/lab/models/test_graph.py::test_a") == "tests/lab/models/test_graph.py"


def test_every_other_test_stands_alone() -> None:
    assert scope_of("tests/net/test_metrics.py::test_a[1]") == "tests/net/test_metrics.py::test_a[1]"


def test_spark_comes_first_then_files_then_single_tests_in_an_order_that_never_changes() -> None:
    names = [
        "tests/net/test_metrics.py::test_a",
        "tests/lab/models/test_graph.py::test_a",
        "tests/net/test_metrics.py::b",
    ]
    spark = "tests/lab/spark/test_sessions.py::test_a"
    assert sorted([*names, spark], key=place_of) == sorted([spark, *reversed(names)], key=place_of)
    assert sorted([*names, spark], key=place_of)[:2] == [spark, names[1]]
