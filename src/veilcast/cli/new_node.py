"""`veilcast node new`: prints a first node.toml, with a comment for each key; checked as `node run` will check it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from veilcast.cli.context import Context, Report
from veilcast.errors import ConfigError
from veilcast.node.checked_line import strip_key
from veilcast.node.config import parse_config


def new(arguments: argparse.Namespace, context: Context) -> Report:
    relayed = bool(arguments.proxy or arguments.server_key)
    meshed, treed, foiled = (getattr(arguments, key) is not None for key in ("listen", "directory", "broker"))
    overlaid = [getattr(arguments, key) for key in ("overlay", "operator", "edge")]
    brokered = any(overlaid)
    if relayed + meshed + treed + foiled + brokered != 1:
        raise ConfigError(
            "a node has --listen and peers, in a mesh; --proxy and --server-key, in a relay; or --directory, in a tree;"
            " or --broker, with foiling; or --overlay, --operator and --edge, with brokers"
        )
    if brokered and len(set(map(len, overlaid))) > 1:
        raise ConfigError("with brokers, --overlay, --operator and --edge are all needed, each once for each path")
    if relayed:
        text = relay_file(arguments.keyring, arguments.proxy, strip_key(arguments.server_key or ""))
    elif brokered:
        text = brokers_file(arguments.keyring, list(zip(*overlaid, strict=True)))
    elif foiled:
        text = foil_file(arguments.keyring, arguments.broker)
    elif treed:
        text = tree_file(arguments.keyring, arguments.directory)
    else:
        text = node_file(arguments.keyring, arguments.listen, arguments.address, arguments.peer)
    parse_config(text.encode(), Path("node.toml"))
    if meshed and not arguments.peer:
        context.warn("no --peer: this node waits for others to come; that is right for the first one only")
    return Report({"node.toml": text}, text.splitlines())


def node_file(keyring: str, listen: str, address: str | None, peers: list[str]) -> str:
    """TOML's strings and lists are written like JSON's."""
    told = f"address = {json.dumps(address)}" if address is not None else '# address = "203.0.113.7:4000"'
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
keyring = {json.dumps(keyring)}

# Where this machine takes datagrams. One UDP port; numbers only, for to look up a name would tell who talks to whom.
listen = {json.dumps(listen)}

# By what others reach it and what it sends seems to come from, where that is another: behind a router, or at 0.0.0.0.
{told}

# Members to begin with; more are found by them. Some that are mostly on are enough, and need not be the same for all.
peers = {json.dumps(peers)}

# Cells a second on each link: 1, 4 or 16. A cell has 1,200 bytes, and is sent whether there is something to say or not.
rate = 4
"""


def relay_file(keyring: str, proxies: list[str], server_key: str) -> str:
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "relay"
keyring = {json.dumps(keyring)}

[relay]
# Whom it calls: one proxy; or two, and it publishes by the first and subscribes by the second.
proxies = {json.dumps(proxies)}

# The relay's server, as its operator tells everybody. With another line it would talk to another server.
server_key = {json.dumps(server_key)}
"""


def tree_file(keyring: str, directory: str) -> str:
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "tree"
keyring = {json.dumps(keyring)}

[tree]
# The directory, as its operator tells everybody. With another line it would be in another network.
directory = {json.dumps(directory)}

[tor]
# Left as it is, the node starts a tor of its own; the program must be installed. Or use the one that runs here:
# control = "127.0.0.1:9051"
"""


def brokers_file(keyring: str, paths: list[tuple[str, str, str]]) -> str:
    (overlay, operator, edge), *others = paths
    text = f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "brokers"
keyring = {json.dumps(keyring)}

[brokers]
# The overlay, as its operator has signed it, and the line by which the operator is known. With another line it would
# believe another operator.
overlay = {json.dumps(overlay)}
operator = {json.dumps(strip_key(operator))}

# The virtual node whose replicas it calls. They know who calls them; take one near you.
edge = {json.dumps(edge)}
"""
    for overlay, operator, edge in others:
        text += f"""
# Another path, of other brokers. All goes by every path, and arrives as long as one of them carries.
[[brokers.also]]
overlay = {json.dumps(overlay)}
operator = {json.dumps(strip_key(operator))}
edge = {json.dumps(edge)}
"""
    return text


def foil_file(keyring: str, broker: str) -> str:
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "foil"
keyring = {json.dumps(keyring)}

[foil]
# Any broker of MQTT, in TLS; in the clear only on this machine. It sees events, and must not know which are true.
broker = {json.dumps(broker)}

# What its certificate is for, where that is a name; who may have signed it, where the system does not trust them; and
# user and password, a line each, where the broker asks for them:
# name = "broker.example.org"
# ca = "broker.pem"
# login = "broker.login"

# Fakes of each event, and of each subscription. All that is sent and carried grows with them.
k_p = 4
k_s = 0

# What is publicly known of a value, so that fakes move as it does: by about how much in one event.
# [foil.attributes.price]
# deviation = 1.0
"""
