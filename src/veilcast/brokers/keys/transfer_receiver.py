"""One hop of one key at one replica of the receiving node: `ShareReception`, with its timers (`hardened`).

u is the bound on the delay between honest replicas, with their time to answer. All deadlines count from the start of
the hop at this replica. The hop starts here when a majority of the old holders, so at least one honest holder, have
dealt to this replica, or when other replicas prove that a majority has dealt. So Byzantine replicas cannot start a
clock before the first honest holder has dealt. A replica that has started and is not done after u sends that proof to
all others, so honest replicas start within 2 u of one another. Measured from the start:

    at once     a replica that has all dealt shares announces its roll (the others when they have them)
    u           a replica that is not done proves to others that the hop has begun; again u after its announcement
    4 u         every replica announces its roll: honest holders deal within 3 u of one another, see below
    7 u         the first round ends; then, every 4 u, the others, f + 1 in all
    + 4 u       if there are disputes, holders were asked and have shown the shares
    + 3 u       each: the f + 1 rounds of settlement

A replica that has all shares except those of unresponsive holders (`unresponsive`) announces a brief roll at once. It
is done if all replicas that the roll does not skip announce the same. Otherwise the hop proceeds as if no replica were
unresponsive. A replica that is skipped by an agreed roll gets no share, even if it has recovered. Reason: Byzantine
holders could make it wait for their shares, so it would be done later than within the 3 u below, would deal when the
next node has already announced what it lacks, and would have to show those shares. A replica that has spoken is not
unresponsive: it is waited for with this key if it was heard before this replica's announcement, and with later keys if
it was in time.

A replica that is done by unanimity answers replicas that are not done with the statements that prove it, to all
replicas, up to 8 u.

Claim: all honest replicas are done within 3 u of one another.
Reason: either all of them are done by unanimity, or none; those done by the clock are done within 2 u. The next node
relies on these 3 u (see 4 u above).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from veilcast.brokers.keys.agreement import AgreementMessage, Dispute, EndorsedStatement, split_to_fit
from veilcast.brokers.keys.paper_split import KeyAttempt
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, HolderHeader, PublisherHeader
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.brokers.keys.unresponsive import UnresponsiveReplicas
from veilcast.brokers.routing.view import Outgoing, all_replicas
from veilcast.crypto.sign import SigningKey
from veilcast.errors import LocalError, RemoteError, StaleError
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FloodKind


class TransferReceiver:
    """Bounded by the sizes of both nodes. `held_share` is set once the hop is done; `end_us` is when nothing more can
    come."""

    def __init__(
        self,
        origin: KeyAttempt,
        old: Scheme,
        place: ReplicaId,
        publisher: bytes,
        roster: ReplicaKeys,
        signing: SigningKey,
        bound_us: int,
        absences: UnresponsiveReplicas,
    ) -> None:
        self.key_attempt, self.old_scheme, self.place, self.publisher = origin, old, place, publisher
        self._u, self._absences = bound_us, absences
        self._keys = {each: roster.key_of(each) for each in (*all_replicas(old), *all_replicas(place.scheme))}
        """Keys of all replicas, also after `ReplicaKeys` has dropped their schemes."""
        self._levels: dict[ReplicaId, int] = {}
        """Level of each replica (`UnresponsiveReplicas.level`) at this replica's first announcement."""
        self._receiving = ShareReception(origin, old, place, publisher, roster, signing)
        self._others = [other for other in all_replicas(place.scheme) if other != place]
        self._labels: dict[int, bytes] = {}
        self._spoken_to: set[int] = set()
        """Replicas that have announced a roll themselves."""
        self._unawaited: set[int] = set()
        """Replicas that were skipped, once the hop is done."""
        self._begun: int | None = None
        self._spoke: int | None = None
        """Time of this replica's first announcement."""
        self._round = 1
        self._settling: int | None = None
        """Round of settlement, from 1; 0 while holders show shares; None before."""
        self._calls = 0
        self._nudged = self._certified = False
        self._early: dict[int, list[EndorsedStatement]] = {}
        self._shown: dict[tuple[int, int], list[DealtShare]] = {}
        self.held_share: HeldShare | None = None
        self.is_done = False
        """This replica has its share, or there is none to get."""

    @property
    def has_begun(self) -> bool:
        return self._begun is not None

    @property
    def holder_count(self) -> int:
        """Number of holders that have dealt to this replica."""
        return len(self._receiving.holders())

    @property
    def equivocating_holders(self) -> list[ReplicaId]:
        return self._receiving.equivocating_holders

    @property
    def equivocating_replicas(self) -> list[ReplicaId]:
        """Other replicas with two statements. This replica never makes two, whatever was replayed from an earlier
        run."""
        return [
            place
            for place in self._receiving.proven_faulty
            if place.scheme == self.place.scheme and place != self.place
        ]

    @property
    def advertisement(self) -> bytes | None:
        """The advertisement that more than f holders name for the key."""
        return self._label(())

    @property
    def end_us(self) -> int | None:
        """Time after which no replica can need anything from this one."""
        return None if self._begun is None else self._settled(self._rounds)

    def accept_share(self, portion: DealtShare, advertisement: bytes, now: int) -> list[Outgoing]:
        """Accept a share from its holder, identified by its link. Raises for an invalid share."""
        sent = self.handle(now)
        if self.is_done:
            return sent
        if portion.share.index != self.place.index and self._settling is None:
            if not self._receiving.has_announced:
                raise StaleError("another replica's portion, which we have not asked for yet")
            self._receiving.check_share(portion)
            shown = self._shown.setdefault((portion.holder_header.holder, portion.share.index), [])
            if len(shown) < _VERSIONS_MAX:
                shown.append(portion)
            return sent
        self._receiving.accept_share(portion)
        self._labels.setdefault(portion.holder_header.holder, advertisement)
        if self._begun is None and len(self._receiving.holders()) >= self.old_scheme.threshold:
            self._begun = now
        return sent + self.handle(now)

    def accept_message(self, flood: FloodKind, said: AgreementMessage, source: ReplicaId, now: int) -> list[Outgoing]:
        """Accept a message of another replica of the node. Raises for an invalid one."""
        sent = self.handle(now)
        if flood is FloodKind.SETTLING:
            if not self.is_done:
                for vouched in said.statements:
                    self._receiving.accept_settlement(vouched, max(1, self._settling or 0))
            return sent
        if said.publisher_header is not None:
            self._receiving.check_start_proof(said.publisher_header, said.holder_headers)
            self._begun = now if self._begun is None else self._begun
        if any(vouched.author == source.index for vouched in said.statements):
            self._spoken_to.add(source.index)
            if source.index in self._unawaited and now <= self._ends(1):
                self._absences.record_present(self.publisher, self._keys[source])
        if said.is_stuck and (self._begun is None or now <= self._ends(1) + self._u):
            self._nudged = True
        if self._spoke is not None:
            self._hear(said.statements)
        else:
            early = self._early.setdefault(source.index, [])
            early += said.statements[: _EARLY_MAX * self.place.scheme.size - len(early)]
        return sent + self.handle(now)

    def handle(self, now: int) -> list[Outgoing]:
        """Run all steps that are due."""
        sent: list[Outgoing] = []
        while (when := self.next_us()) is not None and when <= now:
            sent += self._step(now)
        return sent

    def next_us(self) -> int | None:
        """Time of the next step; 0 if a step is due that needs no clock."""
        begun = self._begun
        if begun is None:
            return None
        if self.is_done:
            return 0 if self._owes_certificate() else None
        if self._receiving.is_unanimous or (
            self._spoke is None and (self._is_complete() or self._waiver() is not None)
        ):
            return 0
        due, call = self._round_ends() if self._receiving.has_announced else self._since(_ATTEND), self._call_us()
        return due if call is None else min(due, call)

    # --- the clock ----------------------------------------------------------------------------------------------------

    @property
    def _rounds(self) -> int:
        return self._receiving.rounds

    def _since(self, units: int) -> int:
        assert self._begun is not None, "nothing is due before the beginning"
        return self._begun + units * self._u

    def _ends(self, round_number: int) -> int:
        return self._since(_FIRST + _ROUND * (round_number - 1))

    def _settled(self, round_number: int) -> int:
        return self._ends(self._rounds) + (_SHOW + _SETTLE * round_number) * self._u

    def _round_ends(self) -> int:
        return self._ends(self._round) if self._settling is None else self._settled(self._settling)

    def _call_us(self) -> int | None:
        """Time of the next proof to others that the hop has begun: one before this replica's announcement, one
        after."""
        if not self._calls:
            return self._since(_CALL)
        after = 0 if self._spoke is None else self._spoke + _CALL * self._u
        return after if self._calls == 1 and after > self._since(_CALL) else None

    def _step(self, now: int) -> list[Outgoing]:
        if self.is_done:
            return self._certify()
        if self._receiving.is_unanimous:
            late = self._round > 1
            self._combine()
            return self._certify() if late or self._nudged else []
        if not self._receiving.has_announced:
            waiver = self._waiver() if self._spoke is None else None
            if waiver is not None:
                return self._say(self._receiving.announce_brief(*waiver), now)
            if now >= self._since(_ATTEND) or (self._spoke is None and self._is_complete()):
                return self._say(self._receiving.announce(), now)
            return self._call()
        call = self._call_us()
        return self._call() if call is not None and call <= min(now, self._round_ends()) else self._turn()

    def _say(self, word: EndorsedStatement, now: int) -> list[Outgoing]:
        if self._spoke is None:
            self._spoke = now
            places = [*all_replicas(self.old_scheme), *self._others]
            self._levels = {place: self._absences.level(self.publisher, self._keys[place]) for place in places}
            for _, words in sorted(self._early.items()):
                self._hear(words, strict=False)
            self._early.clear()
        return self._tell((word,))

    def _is_complete(self) -> bool:
        """True if all holders have dealt."""
        return len(self._receiving.holders()) == self.old_scheme.size

    def _waiver(self) -> tuple[list[int], list[int]] | None:
        """The replicas and holders to skip, if there are any and no other is missing."""
        dealt, aside = set(self._receiving.holders()), self._waived(self.old_scheme)
        if not self._receiving.is_sufficient(aside) or self._label(aside) is None:
            aside = set()
        gone = self._waived(self.place.scheme) - self._spoken_to - {self.place.index}
        absent = sorted(gone)[: self.place.scheme.max_faulty]
        missing = len(dealt | aside) < self.old_scheme.size
        return None if missing or not (absent or aside) else (absent, sorted(aside))

    def _waived(self, scheme: Scheme) -> set[int]:
        """The replicas of a node that are not waited for."""
        keys = {place.index: self._keys[place] for place in all_replicas(scheme)}
        return {at for at, key in keys.items() if self._absences.is_skipped(self.key_attempt, self.publisher, key)}

    def _label(self, aside: Collection[int]) -> bytes | None:
        """The advertisement that more than f holders name, without these holders."""
        said = [label for holder, label in self._labels.items() if holder not in aside]
        return next((label for label in said if said.count(label) > self.old_scheme.max_faulty), None)

    def _learn(self) -> None:
        """Record which replicas and holders were present and which were missed."""
        nodes, waived_of = (self.place.scheme, self.old_scheme), self._receiving.skipped()
        self._unawaited = waived_of[0]
        spoken = (self._unawaited & self._spoken_to, set[int]())
        for scheme, present, waived, back in zip(nodes, self._receiving.present(), waived_of, spoken, strict=True):
            for place in all_replicas(scheme):
                key = self._keys[place]
                if place.index in present or place.index in back:
                    self._absences.record_present(self.publisher, key)
                elif place != self.place and place.index not in waived:
                    self._absences.record_missed(self.publisher, key, self._levels[place])

    def _call(self) -> list[Outgoing]:
        self._calls += 1
        proof = self._receiving.start_proof()
        root, headers = proof or (None, [])
        return self._spoken(FloodKind.ATTENDANCE, (), root, tuple(headers), stuck=True)

    def _turn(self) -> list[Outgoing]:
        """A round is over."""
        if self._settling is None:
            fresh = self._receiving.relay()
            self._round += 1
            if self._round <= self._rounds:
                return self._tell(tuple(fresh))
            disputes = self._receiving.disputes()
            if not disputes:
                self._combine()
                return []
            self._settling = 0
            return self._ask(disputes)
        settling, self._settling = self._settling, self._settling + 1
        if settling >= self._rounds:
            self._combine()
            return []
        words = (
            (self._receiving.announce_settlement(),) if settling == 0 else tuple(self._receiving.relay_settlements())
        )
        return self._spoken(FloodKind.SETTLING, words) if words else []

    def _ask(self, disputes: list[Dispute]) -> list[Outgoing]:
        by_dealing: dict[tuple[int, bytes], list[int]] = {}
        for dispute in disputes:
            by_dealing.setdefault((dispute.holder, dispute.name), []).append(dispute.replica)
        for early in self._shown.values():
            for portion in early:
                try:
                    self._receiving.accept_share(portion)
                except RemoteError:
                    continue
        self._shown.clear()
        return [
            Outgoing(
                ReplicaId(self.old_scheme, holder),
                DisputeDealing(self.key_attempt.key, self.key_attempt.attempt, name, tuple(asked)),
            )
            for (holder, name), asked in by_dealing.items()
        ]

    def _combine(self) -> None:
        """The hop is done, with a share or without. All dealt shares are erased."""
        self.is_done = True
        try:
            if self._receiving.choose_holders() is not None:
                self._learn()
                self.held_share = None if self._receiving.is_skipped else self._receiving.combine()
        except (RemoteError, LocalError):
            self.held_share = None
        finally:
            self._receiving.erase()
            self._shown.clear()
            self._early.clear()

    # --- words --------------------------------------------------------------------------------------------------------

    def _hear(self, words: tuple[EndorsedStatement, ...] | list[EndorsedStatement], *, strict: bool = True) -> None:
        for vouched in words:
            try:
                self._receiving.accept_statement(vouched, self._round)
            except RemoteError:
                if strict:
                    raise

    def _owes_certificate(self) -> bool:
        return self._nudged and not self._certified and self._receiving.is_unanimous

    def _certify(self) -> list[Outgoing]:
        """Send the certificate to all others: a certificate that only Byzantine replicas had would split the honest
        ones."""
        if self._certified:
            return []
        self._certified = True
        return self._tell(tuple(self._receiving.certificate()))

    def _tell(self, words: tuple[EndorsedStatement, ...]) -> list[Outgoing]:
        return self._spoken(FloodKind.ATTENDANCE, words) if words else []

    def _spoken(
        self,
        flood: FloodKind,
        words: tuple[EndorsedStatement, ...],
        root: PublisherHeader | None = None,
        headers: tuple[HolderHeader, ...] = (),
        *,
        stuck: bool = False,
    ) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for part in split_to_fit(words) or [()]:
            said = AgreementMessage(self.old_scheme, self.place.scheme, part, root, headers, stuck)
            spoken = AgreementWord(
                self.key_attempt.key, self.key_attempt.attempt, self.old_scheme.node, flood, said.encode()
            )
            sent += [Outgoing(other, spoken) for other in self._others]
        return sent


def dispute_window_us(bound_us: int, tolerated: int) -> int:
    """Longest time after its dealing that a holder may be asked to show shares: receivers start within 4 u of the
    dealing."""
    return (4 + _FIRST + _ROUND * tolerated + 1) * bound_us


def quiet_period_us(bound_us: int, tolerated: int) -> int:
    """Time that a restarted replica stays silent: afterwards no holder shows what it dealt to an earlier run."""
    return dispute_window_us(bound_us, tolerated) + 4 * bound_us


def transfer_duration_us(bound_us: int, tolerated: int) -> int:
    """Longest duration of a hop, and so the longest time by which a Byzantine holder can deal before the honest
    ones."""
    return (_FIRST + _ROUND * tolerated + _SHOW + _SETTLE * (tolerated + 1)) * bound_us


_VERSIONS_MAX: Final = 2
_EARLY_MAX: Final = 3
"""Statements of one replica that are kept before this replica's announcement, for each replica of the node: replicas
that did not wait may have proven unanimity by then."""

# In units of the bound on delay; the head of this file says why.
_CALL: Final = 1
_ATTEND: Final = 4
_FIRST: Final = 7
_ROUND: Final = 4
_SHOW: Final = 4
_SETTLE: Final = 3
