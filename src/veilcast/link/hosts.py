"""Hosts: whose address it is, whatever the port.

Machines compare addresses and never parse them: who builds a node hands it the function that fits its addresses.
`host_of` is the one for the network's `host:port`.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from veilcast.machine import Address

Host: TypeAlias = Callable[[Address], str]
"""Gives the host of any address whatever; strangers choose addresses, so it never raises."""


def host_of(address: Address) -> str:
    """An IPv4 address, the /64 of an IPv6 one, which is what one machine is handed at least, or any other name."""
    host = host_part(address)
    try:
        ip = ip_address(host)
    except ValueError:
        return host.lower()
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return f"ipv6 {int(ip) >> _INTERFACE_BITS:x}" if ip.ipv4_mapped is None else str(ip.ipv4_mapped)


def host_part(address: Address) -> str:
    """`host:port`, `[host%zone]:port` or either without its port, down to the host."""
    if address.startswith("["):
        return address[1:].partition("]")[0].partition("%")[0]
    return address.partition("%")[0] if address.count(":") > 1 else address.partition(":")[0]


_INTERFACE_BITS: Final = 64
