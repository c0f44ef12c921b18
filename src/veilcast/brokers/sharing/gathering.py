"""Gathering: a subscriber puts the pieces of a key together again, hop by hop, and names who lied.

Pure. Pieces come with the statements that lead to them (`paper`). As soon as a majority of the pieces of one statement
are there, what was split is computed and held against the commitment one level up, and so on up to the key.

Who is to blame follows from who signed what, and n = 2f + 1 shares, too few to correct errors, are enough to find them:

- a piece that is not as committed is its bearer's doing, for no honest broker takes or hands on such a one;
- pieces that are as committed, and together are not what the level above committed to, are the doing of who split them:
  it signed for all of them, and had seen the commitment to its own piece;
- two statements of one broker on the same piece for the same receivers are two faces, and a proof.

Nobody else is named, whatever others do. As honest replicas are a majority at every hop, the key comes out without any
piece that a liar touched.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from veilcast.brokers.sharing.paper import Origin, Parcel, Statement, Trails
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.crypto import shares
from veilcast.crypto.secret import Secret
from veilcast.crypto.shares import Share
from veilcast.errors import ExcessError, ForgedError, LocalError, StaleError


class Gathering:
    """Of one key and attempt; p disjoint paths lead into the same one, and any of them will do."""

    def __init__(self, origin: Origin, trails: Trails, *, most: int = 1 << 17) -> None:
        if most < 1:
            raise LocalError("there is room for at least one piece")
        self._origin, self._trails, self._most = origin, trails, most
        self._splits: dict[bytes, _Split] = {}
        self._said: dict[tuple[bytes, tuple[int, ...], Scheme], bytes] = {}
        self._liars: dict[Place, str] = {}
        self._pieces = 0
        self._key: Secret | None = None

    def __len__(self) -> int:
        return self._pieces

    @property
    def key(self) -> Secret | None:
        """The key, once there is enough of it."""
        return self._key

    @property
    def liars(self) -> dict[Place, str]:
        """Who lied, and how: for certain."""
        return dict(self._liars)

    def add(self, parcel: Parcel, bearer: Place) -> Secret | None:
        """Take the piece that this replica of the last node brings; the key, once it comes out. Raises for what lies.

        The caller knows the bearer by its link, and answers for that.
        """
        if parcel.origin != self._origin:
            raise StaleError("a piece of another key or attempt")
        if self._pieces >= self._most:
            raise ExcessError("more pieces than a key has")
        try:
            if parcel.holder != bearer:
                raise ForgedError("a piece that another replica should bring")
            self._trails.check(parcel)
        except ForgedError:
            self._liars.setdefault(bearer, BEARER)
            raise
        above: _Split | None = None
        for statement in parcel.trail:
            above = self._take(statement, above)
        assert above is not None, "a parcel has a trail"
        if parcel.index not in above.pieces:
            self._pieces += 1
            self._put(above, parcel.index, parcel.data)
        return self._key

    def _take(self, statement: Statement, above: _Split | None) -> _Split:
        name = statement.name
        if name in self._splits:
            return self._splits[name]
        if above is not None:
            said = (statement.above, statement.path, statement.to)
            if self._said.setdefault(said, name) != name:
                self._liars.setdefault(Place(above.statement.to, statement.path[-1]), TWO_FACES)
                raise ForgedError("a second statement on the same piece")
        return self._splits.setdefault(name, _Split(statement, above, {}))

    def _put(self, split: _Split | None, index: int, data: Secret) -> None:
        """A piece that holds; climb as long as each one makes a majority."""
        while split is not None:
            split.pieces[index] = data
            threshold = split.statement.to.threshold
            if len(split.pieces) != threshold:
                return
            whole = shares.reconstruct([Share(at, piece) for at, piece in split.pieces.items()], threshold)
            above = split.above
            if above is None:
                self._key = whole
                return
            index, data = split.statement.path[-1], whole
            if not above.statement.commits_to(index, whole):
                self._liars.setdefault(Place(above.statement.to, index), SPLITTER)
                return
            if index in above.pieces:
                return
            split = above


class _Split(NamedTuple):
    statement: Statement
    above: _Split | None
    pieces: dict[int, Secret]


BEARER: Final = "brought a piece that is not as committed"
SPLITTER: Final = "split something else than it was given"
TWO_FACES: Final = "signed two statements on one piece"
