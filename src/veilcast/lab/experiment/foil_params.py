"""Parameters of runs of foiling (P3): the true values, the generator of fakes, and the number of fakes.

A run foils streams of one kind of truth, lets attackers look at them, and measures how often each attacker is right.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import RunParams, UserFile, file_path

NumericGenerator: TypeAlias = Literal[
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
]
"""Trajectories are named for how they move: "leaning" is sign-flip with the fitted law of the signs. "naive" is the
control: Moran branching whose parent is drawn uniformly. "moran-leaning" is both repairs together."""
LAWS: Final = ("gbm", "ar1")
TRUTHS: Final = (*LAWS, "goog", "msft", "daily")
NumericTruth: TypeAlias = Annotated[str, msgspec.Meta(extra={"names": TRUTHS})]


class FoilParams(RunParams, frozen=True, kw_only=True):
    fakes: int = 3
    """K, the number of fakes for each true value."""
    streams: int = 8
    """Number of streams that are drawn of a law. Real prices give as many as the data has windows."""
    length: int = 200
    """Length of each stream, in steps."""

    def __post_init__(self) -> None:
        self.check_at_least(1, "fakes", "streams", "length")


class StreamParams(FoilParams, frozen=True, kw_only=True):
    """Streams of numbers, their generator of fakes, and the attackers on them."""

    truth: NumericTruth = "gbm"
    """Prices by P3's Eq. 1; steps back to a mean; minutes and days of real stocks, from the data folder; or
    "file:PATH", a series of your own, of any length."""
    column: str = ""
    """The column of that file; empty: its only column of numbers."""
    guessers: tuple[str, ...] = ()
    """Names of the attackers; empty: all that apply."""
    training: int = 0
    """How often an attacker foils each stream of its own past to learn from it; 0: no attacker is trained."""
    copies: int = 1
    """How often each real stream is foiled."""
    reading: Literal["", "second", "minute", "trading-minute", "variance"] = ""
    """Noise by one of Table I's readings, times the root of `factor`. Empty: noise is `noise` times as large as the
    moves of the truth."""
    factor: float = 1.0
    noise: float = 1.0
    price: float = 0.0
    """Mean to which real prices are scaled, where Table I depends on it; 0 leaves them as they are."""
    moves: float = 0.0
    """Mean size to which the moves of real prices are scaled; 0 leaves them as they are."""
    cell: float = 0.0
    """Width of the cells in which a broker sees real prices; 0: the broker sees cents."""
    asking: float = 0.0
    """P3's step 4: the share of true values in the range of a reader that asks about everything it receives; 0: no
    reader asks."""
    process: float = 0.0
    """Deviation of moves that the Kalman filter assumes; 0: the true one."""
    block: int = 1
    """Sign-flip: number of steps that one coin serves for."""
    growing: bool = False
    """Sign-flip: whether the first coin serves for one step, and each next one for twice as many, up to `block`."""
    public: int = 0
    """After this many steps the truth is public; 0: never. It sets the rate of Moran branching."""
    rate: float = -1.0
    """Branchings in a step, in place of the rate that `public` gives; negative: unset."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(1, "copies", "block")
        self.check_not_negative("price", "moves", "cell", "process", "public", "training")
        self.check_shares("asking")
        self.check_choice("truth", TRUTHS, file="a series")
        if self.column and not file_path(self.truth):
            raise ConfigError('column is for truth = "file:PATH"')
        if min(self.factor, self.noise) <= 0:
            raise ConfigError("factor and noise must be above 0")

    def data_sources(self, engine: str) -> list[str]:
        return [_FILE_OF[self.truth]] if self.truth in _FILE_OF else []

    def named_attackers(self) -> tuple[str, ...]:
        return self.guessers

    def user_files(self) -> list[UserFile]:
        path = file_path(self.truth)
        return [UserFile("series", path, self.column)] if path else []


class FoiledStreamParams(StreamParams, frozen=True, kw_only=True):
    """The same, with one generator of fakes."""

    foil: NumericGenerator
    """The generator of fakes."""


class FoilGuesses(FoiledStreamParams, frozen=True, kw_only=True, tag="foil.guesses"):
    """How often attackers find the true values."""


class FoilOverhead(FoiledStreamParams, frozen=True, kw_only=True, tag="foil.overhead"):
    """The messages that foiling sends, beside plain brokers and beside encryption."""

    false_interests: int = 0
    """Fake subscriptions for each true one, k_s."""
    interests: int = 100
    """Number of true subscriptions."""
    width: float = 0.05
    """The share of values that a subscription takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(1, "interests")
        self.check_not_negative("false_interests")
        self.check_shares("width")


class FoilGame(StreamParams, frozen=True, kw_only=True, tag="foil.game"):
    """The game between generators and attackers, each against each."""


class FoilPedigrees(FoilParams, frozen=True, kw_only=True, tag="foil.pedigrees"):
    """Branching trajectories against an attacker that sees every branching."""

    foil: Literal["moran", "naive"]
    """The generator of fakes."""
    public: int = 0
    """After this many steps the truth is public; 0: never. It sets the rate of branching."""
    rate: float = -1.0
    """Branchings in a step, in place of the rate that `public` gives; negative: unset."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_negative("public")


class FoilCategories(FoilParams, frozen=True, kw_only=True, tag="foil.categories"):
    """Streams of categories (P3, Scenarios II and III)."""

    foil: Literal["entropy", "bucketing"]
    """The generator of fakes."""
    guessers: tuple[str, ...] = ()
    """Names of the attackers; empty: all that apply."""
    law: Literal["zipf-1", "zipf-2", "gaussian", "even"] = "zipf-1"
    """The distribution of categories."""
    categories: int = 64
    lasting: float = 0.0
    """The probability that a category stays from one step to the next."""
    buckets: Literal["hard", "fractional", "systematic"] = "systematic"
    cache: int = 1
    match: Literal["authentic", "any"] = "authentic"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_negative("cache")
        self.check_shares("lasting")
        self.check_at_least(2, "categories")


class FoilPairs(FoilParams, frozen=True, kw_only=True, tag="foil.pairs"):
    """Events of two numbers of which one depends on the other."""

    dependents: Literal["regression", "alone", "conditional"] = "conditional"
    """How the dependent attribute of a fake is drawn."""
    rho: float = 0.8
    """Correlation of the two numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rho < 1:
            raise ConfigError(f"rho is from 0 up to 1, without 1, not {self.rho}")


_FILE_OF: Final = {"goog": "minutes", "msft": "minutes", "daily": "daily"}
