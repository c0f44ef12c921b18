from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.authority_members import EPOCHS, HOUR_US, NOW, OTHER, TOPIC, bulletin_of, make_authority_members
from veilcast.authority import bulletin, issuer
from veilcast.authority.bulletin import ENTRIES_MAX, ENTRY, TAG, VOID_MAX, VoidKey, apply_bulletin
from veilcast.authority.request import complete_request, make_request
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.struct_codec import encode_struct
from veilcast.crypto.certificate import CertificateKind
from veilcast.crypto.derive import FINGERPRINT, fingerprint
from veilcast.crypto.sign import SigningKey
from veilcast.errors import AuthorityError, ForgedError, LocalError, MalformedError, UnknownTopicError
from veilcast.wire import geometry

LAST = NOW + EPOCHS - 1


def test_members_that_stay_share_new_keys_and_the_revoked_member_lacks_them() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW + 2, people.entropy)
    notice = bulletin_of(state)
    alice, bob, mallory = (apply_bulletin(ring, notice, NOW + 2) for ring in (people.alice, people.bob, people.mallory))
    for epoch in (NOW, NOW + 2):
        assert mallory.keys_at(epoch).topic(TOPIC).token == alice.keys_at(epoch).topic(TOPIC).token
    for epoch in (NOW + 3, LAST):
        assert alice.keys_at(epoch).topic(TOPIC).token == bob.keys_at(epoch).topic(TOPIC).token
        assert alice.keys_at(epoch).topic(TOPIC).content == bob.keys_at(epoch).topic(TOPIC).content
        # What the revoked one kept of its own accord is worth nothing.
        assert people.mallory.keys_at(epoch).topic(TOPIC).token != alice.keys_at(epoch).topic(TOPIC).token
        assert people.mallory.keys_at(epoch).topic(TOPIC).content != alice.keys_at(epoch).topic(TOPIC).content
        with pytest.raises(UnknownTopicError):
            mallory.keys_at(epoch).topic(TOPIC)
        certificate = alice.keys_at(epoch).topic(TOPIC).certificate
        assert certificate is not None
        certificate.verify(state.root, CertificateKind.PUBLISHER, epoch)
        assert certificate.leaf.scope == bob.keys_at(epoch).topic(TOPIC).token


def test_a_member_that_joins_after_a_revocation_has_the_keys_of_the_members_that_stayed() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    state, dora = issuer.grant_ready(state, "dora", [(TOPIC, "subscriber")], NOW, EPOCHS, people.entropy)
    bob = apply_bulletin(people.bob, notice, NOW)
    for epoch in (NOW, NOW + 1, LAST):
        assert dora.keys_at(epoch).topic(TOPIC).token == bob.keys_at(epoch).topic(TOPIC).token


def test_several_bulletins_add_up_and_must_come_in_order() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    first = bulletin_of(state)
    state = issuer.rotate(state, None, NOW + 1, people.entropy)
    second = bulletin_of(state)
    with pytest.raises(AuthorityError, match="bulletin 1 is missing"):
        apply_bulletin(people.bob, second, NOW + 1)
    alice, bob = (
        apply_bulletin(apply_bulletin(ring, first, NOW), second, NOW + 1) for ring in (people.alice, people.bob)
    )
    for epoch in range(NOW, LAST + 1):
        assert alice.keys_at(epoch).topic(TOPIC).token == bob.keys_at(epoch).topic(TOPIC).token
    assert apply_bulletin(bob, first, NOW + 1) == bob
    state, dora = issuer.grant_ready(state, "dora", [(OTHER, "subscriber")], NOW + 1, 3, people.entropy)
    assert dora.keys_at(NOW + 3).topic(OTHER).token == bob.keys_at(NOW + 3).topic(OTHER).token


