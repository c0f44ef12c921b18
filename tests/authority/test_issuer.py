from __future__ import annotations

import msgspec
import pytest

from support.authority_members import EPOCHS, HOUR_US, NOW, OTHER, TOPIC, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.bulletin import apply_bulletin
from veilcast.authority.epoch import BATCH_MAX, epoch_of, epochs_in
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import Reply, complete_request, decode_request, make_request, seal_reply
from veilcast.authority.struct_codec import decode_struct, encode_struct
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto import vrf
from veilcast.crypto.certificate import NO_LINEAGE, Certificate, CertificateChain, CertificateKind, certify
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.topic_token import NO_BLIND
from veilcast.errors import (
    AuthorityError,
    ConfigError,
    ExpiredError,
    ForgedError,
    LocalError,
    MalformedError,
    RemoteError,
    StaleError,
    TamperedError,
    UnknownMemberError,
    UnknownTopicError,
)
from veilcast.topics import Reals, Schema

LAST = NOW + EPOCHS - 1


def published(keyring: Keyring, epoch: int) -> Certificate:
    """The certificate of the publisher of news/eu in an epoch."""
    chain = keyring.keys_at(epoch).topic(TOPIC).certificate
    assert chain is not None
    return chain.leaf


def test_publisher_and_subscribers_of_a_topic_share_token_and_content_key_in_every_epoch() -> None:
    people = make_authority_members()
    for epoch in (NOW, NOW + 1, LAST):
        alice, bob = people.alice.keys_at(epoch).topic(TOPIC), people.bob.keys_at(epoch).topic(TOPIC)
        assert alice.token == bob.token
        sealed = seal(alice.content, b"text", context=alice.token, entropy=people.entropy)
        assert unseal(bob.content, sealed, context=bob.token) == b"text"


def test_a_forwarder_checks_a_publisher_by_the_root_key_alone_and_only_in_its_epoch() -> None:
    people = make_authority_members()
    keys = people.alice.keys_at(NOW + 3).topic(TOPIC)
    assert keys.certificate is not None
    keys.certificate.verify(people.authority.root, CertificateKind.PUBLISHER, NOW + 3)
    assert keys.certificate.leaf.scope == keys.token
    with pytest.raises(StaleError):
        keys.certificate.verify(people.authority.root, CertificateKind.PUBLISHER, NOW + 4)


def test_no_two_epochs_show_the_same_key_token_or_certificate() -> None:
    people = make_authority_members()
    shown = [people.alice.keys_at(epoch).topic(TOPIC) for epoch in range(NOW, LAST + 1)]
    chains = [keys.certificate for keys in shown if keys.certificate is not None]
    assert len(chains) == EPOCHS
    assert len({chain.leaf.subject for chain in chains}) == EPOCHS
    assert len({keys.token for keys in shown}) == EPOCHS
    assert len({chain.leaf.signature for chain in chains}) == EPOCHS


def test_a_subscriber_can_certify_and_sign_nothing() -> None:
    keys = make_authority_members().bob.keys_at(NOW).topic(TOPIC)
    assert keys.signing is None
    assert keys.certificate is None


@pytest.mark.parametrize("size", [1, 31, 33, 65, 1000])
def test_a_grant_with_a_key_of_another_size_is_refused_where_it_is_read(size: int) -> None:
    grant, wrong = make_authority_members().alice.grants[0], Secret(bytes(size))
    for changed in ({"keys": (wrong, *grant.keys[1:])}, {"wrap": wrong}, {"seed": wrong}):
        with pytest.raises(LocalError, match="32 bytes"):
            msgspec.structs.replace(grant, **changed)


def test_a_batch_holds_its_own_epochs_and_nothing_that_makes_others() -> None:
    people = make_authority_members()
    with pytest.raises(ExpiredError):
        people.bob.keys_at(LAST + 1)
    with pytest.raises(ExpiredError):
        people.bob.keys_at(NOW - 1)
    grant = next(grant for grant, record in people.bob.records() if record.topic == TOPIC)
    assert len(grant.keys) == EPOCHS
    assert people.authority.topics[TOPIC].master not in grant.keys


