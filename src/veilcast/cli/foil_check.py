"""`veilcast foil check`: how well a member's foiling hides a series of its own, by the lab's attackers.

The foiler and its settings are those of the member's file (`-c`), or else the default with the first half of the series
as past values. A series that begins with the member's past values is attacked from their end on; the past values
themselves are divided in halves. Nothing is sent and no key is needed. A node whose file names past values checks them
by itself when it starts, in a thread of its own: the second half of them, foiled from the first half.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.foil_show import FoiledEvent, draw_events, parse_domain, read_column, read_member
from veilcast.cli.input_checks import check_range
from veilcast.errors import ConfigError, VeilcastError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.generators.factory import generator_name
from veilcast.topics import Integers, Reals, Schema, Strings

if TYPE_CHECKING:
    from veilcast.lab.audit.value_check import BestRates, CheckPlan, ValueCheck
    from veilcast.node.foil import FoilSettings


def check(arguments: argparse.Namespace, context: Context) -> Report:
    check_range("--bits", arguments.bits, 1, _BITS)
    check_range("--windows", arguments.windows, 4, _WINDOWS_MAX)
    check_range("--length", arguments.length, 12, _LENGTH_MAX)
    for option, bound in (("--message-bound", arguments.message_bound), ("--value-bound", arguments.value_bound)):
        if not 0 <= bound <= 1:
            raise ConfigError(f"{option}: a rate is from 0 to 1, not {bound}")
    low, high = parse_domain(arguments.domain)
    values = read_column(arguments.file, arguments.column)
    domain = Reals(arguments.column, low, high, arguments.bits)
    if arguments.config is not None:
        if arguments.fakes is not None or arguments.generator or arguments.profile:
            raise ConfigError("-c names all settings; leave --fakes, --generator and --profile away")
        config, source = read_member(Path(arguments.config)), f"settings of {arguments.config}"
        past = list(config.attributes.get(arguments.column, AttributeConfig()).history)
        if past and values[: len(past)] == past:
            if len(values) - len(past) >= len(past) // 2:
                values, source = values[len(past) :], f"{source}, after their past values"
            else:  # The file is that of the past values.
                config, values = split_past(config, arguments.column, values)
                source = f"{source}, with the first half of the series as past values"
    else:
        config = FoilConfig(
            profile=arguments.profile or "hardened",
            generator=arguments.generator,
            k_p=FoilConfig().k_p if arguments.fakes is None else arguments.fakes,
        )
        config, values = split_past(config, arguments.column, values)
        source = "the default settings, with the first half of the series as past values"
    from veilcast.cli.lab import lab_extra

    with lab_extra():
        from veilcast.lab.audit.value_check import CheckPlan
    plan = CheckPlan(length=arguments.length, windows=arguments.windows, seed=arguments.seed)
    found = run_check(values, domain, config, plan)
    message_bound = arguments.message_bound or DEFAULT_MESSAGE * found.chance
    value_bound = arguments.value_bound or DEFAULT_VALUE
    failed = found.exceeds(message_bound, value_bound)
    data = _to_data(found) | {"message_bound": message_bound, "value_bound": value_bound, "hides": not failed}
    lines = [f"{len(values):,} values, {source}; generator {found.generator}, {config.k_p} fakes"]
    lines += _describe(found, message_bound, value_bound)
    lines += ["", *_draw(found), ""]
    lines += [f"{cause.name}: {cause.text}" for cause in found.causes]
    lines.append("refused: a broker can tell too often" if failed else "no attacker is above the bounds")
    return Report(data, lines, FAILED_CHECK if failed else 0)


def run_check(values: Sequence[float], domain: Integers | Reals, config: FoilConfig, plan: CheckPlan) -> ValueCheck:
    import numpy as np

    from veilcast.lab.audit.value_check import check_values

    return check_values(np.array(values, np.float64), domain, config, plan)


def split_past(config: FoilConfig, attribute: str, values: Sequence[float]) -> tuple[FoilConfig, list[float]]:
    """The settings with the first half of the values as past values, and the second half."""
    half = len(values) // 2
    own = config.attributes.get(attribute, AttributeConfig())
    own = msgspec.structs.replace(own, history=tuple(map(float, values[:half])))
    return msgspec.structs.replace(config, attributes={**config.attributes, attribute: own}), list(values[half:])


def check_in_background(settings: FoilSettings, schemas: Iterable[Schema], warn: Callable[[str], object]) -> None:
    """Check all attributes with past values, and warn of those that a broker can tell; silent without the lab. Warns of
    attributes without past values, too. `schemas` are those of the topics on which the member may publish."""
    from veilcast.node.foil import with_history

    config = with_history(settings)
    domains: dict[str, Integers | Reals] = {}
    for schema in schemas:
        domains |= {each.attribute: each for each in schema.domains if not isinstance(each, Strings)}
    if not config.k_p or config.profile == "paper":
        return
    for name in domains:
        own = config.attributes.get(name, AttributeConfig())
        if not (own.history or own.depends_on or own.values) and generator_name(own, config) == "sign-flip":
            warn(f'{name} has no past values: its fakes hide neither a season nor a trend; see "history" under [foil]')
    found = [name for name in domains if name in config.attributes and config.attributes[name].history]
    if not found:
        return

    def work() -> None:
        with suppress(ModuleNotFoundError):  # The lab is an extra.
            for name in found:
                for line in check_past(config, domains[name]):
                    warn(line)

    threading.Thread(target=work, name="foil-check", daemon=True).start()


def check_past(config: FoilConfig, domain: Integers | Reals) -> list[str]:
    """Warnings about one attribute: its past, the second half foiled from the first half. None if it hides."""
    from veilcast.lab.audit.value_check import CheckPlan

    name = domain.attribute
    if config.attributes[name].depends_on:
        return []
    half, values = split_past(config, name, config.attributes[name].history)
    try:
        found = run_check(values, domain, half, CheckPlan(length=100, windows=24, copies=4))
    except VeilcastError as error:
        return [f"the past values of {name} could not be checked: {error}"]
    if not found.exceeds(DEFAULT_MESSAGE * found.chance, DEFAULT_VALUE):
        return []
    line = f"a broker can tell {name}: of the past, {_say_rates(found.by_slot)}; a guess {found.chance:.2f}"
    return [line, *(f"{name}: {cause.text}" for cause in found.causes)]


def _describe(found: ValueCheck, message_bound: float, value_bound: float) -> list[str]:
    lines = [f"{found.windows} windows; a guess {found.chance:.2f}", f"{'':28}{'message':>10}{'value':>10}"]
    lines.append(f"{'bound':28}{message_bound:>10.2f}{value_bound:>10.2f}")
    for view, rates in (("by slot, the worst case", found.by_slot), ("shuffled, as brokers see it", found.shuffled)):
        lines.append(f"{view:28}{rates.message.rate:>10.2f}{rates.value.rate:>10.2f}")
        means = sorted(rates.mean_rates().items(), key=lambda each: -max(each[1]))
        lines += [f"  {name:26}{message:>10.2f}{value:>10.2f}" for name, (message, value) in means[:_SHOWN]]
    lines.append(f"{'the first 20 events':28}{'':>10}{found.beginning:>10.2f}")
    return lines


def _say_rates(rates: BestRates) -> str:
    return (
        f"the true message is named in {rates.message.rate:.2f} and the true value in {rates.value.rate:.2f} of events"
    )


def _draw(found: ValueCheck) -> list[str]:
    """The first window as a broker sees it, with the truth marked."""
    events = []
    for candidates, truth in zip(found.candidates[:_COLUMNS].tolist(), found.truth[:_COLUMNS].tolist(), strict=True):
        events.append(FoiledEvent(candidates, candidates.index(truth)))
    return [*draw_events(events, marked=True), "", "a column is an event, . a candidate, * the true one"]


def _to_data(found: ValueCheck) -> dict[str, Any]:
    def rates(seen: BestRates) -> dict[str, Any]:
        return {
            "message": seen.message._asdict(),
            "value": seen.value._asdict(),
            "attackers": {
                name: {"message": message, "value": value} for name, (message, value) in seen.mean_rates().items()
            },
        }

    return {
        "chance": found.chance,
        "generator": found.generator,
        "windows": found.windows,
        "by_slot": rates(found.by_slot),
        "shuffled": rates(found.shuffled),
        "beginning": found.beginning,
        "causes": [cause._asdict() for cause in found.causes],
    }


DEFAULT_MESSAGE: Final = 1.3
"""Times a guess."""
DEFAULT_VALUE: Final = 0.25
_BITS: Final = 16
_WINDOWS_MAX: Final = 1000
_LENGTH_MAX: Final = 10_000
_SHOWN: Final = 4
_COLUMNS: Final = 100