def test_a_member_revoked_from_one_topic_keeps_the_others() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "bob", TOPIC, NOW, people.entropy)
    notice = bulletin_of(state)
    bob = apply_bulletin(people.bob, notice, NOW)
    assert sorted(bob.keys_at(NOW + 1).topics) == [OTHER]
    assert bob.keys_at(NOW + 1).topic(OTHER).token == people.bob.keys_at(NOW + 1).topic(OTHER).token


def test_a_revoked_publisher_has_no_link_and_no_subscriber_takes_its_certificates() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    known = RevokedKeys(people.authority.root, limit=1000)
    known.add(notice, NOW)
    known.check(people.mallory.membership.certificate, NOW)
    with pytest.raises(ForgedError):
        known.check(people.mallory.membership.certificate, NOW + 1)
    alice, bob = (apply_bulletin(ring, notice, NOW) for ring in (people.alice, people.bob))
    for epoch in (NOW + 1, LAST):
        void, good = (ring.keys_at(epoch).topic(TOPIC).certificate for ring in (people.mallory, alice))
        assert void is not None
        assert good is not None
        bob.keys_at(epoch).topic(TOPIC).check_publisher(good, state.root, epoch)
        with pytest.raises(ForgedError, match="another topic"):
            bob.keys_at(epoch).topic(TOPIC).check_publisher(void, state.root, epoch)


def test_a_revoked_sub_authority_takes_its_certificates_with_it() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    _, dora = issuer.grant_ready(child, "dora", [("sports/tennis", "publisher")], NOW, EPOCHS, people.entropy)
    state = issuer.revoke_group(root, "sports", NOW, people.entropy)
    notice = bulletin_of(state)
    known = RevokedKeys(people.authority.root, limit=10)
    known.add(notice, NOW)
    with pytest.raises(ForgedError):
        known.check(dora.membership.certificate, NOW + 1)


def test_a_sub_authority_shuts_out_its_own_members() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    child, dora = issuer.grant_ready(child, "dora", [("sports/tennis", "publisher")], NOW, EPOCHS, people.entropy)
    known = RevokedKeys(root.root, limit=100)
    known.add(bulletin_of(issuer.revoke(child, "dora", None, NOW, people.entropy)), NOW)
    known.check(dora.membership.certificate, NOW)
    with pytest.raises(ForgedError):
        known.check(dora.membership.certificate, NOW + 1)


def test_the_list_of_void_keys_is_bounded_and_forgets_ended_certificates() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    first = bulletin_of(state)
    state = issuer.revoke(state, "carol", None, NOW, people.entropy)
    second = bulletin_of(state)
    known = RevokedKeys(people.authority.root, limit=1)
    known.add(first, NOW)
    known.add(second, NOW)
    assert len(known) == 1
    known.add(second, LAST + 1)
    assert len(known) == 0
    with pytest.raises(LocalError):
        RevokedKeys(people.authority.root, limit=0)


def test_forwarders_take_no_void_keys_from_strangers_or_from_the_wrong_authority() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    victim = people.carol.membership.certificate
    name = fingerprint(victim.leaf.subject)
    writer = bulletin.BulletinWriter(1, NOW + 1, people.entropy)
    hostile = writer.sign(child.key, [VoidKey(name, LAST)], child.delegation)
    known = RevokedKeys(root.root, limit=10)
    known.add(hostile, NOW)
    known.check(victim, NOW + 1)
    forged = writer.sign(SigningKey.generate(people.entropy), [VoidKey(name, LAST)], None)
    with pytest.raises(ForgedError):
        known.add(forged, NOW)


def test_all_entries_have_one_size_and_none_names_its_member() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    assert len(notice.entries) % ENTRY == 0
    tags = [notice.entries[start : start + TAG] for start in range(0, len(notice.entries), ENTRY)]
    assert tags == sorted(tags)
    assert len(set(tags)) == len(tags)
    state = issuer.rotate(state, TOPIC, NOW, people.entropy)
    again = bulletin_of(state)
    later = {again.entries[start : start + TAG] for start in range(0, len(again.entries), ENTRY)}
    assert not later & set(tags)


