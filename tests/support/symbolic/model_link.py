"""The link handshake on terms: XXpsk3 for peers that meet, IKpsk2 for peers that know each other, with certificates.

    rule here                      in the code
    model_noise.Side               crypto/noise.Handshake, tokens of crypto/noise_patterns.PATTERNS
    Link.side (prologue)           link/handshake._noise
    Link._shown, Link._accepts     link/identity.LinkIdentity.own_certificate, check_certificate
    initiator, responder           link/handshake.InitiatorHandshake, ResponderHandshake
    first cell (`confirmed`)       link/session.LinkSession

The intruder owns the network. It may hold the network key, as an insider or after a theft, and members' link keys, and
it may be given all of them later (`leaks`). The model leaves out the envelope of handshake packets: its key is derived
from the network key, so an intruder with that key sees what the model shows, and an intruder without it sees less.
Cookies have a search of their own (`test_cookie_model.py`).

Events: a side that takes its peer for the honest member X `commits` to X, its own name and the transcript; the peer
`runs` with the same. The static key of a peer that has shown the session's keys is `admitted`. Session keys with an
honest peer are claimed `secret`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from support.symbolic.group_knowledge import Number
from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.model_noise import SOUND, HandshakeSide, Symmetric, Weakness
from support.symbolic.symbolic_search import (
    Event,
    Found,
    Instance,
    Outcome,
    Property,
    State,
    agrees,
    keeps_secrets,
    search,
)
from support.symbolic.symbolic_terms import EMPTY, Term, aead, atom, number, point, sign, tup, variable
from veilcast.crypto.noise_patterns import PATTERNS
from veilcast.link.handshake import IK_LINK, XX_LINK

Tokens = tuple[tuple[str, ...], ...]


def tokens_of(name: str) -> Tokens:
    """The messages of a pattern, as the code's own table has them."""
    return tuple(message.tokens for message in PATTERNS[name].messages)


