"""The authority: its state as a value, and functions from one state to the next.

Nothing is changed in place and nothing is written here, so a decision that fails leaves no trace. The caller writes the
new state first, then hands out the result. The state holds the signing seed, the topics' master keys and all grants by
member. It holds a member's private key only inside `grant_ready`, which makes a ready keyring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from veilcast.authority.bulletin import Bulletin, BulletinWriter, EntryKind, VoidKey
from veilcast.authority.epoch import BATCH_MAX
from veilcast.authority.keyring import NETWORK_KEY, Grant, Keyring
from veilcast.authority.request import Reply, Request, complete_request, make_request, seal_reply
from veilcast.authority.role import Certificates, TlsRole
from veilcast.authority.topic_keys import (
    Bridge,
    TopicRole,
    certify_publisher,
    derive_epoch_key,
    derive_paper_key,
    token_of,
)
from veilcast.authority.topic_record import Profile, TopicRecord, check_topic, group_scope, in_group, sign_record
from veilcast.crypto.certificate import (
    EPOCH_MAX,
    LINEAGE,
    NO_LINEAGE,
    Certificate,
    CertificateChain,
    CertificateKind,
    certify,
)
from veilcast.crypto.derive import derive, fingerprint
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SigningKey
from veilcast.crypto.topic_token import BLIND, NO_BLIND
from veilcast.errors import AuthorityError, ExpiredError, UnknownMemberError, UnknownTopicError
from veilcast.machine import Entropy
from veilcast.topics import Schema


class DeclaredTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A declared topic with the key that all its epoch keys come from, and the bridges laid since."""

    record: TopicRecord
    master: Secret
    bridges: tuple[Bridge, ...] = ()


class IssuedGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A grant for one topic. A publisher's public keys stand one after the other, one for each epoch.

    The member has the topic's record as of the grant. Its certificates use the cover share in that record until the
    next grant.
    """

    topic: str
    role: TopicRole
    first: int
    last: int
    wrap: Secret
    cover_share: float
    publisher_keys: bytes = b""

    def count_entries(self, effective: int) -> int:
        """The number of entries in a bulletin of epoch `effective`: a bridge, and a signature for each key to come."""
        end = self.first + len(self.publisher_keys) // PUBLIC
        return 1 + max(0, end - max(self.first, effective))


class CertifiedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A certified key: its fingerprint, its topic ("" for a link key), and the last epoch of its certificate."""

    name: bytes
    topic: str
    last: int


class MemberRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member, under the name that only the authority knows.

    `ended` has the grants that were revoked before their time. Bulletins have decoys in their place.
    """

    given: tuple[IssuedGrant, ...] = ()
    issued: tuple[CertifiedKey, ...] = ()
    revoked: bool = False
    ended: tuple[IssuedGrant, ...] = ()


def draw_decoy_count(
    members: Mapping[str, MemberRecord], topics: Iterable[str], effective: int, entropy: Entropy
) -> int:
    """The number of entries in a bulletin that revokes a member with a grant, drawn among the grants of these topics.

    A bulletin without entries, or with fewer, would show that the revoked member holds no grant. The grants of members
    that were revoked before leave decoys in every bulletin of their topic, so these count here, too.
    """
    among = set(topics)
    held = [given for member in members.values() for given in (*member.given, *member.ended)]
    held = [given for given in held if given.last >= effective and given.topic in among]
    if not held:
        return 0
    topic = held[int.from_bytes(entropy(4), "big") % len(held)].topic
    return sum(given.count_entries(effective) for given in held if given.topic == topic)


class Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole state. A sub-authority has the root's public key, a group of topics and a delegation for it.

    `network` is the key that every member of the root and of its sub-authorities is given: one network, one key. `tls`
    has a sub-authority's certificates for TLS streams, its own and the root's; the root makes its own.

    The last bulletin is part of the state, so that a number once signed always means the same bytes.
    """

    seed: Secret
    root: bytes
    epoch_us: int
    network: Secret
    group: str = ""
    delegation: Certificate | None = None
    delegated: dict[str, tuple[CertifiedKey, ...]] = {}
    topics: dict[str, DeclaredTopic] = {}
    members: dict[str, MemberRecord] = {}
    bulletins: int = 0
    bulletin: Bulletin | None = None
    tls: Certificates = ()

    @property
    def key(self) -> SigningKey:
        return SigningKey(self.seed)

    def topic(self, name: str) -> DeclaredTopic:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"no topic {name!r} is declared here; `authority show` lists those that are")
        return topic

    def member(self, name: str) -> MemberRecord:
        member = self.members.get(name)
        if member is None:
            raise UnknownMemberError(f"nobody called {name!r} has been granted anything here")
        return member


