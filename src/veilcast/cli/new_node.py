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
        text = foil_file(arguments.keyring, arguments.broker, arguments.history)
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
    address_line = f"address = {json.dumps(address)}" if address is not None else '# address = "203.0.113.7:4000"'
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
keyring = {json.dumps(keyring)}

# Where this computer receives datagrams. One UDP port; numbers only, because a name lookup would reveal your peers.
listen = {json.dumps(listen)}

# The address by which others reach it, if that differs: behind a router, or with 0.0.0.0 above.
{address_line}

# Members to begin with; they name more. A few that are mostly online are enough, and they may differ between nodes.
peers = {json.dumps(peers)}

# Cells a second on each link: 1, 4 or 16. A cell has 1,200 bytes, and is sent whether or not there is anything to send.
rate = 4
"""


def relay_file(keyring: str, proxies: list[str], server_key: str) -> str:
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "relay"
keyring = {json.dumps(keyring)}

[relay]
# The proxies that it calls: one; or several, the first for publishing and the others for subscribing.
proxies = {json.dumps(proxies)}

# The line that the server's operator publishes. With another line it would talk to another server.
server_key = {json.dumps(server_key)}
"""


def tree_file(keyring: str, directories: list[str]) -> str:
    what = "The line that the directory's operator publishes. With another line"
    directory: str | list[str] = directories[0]
    if len(directories) > 1:
        what = "The lines of all directories: more than half of them must have signed a listing. With other lines"
        directory = directories
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "tree"
keyring = {json.dumps(keyring)}

[tree]
# {what} it would be in another network.
directory = {json.dumps(directory)}

[tor]
# As it is, the node starts a tor of its own; the program must be installed. Or use the one that runs here:
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

# The virtual node whose replicas it calls. They know their callers; take one near you.
edge = {json.dumps(edge)}
"""
    for overlay, operator, edge in others:
        text += f"""
# Another path, of other brokers. Everything goes by every path, and arrives as long as one of them works.
[[brokers.also]]
overlay = {json.dumps(overlay)}
operator = {json.dumps(strip_key(operator))}
edge = {json.dumps(edge)}
"""
    return text


def foil_file(keyring: str, broker: str, history: str | None = None) -> str:
    history_line = '# history = "past.csv"' if history is None else f"history = {json.dumps(history)}"
    return f"""\
# The file of one node: veilcast node run -c node.toml. All keys: docs/operating.md. Paths are relative to this file.
mode = "foil"
keyring = {json.dumps(keyring)}

[foil]
# Any MQTT broker, with TLS; without TLS only on this computer. It sees events, and must not know which are true.
broker = {json.dumps(broker)}

# The name in its certificate, if it has one; its authorities, if the system does not trust them; and a file with user
# and password, a line each, if the broker asks for them:
# name = "broker.example.org"
# ca = "broker.pem"
# login = "broker.login"

# Fakes for each event, and for each subscription. All traffic grows with them.
k_p = 9
k_s = 0

# Past values of your attributes, a column for each, named like it: the fakes move as these values do. Without them the
# fakes of a value with a trend, a season or rests show which event is true. Some thousand lines are good. Check it
# before you publish: veilcast foil check past.csv price --domain 0..1024 -c node.toml
{history_line}
"""
