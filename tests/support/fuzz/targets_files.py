"""Targets: files of people and operators. TOML of all processes, overlays, JSON of networks and audits, tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast import observe
from veilcast.cli.local.network import LocalNetwork, net_file
from veilcast.cli.local.network import read_network as read_net
from veilcast.cli.overlay_up import read_plan
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, LocalError, StorageError, TamperedError, VeilcastError
from veilcast.lab.audit.operator_files import read_links, read_members
from veilcast.net.client_session import control_path
from veilcast.net.tor_process import read_network
from veilcast.node import broker_overlay, relay
from veilcast.node.broker_overlay import BrokerFile, load_overlay, parse_broker
from veilcast.node.config import NodeConfig, parse_config
from veilcast.node.modes import MODES, mode_of
from veilcast.node.relay import ProxyFile, ServerFile, parse_proxy, parse_server
from veilcast.node.tree import DirectoryFile, parse_directory
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim import scenario

GROUP = Group()
PATH = Path("/etc/veilcast/node.toml")


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="veilcast-fuzz-"))


def on_disk(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes], object]:
    """A reader of files as a function of bytes."""
    path = folder() / name

    def check(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    path.touch(mode=0o600)
    return check


def keys_of(*kinds: Any) -> tuple[str, ...]:
    """The names of all fields of these structs and of those inside them, and the values that literals allow."""
    found: dict[str, None] = {}
    todo, seen = list(kinds), set()
    while todo:
        kind = todo.pop()
        if isinstance(kind, str):
            found[f'"{kind}"'] = None
        if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
            todo += [inner for inner in get_args(kind) if inner not in seen]
        elif kind not in seen:
            for name, hint in get_type_hints(kind, include_extras=True).items():
                found[name] = None
                todo.append(hint)
        seen.add(kind)
    return tuple(found)


LEAST = 'keyring = "k"\nlisten = "127.0.0.1:4000"\n'


@GROUP.target("node-toml", "node.toml of every mode", "node.config:parse_config", "node.toml_file:parse_file")
def node_toml() -> Prepared:
    modes = [f'keyring = "k"\nmode = "{name}"\n[{name}]\n' for name in MODES]
    examples = [
        LEAST,
        LEAST + 'profile = "paper"\npeers = ["[::1]:4001"]\n[mesh]\nneighbours_max = 20\n[mesh.cover]\nmu = 0.5\n',
        LEAST + 'state = "s"\n[log]\nformat = "json"\n[limits]\nunread = 5\n[metrics]\nlisten = "127.0.0.1:9"\n',
        *modes,
        'keyring = "k"\nmode = "foil"\n[foil]\nbroker = "mqtt://127.0.0.1:1883"\n',
        'keyring = "k"\nmode = "tree"\n[tree]\ndirectory = "127.0.0.1:4100"\n[tor]\ncontrol = "127.0.0.1:9051"\n',
        'keyring = "k"\nmode = "relay"\n[relay]\nproxies = ["127.0.0.1:1"]\nserver_key = "veilcast-server-x"\n',
    ]
    tokens = keys_of(NodeConfig, *(type(mode_settings(name)) for name in MODES)) + tuple(MODES)
    return Prepared(
        lambda data: parse_config(data, PATH),
        (ConfigError,),
        [text.encode() for text in examples],
        Format.TOML,
        tokens=tokens,
    )


def mode_settings(name: str) -> Any:
    with suppress(VeilcastError, msgspec.ValidationError, KeyError):
        return mode_of(name).settings("hardened", {})
    return None


@GROUP.target(
    "host-toml",
    "files of servers, proxies, directories and brokers",
    "node.relay:parse_server",
    "node.relay:parse_proxy",
    "node.tree:parse_directory",
    "node.broker_overlay:parse_broker",
)
def host_toml() -> Prepared:
    parsers = (parse_server, parse_proxy, parse_directory, parse_broker)

    def check(data: bytes) -> object:
        kinds = []
        for each in parsers:
            try:
                kinds.append(type(each(data, PATH)).__name__)
            except ConfigError as error:
                kinds.append(str(error)[:80])
        return "|".join(kinds)

    server = relay.encode_server_line(_server_keys().public())
    operator = broker_overlay.encode_operator_line(_operator().public)
    examples = [
        LEAST + 'keys = "s"\n[relay]\nleases_max = 10\n',
        LEAST + f'server = "127.0.0.1:1"\nserver_key = "{server}"\nmask = "m"\n[relay]\nbatch_us = 5\n',
        'keyring = "k"\nlisten = "127.0.0.1:5"\n[tor]\nnone = true\n[tree]\nlease_us = 5\n',
        LEAST + f'overlay = "o"\noperator = "{operator}"\n[brokers]\n',
    ]
    tokens = keys_of(ServerFile, ProxyFile, DirectoryFile, BrokerFile)
    return Prepared(check, (), [text.encode() for text in examples], Format.TOML, tokens=tokens)


@cache
def _server_keys() -> ServerKeys:
    from veilcast.sim.relay.population import server_keys

    return server_keys()


@cache
def _operator() -> SigningKey:
    return SigningKey(Secret(bytes(32)))


def overlay_text() -> str:
    nodes: list[str] = []
    for name in ("north", "south"):
        public = [
            broker_overlay.BrokerPublic(bytes((at,)) * 32, name.encode().ljust(16)[:15] + bytes((at,)))
            for at in range(3)
        ]
        brokers = [broker_overlay.encode_broker_line(_with_name(each, name)) for each in public]
        rows = [
            f'{{ broker = "{line}", address = "192.0.2.{len(nodes)}:{4200 + at}" }}' for at, line in enumerate(brokers)
        ]
        nodes.append(f'[[nodes]]\nname = "{name}"\nreplicas = [{", ".join(rows)}]\n')
    return 'profile = "hardened"\nlinks = [["north", "south"]]\n' + "".join(nodes)


def _with_name(public: broker_overlay.BrokerPublic, name: str) -> broker_overlay.BrokerPublic:
    return public._replace(key=bytes(a ^ b for a, b in zip(public.key, name.encode().ljust(32), strict=True)))


@GROUP.target(
    "overlay-toml",
    "an operator's overlay.toml, and the file of `brokers up`",
    "node.broker_overlay:load_overlay",
    "cli.overlay_up:read_plan",
)
def overlay_toml() -> Prepared:
    up = '[[nodes]]\nname = "a"\nreplicas = 3\n[[members]]\nrole = "publisher"\nedge = "a"\n'
    both = (on_disk(load_overlay, "overlay.toml"), on_disk(read_plan, "up.toml"))

    def check(data: bytes) -> object:
        found = []
        for each in both:
            try:
                found.append(type(each(data)).__name__)
            except LocalError as error:
                found.append(str(error)[:80])
        return "|".join(found)

    tokens = (*keys_of(broker_overlay.OverlayFile), "members", "edge", "role", "spare", "repository", "replicas")
    return Prepared(check, (), [overlay_text().encode(), up.encode()], Format.TOML, tokens=tokens)


@GROUP.target("scenario-toml", "a scenario of the simulator", "sim.scenario:parse_config")
def scenario_toml() -> Prepared:
    examples = [path.read_bytes() for path in sorted(SCENARIOS.glob("*.toml"))]
    tokens = keys_of(scenario.ScenarioConfig)
    return Prepared(lambda data: scenario.parse_config(data, "s"), (LocalError,), examples, Format.TOML, tokens=tokens)


@GROUP.target("client-toml", "node.toml as a client reads it", "net.client_session:control_path")
def client_toml() -> Prepared:
    examples = [LEAST.encode(), b'control = "c"\n', b'state = "s"\n', b"control = 1\n"]
    return Prepared(
        on_disk(control_path), (ConfigError, StorageError), examples, Format.TOML, tokens=("control", "state")
    )


@GROUP.target("private-network", "the file of a private Tor network", "net.tor_process:read_network")
def private_network() -> Prepared:
    line = f"auth1 orport=5000 no-v2 v3ident={'A' * 40} 127.0.0.1:5001 {'B' * 40}"
    examples = [msgspec.json.encode({"authorities": [line]}), msgspec.json.encode({"authorities": [line, line]})]
    return Prepared(on_disk(read_network), (ConfigError,), examples, Format.JSON, tokens=('"authorities"', f'"{line}"'))


@GROUP.target("net-json", "the file of a local network", "cli.local.network:read_network")
def net_json() -> Prepared:
    path = net_file(folder())

    def check(data: bytes) -> object:
        path.write_bytes(data)
        return read_net(folder())

    net = {"topic": "t", "addresses": ["127.0.0.1:1"], "roles": ["publisher"], "links": [[0, 1]]}
    plans: list[dict[str, object]] = [{"nodes": 3}, {"nodes": 9, "mode": "relay", "rate": 4}]
    examples = [msgspec.json.encode({"plan": plan, **net}) for plan in plans]
    tokens = tuple(f'"{name}"' for name in keys_of(LocalNetwork))
    return Prepared(check, (LocalError,), examples, Format.JSON, tokens=tokens)


@GROUP.target(
    "members-json",
    "who has which role, for an audit",
    "lab.audit.operator_files:read_members",
    "lab.audit.operator_files:read_links",
)
def members_json() -> Prepared:
    both = (on_disk(read_members, "members.json"), on_disk(read_links, "links.json"))

    def check(data: bytes) -> object:
        found = []
        for each in both:
            try:
                found.append(str(len(each(data))))  # type: ignore[arg-type]
            except LocalError as error:
                found.append(str(error)[-60:])
        return "|".join(found)

    examples = [
        b'[{"node":"127.0.0.1:1","role":"publisher"},{"node":"b","role":"x"}]',
        b'{"nodes":[{"address":"127.0.0.1:1","role":"subscriber","topic":"t"}]}',
        b"node,role\na,publisher\nb,\n",
        b'u,v\na,b\n"c",d\n',
        b'[{"u":"a","v":"b"}]',
        b"\xef\xbb\xbfnode,role\na,publisher\n",
    ]
    words = ('"node"', '"role"', '"publisher"', '"u"', '"v"', "node", "role", '"nodes"', '"address"')
    return Prepared(check, (), examples, Format.JSON, tokens=words)


@GROUP.target("observations", "tables of observations, every kind", "observe:read_table")
def observations() -> Prepared:
    """The first byte chooses the table."""
    tables = list(observe.TABLES.items())

    def check(data: bytes) -> object:
        name, kind = tables[(data[0] if data else 0) % len(tables)]
        (folder() / f"{name}.jsonl").write_bytes(data[1:])
        return tuple(observe.read_table(folder(), kind))

    rows = [
        observe.CellRow("r", 1, 2, "a", "b", 3),
        observe.TopologyRow("r", 1, "a", "b"),
        observe.PresenceRow("r", 1, "a"),
        observe.InsiderRow("r", 1, 2, "a", "b", "k", b"m", b"t", b"c", "x"),
        observe.ServerRow("r", 1, 2, "a", "b", b"t", 3),
        observe.TruthRow("r", "t", "n", "role", 1, 2),
    ]
    lines = [msgspec.json.encode(msgspec.structs.astuple(row)) + b"\n" for row in rows]
    examples = [bytes((at,)) + line * 2 for at, line in enumerate(lines)]
    return Prepared(check, (TamperedError,), examples, Format.JSON, prefixes=(b"\0", b"\1"), skip=1)


@GROUP.target(
    "key-lines",
    "lines that people copy, and small secret files",
    "node.checked_line:decode_line",
    "node.relay:decode_server_line",
    "node.relay:read_mask",
    "node.broker_overlay:decode_broker_line",
    "node.broker_overlay:decode_operator_line",
)
def key_lines() -> Prepared:
    mask = folder() / "mask"
    mask.touch(mode=0o600)

    def check(data: bytes) -> object:
        text, found = data.decode("utf-8", "surrogateescape"), []
        mask.write_bytes(data)
        for read in (
            lambda: relay.decode_server_line("key", text),
            lambda: broker_overlay.decode_broker_line("key", text),
            lambda: broker_overlay.decode_operator_line("key", text),
            lambda: relay.read_mask(mask),
        ):
            try:
                read()
                found.append("read")
            except (ConfigError, TamperedError) as error:
                found.append(type(error).__name__)
        return "".join(found)

    from veilcast.sim.relay.population import proxy_mask

    relay.write_mask(mask, proxy_mask())
    lines = [
        relay.encode_server_line(_server_keys().public()),
        broker_overlay.encode_operator_line(_operator().public),
        broker_overlay.encode_broker_line(broker_overlay.BrokerPublic(bytes(32), bytes(16))),
        mask.read_text(),
    ]
    quoted = [f'server_key = "{line}"' for line in lines]
    return Prepared(check, (), [line.encode() for line in (*lines, *quoted)])


SCENARIOS = Path(scenario.__file__).parents[1] / "scenarios"
