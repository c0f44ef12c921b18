"""A publication as it travels, (t_a, {m}_Ka, sig), and as its subscribers get it.

Inside the seal stand the publisher's stream, the publication's number in that stream, and the publication. In `paper`
all publishers of a topic sign with one key, so the stream is what separates their orders; a publisher draws one when it
starts.

A notification's id is a digest of the sealed bytes, the same at every node and on every copy. Forwarders recognise
duplicates by it without being able to read anything. A publication that is sealed again has another notification id.
The id that subscribers know is derived from its place in a stream of the topic, which never changes.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from veilcast.authority.keyring import TopicKeys, check_publisher_chain
from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.derive import digest
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.sign import SigningKey, verify
from veilcast.crypto.topic_token import scope_covers
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Entropy, Publication
from veilcast.wire.geometry import BODY_MAX, NOTE_ID
from veilcast.wire.mesh import Notify


class NumberedPublication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A publication with its place: `number` counts the publications of a stream, from 1."""

    stream: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    publication: Publication


def cell_stream(stream: bytes, cell: bytes | None) -> bytes:
    """The stream of one cell, with an order of its own: most subscribers get some cells of a topic, and not
    the others.
    """
    return stream if cell is None else digest(stream + cell, purpose=b"vc/cell-stream", size=len(stream))


def notification_id(notify: Notify) -> bytes:
    return digest(notify.token + notify.sealed, purpose=b"vc/note", size=NOTE_ID)


def stream_place_id(topic: str, content: NumberedPublication) -> bytes:
    """The id of a delivered publication, from its place in a stream of the topic."""
    place = content.stream + content.number.to_bytes(8, "big") + topic.encode()
    return digest(place, purpose=b"vc/place", size=NOTE_ID)


def check_publishable(keys: TopicKeys, content: NumberedPublication) -> None:
    """Raise unless these keys can publish it."""
    _encode_for_signing(keys, content)


def make_notify(keys: TopicKeys, content: NumberedPublication, entropy: Entropy) -> Notify:
    signing, plain = _encode_for_signing(keys, content)
    sealed = seal(keys.content, plain, context=keys.token, entropy=entropy)
    return Notify(keys.token, sealed, signing.sign(keys.token + sealed, purpose=_PURPOSE))


def make_certified_notify(keys: TopicKeys, content: NumberedPublication, entropy: Entropy) -> Notify:
    """A `Notify` with its publisher's certificate, for modes in which no advert has shown it."""
    return msgspec.structs.replace(make_notify(keys, content, entropy), certificate=keys.certificate, cell=keys.cell)


def check_certified_notify(notify: Notify, root: bytes, first: int, last: int) -> CertificateChain:
    """The certificate of the publisher that signed it. Raises unless it is for an epoch from `first` to `last`."""
    if notify.certificate is None:
        raise ForgedError("a note without a certificate")
    leaf = notify.certificate.leaf
    if not scope_covers(leaf.scope, notify.token, notify.cell):
        raise ForgedError("a note whose certificate is for another token")
    if not first <= leaf.first <= last:
        raise StaleError("a note of another time")
    check_publisher_chain(notify.certificate, root, leaf.first)
    check_notify(notify, [leaf.subject])
    return notify.certificate


def check_notify(notify: Notify, publishers: list[bytes]) -> None:
    """Raise unless one of these publishers signed it."""
    for publisher in publishers:
        try:
            return verify(publisher, notify.token + notify.sealed, notify.signature, purpose=_PURPOSE)
        except ForgedError:
            continue
    raise ForgedError("no publisher that is known for this token signed the note")


def open_notify(keys: TopicKeys, notify: Notify) -> NumberedPublication:
    """Unseal a publication. Raises for anything that does not open or is no publication."""
    return decode_publication(unseal(keys.content, notify.sealed, context=keys.token))


def open_certified_notify(
    keys: TopicKeys, notify: Notify, certificate: CertificateChain, root: bytes
) -> NumberedPublication:
    """Unseal a publication whose publisher is certified to publish with these keys."""
    keys.check_publisher(certificate, root, certificate.leaf.first)
    return open_notify(keys, notify)


def decode_publication(plain: bytes) -> NumberedPublication:
    """Raise `MalformedError` for bytes that are no publication."""
    return _DECODER.decode(plain)


def _encode_for_signing(keys: TopicKeys, content: NumberedPublication) -> tuple[SigningKey, bytes]:
    if keys.signing is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can publish on it")
    plain = _ENCODER.encode(content)
    if len(plain) > BODY_MAX:
        raise LocalError(f"a publication has at most {BODY_MAX} bytes, this one {len(plain)}")
    return keys.signing, plain


_PURPOSE: Final = b"veilcast/notify"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(NumberedPublication, MalformedError, "what was sealed is not a publication", BODY_MAX)
