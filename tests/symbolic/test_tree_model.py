"""The tree's enrolment and listing, searched: sentences of docs/threat-model.md against members and strangers."""

from __future__ import annotations

import inspect
from itertools import product

import pytest

from support.listed_nodes import NOW, make_members
from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.model_tree import ROOT, ListedNode, TreeModel, delegation, end, leaf, name_of, onion
from support.symbolic.symbolic_search import Found, Property, State, agrees
from support.symbolic.symbolic_terms import Term, atom, public, sign, tup
from veilcast.authority import tls_identity
from veilcast.authority.member_statement import StatementReader, StatementSignature
from veilcast.authority.role import TlsRole
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.x509 import Leaf, certify_delegate, certify_leaf
from veilcast.errors import RemoteError
from veilcast.tree import descriptor, listing
from veilcast.wire.tree import DirectorySignature, EnrolNode, ListingHead


def enrolments(tree: TreeModel) -> Found:
    """Two honest nodes enrol; the directory takes an enrolment at two moments."""
    return tree.search(tree.node("A", 2, "new A"), tree.node("B", 2, "new B"), tree.directory(2, 3))


def listings(tree: TreeModel, now: int = 3, known: int = 0) -> Found:
    """One enrolment, a listing, and a reader that has one of the version `known`."""
    return tree.search(tree.node("A", 2, "new A"), tree.directory(2), tree.reader(now, known))


# --- sentences ----------------------------------------------------------------------------------------------


def test_a_name_is_listed_where_its_member_says_and_nobody_else_is_listed() -> None:
    """Directory of a tree, cannot: "be listed without a membership, under another's name"; "once revoked"."""
    found = enrolments(TreeModel())
    assert not found, found
    assert {"directory", "node A", "node B"} <= found.finished


@pytest.mark.parametrize(("now", "known"), [(2, 0), (3, 0), (3, 2), (1, 1)])
def test_a_reader_takes_what_the_directory_signed_and_nothing_old(now: int, known: int) -> None:
    """Directory of a tree, cannot: "sign a listing as a member or a stranger"; "bring back an older listing"."""
    found = listings(TreeModel(), now, known)
    assert not found, found
    assert {"directory", "reader"} <= found.finished


def test_a_sub_authority_lists_a_name_before_its_member_does_and_moves_no_listed_one() -> None:
    """Limitations: a sub-authority certifies any link key as its member's; the control that the model sees it."""
    assert enrolments(TreeModel(delegate_stolen=True))
    assert not moved(TreeModel(delegate_stolen=True))


def moved(tree: TreeModel) -> Found:
    """The directory has A, by word of the root, and takes one more enrolment."""
    listed = ListedNode(name_of("A"), onion("old A"), 0, ROOT)
    mine = agrees("lists", "runs", injective=False)
    return tree.search(tree.node("A", 2, "new A"), tree.directory(2, listed=[listed]), properties=(only_of("A", mine),))


def only_of(member: str, check: Property) -> Property:
    """The property, as far as it speaks of this member's name."""

    def checked(state: State, intruder: Intruder) -> str | None:
        told = check(state, intruder)
        return told if told is not None and f"link {member}" in told else None

    return checked


# --- planted flaws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flaw",
    [
        TreeModel(leaf_issues=True),
        TreeModel(checks_issuer_dates=False),
        TreeModel(checks_revocation=False),
        TreeModel(checks_box=False),
        TreeModel(checks_issued=False),
        TreeModel(checks_onion=False),
    ],
    ids=["a leaf issues", "an ended delegation", "the revoked", "a box of others", "undated", "an address of others"],
)
def test_each_planted_flaw_of_enrolment_is_found(flaw: TreeModel) -> None:
    found = enrolments(flaw)
    assert found
    assert found.trace


def test_a_directory_that_forgets_who_certified_a_node_is_found() -> None:
    assert moved(TreeModel(delegate_stolen=True, keeps_issuer=False))