def test_keys_of_one_topic_say_nothing_of_another() -> None:
    keys = make_authority_members().bob.keys_at(NOW)
    assert keys.topic(TOPIC).token != keys.topic(OTHER).token
    assert keys.topic(TOPIC).content != keys.topic(OTHER).content
    with pytest.raises(UnknownTopicError):
        keys.topic("sports")


def test_the_authority_keeps_no_private_key_of_a_member() -> None:
    people = make_authority_members()
    state = encode_struct(people.authority)
    seeds = [grant.seed for grant in people.alice.grants if grant.seed is not None]
    assert seeds
    for secret in (people.alice.membership.link, *seeds):
        assert secret.reveal() not in state


def test_a_member_that_makes_its_own_keys_ends_with_a_keyring_as_good_as_a_ready_one() -> None:
    people = make_authority_members()
    asking = make_request(TOPIC, "publisher", HOUR_US, NOW, EPOCHS, people.entropy)
    state, reply = issuer.grant(people.authority, "dora", asking.request, NOW, EPOCHS, people.entropy)
    dora = complete_request(asking, reply, None)
    keys = dora.keys_at(NOW + 5).topic(TOPIC)
    assert keys.token == people.bob.keys_at(NOW + 5).topic(TOPIC).token
    assert keys.certificate is not None
    keys.certificate.verify(state.root, CertificateKind.PUBLISHER, NOW + 5)
    # A later request adds a topic to the same membership.
    asking = make_request(OTHER, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, dora.membership.link)
    state, reply = issuer.grant(state, "dora", asking.request, NOW, EPOCHS, people.entropy)
    both = complete_request(asking, reply, dora)
    assert sorted(both.keys_at(NOW).topics) == [OTHER, TOPIC]
    assert both.membership.link == dora.membership.link


def test_only_the_member_that_asked_can_open_the_reply() -> None:
    people = make_authority_members()
    asking = make_request(TOPIC, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy)
    _, reply = issuer.grant(people.authority, "dora", asking.request, NOW, EPOCHS, people.entropy)
    thief = msgspec.structs.replace(asking, link=Secret(people.entropy(32)))
    for stolen, bytes_ in ((thief, reply), (asking, reply[:-1]), (asking, b""), (asking, bytes(len(reply)))):
        with pytest.raises(RemoteError):
            complete_request(stolen, bytes_, None)


def test_bad_requests_are_refused_and_leave_no_trace() -> None:
    people = make_authority_members()
    state, entropy = people.authority, people.entropy
    before = repr(sorted(state.members)), state.bulletins
    request = make_request("sports", "subscriber", HOUR_US, NOW, EPOCHS, entropy).request
    with pytest.raises(UnknownTopicError):
        issuer.grant(state, "dora", request, NOW, EPOCHS, entropy)
    request = make_request(TOPIC, "subscriber", HOUR_US, NOW, EPOCHS, entropy).request
    with pytest.raises(AuthorityError):
        issuer.grant(state, "", request, NOW, EPOCHS, entropy)
    with pytest.raises(AuthorityError):
        issuer.grant(state, "dora", request, NOW, BATCH_MAX + 1, entropy)
    old = make_request(TOPIC, "subscriber", HOUR_US, NOW - 2 * EPOCHS, EPOCHS, entropy).request
    with pytest.raises(ExpiredError):
        issuer.grant(state, "dora", old, NOW, EPOCHS, entropy)
    short = make_request(TOPIC, "publisher", HOUR_US, NOW, 3, entropy).request
    with pytest.raises(AuthorityError):
        issuer.grant(state, "dora", short, NOW, EPOCHS, entropy)
    with pytest.raises(UnknownMemberError):
        issuer.revoke(state, "nobody", None, NOW, entropy)
    with pytest.raises(UnknownTopicError):
        issuer.revoke(state, "carol", OTHER, NOW, entropy)
    with pytest.raises(UnknownTopicError):
        issuer.rotate(state, "sports", NOW, entropy)
    with pytest.raises(ConfigError):
        issuer.declare_label(state, "a//b", "hardened", entropy)
    early = make_request(TOPIC, "subscriber", HOUR_US, NOW + 2, EPOCHS, entropy).request
    with pytest.raises(AuthorityError, match="to come"):
        issuer.grant(state, "dora", early, NOW, EPOCHS, entropy)
    other = make_request(TOPIC, "subscriber", 2 * HOUR_US, NOW, EPOCHS, entropy).request
    with pytest.raises(AuthorityError, match="epochs of 7200 s"):
        issuer.grant(state, "dora", other, NOW, EPOCHS, entropy)
    with pytest.raises(AuthorityError):
        make_request(TOPIC, "subscriber", HOUR_US, NOW, BATCH_MAX + 1, entropy)
    assert (repr(sorted(state.members)), state.bulletins) == before