def create(epoch_us: int, entropy: Entropy) -> Authority:
    """A new root. The first network key comes from its seed: a root is one draw of 32 bytes."""
    seed = Secret(entropy(32))
    return Authority(seed, SigningKey(seed).public, epoch_us, derive(seed, b"vc/network", size=NETWORK_KEY))


def declare(authority: Authority, record: TopicRecord, entropy: Entropy) -> Authority:
    """Declare a topic, or change the attributes of a declared one. A topic's profile cannot change."""
    if authority.group and not in_group(record.topic, group_scope(authority.group)):
        raise AuthorityError(f"this sub-authority speaks for {authority.group}/..., not for {record.topic!r}")
    for group in authority.delegated:
        if in_group(record.topic, group_scope(group)):
            raise AuthorityError(f"topics under {group!r} belong to the sub-authority made for them")
    known = authority.topics.get(record.topic)
    if known is None:
        lineage = NO_LINEAGE if record.profile == "paper" else entropy(LINEAGE)
        master = Secret(entropy(32))
        topic = DeclaredTopic(msgspec.structs.replace(record, lineage=lineage, blind=entropy(BLIND)), master)
    elif known.record.profile != record.profile:
        raise AuthorityError(f"{record.topic!r} is a topic of the {known.record.profile} profile, and stays one")
    else:
        before = known.record
        granted = any(given.topic == record.topic for member in authority.members.values() for given in member.given)
        if granted and before.schema.routed != record.schema.routed:
            # Members with the old record and with the new one would not hear one another.
            raise AuthorityError(
                f"{record.topic!r} has been granted, so it stays routed as it is; declare another topic"
            )
        blind = before.blind if before.blind != NO_BLIND else entropy(BLIND)
        newer = msgspec.structs.replace(record, edition=before.edition + 1, lineage=before.lineage, blind=blind)
        topic = msgspec.structs.replace(known, record=newer)
    return msgspec.structs.replace(authority, topics={**authority.topics, record.topic: topic})


def declare_label(authority: Authority, name: str, profile: Profile, entropy: Entropy) -> Authority:
    """Declare a topic that is matched by its name alone, unless it is declared already."""
    check_topic(name)
    if name in authority.topics:
        return authority
    return declare(authority, TopicRecord(name, Schema(), profile=profile), entropy)


def grant(
    authority: Authority,
    member: str,
    request: Request,
    epoch: int,
    epochs: int,
    entropy: Entropy,
    tls_role: TlsRole = "member",
) -> tuple[Authority, bytes]:
    """Grant a request: the new state, and a reply that only the asking member can open.

    The authority decides the role on TLS streams, and not the member that asks.
    """
    known = _check_request(authority, member, request, epoch, epochs)
    if tls_role != "member" and (request.topic or not request.tls):
        raise AuthorityError(f"a {tls_role} is let in with a TLS key and with no topic")
    if tls_role != "member" and authority.delegation is not None:
        raise AuthorityError(f"a sub-authority grants to members alone; the root appoints every {tls_role}")
    last = request.first + epochs - 1
    names = [CertifiedKey(fingerprint(request.link), "", last)]
    names += [
        CertifiedKey(fingerprint(key), request.topic, request.first + offset)
        for offset, key in enumerate(_split(request.publisher_keys))
    ]
    lasting = {issued.name: issued for issued in known.issued if issued.last >= epoch}
    for issued in names:
        before = lasting.get(issued.name, issued)
        lasting[issued.name] = msgspec.structs.replace(issued, last=max(issued.last, before.last))
    # A membership never ends before something that was granted with it.
    until = lasting[names[0].name].last
    membership = certify(
        authority.key, CertificateKind.MEMBER, request.link, request.lot, min(epoch, request.first), until
    )
    granted, held = None, known.given
    if request.topic:
        granted, given = _make_grant(authority, authority.topic(request.topic), request, epochs, Secret(entropy(32)))
        held = (*(old for old in held if (old.topic, old.role) != (given.topic, given.role)), given)
    members = {**authority.members, member: MemberRecord(held, tuple(lasting.values()), ended=known.ended)}
    chain = CertificateChain(membership, authority.delegation)
    tls = _issue_tls(authority, request, membership, tls_role)
    reply = Reply(authority.root, authority.epoch_us, authority.network, chain, granted, tls)
    return msgspec.structs.replace(authority, members=members), seal_reply(reply, request.link, entropy)


