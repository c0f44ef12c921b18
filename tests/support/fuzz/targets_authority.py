"""Targets: files of the authority, publications under their seal, X.509 and locked files."""

from __future__ import annotations

import contextlib
import random
import tempfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import msgspec

from support.authority_members import EPOCHS, NOW, TOPIC, AuthorityMembers, bulletin_of, make_authority_members
from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast.authority import bulletin, issuer, request
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, StatementSignature, sign_statement
from veilcast.authority.request import PendingRequest, Reply, Request
from veilcast.authority.secret_file import read_secret
from veilcast.authority.struct_codec import MAGIC_OF, VERSION, decode_struct, encode_struct
from veilcast.authority.topic_record import sign_record
from veilcast.core.outbox import PendingPublication, decode_record
from veilcast.core.publication import NumberedPublication, decode_publication, open_notify
from veilcast.core.sealed_notification import (
    decode_notification,
    encode_notification,
    open_notification,
    seal_notification,
)
from veilcast.crypto.noise import Keypair
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes
from veilcast.crypto.seal import seal
from veilcast.crypto.sealed_box import box, unbox
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.x509 import check_chain, read_leaf
from veilcast.errors import LocalError, MalformedError, PassphraseError, RemoteError, TamperedError, VeilcastError
from veilcast.machine import Publication, Value
from veilcast.topics import Label
from veilcast.wire.mesh import Notify

GROUP = Group()


@cache
def people() -> AuthorityMembers:
    return make_authority_members()


def publications() -> list[Publication]:
    values: tuple[Value, ...] = (0, -1, 1 << 62, 1.5, "", "word")
    return [Publication((Label(TOPIC).pair, ("a", value)), b"body" * at) for at, value in enumerate(values)]


def contents() -> list[NumberedPublication]:
    return [NumberedPublication(bytes(8), at + 1, publication) for at, publication in enumerate(publications())]


@GROUP.target(
    "content",
    "publications inside their seal, from publishers",
    "core.publication:decode_publication",
    "machine:Publication",
)
def content() -> Prepared:
    examples = [msgspec.msgpack.encode(each) for each in contents()]
    # An array of stream and number, then the hostile value in place of the publication; and inside an unknown field.
    shells = (b"", b"\x93\xc4\x08" + bytes(8) + b"\x01", b"\x93\xc4\x08" + bytes(8) + b"\x01\x83\xa1z")
    return Prepared(decode_publication, (MalformedError,), examples, Format.MSGPACK, prefixes=shells)


@GROUP.target(
    "content-sealed",
    "notifications of all modes, opened by subscribers",
    "core.sealed_notification:open_notification",
    "core.sealed_notification:decode_notification",
    "core.publication:open_notify",
)
def content_sealed() -> Prepared:
    """A hostile publisher seals any bytes in place of its publication, in the form of each mode."""
    keys, root = people().alice.keys_at(NOW).topic(TOPIC), people().alice.root
    entropy = random.Random(1).randbytes

    def check(data: bytes) -> object:
        notify = Notify(keys.token, seal(keys.content, data[:4096], context=keys.token, entropy=entropy), bytes(64))
        found = []
        for read in (
            partial(open_notify, keys, notify),
            partial(decode_notification, keys, data, root, NOW),
            partial(open_notification, keys, data, "relay", root, NOW),
            partial(open_notification, keys, data, "tree", root, NOW),
        ):
            try:
                found.append(type(read()).__name__)
            except RemoteError as error:
                found.append(type(error).__name__)
        return "".join(found)

    examples = [msgspec.msgpack.encode(each) for each in contents()]
    examples += [encode_notification(keys, each, entropy) for each in contents()]
    examples += [seal_notification(keys, each, mode, entropy) for each in contents()[:2] for mode in ("relay", "tree")]
    return Prepared(check, (), examples, Format.MSGPACK, prefixes=(b"", b"\x93\xc4\x08" + bytes(8) + b"\x01"))


