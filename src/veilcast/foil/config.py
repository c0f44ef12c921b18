"""Settings of a member of the mode "foil": one frozen value, with the unit and the effect of each field.

All members of a topic must have the same profile and the same prefix. Each member decides everything else for itself,
including the number of fakes that it sends or subscribes to. The profiles differ in:

- **paper**: P3 as it stands. Names in plain text, positions that only the publisher knows and tells members who ask
  (the confirmation protocol), noise around the truth, one permanent MQTT session.
- **hardened**: names that only the topic's members know and that change with every epoch; positions derived from the
  topic's key, so that no member asks for anything; whole fake trajectories; a separate session for each epoch.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.foil.generators.base import FAKES_MAX

GeneratorName: TypeAlias = Literal[
    "",
    "noise",
    "entropy",
    "bucketing",
    "window",
    "trajectories",
    "sign-flip",
    "moran",
    "forecast",
    "counter",
    "jumps",
]
"""Generators by name; the empty name selects the default: see `FoilConfig.generator`."""

Buckets: TypeAlias = Literal["systematic", "hard", "fractional"]
VectorMatch: TypeAlias = Literal["authentic", "any"]

MoveLaw: TypeAlias = Literal["gaussian", "student", "blocks"]


class AttributeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the fakes of one attribute are made, and what is publicly known about its values.

    A broker sees no more of a number than the cell that the topic is routed by. So decimals cannot reveal fakes, and a
    step smaller than a cell is invisible.
    """

    generator: GeneratorName = ""
    """Replaces the default generator of numbers; strings have bucketing, or entropy."""
    relative: bool = False
    """Steps are proportional to the value; for values above 0."""
    deviation: float = 0.0
    """For noise and window, around the truth or the centre; for trajectories and moran, of one step. 0 selects that of
    `history`, or without one a twentieth of the domain, which is a guess. No other generator has a deviation."""
    history: tuple[float, ...] = ()
    """Past values, one per step and without gaps, to which generators are fitted; sign persistence needs more than 60
    of them. The more there are, the less the fit's own error tells: twenty times the steps of a season, or more."""
    law: MoveLaw = "gaussian"
    """The law by which trajectories and moran move; laws other than gaussian are fitted to `history`."""
    block: int = 20
    """Steps for which one sign of sign-flip serves, the first ones for 1, 2, 4 and so on; or that are taken out of
    the history together."""
    lean: tuple[float, float] = (0.0, 0.0)
    """Constant and slope of the law by which moves reverse (`SignPersistence`), if there is no history to fit it to."""
    public_after: int = 0
    """Number of steps after which the truth is public; 0 is never. Numbers then have moran."""
    period: int = -1
    """Steps of a season, for forecast and counter: of a day, or a week. 0 is none; -1 finds it in the history."""
    phase: int = -1
    """The step, counted from the first one of the history, of the first event; -1: events continue the history."""
    values: tuple[float | str, ...] = ()
    """All values that can be published: bucketing and entropy draw from them. Strings without `values` have no
    fakes."""
    weights: tuple[float, ...] = ()
    """The weight of each value; empty means equal weights, or for numbers without `values` those of `history`."""
    buckets: Buckets = "systematic"
    """How bucketing cuts the values into buckets (`generators.categories`); P3's own are hard."""
    cache: int = 1
    """Past vectors that bucketing reuses, P3's m; first in, first out."""
    match: VectorMatch = "authentic"
    """A past vector is reused if its true value returns, or any of its values."""
    master: str = ""
    """The former name of `primary`, still read."""
    line: tuple[float, float] | None = None
    """Slope and intercept, in place of a fit; `deviation` is then the one around it."""
    given: tuple[tuple[float, ...], ...] = ()
    """For each value of the primary, in their order, the probability of each value of this attribute."""
    primary: str = ""
    """The attribute that this one depends on: its fakes are drawn given those of the primary (`generators.factory`),
    by the line and deviation given here or fitted to the histories of both; for strings, by `given`."""

    @property
    def depends_on(self) -> str:
        """The primary attribute, under either of its names; empty for an independent attribute."""
        return self.primary or self.master

    def __post_init__(self) -> None:
        if not 0 <= self.deviation < math.inf:
            raise ConfigError("foil.attributes: a deviation must not be negative")
        if not 1 <= self.block <= STEPS_MAX or not 0 <= self.public_after <= STEPS_MAX:
            raise ConfigError(f"foil.attributes: block must be 1 to {STEPS_MAX} steps, public_after 0 to {STEPS_MAX}")
        if self.period < -1 or self.period > STEPS_MAX or self.period in (1, 2, 3) or self.phase < -1:
            raise ConfigError("foil.attributes: a period has 4 steps or more; 0 is none, and -1 finds it")
        if not 0 <= self.cache <= CACHE_MAX:
            raise ConfigError(f"foil.attributes: cache must be 0 to {CACHE_MAX} vectors")
        if len(self.history) > HISTORY_MAX or len(self.values) > VALUES_MAX:
            raise ConfigError(f"foil.attributes: history has at most {HISTORY_MAX} values, values {VALUES_MAX}")
        numbers = (value for value in self.values if not isinstance(value, str))
        declared = (*self.history, *self.lean, *(self.line or ()), *self.weights, *numbers)
        if not all(map(math.isfinite, declared)):
            raise ConfigError(
                "foil.attributes: history, lean, line, weights and values have finite numbers; fill gaps first"
            )
        if self.primary and self.master not in ("", self.primary):
            raise ConfigError("foil.attributes: primary and its former name master differ; leave master out")
        if not self.depends_on and (self.line is not None or self.given):
            raise ConfigError("foil.attributes: line and given need a primary attribute")
        if len(self.given) > VALUES_MAX:
            raise ConfigError(f"foil.attributes: given has at most {VALUES_MAX} rows")
        if self.weights and len(self.weights) != len(self.values):
            raise ConfigError("foil.attributes: weights must be as many as values")
        if len(dict.fromkeys(self.values)) < len(self.values):
            raise ConfigError("foil.attributes: values must differ from one another")
        if self.values and len({isinstance(value, str) for value in self.values}) > 1:
            raise ConfigError("foil.attributes: values must be all strings, or all numbers")


class FoilConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a member that publishes and subscribes through a broker that it does not trust."""

    profile: Profile = "hardened"
    prefix: str = "veilcast"
    """The first level of all topics on the broker."""

    # --- fakes
    generator: GeneratorName = ""
    """Generator of all numbers without their own. The default is the one that fits the `history`: sign-flip in blocks,
    or forecast, counter or jumps. Without a history it is sign-flip with fair signs; moran where `public_after`
    requires it; in `paper`, noise. Trajectories start at the first value, which thereby becomes public: publish first a
    value that is known anyway."""
    k_p: int = 9
    """Fakes of each event; 0 sends none, and hides nothing. The default is what `foil-default` measures."""
    k_s: int = 0
    """Fakes of each subscription. Their deliveries are discarded."""
    attributes: dict[str, AttributeConfig] = {}
    """Public knowledge about the values of each attribute, in all topics that have it."""

    # --- confirmation (paper)
    allow: tuple[str, ...] = ()
    """Members to which a publisher tells its positions: fingerprints of membership keys, in hex; empty allows all
    members with a grant for the topic."""
    asking_us: int = 2_000_000
    """Time a publisher has to answer before it is asked again; doubled each time, up to sixteen times."""
    held_max: int = 1_024
    """Notifications that wait for the seed of their chain; the oldest are evicted first."""
    seeds_max: int = 1_024
    """Chains whose seeds are remembered, and chains that are asked for."""

    # --- the session
    version: Literal[4, 5] = 5
    """MQTT version: 4 is 3.1.1."""
    keep_alive_us: int = 20_000_000
    """Time without traffic from the broker after which the member pings it."""
    retry_us: int = 10_000_000
    """Time the broker has for an answer before the stream is replaced."""
    connect_us: int = 1_000_000
    """Time before the next call after a failed one; doubled each time, up to sixteen times."""
    window: int = 64
    """Messages that the broker has not acknowledged; further ones wait. A broker may ask for fewer."""
    ahead_us: int = 30_000_000
    """Earliest time before an epoch at which its session opens; the actual moment is random."""
    winnow_us: int = 20_000
    """Time that incoming messages wait before they are opened. Opening the truth takes longer than recognising a
    fake; by then all candidates of an event are acknowledged, and the difference is invisible."""
    filters_max: int = 1_024
    """Filters of all subscriptions in one session."""

    # --- reliability
    keep_us: int = 600_000_000
    """Time for which a published event can be repeated; at most until the end of its session."""
    kept_max: int = 10_000
    """Stored events; beyond that, the oldest acknowledged ones are evicted."""
    margin_us: int = 30_000_000
    """How much earlier than its broker's last sign of life a subscriber may have missed something; also the clock
    difference that is tolerated."""
    late_us: int = 0
    """Time, beyond `margin_us`, for which an event is repeated to new subscribers: for a publisher that stays
    online. After each absence of a subscriber the publisher repeats all of that time."""
    again_us: int = 1_000_000
    """Minimum interval between requests for repeats, and between rounds of repeats; for one event doubled each time,
    up to sixteen times."""
    settle_us: int = 2_000_000
    """Time a broker may take to deliver what it has acknowledged. If it dies later than that, nothing of it is
    repeated to subscribers that had missed it before."""
    requests_max: int = 16_384
    """Answered absences of subscribers in one session; the oldest are forgotten first."""
    records_max: int = 256
    """Publications that the broker has not acknowledged."""
    wait_us: int = 60_000_000
    """Time after which an unacknowledged publication is reported as overdue."""

    # --- the owner
    subscriptions_max: int = 64
    unread_max: int = 1_024
    """Notifications delivered and not acknowledged; further ones are requested again when there is room."""
    seen_max: int = 16_384
    """Acknowledged notifications remembered to recognise repeats."""
    deliver_again_us: int = 30_000_000
    """Time after which an unacknowledged notification is delivered again."""

    def __post_init__(self) -> None:
        for name, kind in self.__annotations__.items():
            if kind == "int" and getattr(self, name) < (0 if name in _MAY_BE_NONE else 1):
                raise ConfigError(f"foil.{name} must be at least {0 if name in _MAY_BE_NONE else 1}")
        if self.k_p > FAKES_MAX or self.k_s > FAKES_MAX:
            raise ConfigError(f"foil.k_p and foil.k_s must be at most {FAKES_MAX}")
        for name, attribute in self.attributes.items():
            generator = attribute.generator or self.generator or self._default_generator(attribute)
            if attribute.deviation and generator not in _WITH_DEVIATION and not attribute.depends_on:
                raise ConfigError(
                    f"foil.attributes.{name}: the generator {generator} has no deviation; remove it, and give a history"
                )
        if not PREFIX_MAX >= len(self.prefix.encode()) >= 1 or set(self.prefix) & set("/+#$\0"):
            raise ConfigError(f"foil.prefix must be one level of 1 to {PREFIX_MAX} bytes, without / + # and $")
        if self.window > WINDOW_MAX:
            raise ConfigError(f"foil.window must be at most {WINDOW_MAX}")
        if not 1_000_000 <= self.keep_alive_us <= KEEP_ALIVE_MAX_US:
            raise ConfigError(f"foil.keep_alive_us must be between a second and {KEEP_ALIVE_MAX_US}")

    def _default_generator(self, attribute: AttributeConfig) -> str:
        if self.profile == "paper":
            return "noise"
        return "moran" if attribute.public_after else "sign-flip"


_WITH_DEVIATION: Final = ("noise", "window", "trajectories", "moran")
_MAY_BE_NONE: Final = ("k_p", "k_s", "ahead_us", "margin_us", "late_us", "keep_us", "settle_us", "winnow_us")

PREFIX_MAX: Final = 64
STEPS_MAX: Final = 1 << 20
HISTORY_MAX: Final = 1 << 20
VALUES_MAX: Final = 1 << 16
CACHE_MAX: Final = 4096
"""Largest number of vectors, of k + 1 codes each, that a stream keeps."""
WINDOW_MAX: Final = 32_768
"""Half of the packet numbers of MQTT."""
KEEP_ALIVE_MAX_US: Final = 65_535_000_000
