"""A master's address is checked, and connected to, before anything is started for it."""

from __future__ import annotations

import socket

import pytest

from veilcast.errors import ConfigError, UnreachableError
from veilcast.lab.spark import Master


@pytest.mark.parametrize(
    ("url", "known"), [("local", "local[1,4]"), ("local[2]", "local[2,4]"), ("local[*]", "local[*,4]")]
)
def test_a_local_master_tries_a_task_again(url: str, known: str) -> None:
    master = Master.parse(url)
    assert (master.url, master.is_local, master.local_address()) == (known, True, "127.0.0.1")


def test_places_of_a_standalone_cluster_are_all_of_its_masters() -> None:
    master = Master.parse("spark://one:7077,[::1]:7078")
    assert master.places == (("one", 7077), ("::1", 7078))
    assert not master.is_local
    assert Master.parse("k8s://https://api.example:6443").places == (("api.example", 6443),)
    assert Master.parse("yarn").places == ()


@pytest.mark.parametrize("url", ["", "loca", "local[]", "local[0]", "local[-1]", "http://a:1", "spark:a:1", "yarn://x"])
def test_an_unknown_kind_of_master_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^--master "):
        Master.parse(url)


@pytest.mark.parametrize("place", ["", "a", "a:b", ":7", "a:99999", "a:7077/x", "me@a:1", "a:1,"])
def test_a_malformed_address_is_refused_in_one_line(place: str) -> None:
    with pytest.raises(ConfigError, match=r"^--master ") as told:
        Master.parse(f"spark://{place}")
    assert "\n" not in str(told.value)


def test_our_address_is_the_one_on_the_way_to_the_master() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert Master.parse(f"spark://127.0.0.1:{listening.getsockname()[1]}").local_address() == "127.0.0.1"


def test_an_unreachable_master_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(UnreachableError, match=f"no Spark master answers at 127.0.0.1:{port}"):
        Master.parse(f"spark://127.0.0.1:{port}").local_address()