def test_a_paper_topic_has_one_key_for_ever_and_one_key_pair_for_all_its_publishers() -> None:
    people = make_authority_members("paper")
    alice, mallory = (ring.keys_at(NOW).topic(TOPIC) for ring in (people.alice, people.mallory))
    assert alice.signing is not None
    assert mallory.signing is not None
    assert alice.signing.public == mallory.signing.public
    assert (
        alice.token == people.alice.keys_at(LAST).topic(TOPIC).token == people.bob.keys_at(NOW + 1).topic(TOPIC).token
    )
    assert alice.certificate is not None
    alice.certificate.verify(people.authority.root, CertificateKind.PUBLISHER, 10**6)
    with pytest.raises(AuthorityError):
        issuer.rotate(people.authority, TOPIC, NOW, people.entropy)


def test_a_profile_cannot_change_and_attributes_can() -> None:
    people = make_authority_members()
    schema = Schema((Reals("temp", -40, 60, 12),))
    state = issuer.declare(people.authority, TopicRecord(TOPIC, schema, 0.5), people.entropy)
    assert state.topics[TOPIC].master == people.authority.topics[TOPIC].master
    state, dora = issuer.grant_ready(state, "dora", [(TOPIC, "subscriber")], NOW, EPOCHS, people.entropy)
    record = dora.keys_at(NOW).topic(TOPIC).record
    assert record.schema == schema
    assert record.cover_share == 0.5
    with pytest.raises(AuthorityError):
        issuer.declare(state, TopicRecord(TOPIC, schema, profile="paper"), people.entropy)


def test_a_topic_keeps_its_lineage_over_epochs_editions_and_rotations() -> None:
    people = make_authority_members()
    lineage = people.authority.topics[TOPIC].record.lineage
    assert lineage not in (NO_LINEAGE, people.authority.topics[OTHER].record.lineage)
    assert {published(people.alice, epoch).lineage for epoch in (NOW, LAST)} == {lineage}
    # Not even who declares a topic anew can give it another.
    record = TopicRecord(TOPIC, Schema(), 0.5, lineage=b"x" * 16)
    state = issuer.declare(people.authority, record, people.entropy)
    state = issuer.rotate(state, TOPIC, NOW, people.entropy)
    assert state.topics[TOPIC].record.lineage == lineage
    state, dora = issuer.grant_ready(state, "dora", [(TOPIC, "publisher")], NOW, EPOCHS, people.entropy)
    assert published(dora, NOW + 1).lineage == lineage
    assert dora.keys_at(NOW).topic(TOPIC).record.lineage == lineage