@GROUP.target("letters", "publications that wait, from the node's own disk", "core.outbox:decode_record")
def letters() -> Prepared:
    examples = [msgspec.msgpack.encode((PendingPublication(TOPIC, each),)) for each in contents()]
    shell = b"\x91\x92\xa1a\x93\xc4\x08" + bytes(8) + b"\x01\x83\xa1z"
    return Prepared(decode_record, (TamperedError,), examples, Format.MSGPACK, prefixes=(b"", shell))


def _plain(kind: type[msgspec.Struct], values: list[msgspec.Struct], blame: type[VeilcastError]) -> Prepared:
    head = MAGIC_OF[kind.__name__] + bytes((VERSION,))
    examples = [encode_struct(value) for value in values]
    return Prepared(
        lambda data: decode_struct(data, kind, blame),
        (blame,),
        examples,
        Format.MSGPACK,
        prefixes=(head,),
        skip=len(head),
        max_len=max(4096, *(len(each) for each in examples)),
    )


def _asking() -> PendingRequest:
    return request.make_request(TOPIC, "publisher", people().authority.epoch_us, NOW, 2, people().entropy, tls=True)


@GROUP.target("keyring", "a keyring as it stands in a vault", "authority.struct_codec:decode_struct")
def keyring_file() -> Prepared:
    return _plain(Keyring, [people().alice, people().bob], TamperedError)


@GROUP.target("authority", "the authority's own state, from a vault", "authority.struct_codec:decode_struct")
def authority_file() -> Prepared:
    return _plain(Authority, [issuer.create(1, people().entropy)], TamperedError)


@GROUP.target("asking", "a member's private half of a request, from a vault", "authority.struct_codec:decode_struct")
def asking_file() -> Prepared:
    return _plain(PendingRequest, [_asking()], TamperedError)


@GROUP.target("request", "a request that a stranger hands in", "authority.request:decode_request")
def request_file() -> Prepared:
    return _plain(Request, [_asking().request], MalformedError)


@GROUP.target("reply", "a reply that is said to be the authority's", "authority.request:complete_request")
def reply_file() -> Prepared:
    """The bytes are sealed in the box that the member opens, so that they reach the parser and all checks behind it."""
    asking, entropy = _asking(), random.Random(2).randbytes

    def check(data: bytes) -> object:
        sealed = box(asking.request.link, data, purpose=request._PURPOSE, entropy=entropy)
        return request.complete_request(asking, sealed, None)

    _, sealed = issuer.grant(people().authority, "dora", asking.request, NOW, 2, entropy)
    opened = unbox(Keypair(asking.link), sealed, purpose=request._PURPOSE)
    head = MAGIC_OF[Reply.__name__] + bytes((VERSION,))
    allowed, size = (RemoteError, LocalError), max(4096, len(opened))
    return Prepared(check, allowed, [opened], Format.MSGPACK, prefixes=(head,), skip=len(head), max_len=size)


@GROUP.target(
    "bulletin",
    "bulletins, carried by members",
    "authority.bulletin:decode_bulletin",
    "authority.bulletin:apply_bulletin",
)
def bulletin_file() -> Prepared:
    """The authority signs a bulletin that parses again, so that its bytes reach the parser of entries."""
    who = people()
    key = who.authority.key
    state_after = issuer.revoke(who.authority, "mallory", None, NOW, random.Random(3).randbytes)
    first = bulletin_of(state_after)

    def check(data: bytes) -> object:
        parsed = bulletin.decode_bulletin(data)
        body = bulletin._body(parsed.number, parsed.effective, parsed.void, parsed.entries)
        signed = msgspec.structs.replace(parsed, signature=key.sign(body, purpose=bulletin._PURPOSE), delegation=None)
        try:
            bulletin.apply_bulletin(who.bob, parsed, NOW)
        except (RemoteError, LocalError):
            bulletin.apply_bulletin(who.bob, signed, NOW)
        return parsed

    prepared = _plain(bulletin.Bulletin, [first], MalformedError)
    return replace(prepared, check=check, may_raise=(RemoteError, LocalError))


