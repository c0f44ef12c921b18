"""The table of modes: a machine is built from its settings, and continues the work of its last run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from support.listed_nodes import make_members
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.machine import Address, Publication
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.node import MeshNode
from veilcast.node.config import parse_config
from veilcast.node.member_records import MemberRecords
from veilcast.node.modes import MachineInputs, mode_of
from veilcast.node.record_store import KeepRecord
from veilcast.node.store import NodeStore
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import Label
from veilcast.tree.node import TreeNode


def start(records: dict[int, bytes], seed: int = 1) -> MachineInputs:
    text = b'keyring = "k"\nlisten = "127.0.0.1:4000"\nprofile = "paper"\npeers = ["127.0.0.2:4000"]'
    config, rng = parse_config(text, Path("node.toml")), Random(seed)
    keyring = role_keyrings()["publisher"]
    return MachineInputs(
        config.settings, keyring, rng, rng.randbytes, config.public_address, config.contacts, records, START_US
    )


def test_the_mesh_is_a_mode_and_an_unknown_name_is_none() -> None:
    drivers = [mode_of(name).driver for name in ("mesh", "relay", "tree", "foil")]
    assert drivers == ["udp", "streams", "onions", "mqtt"]
    with pytest.raises(ConfigError, match="mode: there is no mode 'hedge', only mesh"):
        mode_of("hedge")


def test_a_tree_node_knows_the_keys_that_bulletins_revoke() -> None:
    revoked, keyring = RevokedKeys(bytes(32), 9), make_members(1)[2][0]
    settings = mode_of("tree").settings("hardened", {"directory": "d:1"})
    rng = Random(1)
    node = mode_of("tree").build(
        MachineInputs(settings, keyring, rng, rng.randbytes, Address("n:1"), (), {}, START_US, revoked)
    )
    assert isinstance(node, TreeNode)
    assert node._directory_client._reader._revoked is revoked


def test_a_mesh_node_takes_up_its_records_and_anchors_from_the_store(disk: Path) -> None:
    anchors = msgspec.msgpack.encode([Address("127.0.0.9:4000")])
    with NodeStore(disk, Secret(b"k" * 32), Random(1).randbytes, unread_max=9, remembered_max=9) as store:
        node = mode_of("mesh").build(start(store.unsettled_records()))
        agent = MemberRecords(node, store, START_US, subscriptions_max=9)
        agent.publish(Publication((Label(TOPIC).pair,), b"x"), START_US)
        agent.step(node, START_US)
        store.write([KeepRecord(NEIGHBOUR_RECORD, anchors)])
        again = mode_of("mesh").build(start(store.unsettled_records(), seed=2))
        assert isinstance(again, MeshNode)
        assert again.sizes()["pending"] == 1
        again.handle_timer(again.next_timer() or 0)
        knocked = [frame.destination for frame in again.frames_to_send(START_US, 9)]
        assert knocked[0] == "127.0.0.9:4000"