def test_a_topic_keeps_its_blind_and_once_granted_its_routing() -> None:
    people = make_authority_members()
    blind = people.authority.topics[TOPIC].record.blind
    assert blind not in (NO_BLIND, people.authority.topics[OTHER].record.blind)
    plain, cut = (Schema((Reals("temp", -40, 60, 12, routing=routing),)) for routing in (0, 3))
    with pytest.raises(AuthorityError, match="stays routed as it is"):
        issuer.declare(people.authority, TopicRecord(TOPIC, cut), people.entropy)
    state = issuer.declare(people.authority, TopicRecord(TOPIC, plain, blind=b"x" * 16), people.entropy)
    assert state.topics[TOPIC].record.blind == blind
    for schema in (plain, cut, plain, cut):  # Nobody has been granted this one.
        state = issuer.declare(state, TopicRecord("fresh", schema), people.entropy)
    assert state.topics["fresh"].record.schema == cut
    assert state.topics["fresh"].record.edition == 4


def test_a_publishers_certificate_tells_the_cover_share_in_thousandths() -> None:
    people = make_authority_members()
    assert published(people.alice, NOW).cover == 900
    for share, cover in ((0, 0), (0.0004, 0), (0.3333, 333), (1, 1000)):
        state = issuer.declare(people.authority, TopicRecord(TOPIC, Schema(), share), people.entropy)
        _, dora = issuer.grant_ready(state, "dora", [(TOPIC, "publisher")], NOW, EPOCHS, people.entropy)
        assert published(dora, NOW).cover == cover


def test_a_cover_share_that_changed_breaks_no_certificate_of_an_older_grant() -> None:
    people = make_authority_members()
    state = issuer.declare(people.authority, TopicRecord(TOPIC, Schema(), 0.5), people.entropy)
    state = issuer.rotate(state, TOPIC, NOW, people.entropy)
    alice = apply_bulletin(people.alice, bulletin_of(state), NOW)
    keys = alice.keys_at(NOW + 1).topic(TOPIC)
    assert keys.certificate is not None
    keys.check_publisher(keys.certificate, state.root, NOW + 1)
    assert keys.certificate.leaf.cover == 900


def test_in_the_paper_profile_certificates_have_neither_lineage_nor_cover() -> None:
    people = make_authority_members("paper")
    leaf = published(people.alice, NOW)
    assert (leaf.lineage, leaf.cover) == (NO_LINEAGE, 0)
    assert people.authority.topics[TOPIC].record.lineage == NO_LINEAGE


def test_a_members_lot_key_is_certified_and_proves_its_lots() -> None:
    people = make_authority_members()
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, people.entropy)
    _, reply = issuer.grant(people.authority, "dora", asking.request, NOW, EPOCHS, people.entropy)
    for ring in (complete_request(asking, reply, None), people.bob):
        keys = ring.keys_at(NOW)
        leaf = keys.membership.leaf
        assert (leaf.lineage, leaf.cover) == (NO_LINEAGE, 0)
        lot, proof = vrf.draw_lot(keys.lot, b"s"), vrf.prove_lot(keys.lot, b"s", b"said", people.entropy)
        vrf.check_lot(leaf.scope, b"s", lot, b"said", proof)
    # A later grant to the same link key has the same lots.
    again = make_request(OTHER, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, asking.link)
    assert again.request.lot == asking.request.lot


def test_a_sub_authority_grants_its_group_and_nothing_else() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    child, dora = issuer.grant_ready(child, "dora", [("sports/tennis", "publisher")], NOW, EPOCHS, people.entropy)
    keys = dora.keys_at(NOW).topic("sports/tennis")
    assert keys.certificate is not None
    keys.certificate.verify(root.root, CertificateKind.PUBLISHER, NOW)
    dora.keys_at(NOW).membership.verify(root.root, CertificateKind.MEMBER, NOW)
    for foreign in ("news/eu", "sportswear"):
        with pytest.raises(AuthorityError):
            issuer.declare_label(child, foreign, "hardened", people.entropy)
    with pytest.raises(AuthorityError):
        issuer.declare_label(root, "sports/golf", "hardened", people.entropy)
    with pytest.raises(AuthorityError):
        issuer.delegate(child, "sports/golf", NOW, 1, people.entropy)
    with pytest.raises(ExpiredError):
        issuer.grant_ready(child, "late", [("sports/tennis", "subscriber")], LAST, EPOCHS, people.entropy)