def grant_ready(
    authority: Authority,
    member: str,
    wanted: list[tuple[str, TopicRole]],
    epoch: int,
    epochs: int,
    entropy: Entropy,
    tls_role: TlsRole | None = None,
) -> tuple[Authority, Keyring]:
    """The short cut: make the member's keys too, and return a ready keyring for all wanted topics.

    With nothing wanted it is a membership alone, which is all that forwarders, covers, proxies, servers and brokers
    need. Without `tls_role` the keyring has no certificate for TLS streams.
    """
    keyring, link = None, Secret(entropy(32))
    for topic, role in wanted or [("", "subscriber")]:
        asking = make_request(topic, role, authority.epoch_us, epoch, epochs, entropy, link, tls=tls_role is not None)
        authority, reply = grant(authority, member, asking.request, epoch, epochs, entropy, tls_role or "member")
        keyring = complete_request(asking, reply, keyring)
    assert keyring is not None
    return authority, keyring


def revoke(
    authority: Authority,
    member: str,
    topic: str | None,
    epoch: int,
    entropy: Entropy,
    *,
    every_topic: bool = False,
) -> Authority:
    """Revoke a member's grant for one topic, or everything, from the next epoch on. The new state holds the bulletin.

    With `every_topic` all topics get new keys, so that no member learns from its own entry which topics the revoked
    member held. The bulletin is as large as one that rotates all topics.
    """
    gone = authority.member(member)
    if gone.revoked:
        raise AuthorityError(f"{member!r} has been revoked already")
    if topic is not None:
        authority.topic(topic)
    ended = [given for given in gone.given if topic in (None, given.topic)]
    if topic is not None and not ended:
        raise UnknownTopicError(f"{member!r} holds no grant for {topic!r}")
    # Link keys alone. The bridge ends the member's publications, and a publisher key beside a link key would name it.
    links = [issued for issued in gone.issued if topic is None and not issued.topic and issued.last > epoch]
    void = [VoidKey(issued.name, issued.last) for issued in links]
    left = tuple(given for given in gone.given if given not in ended)
    before = (given for given in gone.ended if given.last > epoch)
    remaining = MemberRecord(left, gone.issued, topic is None, (*before, *ended))
    state = msgspec.structs.replace(authority, members={**authority.members, member: remaining})
    touched = set(_hardened_topics(state) if every_topic else ()) | {given.topic for given in ended}
    return _rekey(state, sorted(touched), void, ended, epoch, entropy)


def revoke_group(authority: Authority, group: str, epoch: int, entropy: Entropy) -> Authority:
    """End the sub-authorities of a group, and with them all that they certified, from the next epoch on."""
    issued = authority.delegated.get(group)
    if issued is None:
        raise UnknownTopicError(f"no sub-authority for {group!r} was made here")
    left = {name: other for name, other in authority.delegated.items() if name != group}
    state = msgspec.structs.replace(authority, delegated=left)
    return _rekey(state, [], [VoidKey(one.name, one.last) for one in issued], [], epoch, entropy)


def rotate(authority: Authority, topic: str | None, epoch: int, entropy: Entropy) -> Authority:
    """New keys from the next epoch on, for one topic or all. Nobody is revoked."""
    if topic is not None and authority.topic(topic).record.profile == "paper":
        raise AuthorityError(f"{topic!r} is a topic of the paper profile, which has one key for ever")
    names = _hardened_topics(authority) if topic is None else [topic]
    if not names:
        raise AuthorityError("there is no topic to rotate")
    return _rekey(authority, names, [], [], epoch, entropy)


