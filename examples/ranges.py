"""A topic that is cut into cells: a subscriber to a range joins the meshes of the cells that the range touches.

Three nodes run in the simulator's world: a publisher of temperatures, a subscriber to frost, and a node between them.
"""

from functools import partial
from os import urandom

from veilcast import All, Label, Publication, Range
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import TopicRecord
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.checkers import Checker
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.world import World
from veilcast.topics import Reals, Schema

WEATHER, FROST = Label("weather"), Range("temp", None, 0)
epoch = epoch_of(START_US, HOUR_US)
schema = Schema((Reals("temp", -40, 60, bits=12, routing=3),))
authority = issuer.create(HOUR_US, urandom)
authority = issuer.declare(authority, TopicRecord("weather", schema, profile="paper"), urandom)
authority, publisher = issuer.grant_ready(authority, "p", [("weather", "publisher")], epoch, 24, urandom)
authority, reader = issuer.grant_ready(authority, "r", [("weather", "subscriber")], epoch, 24, urandom)
authority, forwarder = issuer.grant_ready(authority, "f", [], epoch, 24, urandom)


class Printer(Checker):
    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            print(f"{address} is told of {event.note.publication.body.decode()}")


def start(keyring: Keyring, neighbours: list[Address], birth: Birth) -> MeshNode:
    node = MeshNode(MeshConfig(), keyring, birth.rng, birth.entropy, neighbours, birth.now)
    if keyring is publisher:
        node.advertise("weather", birth.now)
    elif keyring is reader:
        node.subscribe(All(WEATHER, FROST), birth.now)
    return node


world = World(seed=1)
world.watch(Printer())
p, f, r = (Address(name) for name in "pfr")
world.add(p, partial(start, publisher, [f]))
world.add(f, partial(start, forwarder, [p, r]))
world.add(r, partial(start, reader, [f]))
world.connect(p, f)
world.connect(f, r)
world.run(10_000_000)
for temp in (-12.5, 1.5, 30.0):
    note = Publication((WEATHER.pair, ("temp", temp)), b"%r degrees" % temp)
    world.machine(p).publish(note, world.now)
    world.run(1_000_000)

# 1.5 degrees lie in the cell from -2.5 to 10 that frost touches: they reach the reader's node, which drops them.
keys = reader.keys_at(epoch).topic("weather")
print(f"frost touches {len(keys.for_interests([FROST]))} of {len(keys.for_all())} cells")
print(f"of 3 notes, {world.machine(f).load.others.notes} went by the node between")
