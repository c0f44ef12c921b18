"""Targets: `receive()` of each mode's machines. Nothing that arrives may be raised."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

from support import foil_network, hardened_mesh_network, link_network, relay_network, simulated_overlay, tree_network
from support.fuzz.fuzz_machine import RunningMachine, prepare, record_received
from support.fuzz.fuzz_target import Group, Prepared
from veilcast.errors import LocalError, MalformedError
from veilcast.link.config import LinkConfig
from veilcast.machine import Address
from veilcast.sim.relay.population import SERVER
from veilcast.topics import Label
from veilcast.wire import decode, encode, pad, unpad
from veilcast.wire.mesh import Heartbeat

GROUP = Group()


def _relay(name: str, profile: Any) -> RunningMachine:
    network = relay_network.RelayNetwork(profile)
    with record_received(network.machine(name)) as heard:
        network.subscribe("c0", Label(relay_network.TOPIC))
        network.subscribe("c1", Label(relay_network.TOPIC))
        for number in range(3):
            network.publish("c1", b"body %d" % number, level=number + 3, kind="a")
            network.run(5)
    return RunningMachine(network.machine(name), network.world.now, heard)


@GROUP.target("machine-relay-client", "a relay's client, from a proxy", "relay.client:RelayClient")
def relay_client() -> Prepared:
    return prepare(partial(_relay, "c0", "hardened"))


@GROUP.target("machine-relay-client-paper", "a relay's client of the papers' profile", "relay.paper:_DECODER")
def relay_client_paper() -> Prepared:
    return prepare(partial(_relay, "c0", "paper"))


@GROUP.target("machine-relay-proxy", "a proxy, from clients and the server", "relay.proxy:RelayProxy")
def relay_proxy() -> Prepared:
    return prepare(partial(_relay, "p0", "hardened"))


@GROUP.target("machine-relay-server", "a relay's server, from proxies", "relay.server:RelayServer")
def relay_server() -> Prepared:
    return prepare(partial(_relay, SERVER, "hardened"))


def _tree(name: str) -> RunningMachine:
    network = tree_network.TreeNetwork(5)
    with record_received(network.machine(name)) as heard:
        network.run(10)
        network.subscribe("n1:1")
        network.run(20)
        for number in range(2):
            network.publish("n2:1", b"body %d" % number)
            network.run(8)
    return RunningMachine(network.machine(name), network.now, heard)


@GROUP.target("machine-tree-node", "a node of the tree, from anonymous streams", "tree.node:TreeNode")
def tree_node() -> Prepared:
    return prepare(partial(_tree, "n1:1"))


@GROUP.target("machine-tree-directory", "the tree's directory, from anonymous streams", "tree.directory:Directory")
def tree_directory() -> Prepared:
    return prepare(partial(_tree, tree_network.DIRECTORY))


def _brokers(name: str, profile: Any) -> RunningMachine:
    network = simulated_overlay.SimulatedOverlay(profile, clients={"x": "a", "y": "c"})
    with record_received(network.machine(name)) as heard:
        network.subscribe("y", Label(simulated_overlay.TOPIC))
        network.run(8)
        for number in range(2):
            network.publish("x", b"body %d" % number, ("level", number), ("kind", "a"))
            network.run(6)
    return RunningMachine(network.machine(name), network.world.now, heard)


@GROUP.target("machine-broker", "a broker, from clients and other brokers", "brokers.broker:Broker")
def broker() -> Prepared:
    return prepare(partial(_brokers, "b1", "hardened"))


@GROUP.target("machine-broker-paper", "a broker of the papers' profile", "brokers.broker:Broker")
def broker_paper() -> Prepared:
    return prepare(partial(_brokers, "b1", "paper"))


@GROUP.target("machine-broker-client", "a client of brokers, from its edge node", "brokers.client:BrokerClient")
def broker_client() -> Prepared:
    return prepare(partial(_brokers, "y", "hardened"))


def _foil() -> RunningMachine:
    talk = foil_network.FoilNetwork(foil_network.CONFIG)
    talk.add("paul", "publisher")
    reader = talk.add("rita", "subscriber")
    with record_received(reader) as heard:
        reader.subscribe(Label(foil_network.TOPIC), talk.now)
        talk.run(5)
        for value in (5.0, 100.0, 700.5):
            talk.places["paul"].member.publish(foil_network.price_publication(value), talk.now)
            talk.run(3)
    return RunningMachine(reader, talk.now, heard)


@GROUP.target("machine-foil-member", "a member behind a broker of MQTT", "foil.member:FoilMember")
def foil_member() -> Prepared:
    return prepare(_foil)


def _mesh(role: str) -> RunningMachine:
    """Heartbeats travel padded and numbered: scripts hold them without their padding, and get new numbers."""
    place = hardened_mesh_network.HardenedMeshNetwork("p-f f-s s-g g-p f-g")
    node = place.node(role)
    with record_received(node) as heard:
        place.run(30)
        for number in range(2):
            place.publish(b"body %d" % number)
            place.run(5)
    size, beat = hardened_mesh_network.HARDENED_CONFIG.heartbeat_bytes, encode(Heartbeat(0, ()))[:1]

    numbers = count(1_000_000)

    def wrap(data: bytes, now: int) -> bytes:
        if not data.startswith(beat):
            return data
        try:
            message = decode(data)
            assert isinstance(message, Heartbeat)
            return pad(encode(Heartbeat(next(numbers), message.riders)), size)
        except (MalformedError, LocalError):
            return data

    bare = [(source, unpad(data) if data[:1] == b"\0" else data) for source, data in heard]
    return RunningMachine(node, place.world.now, bare, wrap)


@GROUP.target("machine-mesh-subscriber", "a hardened mesh node that reads, from neighbours", "mesh.node:MeshNode")
def mesh_subscriber() -> Prepared:
    return prepare(partial(_mesh, "s"))


@GROUP.target("machine-mesh-forwarder", "a hardened mesh node that forwards, from neighbours", "mesh.node:MeshNode")
def mesh_forwarder() -> Prepared:
    return prepare(partial(_mesh, "f"))


def _link_machine(*, sealed: bool) -> RunningMachine:
    street = link_network.LinkWorld("a", "b", config=LinkConfig())
    machine = street.links("b")
    with record_received(machine) as heard:
        street.tell("a", "b", b"hello", bytes(5000), b"x" * 3000)
        street.run(8_000_000)
    if not sealed:
        return RunningMachine(machine, street.now, heard)
    session = street.links("a")._links[Address("b")].channel.generations.session  # type: ignore[union-attr]
    theirs = machine._links[Address("a")].channel.generations.session  # type: ignore[union-attr]
    room = 1200 - 24

    def wrap(data: bytes, now: int) -> bytes:
        return session.seal(data[:room].ljust(room, b"\0"), min(now, session.ends_us - 1))

    bodies = []
    for source, data in heard:
        try:
            bodies.append((source, theirs._receiver.decrypt(data[8:])))
        except Exception:
            continue
    return RunningMachine(machine, street.now, bodies or [(Address("a"), bytes(room))], wrap)


@GROUP.target("machine-link", "a link, from strangers and recordings", "link.machine:LinkMachine")
def link_machine() -> Prepared:
    return prepare(partial(_link_machine, sealed=False), skip=0)


@GROUP.target("machine-link-member", "a link, from the hostile member at its other end", "link.machine:LinkMachine")
def link_member() -> Prepared:
    """The peer seals each record as the body of a cell."""
    return prepare(partial(_link_machine, sealed=True), skip=0)