def delegate(
    authority: Authority, group: str, epoch: int, epochs: int, entropy: Entropy
) -> tuple[Authority, Authority]:
    """A sub-authority for a group of topics (P0, section 3): the root's new state, and the new authority.

    A group may get another sub-authority if the key of the first is lost or its time is over. `revoke_group` ends all
    of them.
    """
    check_topic(group)
    last = epoch + epochs - 1
    if authority.delegation is not None:
        raise AuthorityError("a sub-authority cannot delegate further")
    if last > EPOCH_MAX:
        raise AuthorityError("a delegation cannot last that long")
    if any(in_group(name, group_scope(group)) for name in authority.topics):
        raise AuthorityError(f"topics under {group!r} are declared here already; delegate a group before its topics")
    for other in authority.delegated:
        if other != group and (in_group(group, group_scope(other)) or in_group(other, group_scope(group))):
            raise AuthorityError(f"{group!r} overlaps {other!r}, which has a sub-authority")
    seed = Secret(entropy(32))
    delegation = certify(
        authority.key, CertificateKind.DELEGATE, SigningKey(seed).public, group_scope(group), epoch, last
    )
    issued = CertifiedKey(fingerprint(delegation.subject), group, last)
    known = tuple(one for one in authority.delegated.get(group, ()) if one.last >= epoch)
    root = msgspec.structs.replace(authority, delegated={**authority.delegated, group: (*known, issued)})
    from veilcast.authority.tls_identity import make_delegate_certificates  # See `role`.

    tls = make_delegate_certificates(authority.key, delegation.subject, epoch, last, authority.epoch_us)
    return root, Authority(seed, authority.root, authority.epoch_us, authority.network, group, delegation, tls=tls)


def _check_request(authority: Authority, member: str, request: Request, epoch: int, epochs: int) -> MemberRecord:
    """The member's record. Raises unless the member may have what it asks for."""
    if not member or len(member) > NAME_MAX or not member.isprintable():
        raise AuthorityError(f"a member's name has 1 to {NAME_MAX} printable characters")
    if not 1 <= epochs <= BATCH_MAX:
        raise AuthorityError(
            f"a grant holds 1 to {BATCH_MAX} epochs, not {epochs}; ask for fewer days or longer epochs"
        )
    if request.epoch_us != authority.epoch_us:
        theirs, ours = request.epoch_us / 1e6, authority.epoch_us / 1e6
        raise AuthorityError(f"the request counts epochs of {theirs:g} s; ask again with --epoch {ours:g}")
    last = request.first + epochs - 1
    if last < epoch:
        raise ExpiredError("the request asks for epochs that are over; make a new one")
    if request.first > epoch + 1:
        raise AuthorityError("the request asks for epochs to come; make it when they are there")
    if authority.delegation is not None and last > authority.delegation.last:
        raise ExpiredError(f"this sub-authority's delegation ends with epoch {authority.delegation.last}")
    known = authority.members.get(member, MemberRecord())
    if known.revoked:
        raise AuthorityError(f"{member!r} has been revoked; grant under another name if that is meant")
    asked_for = {fingerprint(key) for key in (request.link, *_split(request.publisher_keys))}
    for name, other in authority.members.items():
        # Otherwise one member could have another's keys voided by being revoked itself.
        if name != member and any(issued.name in asked_for for issued in other.issued):
            raise AuthorityError("the request has a key that was certified for another member")
    return known


def _issue_tls(authority: Authority, request: Request, membership: Certificate, tls_role: TlsRole) -> Certificates:
    """TLS certificates for as long as the membership.

    A sub-authority that was made before there were TLS certificates can make none.
    """
    if not request.tls or (authority.delegation is not None and not authority.tls):
        return ()
    from veilcast.authority.tls_identity import issue_tls_certificates, make_root_certificates  # See `role`.

    issuers = authority.tls or make_root_certificates(authority.key)
    return issue_tls_certificates(authority.key, issuers, membership, request.tls, tls_role, authority.epoch_us)