@dataclass(frozen=True)
class LinkModel:
    """A handshake, and the keys that the intruder holds. A planted flaw is another value of one field."""

    pattern: str = "XXpsk3"
    tokens: Tokens | None = None
    """The messages of the handshake, if they differ from the pattern's."""
    stolen: tuple[str, ...] = ("C",)
    """Members whose link key and certificate the intruder has."""
    network_key: bool = True
    """True if the intruder has the network key."""
    leaks: tuple[str, ...] = ()
    """Members whose link keys the intruder gets later, with the network key."""
    public: tuple[str, ...] = ("A", "B", "C")
    """Members whose public link key and certificate the intruder knows, as every node does that has met them."""
    expired: tuple[str, ...] = ()
    """Members whose link key the intruder has, with a certificate of a past epoch."""
    confirms: bool = True
    """True if a responder of IK relies on its peer only after the first cell."""
    checks_certificate: bool = True
    checks_subject: bool = True
    checks_epoch: bool = True
    weakness: Weakness = SOUND
    honest: tuple[str, ...] = ("A", "B")
    """Members that other members rely on."""
    factors: int = 0
    """Most numbers that the intruder multiplies a point by before it sends the point."""

    @property
    def messages(self) -> Tokens:
        return self.tokens or tokens_of(self.pattern)

    @property
    def knows(self) -> bool:
        """True if the initiator begins with the responder's static key (IK)."""
        return PATTERNS[self.pattern].responder_known

    def side(
        self, member: str, session: str, initiates: bool, generation: str, remote: str | None = None
    ) -> HandshakeSide:
        psk = PSK if any("psk" in message for message in self.messages) else None
        symmetric = Symmetric.begin(self.pattern, self.weakness).mix_hash(atom(f"link 1, generation {generation}"))
        known = None if remote is None else point(static(remote))
        if self.knows:
            symmetric = symmetric.mix_hash(known if known is not None else point(static(member)))
        return HandshakeSide(initiates, symmetric, static(member), number(f"e_{session}"), psk, known)

    def initiator(self, member: str, session: str = "1", remote: str | None = None, generation: str = "0") -> Instance:
        """`InitiatorHandshake`: begins with message one; `remote` is the peer whose key it knows, for IK."""
        side = self.side(member, f"{member}i{session}", True, generation, remote)
        side, first = side.write(self.messages[0], self._shown(member) if self.knows else EMPTY)

        def read(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for after, _ in cast(HandshakeSide, local).read(self.messages[1], intruder, self._accepts(member)):
                ended: HandshakeSide = after
                sends: tuple[Term, ...] = ()
                if len(self.messages) > 2:
                    ended, sends = after.write(self.messages[2], self._shown(member))
                events = self._relies(after, ended, ("answer", _known(after), after.symmetric.hash))
                events += (_event("runs", "call", point(static(member)), _known(after), ended.symmetric.hash),)
                ours, _, _ = ended.symmetric.split()
                yield Outcome(ended, (*sends, _cell(ours)), events, f"an answer of {_known(after)!r}")

        def read_cell(local: object, intruder: Intruder) -> Iterator[Outcome]:
            after = cast(HandshakeSide, local)
            if intruder.derives(_cell(after.symmetric.split()[1])):
                yield Outcome(after, (), (_admission_event(after),), f"a cell of {_known(after)!r}")

        greets: tuple[Event, ...] = ()
        if self.knows:
            greets = (_event("runs", "greeting", point(static(member)), _known(side), side.symmetric.hash),)
        return Instance(f"initiator {member}{session}", Outcome(side, first, greets), (read, read_cell))

    def responder(self, member: str, session: str = "1", generation: str = "0") -> Instance:
        """`ResponderHandshake`: message one, then message three (XX) or the first cell (IK)."""
        side, own = self.side(member, f"{member}r{session}", False, generation), point(static(member))

        def read_first(local: object, intruder: Intruder) -> Iterator[Outcome]:
            accepts = self._accepts(member) if self.knows else _takes_empty
            for after, _ in cast(HandshakeSide, local).read(self.messages[0], intruder, accepts):
                ended, sends = after.write(self.messages[1], self._shown(member))
                events: tuple[Event, ...] = (_event("runs", "answer", own, ended.symmetric.hash),)
                if self.knows:
                    sends += (_cell(ended.symmetric.split()[1]),)
                if self.knows and not self.confirms:
                    events += self._relies(after, ended, ("greeting", _known(after), own, after.symmetric.hash))
                yield Outcome(ended, sends, events, f"a first message with {after.remote_fresh!r}")

        def read_last(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for after, _ in cast(HandshakeSide, local).read(self.messages[2], intruder, self._accepts(member)):
                events = (_admission_event(after), *relies(after))
                sends = (_cell(after.symmetric.split()[1]),)
                yield Outcome(after, sends, events, f"a last message of {_known(after)!r}")

        def read_cell(local: object, intruder: Intruder) -> Iterator[Outcome]:
            after = cast(HandshakeSide, local)
            if intruder.derives(_cell(after.symmetric.split()[0])):
                yield Outcome(after, (), (_admission_event(after), *relies(after)), f"a cell of {_known(after)!r}")

        def relies(after: HandshakeSide) -> tuple[Event, ...]:
            return self._relies(after, after, ("call", _known(after), own, after.symmetric.hash))

        last = read_last if len(self.messages) > 2 else read_cell
        return Instance(f"responder {member}{session}", Outcome(side), (read_first, last))

    def search(self, *instances: Instance, properties: Iterable[Property] = (), states_max: int = 200_000) -> Found:
        """Search all runs of these instances for a breach of the given properties; by default, those of every link."""
        held = [part for member in self.public for part in (point(static(member)), self._shown(member))]
        held += [PSK] * self.network_key
        held += [static(member) for member in (*self.stolen, *self.expired)]
        held += [self._shown(member) for member in self.stolen]
        held += [certificate(point(static(member)), OLD) for member in self.expired]
        held += [OWN, point(OWN), EMPTY, atom("cell", "body")]
        held += [atom(str(count), "count") for count in range(4)]
        held += [atom(name, "bytes") for name in PATTERNS]
        held += [atom(f"link 1, generation {generation}") for generation in "01"]
        leaks = [PSK, *(static(member) for member in self.leaks)] if self.leaks else []
        wanted = tuple(properties) or EVERY_LINK
        return search(instances, wanted, held, shapes=Shapes(factors=self.factors), leaks=leaks, states_max=states_max)

    def _shown(self, member: str) -> Term:
        return certificate(point(static(member)), EPOCH)

    def _accepts(self, member: str) -> Callable[[HandshakeSide], Iterable[Term]]:
        """`LinkIdentity.check_certificate`: the certificates that admit a peer with this proven static key."""

        def accepted(side: HandshakeSide) -> Iterable[Term]:
            proven = _known(side)
            if proven is point(static(member)):
                return ()
            if not self.checks_certificate:
                return (certificate(proven, EPOCH), EMPTY)
            subject = proven if self.checks_subject else _SUBJECT
            return (certificate(subject, EPOCH if self.checks_epoch else _EPOCH),)

        return accepted

    def _relies(
        self, peer: HandshakeSide, keys: HandshakeSide, commitment: tuple[str | Term, ...]
    ) -> tuple[Event, ...]:
        """If the peer is honest, this side relies on it: the keys are secret, and the peer has run."""
        if _known(peer) not in [point(static(member)) for member in self.honest]:
            return ()
        first, second, _ = keys.symmetric.split()
        secrets = tuple(Event("secret", (key,)) for key in (first, second))
        return (*secrets, _event("commits", *commitment))


def static(member: str) -> Term:
    return number(f"s_{member}")


def certificate(subject: Term, epoch: Term) -> Term:
    """`crypto.certificate.Certificate` of kind MEMBER: what it says, and the root's signature on that."""
    said = tup(_MEMBER, subject, epoch)
    return tup(said, sign(_ROOT, said))


def admits_only(*members: str) -> Property:
    """Property: each side admits only the static keys of these members."""
    certified = {point(static(member)) for member in members}

    def check(state: State, intruder: Intruder) -> str | None:
        for events in state.events():
            for event in events:
                if event.kind == "admitted" and event.about[0] not in certified:
                    return f"admitted {event.about[0]!r}, which no member holds"
        return None

    return check


def _event(kind: str, role: str | Term, *about: str | Term) -> Event:
    """The values that both sides agree on: the role, the keys that it knew, and the transcript."""
    return Event(kind, tuple(atom(each) if isinstance(each, str) else each for each in (role, *about)))


def _admission_event(side: HandshakeSide) -> Event:
    """The peer has shown that it has the keys (`LinkSession.confirmed`): the link is up."""
    return Event("admitted", (_known(side),))


def _cell(key: Term) -> Term:
    return aead(key, atom("0", "count"), EMPTY, atom("cell", "body"))


def _known(side: HandshakeSide) -> Term:
    assert side.remote_static is not None
    return side.remote_static


def _takes_empty(side: HandshakeSide) -> Iterable[Term]:
    return (EMPTY,)


PSK = atom("psk", "key")
EPOCH, OLD = atom("this epoch", "epoch"), atom("a past epoch", "epoch")
OWN = number(Number((("i", 1),)))
"""The intruder's own number."""
EVERY_LINK: tuple[Property, ...] = (keeps_secrets, agrees("commits", "runs"), admits_only("A", "B", "C"))
LINK_PATTERNS = (XX_LINK, IK_LINK)
_ROOT = atom("root", "signing")
_MEMBER = atom("member", "kind")
_SUBJECT, _EPOCH = variable("subject", "point"), variable("epoch", "epoch")
