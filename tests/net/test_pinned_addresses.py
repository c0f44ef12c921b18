"""Brokers are called by name: a Byzantine one has a good certificate, and must not take another's place with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.scripted_machine import ScriptedMachine
from support.tls_parties import TlsParties, run_driver, run_host, tls_name_of, wait_until
from veilcast.machine import Address, Connect, Frame
from veilcast.net import close_reasons
from veilcast.net.tls import StreamIdentity

CROWD = TlsParties(21)
RINGS = {name: CROWD.ring(name, "broker") for name in ("anna", "bruno", "mallory")}
MEMBER = CROWD.identity(CROWD.ring("max"), hosts="broker")


def broker(name: str) -> StreamIdentity:
    return CROWD.identity(RINGS[name], callers="broker", hosts="broker")


def pinned(name: str, address: Address) -> Address:
    return Address(f"{tls_name_of(RINGS[name], 'broker')}@{address}")


@pytest.mark.parametrize("caller", ["a broker", "a member"])
def test_no_broker_answers_in_the_place_of_another(caller: str) -> None:
    async def test() -> None:
        there, identity = ScriptedMachine(), MEMBER if caller == "a member" else broker("anna")
        async with run_host(ScriptedMachine(), broker("mallory")) as host, run_driver(there, identity) as driver:
            peer = pinned("bruno", host.addresses[0])
            there.events.append(Connect(peer))
            driver.touch()
            await wait_until(lambda: there.peers)
            assert there.peers[0] == ("lost", peer)
            assert list(driver.reasons) == [close_reasons.ANOTHER]
            assert [(each.peer, each.reason) for each in driver.peers()] == [(peer, close_reasons.ANOTHER)]

    _run(test())


def test_a_pinned_peer_is_up_under_its_whole_address_and_knows_its_caller() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, broker("bruno")) as host, run_driver(there, broker("anna")) as driver:
            peer, name = pinned("bruno", host.addresses[0]), tls_name_of(RINGS["anna"], "broker")
            there.events.append(Connect(peer))
            driver.touch()
            await wait_until(lambda: there.peers and here.peers)
            assert (here.peers, there.peers) == ([("up", name)], [("up", peer)])
            there.frames, here.frames = [Frame(peer, b"there")], [Frame(name, b"back")]
            driver.touch()
            host.touch()
            await wait_until(lambda: here.got and there.got)
            assert (here.got, there.got) == ([(name, b"there")], [(peer, b"back")])

    _run(test())


def test_a_member_that_calls_a_broker_rejects_a_proxy() -> None:
    async def test() -> None:
        there = ScriptedMachine()
        proxy = CROWD.identity(CROWD.ring("paul", "proxy"))
        async with run_host(ScriptedMachine(), proxy) as host, run_driver(there, MEMBER) as driver:
            there.events.append(Connect(host.addresses[0]))
            driver.touch()
            await wait_until(lambda: there.peers)
            assert list(driver.reasons) == ["its certificate is for another role"]

    _run(test())


def _run(test: Any) -> None:
    asyncio.run(test)