@GROUP.target(
    "topic-record", "the signed record of a topic, from a keyring", "authority.topic_record:SignedRecord.verify"
)
def topic_record() -> Prepared:
    key = SigningKey(Secret(bytes(32)))
    record = people().alice.records()[0][1]
    signed = sign_record(record, key, None)

    def check(data: bytes) -> object:
        from veilcast.authority import topic_record as records

        again = msgspec.structs.replace(signed, body=data, signature=key.sign(data, purpose=records._PURPOSE))
        return again.verify(key.public, NOW)

    head = MAGIC_OF["TopicRecord"] + bytes((VERSION,))
    return Prepared(check, (RemoteError,), [encode_struct(record)], Format.MSGPACK, prefixes=(head,), skip=len(head))


@GROUP.target(
    "vault", "locked files of the member's own disk", "authority.secret_file:read_secret", "crypto.passphrase:unlock"
)
def vault() -> Prepared:
    """Cheap locks only: a header that asks for the largest allowed cost takes a second and is tried as a seed."""
    passphrase, entropy = Secret(b"passphrase"), random.Random(4).randbytes
    folder = Path(tempfile.mkdtemp(prefix="veilcast-fuzz-"))
    path = folder / "file"
    path.touch(mode=0o600)

    def locked(plain: bytes) -> bytes:
        return lock_bytes(plain, passphrase, purpose=b"veilcast/keyring", cost=PassphraseCost(1, 1), entropy=entropy)

    def check(data: bytes) -> object:
        """The first byte chooses between a locked file that is damaged and one whose content is."""
        data, inside = data[1:], bool(data[:1] and data[0] & 1)
        if inside:
            data = locked(data)
        elif len(data) > 8 and (data[5] > 1 or data[6] or data[7] > 1):
            data = data[:5] + b"\1\0\1" + data[8:]
        path.write_bytes(data)
        return read_secret(path, Keyring, passphrase)

    plain = encode_struct(people().carol)
    head = MAGIC_OF["Keyring"] + bytes((VERSION,))
    examples = [b"\1" + plain, b"\0" + locked(plain)]
    return Prepared(
        check,
        (TamperedError, PassphraseError),
        examples,
        Format.MSGPACK,
        prefixes=(b"\1" + head, b"\0"),
        skip=6,
        max_len=max(4096, len(examples[1])),
    )


def _certificates() -> tuple[Keyring, list[bytes]]:
    entropy = random.Random(5).randbytes
    authority = issuer.create(3_600_000_000, entropy)
    _, made = issuer.grant_ready(authority, "host", [], NOW, EPOCHS, entropy, "directory")
    return made, list(made.membership.tls)


@GROUP.target("x509", "a certificate in TLS and under statements, from strangers", "crypto.x509:read_leaf")
def x509_leaf() -> Prepared:
    return Prepared(read_leaf, (RemoteError,), _certificates()[1])


@GROUP.target(
    "x509-statement",
    "the certificates under a listing or a descriptor, from strangers",
    "crypto.x509:check_chain",
    "authority.member_statement:StatementReader.verify_author",
)
def x509_statement() -> Prepared:
    """The first two bytes are the length of the first certificate; the rest is the second."""
    keyring, chain = _certificates()
    reader, now = StatementReader(keyring), NOW * 3_600_000_000
    signature = sign_statement(keyring, b"body", purpose=b"veilcast/fuzz").signature

    def check(data: bytes) -> object:
        length = int.from_bytes(data[:2], "big")
        shown = tuple(part for part in (data[2 : 2 + length], data[2 + length :]) if part)
        with contextlib.suppress(RemoteError):
            check_chain((*shown, chain[-1]), keyring.root)
        return reader.verify_author(
            b"body", StatementSignature(shown, signature), "directory", now, purpose=b"veilcast/fuzz"
        )

    first = len(chain[0]).to_bytes(2, "big") + chain[0]
    return Prepared(check, (RemoteError,), [first, first + chain[-1]])
