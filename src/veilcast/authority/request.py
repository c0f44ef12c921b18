"""Asking for a grant with keys of one's own (P0 4.2): the private halves never leave the member.

The member keeps an `Asking` (its link key and, to publish, a seed) and sends a `Request` with the public halves: the
link key, and one signing key for each epoch it wants certified. The authority answers with a sealed reply that only the
link key opens (X25519 with a fresh key of the authority's, then a seal). `complete` turns asking and reply into a
keyring, or adds the new grants to one the member has.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.epoch import BATCH_MAX
from veilcast.authority.keyring import VERSION, Grant, Keyring, Membership
from veilcast.authority.plain import from_bytes, to_bytes
from veilcast.authority.record import check_topic
from veilcast.authority.topickeys import Role, publisher_key
from veilcast.crypto.agree import PUBLIC, agree, public_of
from veilcast.crypto.certificate import Chain
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC as SIGNING_PUBLIC
from veilcast.errors import AuthorityError, ForgedError, MalformedError
from veilcast.machine import Entropy


class Asking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The private half, kept by the member until the reply comes."""

    link: Secret
    seed: Secret
    topic: str


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The public half: what is asked for, and the keys to certify, one signing key per epoch from `first` on."""

    topic: str
    role: Role
    link: bytes
    first: int
    publisher_keys: bytes = b""

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if len(self.link) != PUBLIC or not 0 <= self.first < 1 << 32:
            raise MalformedError("a request's link key or epoch is out of bounds")
        if len(self.publisher_keys) % SIGNING_PUBLIC or len(self.publisher_keys) > BATCH_MAX * SIGNING_PUBLIC:
            raise MalformedError("a request's signing keys are out of bounds")
        if bool(self.publisher_keys) != (self.role == "publisher"):
            raise MalformedError("a publisher's request has signing keys, a subscriber's has none")


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authority grants, before sealing: a keyring without the member's private halves."""

    root: bytes
    epoch_us: int
    membership: Chain
    grant: Grant
    bulletin: int


def ask(
    topic: str, role: Role, first: int, epochs: int, entropy: Entropy, link: Secret | None
) -> tuple[Asking, Request]:
    """Make fresh keys and the request for them; `link` is the key of a membership the member already has."""
    link = link if link is not None else Secret(entropy(32))
    seed = Secret(entropy(32))
    keys = b""
    if role == "publisher":
        keys = b"".join(publisher_key(seed, topic, first + offset).public for offset in range(epochs))
    return Asking(link, seed, topic), Request(topic, role, public_of(link), first, keys)


def complete(asking: Asking, sealed: bytes, existing: Keyring | None) -> Keyring:
    """Open the reply and make the keyring of it, or add its grant to the existing one."""
    reply = _open(asking.link, sealed)
    grant = reply.grant
    if grant.role == "publisher" and grant.seed is None:
        grant = msgspec.structs.replace(grant, seed=asking.seed)
    issuer = grant.issuer(reply.root)
    if existing is None:
        return Keyring(
            VERSION,
            reply.root,
            reply.epoch_us,
            Membership(asking.link, reply.membership),
            (grant,),
            {issuer: reply.bulletin},
        )
    if existing.root != reply.root:
        raise AuthorityError("the reply comes from another authority than the keyring; keep the two apart")
    if existing.bulletins.get(issuer, reply.bulletin) != reply.bulletin:
        raise AuthorityError(
            f"the reply stands at bulletin {reply.bulletin}; apply the missing ones to the keyring first"
        )
    kept = tuple(old for old, record in existing.records() if (record.topic, old.role) != (asking.topic, grant.role))
    return msgspec.structs.replace(
        existing,
        membership=Membership(asking.link, reply.membership),
        grants=(*kept, grant),
        bulletins={**existing.bulletins, issuer: reply.bulletin},
    )


def seal_reply(reply: Reply, link: bytes, entropy: Entropy) -> bytes:
    """Seal for the holder of the link key alone."""
    fresh = Secret(entropy(32))
    public = public_of(fresh)
    key = derive(agree(fresh, link), b"vc/reply", public, link)
    return public + seal(key, to_bytes(reply), context=_CONTEXT, entropy=entropy)


def _open(link: Secret, sealed: bytes) -> Reply:
    public, rest = sealed[:PUBLIC], sealed[PUBLIC:]
    if len(public) != PUBLIC:
        raise ForgedError("not a reply to a request")
    key = derive(agree(link, public), b"vc/reply", public, public_of(link))
    return from_bytes(unseal(key, rest, context=_CONTEXT), Reply)


def encode(request: Request) -> bytes:
    return to_bytes(request)


def decode(data: bytes) -> Request:
    """Parse what somebody handed in; `MalformedError` for anything else."""
    try:
        return msgspec.msgpack.decode(data, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError("not a request") from error


_CONTEXT: Final = b"veilcast/reply"