def test_grants_of_other_authorities_stand_when_a_sub_authority_has_ended() -> None:
    people = make_authority_members()
    _, child = issuer.delegate(people.authority, "sports", NOW, 2, people.entropy)
    child = issuer.declare_label(child, "sports/tennis", "hardened", people.entropy)
    _, short = issuer.grant_ready(child, "bob", [("sports/tennis", "subscriber")], NOW, 2, people.entropy)
    bob = msgspec.structs.replace(people.bob, grants=(*short.grants, *people.bob.grants))
    assert set(bob.keys_at(NOW + 1).topics) == {"sports/tennis", TOPIC, OTHER}
    assert set(bob.keys_at(NOW + 2).topics) == {TOPIC, OTHER}


def test_a_sub_authority_that_declares_a_foreign_topic_by_force_convinces_no_member() -> None:
    people = make_authority_members()
    _, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    # The attacker edits its own state: the topic it may not speak for, as if it might.
    forced = msgspec.structs.replace(child, group="")
    forced = issuer.declare_label(forced, "news/asia", "hardened", people.entropy)
    with pytest.raises(ForgedError, match="group"):
        issuer.grant_ready(forced, "v", [("news/asia", "subscriber")], NOW, EPOCHS, people.entropy)


def test_epochs_number_periods_of_equal_length() -> None:
    assert epoch_of(7_200_000_000, 3_600_000_000) == 2
    assert epochs_in(30, 3_600_000_000) == 720
    assert epochs_in(0.0001, 3_600_000_000) == 1


def test_a_membership_alone_is_a_grant_of_no_topic() -> None:
    people = make_authority_members()
    state, forwarder = issuer.grant_ready(people.authority, "f", [], NOW, EPOCHS, people.entropy)
    assert forwarder.keys_at(LAST).topics == {}
    forwarder.keys_at(LAST).membership.verify(state.root, CertificateKind.MEMBER, LAST)
    with pytest.raises(ExpiredError):
        forwarder.keys_at(LAST + 1)


def test_no_member_can_have_the_key_of_another_certified_and_so_voided() -> None:
    people = make_authority_members()
    asking = make_request(TOPIC, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, people.alice.membership.link)
    with pytest.raises(AuthorityError, match="another member"):
        issuer.grant(people.authority, "mallory2", asking.request, NOW, EPOCHS, people.entropy)
    issuer.grant(people.authority, "alice", asking.request, NOW, EPOCHS, people.entropy)


def test_a_shorter_grant_does_not_shorten_a_longer_membership() -> None:
    people = make_authority_members()
    asking = make_request(OTHER, "subscriber", HOUR_US, NOW, 1, people.entropy, people.alice.membership.link)
    state, reply = issuer.grant(people.authority, "alice", asking.request, NOW, 1, people.entropy)
    alice = complete_request(asking, reply, people.alice)
    assert sorted(alice.keys_at(NOW).topics) == [OTHER, TOPIC]
    assert sorted(alice.keys_at(LAST).topics) == [TOPIC]
    state = issuer.revoke(state, "alice", None, NOW + 2, people.entropy)
    assert bulletin_of(state).voids(alice.membership.certificate.leaf.subject)


def test_a_revoked_member_gets_nothing_more_under_its_name() -> None:
    people = make_authority_members()
    state = issuer.revoke(people.authority, "mallory", None, NOW, people.entropy)
    with pytest.raises(AuthorityError, match="revoked"):
        issuer.grant_ready(state, "mallory", [(TOPIC, "subscriber")], NOW, EPOCHS, people.entropy)
    with pytest.raises(AuthorityError, match="already"):
        issuer.revoke(state, "mallory", None, NOW, people.entropy)


