"""What a member of the mode "foil" can be told: one frozen value, with the unit and the effect of each field.

All members of a topic must have one profile and one prefix; all else each decides for itself, and how many fakes it
sends or asks for, too. What the profiles differ in:

- **paper**: P3 as it stands. Names in plain text, positions that only the publisher knows and tells those who ask it
  (the confirmation protocol), noise around the truth, one MQTT session for good.
- **hardened**: names that only the topic's members know, and that change with every epoch; positions by the topic's
  key, so that nobody asks for anything; whole fake trajectories; a session of its own for each epoch.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.foil.generators.base import FAKES_MAX

GeneratorName: TypeAlias = Literal["", "noise", "entropy", "bucketing", "window", "trajectories", "sign-flip", "moran"]
"""Generators, by name; the empty one is what fits: see `FoilConfig.generator`."""

MoveLaw: TypeAlias = Literal["gaussian", "student", "blocks"]


class AttributeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the fakes of one attribute are made, and what is publicly known of its values.

    A broker sees no more of a number than the cell that the topic is routed by. So fakes have no decimals to be told
    by, and a step smaller than a cell shows as none.
    """

    generator: GeneratorName = ""
    """In place of the one that all numbers have; words have bucketing, or entropy."""
    relative: bool = False
    """Whether steps are in proportion to the value; for values above 0."""
    deviation: float = 0.0
    """Of noise and window, around the truth or the centre; of trajectories, of one step. 0 is that of `history`, or
    without one a twentieth of the domain, which is a guess."""
    history: tuple[float, ...] = ()
    """Past values, one a step and without gaps, that laws and leans are fitted to; a lean to more than 60 of them."""
    law: MoveLaw = "gaussian"
    """By which trajectories and moran move; the others are fitted to `history`."""
    block: int = 20
    """Steps that one coin of sign-flip serves for, the first ones for 1, 2, 4 and so on; or that are taken out of the
    history together."""
    lean: tuple[float, float] = (0.0, 0.0)
    """Constant and slope of the law by which moves turn back (`lean`), where there is no history to fit it to."""
    public_after: int = 0
    """After so many steps what was true is known to all; 0 is never. With it, numbers have moran."""
    values: tuple[float | str, ...] = ()
    """All that can be published: what bucketing and entropy draw from. Words without it have no fakes but themselves.
    """
    weights: tuple[float, ...] = ()
    """How likely each of them is; empty is all alike."""
    master: str = ""
    """The attribute that this one depends on: its fakes are drawn given those of its master (`slaves`), by the line and
    deviation that are told here or fitted to the histories of both; of words, by `given`."""
    line: tuple[float, float] | None = None
    """Slope and intercept, in place of a fit; `deviation` is then the one around it."""
    given: tuple[tuple[float, ...], ...] = ()
    """For each of the master's values, in their order, how likely each of our own is."""

    def __post_init__(self) -> None:
        if not 0 <= self.deviation < math.inf:
            raise ConfigError("foil.attributes: a deviation must not be negative")
        if not 1 <= self.block <= STEPS_MAX or not 0 <= self.public_after <= STEPS_MAX:
            raise ConfigError(f"foil.attributes: block must be 1 to {STEPS_MAX} steps, public_after 0 to {STEPS_MAX}")
        if len(self.history) > HISTORY_MAX or len(self.values) > VALUES_MAX:
            raise ConfigError(f"foil.attributes: history has at most {HISTORY_MAX} values, values {VALUES_MAX}")
        numbers = (value for value in self.values if not isinstance(value, str))
        told = (*self.history, *self.lean, *(self.line or ()), *self.weights, *numbers)
        if not all(map(math.isfinite, told)):
            raise ConfigError(
                "foil.attributes: history, lean, line, weights and values have finite numbers; fill gaps first"
            )
        if not self.master and (self.line is not None or self.given):
            raise ConfigError("foil.attributes: line and given are of an attribute with a master")
        if len(self.given) > VALUES_MAX:
            raise ConfigError(f"foil.attributes: given has at most {VALUES_MAX} rows")
        if self.weights and len(self.weights) != len(self.values):
            raise ConfigError("foil.attributes: weights must be as many as values")
        if len(dict.fromkeys(self.values)) < len(self.values):
            raise ConfigError("foil.attributes: values must differ from one another")
        if self.values and len({isinstance(value, str) for value in self.values}) > 1:
            raise ConfigError("foil.attributes: values must be all words, or all numbers")


class FoilConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member who publishes and subscribes through a broker that it does not trust."""

    profile: Profile = "hardened"
    prefix: str = "veilcast"
    """The first level of all topics on the broker."""

    # --- fakes
    generator: GeneratorName = ""
    """Of all numbers that have none of their own. The empty one is sign-flip in blocks, or moran where `public_after`
    says that there is no other way; in `paper`, noise. Fakes that go their own way start at the first value, which
    thereby is public: one publishes first what is known anyway."""
    k_p: int = 4
    """Fakes of each event; 0 is none, and hides nothing."""
    k_s: int = 0
    """Fakes of each subscription. What they bring is thrown away."""
    attributes: dict[str, AttributeConfig] = {}
    """What is known of the values of each attribute, in all topics that have it."""

    # --- confirmation (paper)
    allow: tuple[str, ...] = ()
    """Whom a publisher tells its positions: fingerprints of membership keys, in hex; empty is everybody with a grant
    for the topic."""
    asking_us: int = 2_000_000
    """How long an asked publisher has to answer before it is asked again; doubled each time, up to sixteen times."""
    held_max: int = 1_024
    """Notifications that wait for the seed of their chain; the oldest go first."""
    seeds_max: int = 1_024
    """Chains whose seeds are remembered, and chains that are asked for."""

    # --- the session
    version: Literal[4, 5] = 5
    """Of MQTT: 4 is 3.1.1."""
    keep_alive_us: int = 20_000_000
    """Without anything from the broker for so long, it is asked for a sign of life."""
    retry_us: int = 10_000_000
    """How long the broker has for an answer before the stream is given up for another."""
    connect_us: int = 1_000_000
    """How long after a call that failed the next one is made; doubled each time, up to sixteen times."""
    window: int = 64
    """Messages that the broker has not acknowledged; more wait. A broker may ask for fewer."""
    ahead_us: int = 30_000_000
    """So long before an epoch begins its session is opened, at the earliest; at a random moment from then on."""
    winnow_us: int = 20_000
    """What comes lies so long before it is looked at. To open the truth takes longer than to know a fake; by then all
    candidates of an event are acknowledged, and nothing shows it."""
    filters_max: int = 1_024
    """Filters of all subscriptions in one session."""

    # --- reliability
    keep_us: int = 600_000_000
    """How long an event is kept to be repeated, after it was published; no longer than to the end of its session."""
    kept_max: int = 10_000
    """Events that are kept; of more, the oldest go that the broker has acknowledged."""
    margin_us: int = 30_000_000
    """How much earlier than a reader's last sign of its broker it may have missed something; and how far clocks may
    differ."""
    late_us: int = 0
    """How long an event is repeated, beyond `margin_us`, for readers that are new: for a publisher that lingers. After
    each absence of a reader the publisher repeats all of that time."""
    again_us: int = 1_000_000
    """How often repeats are asked for, and how often they begin, at the most; for one event twice as long each time,
    up to sixteen times."""
    settle_us: int = 2_000_000
    """How long a broker may take to bring on what it has acknowledged. If it dies later than that, nothing of it is
    repeated that somebody had missed before."""
    requests_max: int = 16_384
    """Absences of readers for which all was repeated, in one session; the oldest are forgotten first."""
    records_max: int = 256
    """Publications that are not through."""
    wait_us: int = 60_000_000
    """After which a publication that is not through is reported as overdue."""

    # --- the owner
    subscriptions_max: int = 64
    unread_max: int = 1_024
    """Notes delivered and not acknowledged; what comes on top is asked for again when there is room."""
    seen_max: int = 16_384
    """Acknowledged notes that are remembered, so that a repeat is known for one."""
    deliver_again_us: int = 30_000_000
    """After which a note that nobody acknowledged is delivered again."""

    def __post_init__(self) -> None:
        for name, kind in self.__annotations__.items():
            if kind == "int" and getattr(self, name) < (0 if name in _MAY_BE_NONE else 1):
                raise ConfigError(f"foil.{name} must be at least {0 if name in _MAY_BE_NONE else 1}")
        if self.k_p > FAKES_MAX or self.k_s > FAKES_MAX:
            raise ConfigError(f"foil.k_p and foil.k_s must be at most {FAKES_MAX}")
        if not PREFIX_MAX >= len(self.prefix.encode()) >= 1 or set(self.prefix) & set("/+#$\0"):
            raise ConfigError(f"foil.prefix must be one level of 1 to {PREFIX_MAX} bytes, without / + # and $")
        if self.window > WINDOW_MAX:
            raise ConfigError(f"foil.window must be at most {WINDOW_MAX}")
        if not 1_000_000 <= self.keep_alive_us <= KEEP_ALIVE_MAX_US:
            raise ConfigError(f"foil.keep_alive_us must be between a second and {KEEP_ALIVE_MAX_US}")


_MAY_BE_NONE: Final = ("k_p", "k_s", "ahead_us", "margin_us", "late_us", "keep_us", "settle_us", "winnow_us")

PREFIX_MAX: Final = 64
STEPS_MAX: Final = 1 << 20
HISTORY_MAX: Final = 1 << 20
VALUES_MAX: Final = 1 << 16
WINDOW_MAX: Final = 32_768
"""Half of the numbers that MQTT has for what is under way."""
KEEP_ALIVE_MAX_US: Final = 65_535_000_000
