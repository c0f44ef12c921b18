"""Prefixes: the part of an address that is dear to have many of.

Whoever owns one address of a network mostly has many, so a bound on links counts prefixes, not addresses. Machines
compare addresses and never parse them: who builds a node hands it the function that fits its addresses. `ip_prefix` is
the
one for the network's `host:port`; a simulator has its own.


Hosts: whose address it is, whatever the port.

Machines compare addresses and never parse them: who builds a node hands it the function that fits its addresses.
`host_of` is the one for the network's `host:port`."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

from veilcast.machine import Address

HostOf: TypeAlias = Callable[[Address], str]
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

PrefixOf: TypeAlias = Callable[[Address], str]
"""Gives the prefix of any address whatever; strangers choose addresses, so it never raises."""


def ip_prefix(address: Address) -> str:
    """The /16 of an IPv4 address and the /32 of an IPv6 one, about what one provider hands out.

    Addresses of one's own network (private, local to the link or the machine) are each their own prefix, and so is the
    /64 of an IPv6 one: a group in one building would else be strangers who must not have too many links to one another.
    Onion names cost nothing: they fall into 32 groups by their first character, whatever their number. Any other name
    counts by the last two of its labels, which somebody had to register.
    """
    host = host_part(address)
    try:
        ip = ip_address(host)
    except ValueError:
        labels = host.lower().rstrip(".").split(".")
        return f"onion {labels[-2][:1]}" if labels[-1] == "onion" and len(labels) > 1 else ".".join(labels[-2:])
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None:
            bits = _IPV6_OWN_BITS if any(ip in network for network in _OWN_IPV6) else _IPV6_HOST_BITS
            return f"ipv6 {int(ip) >> bits:x}"
        ip = inner
    if any(ip in network for network in _OWN_IPV4):
        return f"ipv4 {ip}"
    return f"ipv4 {int(ip) >> _IPV4_HOST_BITS:x}"


def customer_networks(address: Address) -> tuple[str, str]:
    """Networks inside a prefix that one customer mostly has: the /48 and the /56 of an IPv6 address.

    For an IPv4 address it is the /24, twice; any other name stands for itself.
    """
    host = host_part(address)
    try:
        ip = ip_address(host)
    except ValueError:
        return host.lower(), host.lower()
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None:
            return f"ipv6 {int(ip) >> 80:x}", f"ipv6 {int(ip) >> 72:x}"
        ip = ip.ipv4_mapped
    four = f"ipv4 {int(ip) >> 8:x}"
    return four, four


_IPV4_HOST_BITS: Final = 16
_IPV6_HOST_BITS: Final = 96
_IPV6_OWN_BITS: Final = 64
_OWN_IPV4: Final = tuple(
    map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"))
)
_OWN_IPV6: Final = tuple(map(IPv6Network, ("::1/128", "fc00::/7", "fe80::/10")))