def test_a_member_that_publishes_and_reads_a_topic_can_do_both() -> None:
    people = make_authority_members()
    orders: tuple[list[TopicRole], list[TopicRole]] = (["publisher", "subscriber"], ["subscriber", "publisher"])
    for roles in orders:
        wanted: list[tuple[str, TopicRole]] = [
            (TOPIC, "publisher" if role == "publisher" else "subscriber") for role in roles
        ]
        _, both = issuer.grant_ready(people.authority, "dora", wanted, NOW, EPOCHS, people.entropy)
        assert both.keys_at(NOW).topic(TOPIC).signing is not None


def test_a_reply_must_fit_its_request_and_come_from_one_authority() -> None:
    people = make_authority_members()
    asking = make_request(TOPIC, "publisher", HOUR_US, NOW, EPOCHS, people.entropy)
    _, reply = issuer.grant(people.authority, "dora", asking.request, NOW, EPOCHS, people.entropy)
    other = msgspec.structs.replace(asking, request=msgspec.structs.replace(asking.request, topic=OTHER))
    with pytest.raises(UnknownTopicError):
        complete_request(other, reply, None)
    seedless = msgspec.structs.replace(asking, seed=Secret(people.entropy(32)))
    with pytest.raises(ForgedError):
        complete_request(seedless, reply, None)
    stranger = issuer.declare_label(issuer.create(HOUR_US, people.entropy), TOPIC, "hardened", people.entropy)
    asking = make_request(TOPIC, "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, people.alice.membership.link)
    _, foreign = issuer.grant(stranger, "alice", asking.request, NOW, EPOCHS, people.entropy)
    with pytest.raises(AuthorityError, match="another authority"):
        complete_request(asking, foreign, people.alice)


def test_a_reply_that_certifies_another_link_key_is_refused() -> None:
    people = make_authority_members()
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, people.entropy)
    alice = people.alice.membership
    foreign = Reply(people.authority.root, HOUR_US, alice.network, alice.certificate, None)
    with pytest.raises(ForgedError, match="not to this request"):
        complete_request(asking, seal_reply(foreign, asking.request.link, people.entropy), None)


def test_a_reply_that_certifies_another_key_of_lots_is_refused() -> None:
    people = make_authority_members()
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, people.entropy)
    changed = msgspec.structs.replace(asking.request, lot=people.alice.membership.certificate.leaf.scope)
    _, reply = issuer.grant(people.authority, "dora", changed, NOW, EPOCHS, people.entropy)
    with pytest.raises(ForgedError, match="not to this request"):
        complete_request(asking, reply, None)


def test_a_keyring_whose_membership_or_record_was_swapped_does_not_open_an_epoch() -> None:
    people = make_authority_members()
    stranger = issuer.create(HOUR_US, people.entropy)
    _, foreign = issuer.grant_ready(stranger, "x", [], NOW, EPOCHS, people.entropy)
    swapped = msgspec.structs.replace(people.bob, membership=foreign.membership)
    with pytest.raises(ForgedError):
        swapped.keys_at(NOW)


def test_readers_refuse_a_publisher_that_a_foreign_sub_authority_certified() -> None:
    people = make_authority_members()
    root, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    reader = people.bob.keys_at(NOW).topic(TOPIC)
    key = SigningKey.generate(people.entropy)
    # The hostile sub-authority knows the token, as every forwarder does, and certifies a publisher of its own for it.
    leaf = certify(child.key, CertificateKind.PUBLISHER, key.public, reader.token, NOW, NOW)
    forged = CertificateChain(leaf, child.delegation)
    forged.verify(root.root, CertificateKind.PUBLISHER, NOW)  # All that a forwarder can check holds.
    with pytest.raises(ForgedError, match="outside its group"):
        reader.check_publisher(forged, root.root, NOW)
    good = people.alice.keys_at(NOW).topic(TOPIC).certificate
    assert good is not None
    reader.check_publisher(good, root.root, NOW)
    with pytest.raises(ForgedError, match="another topic"):
        people.bob.keys_at(NOW).topic(OTHER).check_publisher(good, root.root, NOW)


