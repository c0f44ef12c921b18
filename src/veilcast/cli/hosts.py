"""The hosts of a local network: what its members need and that is no member, and whether it is up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from veilcast.cli import crew, localtree
from veilcast.cli.counts import counted
from veilcast.cli.localnet import Net


class Host(NamedTuple):
    """A process that members need and that is no member: server, proxy, directory, broker, or the Tor network."""

    name: str
    address: str
    """Where it listens; empty if it listens at an onion service."""
    role: str
    up: bool
    detail: str = ""


async def hosts_of(directory: Path, net: Net) -> list[Host]:
    """All hosts of a network but spare brokers, which do not run yet."""
    plan = net.plan
    if plan.mode == "foil":
        return [Host("broker", net.hosts[0], "broker", await _listens(net.hosts[0]))]
    spares = plan.spares
    named = [(name, address) for name, address in zip(plan.hosts, net.hosts, strict=True) if name not in spares]
    if plan.mode == "tree" and plan.tor:
        # An onion service has no address here; the first worker serves the directory.
        serving = any(path.stem == "worker-0" for path in crew.living(directory))
        return [*(Host(name, "", name, serving) for name, _ in named), _tor(directory)]
    listening = await asyncio.gather(*(_listens(address) for _, address in named))
    return [Host(name, address, plan.standing(name), up) for (name, address), up in zip(named, listening, strict=True)]


def _tor(directory: Path) -> Host:
    from veilcast.net import testnet

    found = testnet.parts(localtree.testnet_directory(directory))
    up = sum(part.pid is not None for part in found)
    return Host("testnet", "", "tor", up == len(found), f"{up} of {counted(len(found), 'process')} up")


async def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), _CONNECT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


_CONNECT_S: Final = 10.0
"""Loopback answers or refuses at once; a machine that is busy may take seconds."""
