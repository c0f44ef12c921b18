"""What a run of foiling is made from (P3): the truth, who makes fakes for it, and how many.

Part of `Params`, apart because it has nothing in common with overlays. A run foils some streams of one kind of truth,
lets attackers look at them, and says how often each was right. Everything here may be an axis of an experiment.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError

Maker: TypeAlias = Literal[
    "noise",
    "window",
    "gaussian",
    "student",
    "history",
    "sign-flip",
    "leaning",
    "moran",
    "moran-leaning",
    "naive",
    "entropy",
    "bucketing",
    "dependent",
]
"""Trajectories are called by how they move: "leaning" is sign-flip with the signs' fitted law. "naive" is Moran
branching with the parent drawn uniformly: the control; "moran-leaning" is both repairs together."""
Truth: TypeAlias = Literal["gbm", "ar1", "goog", "msft", "daily", "codes", "pairs"]
"""Prices by P3's Eq. 1, or steps back to a mean; minutes and days of real stocks, from the data folder; categories;
pairs of numbers that depend on one another."""
Asked: TypeAlias = Literal["guesses", "pedigree", "overhead", "game"]


class Foiling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    foil: Maker | Literal["", "many"] = ""
    """Whether values are foiled in place of a mesh, and by whom; "many" is a game between all makers of fakes."""
    ask: Asked = "guesses"
    """How often attackers are right; how often one is who sees every branching; what is sent; or who wins."""
    guessers: tuple[str, ...] = ()
    """Which of the attackers look at it; empty: all that apply."""
    training: int = 0
    """How often an attacker foils each stream of its own past to learn from it; 0: nobody is trained."""
    truth: Truth = "gbm"
    fakes: int = 3
    """K."""
    streams: int = 8
    """How many are drawn of a law. Of real prices there are as many as the data has windows."""
    copies: int = 1
    """How often each is foiled."""
    length: int = 200
    """Of each stream, in steps."""
    reading: Literal["", "second", "minute", "trading-minute", "variance"] = ""
    """Of noise: which of Table I's, times the root of `factor`. Without one, noise is `noise` times as large as the
    truth moves."""
    factor: float = 1.0
    noise: float = 1.0
    price: float = 0.0
    """Of real prices: the mean to which they are brought, where Table I depends on it; 0 leaves them."""
    moves: float = 0.0
    """Of real prices: the mean size of moves to which they are brought; 0 leaves them."""
    cell: float = 0.0
    """Of real prices: the width of the cells that a broker sees; 0: it sees cents."""
    asking: float = 0.0
    """P3's step 4: the share of true values in the range of a reader who asks about all it gets; 0: nobody asks."""
    process: float = 0.0
    """What the Kalman filter takes for the deviation of moves; 0: what it is."""
    block: int = 1
    """Sign-flip: the steps that one coin serves for."""
    growing: bool = False
    """Sign-flip: whether the first coin serves for one step, and each next one for twice as many, up to `block`."""
    public: int = 0
    """After how many steps the truth is public; 0: never. Moran branching is as frequent as this asks for."""
    rate: float = -1.0
    """Of branchings in a step, where another one is meant."""
    law: Literal["zipf-1", "zipf-2", "gaussian", "even"] = "zipf-1"
    """Of categories."""
    categories: int = 64
    lasting: float = 0.0
    """With which probability a category stays."""
    buckets: Literal["hard", "fractional", "systematic"] = "systematic"
    cache: int = 1
    match: Literal["authentic", "any"] = "authentic"
    slaves: Literal["regression", "alone", "conditional"] = "conditional"
    """How dependent attributes of fakes are drawn."""
    rho: float = 0.8
    false_interests: int = 0
    """Fake subscriptions for each true one, k_s."""
    interests: int = 100
    """How many subscriptions there are."""
    width: float = 0.05
    """Of a subscription: the share of values that it takes."""

    def check_foiling(self) -> None:
        for name in ("fakes", "streams", "copies", "length", "block", "interests"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        for name in ("price", "moves", "cell", "process", "public", "training", "cache", "false_interests"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative")
        for name in ("lasting", "width", "asking"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be a share between 0 and 1, not {getattr(self, name)}")
        if not 0 <= self.rho < 1 or min(self.factor, self.noise) <= 0 or self.categories < 2:
            raise ConfigError("rho is from 0 up to 1, factor and noise are above 0, and there are 2 categories or more")
        if self.truth in ("codes", "pairs") and (self.foil in _NUMERIC or self.ask == "game"):
            raise ConfigError(f"{self.truth} are not foiled by {self.foil or self.ask}")
        if self.foil and self.truth == "pairs" and self.foil != "dependent":
            raise ConfigError("pairs are foiled by a master and its slave")

    def stocks(self) -> list[str]:
        """What of the data folder is read."""
        return [_FILE_OF[self.truth]] if self.foil and self.truth in _FILE_OF else []


_NUMERIC: Final = (
    "noise",
    "window",
    "gaussian",
    "student",
    "history",
    "sign-flip",
    "leaning",
    "moran",
    "moran-leaning",
    "naive",
)
_FILE_OF: Final = {"goog": "minutes", "msft": "minutes", "daily": "daily"}