def test_groups_do_not_overlap_and_can_be_delegated_again() -> None:
    people = make_authority_members()
    root, _ = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    with pytest.raises(AuthorityError, match="overlaps"):
        issuer.delegate(root, "sports/golf", NOW, EPOCHS, people.entropy)
    with pytest.raises(AuthorityError, match="declared here already"):
        issuer.delegate(root, "news", NOW, EPOCHS, people.entropy)
    root, _ = issuer.delegate(root, "sports", NOW, EPOCHS, people.entropy)
    ended = issuer.revoke_group(root, "sports", NOW, people.entropy)
    assert len(bulletin_of(ended).void) == 2
    with pytest.raises(AuthorityError, match="that long"):
        issuer.delegate(root, "art", NOW, 2**32, people.entropy)


def test_requests_that_contradict_themselves_cannot_be_built() -> None:
    good = make_request(TOPIC, "publisher", HOUR_US, NOW, 2, make_authority_members().entropy).request
    for change in (
        {"role": "subscriber"},
        {"publisher_keys": b""},
        {"publisher_keys": b"x"},
        {"link": b""},
        {"lot": b""},
        {"first": -1},
    ):
        with pytest.raises(MalformedError):
            msgspec.structs.replace(good, **change)
    assert decode_request(encode_struct(good)) == good
    for bad in (b"", b"VCrq", b"VCrq\x01", encode_struct(good)[:-1], b"VCrq\x03" + b"\x91" * 5000):
        with pytest.raises(MalformedError):
            decode_request(bad)


def test_every_member_of_a_network_gets_its_key_and_no_member_of_another() -> None:
    people = make_authority_members()
    key = people.authority.network
    assert all(one.membership.network == key for one in (people.alice, people.bob, people.carol, people.mallory))
    _, child = issuer.delegate(people.authority, "sports", NOW, EPOCHS, people.entropy)
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, people.entropy)
    _, reply = issuer.grant(child, "dora", asking.request, NOW, EPOCHS, people.entropy)
    assert complete_request(asking, reply, None).membership.network == key
    assert issuer.create(HOUR_US, people.entropy).network != key


def test_a_member_that_comes_back_takes_the_network_key_that_it_is_given() -> None:
    people = make_authority_members()
    state = msgspec.structs.replace(people.authority, network=Secret(people.entropy(32)))
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, people.entropy, people.alice.membership.link)
    _, reply = issuer.grant(state, "alice", asking.request, NOW, EPOCHS, people.entropy)
    renewed = complete_request(asking, reply, people.alice)
    assert renewed.membership.network == state.network
    assert renewed.grants == people.alice.grants


def test_network_keys_of_another_size_fit_neither_a_keyring_nor_a_reply() -> None:
    people = make_authority_members()
    with pytest.raises(LocalError, match="network key"):
        msgspec.structs.replace(people.alice.membership, network=Secret(b"short"))
    with pytest.raises(MalformedError, match="network key"):
        Reply(people.authority.root, HOUR_US, Secret(b"short"), people.alice.membership.certificate, None)


def test_a_network_key_survives_a_file_and_never_prints() -> None:
    people = make_authority_members()
    secret = people.authority.network.reveal()
    assert decode_struct(encode_struct(people.alice), Keyring, TamperedError).membership.network.reveal() == secret
    for value in (people.alice, people.authority, people.alice.membership):
        assert repr(secret) not in repr(value)
        assert secret.hex() not in repr(value)


def test_declaring_again_makes_a_new_edition() -> None:
    people = make_authority_members()
    state = issuer.declare(people.authority, TopicRecord(TOPIC, Schema(), 0.5), people.entropy)
    assert state.topics[TOPIC].record.edition == 2
