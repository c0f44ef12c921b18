from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.authority import bulletin, issuer
from veilcast.authority.bulletin import ENTRY, TAG, Revoked, apply
from veilcast.crypto.certificate import Kind
from veilcast.errors import AuthorityError, ForgedError, LocalError, MalformedError, UnknownTopicError

sys.path.insert(0, str(Path(__file__).parent))
from people import EPOCHS, NOW, OTHER, TOPIC, make_people

LAST = NOW + EPOCHS - 1


def test_those_who_stay_go_on_together_and_the_one_shut_out_is_left_behind() -> None:
    people = make_people()
    state, notice = issuer.revoke(people.authority, "mallory", None, NOW + 2, people.entropy)
    alice, bob, mallory = (apply(ring, notice, NOW + 2) for ring in (people.alice, people.bob, people.mallory))
    for epoch in (NOW, NOW + 2):
        assert mallory.at(epoch).topic(TOPIC).token == alice.at(epoch).topic(TOPIC).token
    for epoch in (NOW + 3, LAST):
        assert alice.at(epoch).topic(TOPIC).token == bob.at(epoch).topic(TOPIC).token
        assert alice.at(epoch).topic(TOPIC).content == bob.at(epoch).topic(TOPIC).content
        # What the revoked one kept of its own accord is worth nothing.
        assert people.mallory.at(epoch).topic(TOPIC).token != alice.at(epoch).topic(TOPIC).token
        assert people.mallory.at(epoch).topic(TOPIC).content != alice.at(epoch).topic(TOPIC).content
        with pytest.raises(UnknownTopicError):
            mallory.at(epoch).topic(TOPIC)
        certificate = alice.at(epoch).topic(TOPIC).certificate
        assert certificate is not None
        certificate.verify(state.root, Kind.PUBLISHER, epoch)
        assert certificate.leaf.scope == bob.at(epoch).topic(TOPIC).token


def test_a_newcomer_after_the_revocation_meets_those_who_stayed() -> None:
    people = make_people()
    state, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    state, dora = issuer.grant_ready(state, "dora", [(TOPIC, "subscriber")], NOW, EPOCHS, people.entropy)
    bob = apply(people.bob, notice, NOW)
    for epoch in (NOW, NOW + 1, LAST):
        assert dora.at(epoch).topic(TOPIC).token == bob.at(epoch).topic(TOPIC).token


def test_several_bulletins_add_up_and_must_come_in_order() -> None:
    people = make_people()
    state, first = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    state, second = issuer.rotate(state, None, NOW + 1, people.entropy)
    with pytest.raises(AuthorityError, match="bulletin 1 is missing"):
        apply(people.bob, second, NOW + 1)
    alice, bob = (apply(apply(ring, first, NOW), second, NOW + 1) for ring in (people.alice, people.bob))
    for epoch in range(NOW, LAST + 1):
        assert alice.at(epoch).topic(TOPIC).token == bob.at(epoch).topic(TOPIC).token
    assert apply(bob, first, NOW + 1) == bob
    state, dora = issuer.grant_ready(state, "dora", [(OTHER, "subscriber")], NOW + 1, 3, people.entropy)
    assert dora.at(NOW + 3).topic(OTHER).token == bob.at(NOW + 3).topic(OTHER).token


def test_shut_out_of_one_topic_a_member_keeps_the_others() -> None:
    people = make_people()
    _, notice = issuer.revoke(people.authority, "bob", TOPIC, NOW, people.entropy)
    bob = apply(people.bob, notice, NOW)
    assert sorted(bob.at(NOW + 1).topics) == [OTHER]
    assert bob.at(NOW + 1).topic(OTHER).token == people.bob.at(NOW + 1).topic(OTHER).token


def test_forwarders_refuse_the_void_keys_from_the_next_epoch_on_and_no_others() -> None:
    people = make_people()
    _, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    known = Revoked(limit=1000)
    known.add(notice)
    before = people.mallory.at(NOW).topic(TOPIC).certificate
    assert before is not None
    known.check(before, NOW)
    for epoch in (NOW + 1, LAST):
        void, good = (ring.at(epoch).topic(TOPIC).certificate for ring in (people.mallory, people.alice))
        assert void is not None
        assert good is not None
        with pytest.raises(ForgedError):
            known.check(void, epoch)
        known.check(good, epoch)
    with pytest.raises(ForgedError):
        known.check(people.mallory.membership.certificate, NOW + 1)