@pytest.mark.parametrize(
    ("flaw", "now", "known"),
    [
        (TreeModel(leaf_issues=True), 3, 2),
        (TreeModel(checks_role=False), 3, 2),
        (TreeModel(checks_listing=False), 3, 0),
        (TreeModel(knows_newest=False), 1, 1),
    ],
    ids=["a leaf issues", "any member lists", "a listing undated", "an older listing"],
)
def test_each_planted_flaw_of_the_listing_is_found(flaw: TreeModel, now: int, known: int) -> None:
    assert listings(flaw, now, known)


# --- the model is the code ----------------------------------------------------------------------------------

ISSUERS, MOMENTS = ("root", "delegate", "leaf"), (1, 4)
ROLES: tuple[TlsRole, ...] = ("member", "directory")


@pytest.mark.parametrize("asked", ROLES)
def test_the_code_takes_the_chains_that_the_model_takes(asked: TlsRole) -> None:
    """For every issuer, role and end of both certificates `StatementReader.verify_author` and the model agree."""
    taken = []
    for chain in product(ISSUERS, ROLES, MOMENTS, MOMENTS):
        taken.append(by_code(*chain, asked))
        assert taken[-1] == by_model(*chain, asked), chain
    assert True in taken
    assert False in taken


def by_model(issuer: str, role: str, until: int, issuer_until: int, asked: str) -> bool:
    """Whether a reader at moment 2 takes a statement with these certificates."""
    key, issuing, name = atom("tls A", "signing"), atom("issuing", "signing"), name_of("A")
    body = tup(atom("address", "address"), name_of("B"), end(4))
    signer = ROOT if issuer == "root" else issuing
    own = leaf(name, public(key), signer, atom(role, "role"), end(until))
    shown: dict[str, list[Term]] = {
        "root": [],
        "delegate": [delegation(public(issuing), end(issuer_until))],
        "leaf": [leaf(name_of("C"), public(issuing), ROOT, atom("member", "role"), end(issuer_until))],
    }
    statement = tup(body, own, *shown[issuer], sign(key, tup(atom("purpose"), body)))
    return any(TreeModel().read(Intruder(Shapes()).hear(statement), asked, "purpose", body, 2))


def by_code(issuer: str, role: TlsRole, until: int, issuer_until: int, asked: TlsRole) -> bool:
    """The same in the code: moment 1 is over, moment 4 is to come."""
    authority, reading, _ = make_members(1)
    seconds = {1: NOW // 1_000_000 - 1, 4: NOW // 1_000_000 + 3_600}
    issuing, key = SigningKey(Secret(bytes(31) + b"\1")), SigningKey(Secret(bytes(31) + b"\2"))
    signer = authority.key if issuer == "root" else issuing
    calls, answers, lists = tls_identity._USES[role]
    own = Leaf(fingerprint(b"A"), key.public, signer.public, calls, answers, 0, seconds[until], lists)
    other = Leaf(fingerprint(b"C"), issuing.public, authority.root, True, False, 0, seconds[issuer_until])
    shown = {
        "root": (),
        "delegate": (certify_delegate(authority.key, issuing.public, 0, seconds[issuer_until]),),
        "leaf": (certify_leaf(authority.key, other),),
    }
    signed = StatementSignature(
        (certify_leaf(signer, own), *shown[issuer]), key.sign(b"body", purpose=b"veilcast/test")
    )
    try:
        StatementReader(reading).verify_author(b"body", signed, asked, NOW, purpose=b"veilcast/test")
    except RemoteError:
        return False
    return True


def test_what_is_signed_and_sent_has_the_fields_of_the_model() -> None:
    """A field that is added, or no longer signed, fails here: the model must say what it means."""
    assert list(inspect.signature(descriptor._body).parameters) == ["address", "box", "since_us", "issued_us"]
    assert list(inspect.signature(listing._body).parameters) == ["version", "until_us", "count", "digests"]
    assert EnrolNode.__struct_fields__ == (
        "number",
        *("address", "box", "since_us", "issued_us"),
        *("certificates", "signature", "holds", "proof"),
    )
    assert ListingHead.__struct_fields__ == (
        "number",
        "version",
        "until_us",
        "count",
        "pages",
        "signatures",
    )
    assert DirectorySignature.__struct_fields__ == ("certificates", "signature")
    assert Leaf.__struct_fields__ == ("name", "public", "issuer", "calls", "answers", "first_s", "last_s", "lists")
