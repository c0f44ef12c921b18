"""The user's settings win over our defaults, and the safety of this machine wins over all."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab.spark import SparkOptions, session
from veilcast.lab.spark.master import Master
from veilcast.lab.spark.resources import Resources
from veilcast.lab.spark.settings import choose_settings, partition_settings, read_defaults_file

LOCAL = Master("local[2,4]")
CLUSTER = Master("spark://host:7077")
DEFAULTS = """
# A comment.
spark.sql.shuffle.partitions   64
spark.executor.memory = 2g
spark.driver.bindAddress: 0.0.0.0
other.name value
"""


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)


def chosen(master: Master, *conf: str) -> tuple[dict[str, str], tuple[str, ...]]:
    options = SparkOptions.parse(conf)
    settings = choose_settings(master, "127.0.0.1", Resources(2, 8192), "/scratch", options)
    return settings.given, settings.overruled


@pytest.mark.usefixtures("defaults")
def test_the_users_file_wins_over_our_defaults_and_an_option_over_both() -> None:
    assert read_defaults_file()["spark.executor.memory"] == "2g"
    assert "other.name" not in read_defaults_file()
    given, _ = chosen(CLUSTER, "spark.executor.memory=3g", "spark.driver.memory=5g")
    assert given["spark.sql.shuffle.partitions"] == "64"
    assert (given["spark.executor.memory"], given["spark.driver.memory"]) == ("3g", "5g")
    assert given["spark.driver.bindAddress"] == "0.0.0.0"
    assert given["spark.app.name"] == "veilcast lab"


@pytest.mark.usefixtures("defaults")
def test_on_a_local_master_safety_wins_and_says_so() -> None:
    given, overruled = chosen(LOCAL, "spark.authenticate=false", "spark.ui.enabled=true")
    assert (given["spark.driver.bindAddress"], given["spark.authenticate"]) == ("127.0.0.1", "true")
    assert given["spark.ui.enabled"] == "true"
    assert overruled == (
        "spark.driver.bindAddress stays 127.0.0.1 on a local master, not 0.0.0.0: nobody else may reach this session",
        "spark.authenticate stays true on a local master, not false: nobody else may reach this session",
    )
    assert chosen(LOCAL, "spark.authenticate=TRUE", "spark.driver.bindAddress=127.0.0.1")[1] == ()


@pytest.mark.parametrize("text", ["spark.executor.memory", "=4g", "executor.memory=4g", "spark.master=local"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--conf"):
        SparkOptions.parse([text])


def test_a_value_may_hold_an_equals_sign() -> None:
    assert SparkOptions.parse(["spark.driver.extraJavaOptions=-Da=b"]).conf[0][1] == "-Da=b"


def test_shuffles_have_three_partitions_for_each_core_of_the_cluster_unless_the_user_says() -> None:
    assert set(partition_settings(6, [], {}).values()) == {"18"}
    assert partition_settings(6, ["spark.sql.shuffle.partitions"], {}) == {}
    growing = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "10",
        "spark.executor.cores": "4",
    }
    assert set(partition_settings(6, [], growing).values()) == {"120"}


def test_an_event_log_gets_its_directory(tmp_path: Path) -> None:
    options = SparkOptions.parse([], event_log=str(tmp_path / "a" / "log"))
    given = choose_settings(LOCAL, "127.0.0.1", Resources(2, 8192), "/scratch", options).given
    assert (tmp_path / "a" / "log").is_dir()
    assert given["spark.eventLog.dir"] == f"file://{tmp_path}/a/log"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        choose_settings(LOCAL, "127.0.0.1", Resources(2, 8192), "", SparkOptions(event_log=str(tmp_path / "file/log")))


@pytest.mark.usefixtures("defaults")
def test_a_session_has_the_settings_the_page_and_the_log(tmp_path: Path) -> None:
    said: list[str] = []
    options = SparkOptions.parse(["spark.sql.session.timeZone=Asia/Tokyo"], ui=True, event_log=str(tmp_path / "log"))
    with session("local[2]", options, said.append) as spark:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "64"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        address = spark.sparkContext.uiWebUrl
        assert address is not None
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address) as page:
            assert b"veilcast lab" in page.read()
        assert spark.range(10).count() == 10
    assert [line.split()[0] for line in said] == ["spark.driver.bindAddress", "Spark's"]
    assert list((tmp_path / "log").iterdir())
    with session("local[2]") as spark:
        assert spark.sparkContext.uiWebUrl is None


def test_a_session_on_two_cores_shuffles_into_six_partitions() -> None:
    with session("local[2]") as spark:
        assert spark.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum") == "6"
