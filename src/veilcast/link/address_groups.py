"""Groups of addresses for limits: the host, the prefix and the customer network of an address.

One owner mostly has many addresses of a network, so limits count hosts or prefixes and not addresses. Machines compare
addresses and never parse them: the builder of a node passes in the functions that fit its addresses. `host_of` and
`ip_prefix` are for addresses of the form `host:port`; a simulator has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

from veilcast.machine import Address

HostOf: TypeAlias = Callable[[Address], str]
"""Returns the host of any address. Strangers choose addresses, so it never raises."""
PrefixOf: TypeAlias = Callable[[Address], str]
"""Returns the prefix of any address. Strangers choose addresses, so it never raises."""


def host_of(address: Address) -> str:
    """An IPv4 address, the /64 of an IPv6 address (the least that one machine gets), or any other name."""
    host = host_part(address)
    try:
        ip = ip_address(host)
    except ValueError:
        return host.lower()
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return f"ipv6 {int(ip) >> _INTERFACE_BITS:x}" if ip.ipv4_mapped is None else str(ip.ipv4_mapped)


def ip_prefix(address: Address) -> str:
    """The /16 of an IPv4 address or the /32 of an IPv6 address: about what one provider hands out.

    A private, link-local or loopback address is its own prefix; for IPv6 its /64 is. Otherwise members in one building
    would count as one prefix and could not link to one another. Onion names cost nothing, so they fall into 32 groups
    by their first character. Any other name counts by its last two labels, which an owner had to register.
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
    """Networks inside a prefix that usually belong to one customer: the /48 and the /56 of an IPv6 address.

    An IPv4 address has its /24 in both places. Any other name stands for itself.
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


def host_part(address: Address) -> str:
    """Strip `host:port`, `[host%zone]:port`, or either without its port, to the host."""
    if address.startswith("["):
        return address[1:].partition("]")[0].partition("%")[0]
    return address.partition("%")[0] if address.count(":") > 1 else address.partition(":")[0]


_INTERFACE_BITS: Final = 64
_IPV4_HOST_BITS: Final = 16
_IPV6_HOST_BITS: Final = 96
_IPV6_OWN_BITS: Final = 64
_OWN_IPV4: Final = tuple(
    map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"))
)
_OWN_IPV6: Final = tuple(map(IPv6Network, ("::1/128", "fc00::/7", "fe80::/10")))