def test_a_member_can_open_no_entry_but_its_own() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    rings = {"alice": people.alice, "bob": people.bob, "carol": people.carol, "mallory": people.mallory}
    opened = {
        name: [epoch for epoch in (0, *range(NOW, LAST + 1)) if notice.read(ring.grants[0].wrap, TOPIC, epoch)]
        for name, ring in rings.items()
    }
    assert opened == {"alice": [0, *range(NOW + 1, LAST + 1)], "bob": [0], "carol": [0], "mallory": [0]}
    assert len(notice.entries) // ENTRY >= sum(len(epochs) for epochs in opened.values())
    kind, data = notice.read(people.mallory.grants[0].wrap, TOPIC, 0) or (None, b"?")
    assert kind is bulletin.EntryKind.ENDED
    assert not any(data)


def test_no_byte_of_a_bulletin_can_be_changed_and_only_the_authority_can_write_one() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    stranger = issuer.create(3_600_000_000, people.entropy)
    stranger = issuer.declare_label(stranger, TOPIC, "hardened", people.entropy)
    state = issuer.rotate(stranger, TOPIC, NOW, people.entropy)
    foreign = bulletin_of(state)
    forged = [
        msgspec.structs.replace(notice, effective=NOW + 9),
        msgspec.structs.replace(notice, void=notice.void[1:]),
        msgspec.structs.replace(notice, void=(VoidKey(notice.void[0].name, 1), *notice.void[1:])),
        msgspec.structs.replace(notice, entries=notice.entries[ENTRY:]),
        msgspec.structs.replace(notice, number=2),
        foreign,
    ]
    for bad in forged:
        with pytest.raises(ForgedError):
            apply_bulletin(people.bob, bad, NOW)


def test_a_sub_authority_cannot_touch_the_topics_of_others() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    # A hostile sub-authority learns carol's wrap and writes an "ended" entry for a topic of the root's.
    writer = bulletin.BulletinWriter(1, NOW + 1, people.entropy)
    writer.add(people.carol.grants[0].wrap, TOPIC, 0, bulletin.EntryKind.ENDED, b"")
    hostile = writer.sign(child.key, [], child.delegation)
    after = apply_bulletin(people.carol, hostile, NOW)
    assert after.keys_at(NOW + 1).topic(TOPIC).token == people.carol.keys_at(NOW + 1).topic(TOPIC).token
    assert root.root == people.carol.root


@given(data=st.binary(max_size=200))
def test_hostile_bytes_are_refused_with_one_error(data: bytes) -> None:
    with pytest.raises(MalformedError):
        bulletin.decode_bulletin(data)


def test_a_bulletin_survives_the_journey() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    notice = bulletin_of(state)
    assert bulletin.decode_bulletin(encode_struct(notice)) == notice


def test_a_paper_grant_ends_by_being_forgotten() -> None:
    people = make_authority_members("paper")
    state = issuer.revoke(people.authority, "bob", None, NOW, people.entropy)
    notice = bulletin_of(state)
    bob = apply_bulletin(people.bob, notice, NOW)
    assert bob.keys_at(NOW + 1).topics == {}
    # The paper's own limit: nothing changes for a revoked member that does not play along.
    assert people.bob.keys_at(NOW + 1).topic(TOPIC).token == people.alice.keys_at(NOW + 1).topic(TOPIC).token


def test_a_late_grant_applies_the_bulletin_that_other_grants_have_applied() -> None:
    people = make_authority_members()
    asking = make_request(OTHER, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, people.alice.membership.link)
    state, reply = issuer.grant(people.authority, "alice", asking.request, NOW, EPOCHS, people.entropy)
    state = issuer.rotate(state, None, NOW, people.entropy)
    notice = bulletin_of(state)
    alice = apply_bulletin(complete_request(asking, reply, apply_bulletin(people.alice, notice, NOW)), notice, NOW)
    bob = apply_bulletin(people.bob, notice, NOW)
    for topic in (TOPIC, OTHER):
        assert alice.keys_at(NOW + 1).topic(topic).token == bob.keys_at(NOW + 1).topic(topic).token


