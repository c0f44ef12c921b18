"""A member uses its TLS certificate as an issuer's: to move nodes, to multiply, to outlive its revocation.

The adversary has one membership, the whole listing and the network key. Every test fails on a directory or a node that
accepts a member's certificate as an issuer's.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from support.directory_host import KEYRING, LEASE_US, STATE, DirectoryHost, name_of
from support.forged_certificates import DIRECTORY, MEMBER, forge_certificates, forge_descriptor
from support.listed_nodes import EPOCH_US, EPOCHS, FIRST, NOW, SECOND, address_of, make_members
from veilcast.authority import issuer, member_statement
from veilcast.authority.bulletin import Bulletin
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import derive_tls_key
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.secret import Secret
from veilcast.crypto.x509 import CertificatePath, Leaf
from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Event
from veilcast.tree.config import TreeConfig
from veilcast.tree.listing import Listing, ListingDownload, sign_listing
from veilcast.tree.node import TreeNode
from veilcast.wire import decode, encode
from veilcast.wire.geometry import LISTED_MAX
from veilcast.wire.tree import DirectorySignature, FetchListing, ListedNode, ListingHead, RefusalCode, RequestRefused

MALLORY, VICTIM = make_members(6)[2][:2]
TRUE, EVIL = address_of(1), Address("mallory.example:4100")
REFUSED = [RequestRefused(1, RefusalCode.MALFORMED)]


def box_of(keyring: Keyring) -> bytes:
    return keyring.membership.certificate.leaf.subject


def test_a_members_certificate_does_not_move_another_node() -> None:
    host = DirectoryHost()
    host.enrol(VICTIM, NOW, TRUE)
    forged = forge_descriptor(MALLORY, name_of(VICTIM), box_of(VICTIM), EVIL, NOW + SECOND)
    assert host.ask(forged, NOW + SECOND) == REFUSED
    assert host.listing(NOW + SECOND).addresses == (TRUE,)


def test_one_membership_gives_one_listed_node() -> None:
    host = DirectoryHost()
    for number in range(200):
        box = public_of(Secret(number.to_bytes(32, "big")))
        assert host.ask(forge_descriptor(MALLORY, fingerprint(box), box, EVIL, NOW), NOW) == REFUSED
    for number in range(3):
        host.enrol(MALLORY, NOW + number * SECOND, address_of(number))
    assert host.listing(NOW + 3 * SECOND).ids == (name_of(MALLORY),)


def test_a_revoked_member_enrols_under_no_name() -> None:
    ended = issuer.revoke(STATE, "node 0", None, FIRST, bytes)
    assert isinstance(ended.bulletin, Bulletin)
    revoked = RevokedKeys(KEYRING.root, 10)
    revoked.add(ended.bulletin, FIRST)
    host, now = DirectoryHost(revoked=revoked), NOW + EPOCH_US
    assert host.enrol(MALLORY, now) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert host.ask(forge_descriptor(MALLORY, name_of(VICTIM), box_of(VICTIM), EVIL, now), now) == REFUSED


def test_an_expired_member_enrols_under_no_name() -> None:
    host, now = DirectoryHost(), NOW + (EPOCHS + 24_000) * EPOCH_US
    assert host.ask(forge_descriptor(MALLORY, name_of(VICTIM), box_of(VICTIM), EVIL, now), now) == REFUSED


def forged_listing() -> ListingHead:
    """A listing with one node of the adversary's choice, signed by the adversary as if it were a directory."""
    listing = Listing([ListedNode(EVIL, box_of(MALLORY), NOW, NOW + LEASE_US)], NOW, NOW + LEASE_US)
    certificates = forge_certificates(MALLORY, name_of(MALLORY), DIRECTORY)
    head = sign_listing(listing, MALLORY).head
    body = msgspec.msgpack.encode((head.version, head.until_us, head.count, head.pages))
    signature = derive_tls_key(MALLORY.membership.link).sign(body, purpose=b"veilcast/tree-listing")
    return msgspec.structs.replace(head, signatures=(DirectorySignature(certificates, signature),))


def test_a_members_certificate_does_not_sign_a_listing() -> None:
    with pytest.raises(RemoteError):
        ListingDownload(forged_listing(), StatementReader(VICTIM), None, NOW, LISTED_MAX)


def test_a_node_refuses_a_listing_of_a_revoked_directory() -> None:
    """Nor with certificates that it signs itself. The test asks a node that starts and downloads."""
    ended = issuer.revoke(STATE, "directory", None, FIRST, bytes)
    assert isinstance(ended.bulletin, Bulletin)
    revoked = RevokedKeys(KEYRING.root, 10)
    revoked.add(ended.bulletin, FIRST)
    for epochs, taken in ((0, True), (1, False)):
        now = NOW + epochs * EPOCH_US
        heads: list[ListingHead] = [sign_listing(Listing([], now, now + LEASE_US), KEYRING).head]
        if epochs:
            certificates = forge_certificates(KEYRING, name_of(KEYRING), DIRECTORY)
            forged = msgspec.structs.replace(heads[0].signatures[0], certificates=certificates)
            heads.append(msgspec.structs.replace(heads[0], signatures=(forged,)))
        for head in heads:
            node = TreeNode(
                TreeConfig(), VICTIM, (Address("d:1"),), TRUE, Random(1), Random(2).randbytes, now, revoked=revoked
            )
            node.handle_timer(node.next_timer() or 0)
            node.handle_timer(now + 3 * SECOND)
            fetches = [event.peer for event in drained(node) if isinstance(event, Connect) and "fetch" in event.peer]
            node.peer_up(fetches[0], now)
            (asked,) = [decode(frame.data) for frame in node.frames_to_send(now, 9)]
            assert isinstance(asked, FetchListing)
            node.receive(encode(msgspec.structs.replace(head, number=asked.number)), fetches[0], now)
            assert (node.refused["ForgedError"] == 0) == taken


def drained(node: TreeNode) -> list[Event]:
    events = []
    while (event := node.next_event()) is not None:
        events.append(event)
    return events


def test_the_attack_succeeds_if_only_names_and_signatures_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted flaw: a validation that lets any certificate issue others. The attacks above must notice it."""

    def check_names_and_signatures(chain: tuple[bytes, ...], root: bytes) -> CertificatePath:
        certificates = [x509.load_der_x509_certificate(data) for data in chain]
        for certificate, above in pairwise(certificates):
            certificate.verify_directly_issued_by(above)
        leaf = certificates[0]
        uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        (name,) = leaf.subject
        key = leaf.public_key()
        assert isinstance(key, Ed25519PublicKey)
        public, lists = key.public_bytes_raw(), DIRECTORY in uses
        return CertificatePath(
            Leaf(bytes.fromhex(str(name.value)), public, root, MEMBER in uses, False, 0, 1 << 40, lists), None
        )

    monkeypatch.setattr(member_statement, "_verify_chain", check_names_and_signatures)
    host = DirectoryHost()
    host.enrol(VICTIM, NOW, TRUE)
    host.ask(forge_descriptor(MALLORY, name_of(VICTIM), box_of(VICTIM), EVIL, NOW + SECOND), NOW + SECOND)
    assert host.listing(NOW + SECOND).addresses == (EVIL,)
    ListingDownload(forged_listing(), StatementReader(VICTIM), None, NOW, LISTED_MAX)