def test_a_revoked_sub_authority_takes_its_certificates_with_it() -> None:
    people = make_people()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    _, dora = issuer.grant_ready(child, "dora", [("sports/tennis", "publisher")], NOW, EPOCHS, people.entropy)
    _, notice = issuer.revoke_group(root, "sports", NOW, people.entropy)
    known = Revoked(limit=10)
    known.add(notice)
    with pytest.raises(ForgedError):
        known.check(dora.membership.certificate, NOW + 1)


def test_the_list_of_void_keys_is_bounded_and_the_oldest_go_first() -> None:
    people = make_people()
    state, first = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    _, second = issuer.revoke(state, "carol", None, NOW, people.entropy)
    known = Revoked(limit=len(second.revoked))
    known.add(first)
    known.add(second)
    known.check(people.mallory.membership.certificate, NOW + 1)
    with pytest.raises(ForgedError):
        known.check(people.carol.membership.certificate, NOW + 1)
    with pytest.raises(LocalError):
        Revoked(limit=0)


def test_all_entries_have_one_size_and_none_names_its_reader() -> None:
    people = make_people()
    state, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    assert len(notice.entries) % ENTRY == 0
    tags = [notice.entries[start : start + TAG] for start in range(0, len(notice.entries), ENTRY)]
    assert tags == sorted(tags)
    assert len(set(tags)) == len(tags)
    _, again = issuer.rotate(state, TOPIC, NOW, people.entropy)
    later = {again.entries[start : start + TAG] for start in range(0, len(again.entries), ENTRY)}
    assert not later & set(tags)


def test_a_member_cannot_read_the_entries_of_another() -> None:
    people = make_people()
    _, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    wraps = {name: ring.grants[0].wrap for name, ring in (("bob", people.bob), ("mallory", people.mallory))}
    assert notice.read(wraps["bob"], TOPIC, 0) is not None
    kind, data = notice.read(wraps["mallory"], TOPIC, 0) or (None, b"?")
    assert kind is bulletin.Entry.ENDED
    assert not any(data)


def test_nothing_of_a_bulletin_can_be_changed_and_nobody_else_can_write_one() -> None:
    people = make_people()
    _, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    stranger = issuer.create(3_600_000_000, people.entropy)
    stranger = issuer.declare_label(stranger, TOPIC, "hardened", people.entropy)
    _, foreign = issuer.rotate(stranger, TOPIC, NOW, people.entropy)
    forged = [
        msgspec.structs.replace(notice, effective=NOW + 9),
        msgspec.structs.replace(notice, revoked=notice.revoked[1:]),
        msgspec.structs.replace(notice, entries=notice.entries[ENTRY:]),
        msgspec.structs.replace(notice, number=2),
        foreign,
    ]
    for bad in forged:
        with pytest.raises(ForgedError):
            apply(people.bob, bad, NOW)


def test_a_sub_authority_cannot_touch_the_topics_of_others() -> None:
    people = make_people()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    # A hostile sub-authority learns carol's wrap and writes an "ended" entry for a topic of the root's.
    writer = bulletin.BulletinWriter(1, NOW + 1, people.entropy)
    writer.add(people.carol.grants[0].wrap, TOPIC, 0, bulletin.Entry.ENDED, b"")
    hostile = writer.sign(child.key, [], child.delegation)
    after = apply(people.carol, hostile, NOW)
    assert after.at(NOW + 1).topic(TOPIC).token == people.carol.at(NOW + 1).topic(TOPIC).token
    assert root.root == people.carol.root


@given(data=st.binary(max_size=200))
def test_hostile_bytes_are_refused_with_one_error(data: bytes) -> None:
    with pytest.raises(MalformedError):
        bulletin.decode(data)


def test_a_bulletin_survives_the_journey() -> None:
    people = make_people()
    _, notice = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    assert bulletin.decode(bulletin.encode(notice)) == notice


def test_a_paper_grant_ends_by_being_forgotten() -> None:
    people = make_people("paper")
    _, notice = issuer.revoke(people.authority, "bob", None, NOW, people.entropy)
    bob = apply(people.bob, notice, NOW)
    assert bob.at(NOW + 1).topics == {}
    # The paper's own limit: nothing changes for a revoked member that does not play along.
    assert people.bob.at(NOW + 1).topic(TOPIC).token == people.alice.at(NOW + 1).topic(TOPIC).token
