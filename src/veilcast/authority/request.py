"""Requests for grants, made with the member's own keys (P0 4.2): the private keys never leave the member.

The member keeps a `PendingRequest` (its link key and, to publish, a seed) and sends a `Request` with the public half:
the link key, the key of its lots, and one signing key for each epoch it wants certified. Without a topic it asks for a
membership alone. The authority answers with a box that only the link key opens. `complete_request` checks that one
authority signed everything in the reply, and that the reply fits the request. It makes a keyring of the reply, or adds
the reply to the member's keyring.

The reply proves which authority made it, and not that this is the right one. A first keyring is bound to the root that
the reply names, so the member compares that root's fingerprint, or pins it in advance.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.epoch import BATCH_MAX
from veilcast.authority.keyring import NETWORK_KEY, Grant, Keyring, Membership
from veilcast.authority.role import Certificates, derive_tls_key
from veilcast.authority.struct_codec import decode_struct, encode_struct
from veilcast.authority.topic_keys import TopicRole, derive_publisher_key
from veilcast.authority.topic_record import check_topic
from veilcast.crypto import vrf
from veilcast.crypto.certificate import EPOCH_MAX, CertificateChain, CertificateKind
from veilcast.crypto.key_agreement import PUBLIC, public_of
from veilcast.crypto.noise import Keypair
from veilcast.crypto.sealed_box import box, unbox
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC as SIGNING_PUBLIC
from veilcast.errors import AuthorityError, ForgedError, MalformedError
from veilcast.machine import Entropy


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The public half: the topic asked for, and the keys to certify, one signing key for each epoch from `first` on.

    An empty topic asks for a membership alone. `epoch_us` is the length of the epochs that `first` is counted in. Not
    every 32 bytes are a key of lots; a member with a wrong one can prove no lot, and nothing else follows. `tls` is the
    public key for TLS streams, if a certificate for it is wanted.
    """

    topic: str
    role: TopicRole
    epoch_us: int
    link: bytes
    lot: bytes
    first: int
    publisher_keys: bytes = b""
    tls: bytes = b""

    def __post_init__(self) -> None:
        if self.topic:
            check_topic(self.topic)
        if len(self.link) != PUBLIC or len(self.lot) != vrf.PUBLIC:
            raise MalformedError("a request's link key or key of lots has the wrong size")
        if not 0 <= self.first <= EPOCH_MAX or self.epoch_us < 1:
            raise MalformedError("a request's epoch is out of bounds")
        if len(self.publisher_keys) % SIGNING_PUBLIC or len(self.publisher_keys) > BATCH_MAX * SIGNING_PUBLIC:
            raise MalformedError("a request's signing keys are out of bounds")
        if self.tls and len(self.tls) != SIGNING_PUBLIC:
            raise MalformedError("a request's TLS key has the wrong size")
        if bool(self.publisher_keys) != (bool(self.topic) and self.role == "publisher"):
            raise MalformedError("a publisher's request has signing keys, any other has none")


class PendingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The private half, kept by the member until the reply comes, with the request."""

    link: Secret
    seed: Secret
    request: Request


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The authority's grant before sealing: a keyring without the member's private keys."""

    root: bytes
    epoch_us: int
    network: Secret
    membership: CertificateChain
    grant: Grant | None
    tls: Certificates = ()

    def __post_init__(self) -> None:
        if len(self.network) != NETWORK_KEY:
            raise MalformedError("a reply's network key has the wrong size")


def make_request(
    topic: str,
    role: TopicRole,
    epoch_us: int,
    first: int,
    epochs: int,
    entropy: Entropy,
    link: Secret | None = None,
    *,
    tls: bool = False,
) -> PendingRequest:
    """Make fresh keys and the request for them. `link` is the key of a membership that the member already has.

    With `tls` it asks for a certificate for TLS streams, too; a request without one is made faster.
    """
    if not 1 <= epochs <= BATCH_MAX:
        raise AuthorityError(
            f"a grant holds 1 to {BATCH_MAX} epochs, not {epochs}; ask for fewer days or longer epochs"
        )
    link = link if link is not None else Secret(entropy(32))
    seed = Secret(entropy(32))
    keys = b""
    if topic and role == "publisher":
        keys = b"".join(derive_publisher_key(seed, topic, first + offset).public for offset in range(epochs))
    lot = vrf.public_of(vrf.derive_lot_key(link))
    shown = derive_tls_key(link).public if tls else b""
    return PendingRequest(link, seed, Request(topic, role, epoch_us, public_of(link), lot, first, keys, shown))


def decode_request(data: bytes) -> Request:
    """Parse the request of a member."""
    return decode_struct(data, Request, MalformedError)


def seal_reply(reply: Reply, link: bytes, entropy: Entropy) -> bytes:
    """Seal for the holder of the link key alone."""
    return box(link, encode_struct(reply), purpose=_PURPOSE, entropy=entropy)


def complete_request(asking: PendingRequest, sealed: bytes, existing: Keyring | None) -> Keyring:
    """Open the reply, check it against the request, and make a keyring of it, or add it to the existing one."""
    reply = decode_struct(unbox(Keypair(asking.link), sealed, purpose=_PURPOSE), Reply, ForgedError)
    if existing is not None and existing.root != reply.root:
        raise AuthorityError("the reply comes from another authority than the keyring; keep the two apart")
    leaf, asked = reply.membership.leaf, asking.request
    if (leaf.subject, leaf.scope, reply.epoch_us) != (asked.link, asked.lot, asked.epoch_us):
        raise ForgedError("the reply is not to this request")
    reply.membership.verify(reply.root, CertificateKind.MEMBER, leaf.last)
    if reply.tls:
        from veilcast.authority.tls_identity import check_issued  # See `role`.

        check_issued(reply.tls, asking.link, reply.root)
    membership = Membership(asking.link, reply.membership, reply.network, reply.tls)
    base = existing if existing is not None else Keyring(reply.root, reply.epoch_us, membership)
    keyring = msgspec.structs.replace(base, membership=membership)
    return keyring if reply.grant is None else _with_grant(keyring, reply.grant, asking)


def _with_grant(keyring: Keyring, grant: Grant, asking: PendingRequest) -> Keyring:
    if grant.role == "publisher" and grant.seed is None:
        grant = msgspec.structs.replace(grant, seed=asking.seed)
    wanted = (asking.request.topic, asking.request.role)
    others = tuple(old for old, record in keyring.records() if (record.topic, old.role) != wanted)
    alone = msgspec.structs.replace(keyring, grants=(grant,))
    keys = alone.keys_at(grant.first).topic(wanted[0])
    if grant.role != wanted[1]:
        raise ForgedError("the reply is not to this request")
    if keys.certificate is not None:
        keys.check_publisher(keys.certificate, keyring.root, grant.first)
    return msgspec.structs.replace(keyring, grants=(*others, grant))


_PURPOSE: Final = b"vc/reply"
