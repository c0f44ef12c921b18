"""The relay's enrolment and lease on terms, in the hardened profile.

    rule here                  in the code
    user, begin                relay/transformation_key.begin_enrolment, relay/hardened.HardenedClientProfile
    proxy, finish and check    relay/transformation_key.combine_shares, check_transformation; relay/proxy.RelayProxy
    server, share              relay/transformation_key.answer_enrolment
    names and delivery keys    relay/hardened.HardenedClientProfile
    server, lease and proof    relay/hardened.HardenedServerProfile.open_lease; relay/server.RelayServer._lease
    user, reply                relay/proxy_connection.ProxyConnection.handle_reply

Streams between honest parties are TLS: each message is sealed once under a key of the two parties. A hostile proxy or
server is the intruder, and its streams are open. The model leaves out the subjects of a lease:
`relay/test_relay_knowledge.py` shows, in the algebra of the whole group, which party can link them, and that no proxy
can bind them to its own box.

Events: a proxy that enrols a user under another key than the server's has a key `of its own`; a user `commits` to a
lease that stands, and the server `runs` with its delivery key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from support.symbolic.group_knowledge import Number
from support.symbolic.intruder import Intruder, Shapes
from support.symbolic.symbolic_search import Event, Found, Instance, Outcome, Property, Step, search
from support.symbolic.symbolic_terms import (
    EMPTY,
    Term,
    aead,
    atom,
    box,
    digest,
    mac,
    number,
    point,
    power,
    tup,
    variable,
)


@dataclass(frozen=True)
class RelayModel:
    """The hostile parties and the rules in force. A planted flaw is another value of one field."""

    hostile: str = "server"
    """`server` or `proxy`."""
    hostile_user: bool = False
    """True if the intruder is also a member."""
    checks_key: bool = True
    asks_for_proof: bool = True
    names_epoch: bool = True
    """True if the names of leases, and so their delivery keys, belong to one epoch."""
    factors: int = 2

    def user(self, name: str) -> Instance:
        """An honest member that enrols."""
        key, blind = number(f"k_{name}").number, number(f"b_{name}").number
        sealed = box(BOX, atom(f"coin {name}", "coin"), number(blind))
        begun = tup(number(blind / key), point(key), sealed)
        return Instance(f"user {name}", Outcome(None, (self._stream(name, begun),)), ())

    def proxy(self, user: str) -> Instance:
        """An honest proxy, at a hostile server, that enrols this user."""

        def enrol(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(self._stream(user, tup(_RATIO, _CLAIM, _SEALED))):
                yield Outcome((found[_RATIO], found[_CLAIM]), (found[_SEALED],), told="an enrolment")

        def share(local: object, intruder: Intruder) -> Iterator[Outcome]:
            ratio, claim = cast("tuple[Term, Term]", local)
            for found in intruder.instances(_SHARE):
                moved = number(ratio.number * found[_SHARE].number)
                if self.checks_key and power(claim, moved) is not ROUTE:
                    continue
                own = () if power(claim, moved) is ROUTE else (Event("of its own", (found[_SHARE],)),)
                yield Outcome(moved, (), own, f"the share {found[_SHARE]!r}")

        return Instance(f"proxy of {user}", Outcome(None), (enrol, share))

    def server(self, blinds: int = 0, leases: int = 0) -> Instance:
        """An honest server, at a hostile proxy, that answers these numbers of enrolments and leases."""

        def blind(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(box(BOX, _COIN, _BLIND)):
                share = number(K_R.number / found[_BLIND].number)
                yield Outcome((local, found[_BLIND]), (share,), told=f"the blind {found[_BLIND]!r}")

        def lease(local: object, intruder: Intruder) -> Iterator[Outcome]:
            for found in intruder.instances(box(BOX, _COIN, tup(_LEASE, _DELIVERY))):
                key = found[_DELIVERY]
                ran = Event("runs", (key,))
                yield Outcome((local, key), (digest(key),), (ran,), f"a lease with {key!r}")

        return Instance("server", Outcome(None), (blind,) * blinds + (lease,) * leases)

    def leasing(self, *epochs: int) -> Instance:
        """An honest member, at a hostile proxy, that leases in each of these epochs in turn."""

        def sealed(epoch: int) -> Term:
            return box(BOX, atom(f"coin of lease {epoch}", "coin"), tup(_LEASE, self.delivery_key(epoch)))

        def replied(place: int) -> Step:
            def step(local: object, intruder: Intruder) -> Iterator[Outcome]:
                key = self.delivery_key(epochs[place])
                if self.asks_for_proof and not intruder.derives(digest(key)):
                    return
                following = (sealed(epochs[place + 1]),) if place + 1 < len(epochs) else ()
                yield Outcome(
                    place, following, (Event("commits", (key,)),), f"that the lease of {epochs[place]} stands"
                )

            return step

        return Instance("leasing", Outcome(None, (sealed(epochs[0]),)), tuple(map(replied, range(len(epochs)))))

    def delivery_key(self, epoch: int) -> Term:
        when = (atom(str(epoch), "epoch"),) if self.names_epoch else ()
        name = mac(_OWN_KEY, atom("vc/relay-lease"), atom("interest"), *when)
        return mac(_OWN_KEY, atom("vc/relay-reader"), name)

    def search(self, *instances: Instance, properties: tuple[Property, ...]) -> Found:
        held = [ROUTE, BOX, EMPTY, _LEASE, _OWN, point(_OWN), atom("own coin", "coin"), mac(EMPTY)]
        held += [K_R, BOX_KEY] if self.hostile == "server" else []
        held += [number("k_M"), point(number("k_M"))] if self.hostile_user else []
        return search(instances, properties, held, shapes=Shapes(factors=self.factors))

    def _stream(self, user: str, message: Term) -> Term:
        """The stream from a user to its proxy; it is open if the proxy is hostile."""
        return message if self.hostile == "proxy" else aead(atom(f"stream {user}", "stream"), EMPTY, EMPTY, message)


K_R, BOX_KEY = number("k_r"), number("box")
ROUTE, BOX = point(K_R), point(BOX_KEY)
_OWN = number(Number((("i", 1),)))
_OWN_KEY = atom("own key of the user", "key")
_LEASE = atom("vc/relay-lease", "purpose")
_RATIO, _SHARE, _BLIND = (variable(name, "number") for name in ("ratio", "share", "blind"))
_CLAIM, _SEALED = variable("claim", "point"), variable("sealed", "box")
_COIN, _DELIVERY = variable("coin", "coin"), variable("delivery key", "mac")