def test_a_bulletin_without_a_publishers_signature_is_refused_whole() -> None:
    people = make_authority_members()
    writer = bulletin.BulletinWriter(1, NOW + 1, people.entropy)
    writer.add(people.alice.grants[0].wrap, TOPIC, 0, bulletin.EntryKind.BRIDGE, bytes(range(32)))
    with pytest.raises(ForgedError, match="lacks a signature"):
        apply_bulletin(people.alice, writer.sign(people.authority.key, [], None), NOW)
    for epoch in range(NOW + 1, LAST + 1):
        writer.add(people.alice.grants[0].wrap, TOPIC, epoch, bulletin.EntryKind.BRIDGE, bytes(64))
    with pytest.raises(ForgedError, match="lacks a signature"):
        apply_bulletin(people.alice, writer.sign(people.authority.key, [], None), NOW)


def test_an_entry_of_no_known_kind_is_refused() -> None:
    people = make_authority_members()
    writer = bulletin.BulletinWriter(1, NOW + 1, people.entropy)
    writer.add(people.bob.grants[0].wrap, TOPIC, 0, 9, b"")  # type: ignore[arg-type]
    with pytest.raises(ForgedError, match="no known kind"):
        apply_bulletin(people.bob, writer.sign(people.authority.key, [], None), NOW)


def test_after_the_root_has_ended_a_sub_authority_its_grants_end_and_its_bulletins_are_refused() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    child, dora = issuer.grant_ready(child, "dora", [("sports/tennis", "subscriber")], NOW, EPOCHS, people.entropy)
    child = issuer.rotate(child, None, NOW, people.entropy)
    dora = apply_bulletin(dora, bulletin_of(issuer.revoke_group(root, "sports", NOW, people.entropy)), NOW)
    assert sorted(dora.keys_at(NOW).topics) == ["sports/tennis"]
    assert dora.keys_at(NOW + 1).topics == {}
    with pytest.raises(ForgedError, match="ended the sub-authority"):
        apply_bulletin(dora, bulletin_of(child), NOW + 1)


def test_revoking_one_topic_ends_every_grant_for_it_and_leaves_the_link() -> None:
    people = make_authority_members()
    state, again = issuer.grant_ready(people.authority, "mallory", [(TOPIC, "publisher")], NOW, EPOCHS, people.entropy)
    state = issuer.revoke(state, "mallory", TOPIC, NOW, people.entropy)
    known = RevokedKeys(state.root, limit=1000)
    known.add(bulletin_of(state), NOW)
    bob = apply_bulletin(people.bob, bulletin_of(state), NOW)
    for ring in (people.mallory, again):
        chain = ring.keys_at(NOW + 1).topic(TOPIC).certificate
        assert chain is not None
        with pytest.raises(ForgedError):
            bob.keys_at(NOW + 1).topic(TOPIC).check_publisher(chain, state.root, NOW + 1)
        known.check(ring.membership.certificate, NOW + 1)


def test_the_largest_bulletin_fits_the_parts_that_carry_it_and_more_is_refused() -> None:
    carried = geometry.PART_MAX * geometry.PARTS_MAX
    assert carried >= ENTRY * ENTRIES_MAX + VOID_MAX * (FINGERPRINT + 12) + 1024
    people = make_authority_members()
    writer = bulletin.BulletinWriter(1, NOW, people.entropy)
    names = [VoidKey(number.to_bytes(16, "big"), NOW) for number in range(VOID_MAX + 1)]
    with pytest.raises(AuthorityError, match="too much"):
        writer.sign(people.authority.key, names, None)
    assert writer.sign(people.authority.key, names[:-1], None).void
