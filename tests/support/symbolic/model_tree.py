"""The tree's enrolment and listing on terms.

    rule here               in the code
    Tree.authors            authority/member_statement, crypto/x509.check_chain, authority/tls_identity.check_path
    leaf, delegation        crypto/x509.certify_leaf, certify_delegate
    Tree.node               tree/descriptor.build_descriptor
    Tree.directory          tree/directory.Directory._check, _enrol; tree/descriptor.check_descriptor
    Tree.reader             tree/listing.ListingDownload

Events: the directory `lists` an honest name at an address, which that node `runs` with. A name of no member, or of a
member that may not be listed, is `made up`. A reader `takes` a listing that the directory `publishes`. A listing that
has ended, or is older than a known one, is `stale`.

Moments are 0 to 4; a lease and a listing last one of them. The intruder holds keys and certificates of a member C, of a
member E whose certificate has ended, of a revoked member V, and of a sub-authority X whose delegation has ended. A and
B are honest nodes; B's certificate comes from the sub-authority S. The intruder has recorded an old listing and A's old
descriptor. Addresses are onion services, and a node proves that it holds its own. The model leaves out the proof with
the network key, because every member has that key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, cast

from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.symbolic_search import Event, Found, Instance, Outcome, Property, Step, agrees, never, search
from support.symbolic.symbolic_terms import (
    Bindings,
    Term,
    atom,
    digest,
    number,
    point,
    public,
    sign,
    substitute,
    tup,
    variable,
)


class Statement(NamedTuple):
    """A statement that a reader accepts: its pattern, and the variables that further checks use."""

    pattern: Term
    valid: tuple[Term, ...]
    """Moments of the certificates; all must be now."""


@dataclass(frozen=True)
class TreeModel:
    """The rules in force; a planted flaw is another value of one field."""

    leaf_issues: bool = False
    """True if any certificate of the authority serves as an issuer's, as in an earlier version."""
    checks_issuer_dates: bool = True
    checks_revocation: bool = True
    checks_role: bool = True
    checks_box: bool = True
    checks_issued: bool = True
    checks_onion: bool = True
    keeps_issuer: bool = True
    """True if only certificates of its own issuer, or of the root, can move a listed node."""
    checks_listing: bool = True
    knows_newest: bool = True
    """True if readers and the directory refuse a statement that is older than theirs."""
    delegate_stolen: bool = False
    """True if the intruder has the key of the sub-authority S."""

    def authors(self, role: str, purpose: str, body: Term) -> list[Statement]:
        """Every form of a statement in this role: the certificates, and the signature on the body."""
        stands = atom(role, "role") if self.checks_role else _ROLE
        said = sign(_KEY, tup(atom(purpose), body))
        forms = [Statement(tup(body, leaf(_NAME, public(_KEY), ROOT, stands, _UNTIL), said), (_UNTIL,))]
        dates = (_UNTIL, _ISSUER_UNTIL) if self.checks_issuer_dates else (_UNTIL,)
        issued = leaf(_NAME, public(_KEY), _ISSUER, stands, _UNTIL)
        if role == "member":
            forms.append(Statement(tup(body, issued, delegation(public(_ISSUER), _ISSUER_UNTIL), said), dates))
        if self.leaf_issues:
            shown = leaf(_OTHER, public(_ISSUER), ROOT, _OTHER_ROLE, _ISSUER_UNTIL)
            forms.append(Statement(tup(body, issued, shown, said), (_UNTIL,)))
        return forms

    def read(
        self, intruder: Intruder, role: str, purpose: str, body: Term, now: int
    ) -> Iterator[tuple[Term, Bindings]]:
        """The author's name and the rest, for each statement that the intruder can make and a reader takes now."""
        to_come = [end(at) for at in ENDS if at >= now]
        for form in self.authors(role, purpose, body):
            for dates in product(to_come, repeat=len(form.valid)):
                for found in intruder.instances(form.pattern, dict(zip(form.valid, dates, strict=True))):
                    if not (self.checks_revocation and found[_NAME] is name_of("V")):
                        yield found[_NAME], found

    def node(self, member: str, issued: int, at: str) -> Instance:
        """An honest node that enrols. The sub-authority has certified B, the authority all other nodes."""
        body = _body(onion(at), point(_link(member)), moment(issued))
        ran = Event("runs", (name_of(member), onion(at), moment(issued)))
        shown = tup(state(member, "tree-node", body), _holds(_onion_key(at), body))
        return Instance(f"node {member}", Outcome(None, (shown,), (ran,)), ())

    def directory(self, *moments: int, listed: Sequence[ListedNode] = ()) -> Instance:
        """Takes one enrolment at each of these moments, and signs a listing of all after the last."""

        def enrol(now: int, last: bool) -> Step:
            def step(local: object, intruder: Intruder) -> Iterator[Outcome]:
                entries = cast("tuple[ListedNode, ...]", local)
                known = {entry.name: entry for entry in entries}
                for name, found in self.read(intruder, "member", "tree-node", _BODY, now):
                    issued = _moment(found[_ISSUED])
                    if self.checks_box and name is not digest(found[_BOX]):
                        continue
                    if self.checks_issued and not now - 1 <= issued <= now:
                        continue
                    if self.checks_onion and not intruder.derives(_holds(found[_ONION], substitute(_BODY, found))):
                        continue
                    entry = ListedNode(digest(found[_BOX]), public(found[_ONION]), issued, found.get(_ISSUER, ROOT))
                    before = known.get(entry.name, entry)
                    if self.knows_newest and issued < before.issued:
                        continue
                    if self.keeps_issuer and entry.issuer not in (before.issuer, ROOT):
                        continue
                    after = (*(each for each in entries if each.name is not entry.name), entry)
                    events = self._listed(entry, now)
                    sends: tuple[Term, ...] = ()
                    if last:
                        head = _head(now, after)
                        events += (_publication_event(head),)
                        sends = (state("D", "tree-listing", head),)
                    yield Outcome(after, sends, events, f"a descriptor of {entry}")

            return step

        steps = tuple(enrol(now, place == len(moments) - 1) for place, now in enumerate(moments))
        return Instance("directory", Outcome(tuple(listed)), steps)

    def reader(self, now: int, known: int = 0) -> Instance:
        """A node that fetches the listing, and has one of this version."""

        def step(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for _, found in self.read(intruder, "directory", "tree-listing", _HEAD, now):
                version, until = _moment(found[_VERSION]), _moment(found[_HEAD_UNTIL])
                if self.checks_listing and until < now:
                    continue
                if self.knows_newest and version < known:
                    continue
                took = Event("takes", (found[_VERSION], found[_HEAD_UNTIL], found[_PAGES]))
                stale = (Event("stale", (found[_VERSION],)),) if until < now or version < known else ()
                yield Outcome(version, (), (took, *stale), f"a listing of {version} until {until}")

        return Instance("reader", Outcome(None), (step,))

    def search(self, *instances: Instance, properties: tuple[Property, ...] = ()) -> Found:
        known = [tup(*(atom(name) for name in ("tree-node", "tree-listing", "tree-onion", "leaf", "delegate")))]
        known += [tup(*map(moment, range(MOMENTS)), *map(end, ENDS))]
        known += [tup(*(atom(role, "role") for role in ("member", "directory")))]
        known += [public(ROOT), public(_sub("S")), _onion_key("evil"), _OWN, public(_OWN), _OWN_LINK]
        known += [point(_OWN_LINK), digest(atom("evil pages"))]
        known += [part for member in "CEV" for part in (_tls(member), _link(member), chain(member))]
        known += [point(_link(member)) for member in "ABCEV"]
        known += [_sub("X"), delegation(public(_sub("X")), end(1)), delegation(public(_sub("S")), end(4))]
        known += [_sub("S")] * self.delegate_stolen
        known += [state("D", "tree-listing", OLD_HEAD), state("A", "tree-node", OLD_DESCRIPTOR)]
        known += [_holds(_onion_key("old A"), OLD_DESCRIPTOR)]
        past = Instance("past", Outcome(None, (), _PAST), ())
        return search([past, *instances], properties or EVERY_TREE, known, shapes=_SHAPES)

    def _listed(self, entry: ListedNode, now: int) -> tuple[Event, ...]:
        if entry.name in (name_of("A"), name_of("B")):
            stale = () if now - 1 <= entry.issued <= now else (Event("stale", (entry.name,)),)
            return (Event("lists", (entry.name, entry.address, moment(entry.issued))), *stale)
        own = entry.name is name_of("C") and entry.address is onion("evil")
        return () if own else (Event("made up", (entry.name, entry.address)),)


class ListedNode(NamedTuple):
    """A node as the directory has it."""

    name: Term
    address: Term
    issued: int
    issuer: Term


def onion(at: str) -> Term:
    """The address of an onion service is its public key."""
    return public(_onion_key(at))


def leaf(name: Term, key: Term, issuer: Term, role: Term, until: Term) -> Term:
    """`crypto.x509.Leaf`: the issuer certifies this key and role of the name, up to a moment."""
    said = tup(atom("leaf"), name, key, public(issuer), role, until)
    return tup(said, sign(issuer, said))


def delegation(key: Term, until: Term) -> Term:
    """`crypto.x509.Delegate`: an issuer below the root."""
    said = tup(atom("delegate"), key, public(ROOT), until)
    return tup(said, sign(ROOT, said))


def chain(member: str) -> Term:
    """The certificates of a member or of the directory D, all but the root's."""
    role = atom("directory" if member == "D" else "member", "role")
    until = end(1 if member == "E" else 4)
    if member == "B":
        own = leaf(name_of(member), public(_tls(member)), _sub("S"), role, until)
        return tup(own, delegation(public(_sub("S")), end(4)))
    return leaf(name_of(member), public(_tls(member)), ROOT, role, until)


def state(member: str, purpose: str, body: Term) -> Term:
    """`authority.statement.state`."""
    return tup(body, chain(member), sign(_tls(member), tup(atom(purpose), body)))


def name_of(member: str) -> Term:
    """`fingerprint` of the link key, which is also the key of the node's box."""
    return digest(point(_link(member)))


def moment(at: int) -> Term:
    return atom(str(at), "moment")


def end(at: int) -> Term:
    """The last moment of a certificate."""
    return atom(str(at), "end")


def _body(address: Term, box_key: Term, issued: Term) -> Term:
    """`tree.descriptor._body`; without the moment of the node's start, which no rule uses."""
    return tup(address, box_key, issued)


def _head(version: int, entries: tuple[ListedNode, ...]) -> Term:
    pages = digest(*(tup(*each[:2]) for each in sorted(entries, key=lambda each: each.name.serial)))
    return tup(moment(version), moment(min(version + 1, 4)), pages)


def _holds(key: Term, body: Term) -> Term:
    """The proof that the node holds the onion service."""
    return sign(key, tup(atom("tree-onion"), body))


def _onion_key(at: str) -> Term:
    return atom(f"onion {at}", "onion")


def _publication_event(head: Term) -> Event:
    return Event("publishes", head.args)


def _moment(term: Term) -> int:
    return int(str(term.value))


def _tls(member: str) -> Term:
    return atom(f"tls {member}", "signing")


def _link(member: str) -> Term:
    return number(f"link {member}")


def _sub(name: str) -> Term:
    return atom(f"sub-authority {name}", "signing")


MOMENTS, ENDS = 5, (1, 4)
ROOT = atom("root", "signing")
OLD_DESCRIPTOR = _body(onion("old A"), point(_link("A")), moment(0))
OLD_HEAD = _head(0, (ListedNode(name_of("A"), onion("old A"), 0, ROOT),))
_PAST = (Event("runs", (name_of("A"), onion("old A"), moment(0))), _publication_event(OLD_HEAD))
EVERY_TREE: tuple[Property, ...] = (
    agrees("lists", "runs", injective=False),
    agrees("takes", "publishes", injective=False),
    never("made up"),
    never("stale"),
)
_OWN, _OWN_LINK = atom("own", "signing"), number("own link")
_KEY, _ISSUER = variable("key", "signing"), variable("issuer", "signing")
_NAME, _OTHER = variable("name", "digest"), variable("other", "digest")
_ROLE, _OTHER_ROLE = variable("role", "role"), variable("other role", "role")
_UNTIL, _ISSUER_UNTIL = variable("until", "end"), variable("issuer until", "end")
_ONION, _BOX, _ISSUED = variable("onion", "onion"), variable("box", "point"), variable("issued", "moment")
_VERSION, _HEAD_UNTIL = variable("version", "moment"), variable("head until", "moment")
_PAGES = variable("pages", "digest")
_SHAPES = Shapes({"digest": [digest(variable("of", "point"))]})
"""The intruder makes names from the points that it holds."""
_BODY, _HEAD = _body(public(_ONION), _BOX, _ISSUED), tup(_VERSION, _HEAD_UNTIL, _PAGES)