def _make_grant(
    authority: Authority, topic: DeclaredTopic, request: Request, epochs: int, wrap: Secret
) -> tuple[Grant, IssuedGrant]:
    record, key = topic.record, authority.key
    signed = sign_record(record, key, authority.delegation)
    first, last = request.first, request.first + epochs - 1
    if record.profile == "paper":
        topic_key = derive_paper_key(topic.master)
        seed: Secret | None = None
        signatures: tuple[bytes, ...] = ()
        if request.role == "publisher":
            # P1: one key pair for each topic, shared by its publishers; the member's own keys are not used.
            seed = derive(topic.master, b"vc/paper-sign")
            token = token_of(topic_key, "paper", record.topic, 0)
            signatures = (certify_publisher(key, SigningKey(seed).public, token, record, 0),)
        given = IssuedGrant(record.topic, request.role, first, last, wrap, record.cover_share)
        return Grant(signed, request.role, first, (topic_key,), wrap, authority.bulletins, seed, signatures), given
    keys = [derive_epoch_key(topic.master, topic.bridges, first + offset) for offset in range(epochs)]
    publics = _split(request.publisher_keys)[:epochs]
    if request.role == "publisher" and len(publics) < epochs:
        raise AuthorityError(f"the request has keys for {len(publics)} epochs, and {epochs} are granted")
    signatures = tuple(
        _certificate(key, record, keys[offset], public, first + offset) for offset, public in enumerate(publics)
    )
    given = IssuedGrant(record.topic, request.role, first, last, wrap, record.cover_share, b"".join(publics))
    return Grant(signed, request.role, first, tuple(keys), wrap, authority.bulletins, None, signatures), given


def _hardened_topics(authority: Authority) -> list[str]:
    return [name for name, known in sorted(authority.topics.items()) if known.record.profile != "paper"]


def _rekey(
    authority: Authority, topics: list[str], void: list[VoidKey], ended: list[IssuedGrant], epoch: int, entropy: Entropy
) -> Authority:
    """Lay a fresh bridge for each topic, and write the bulletin that brings it to the members that stay.

    `ended` are the grants that this decision ends.
    """
    writer = BulletinWriter(authority.bulletins + 1, epoch + 1, entropy)
    renewed = dict(authority.topics)
    for name in topics:
        if renewed[name].record.profile != "paper":
            bridge = Bridge(writer.effective, Secret(entropy(32)))
            renewed[name] = msgspec.structs.replace(renewed[name], bridges=(*renewed[name].bridges, bridge))
    for given in ended:
        if given.last > epoch or renewed[given.topic].record.profile == "paper":
            writer.add(given.wrap, given.topic, 0, EntryKind.ENDED, b"")
    for member in authority.members.values():
        for given in member.given:
            topic = renewed[given.topic]
            if not member.revoked and given.topic in topics and given.last > epoch and topic.record.profile != "paper":
                _add_entries_for(writer, authority.key, topic, given)
        for given in member.ended:
            if given.topic in topics and given.last > epoch and renewed[given.topic].record.profile != "paper":
                writer.add_decoys(given.count_entries(writer.effective) - (given in ended))
    if void and not set(topics) & set(_hardened_topics(authority)):
        writer.add_decoys(draw_decoy_count(authority.members, _hardened_topics(authority), writer.effective, entropy))
    bulletin = writer.sign(authority.key, void, authority.delegation)
    return msgspec.structs.replace(authority, topics=renewed, bulletins=writer.number, bulletin=bulletin)


def _add_entries_for(writer: BulletinWriter, key: SigningKey, topic: DeclaredTopic, given: IssuedGrant) -> None:
    writer.add(given.wrap, given.topic, 0, EntryKind.BRIDGE, topic.bridges[-1].secret.reveal())
    record = msgspec.structs.replace(topic.record, cover_share=given.cover_share)
    for offset, public in enumerate(_split(given.publisher_keys)):
        epoch = given.first + offset
        if epoch >= writer.effective:
            signature = _certificate(key, record, derive_epoch_key(topic.master, topic.bridges, epoch), public, epoch)
            writer.add(given.wrap, given.topic, epoch, EntryKind.SIGNATURE, signature)


def _certificate(key: SigningKey, record: TopicRecord, topic_key: Secret, public: bytes, epoch: int) -> bytes:
    token = token_of(topic_key, record.profile, record.topic, epoch)
    return certify_publisher(key, public, token, record, epoch)


def _split(keys: bytes) -> list[bytes]:
    return [keys[start : start + PUBLIC] for start in range(0, len(keys), PUBLIC)]


NAME_MAX: Final = 200
