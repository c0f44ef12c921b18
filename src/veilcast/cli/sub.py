"""`veilcast sub`: prints the notes of a subscription, one a line, and acknowledges each after it is printed."""

from __future__ import annotations

import argparse
import base64
import json
import re
import signal
from typing import Any, Final

from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import check_range
from veilcast.cli.running_node import config_path, warn_if_hindered
from veilcast.cli.status_wording import mode_texts
from veilcast.errors import ConfigError
from veilcast.machine import Note
from veilcast.net.sync_client import connect_sync
from veilcast.topics import All, Conjunction, Label, Range
from veilcast.topics.predicates import number_or_text, parse_predicates


def sub(arguments: argparse.Namespace, context: Context) -> Report:
    if arguments.count is not None:
        check_range("--count", arguments.count, 1, COUNT_MAX)
    interest = parse_interest(arguments)
    show = as_json if arguments.json else as_line
    # SIGTERM ends the subscription in an orderly way, too.
    signal.signal(signal.SIGTERM, _interrupt)
    with connect_sync(config_path(arguments)) as me:
        subscription = me.subscribe(interest, keep=arguments.keep)
        waiting = subscription.waiting()
        readiness = READY if waiting is None else mode_texts(me.status().mode).ready(waiting.until_us)
        context.warn(f"subscribed; {readiness}")
        warn_if_hindered(me, context)
        for number, note in enumerate(subscription, start=1):
            context.say(show(note))
            subscription.acknowledge()
            if number == arguments.count:
                break
    return Report(None)


def _interrupt(*_: object) -> None:
    """Act as Ctrl-C does, also where Ctrl-C is ignored, for example in a background job of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def parse_interest(arguments: argparse.Namespace) -> Conjunction:
    """Parse TOPIC, `--range` and `--where`: a note must meet all of them."""
    parts: list[Conjunction] = [Label(arguments.topic)] if arguments.topic is not None else []
    parts += [parse_range(name, bounds) for name, bounds in arguments.range]
    if arguments.where:
        parts.append(parse_predicates(",".join(arguments.where)))
    if not parts:
        raise ConfigError("name a TOPIC, a --range or --where, or several of them")
    return parts[0] if len(parts) == 1 else All(*parts)


def parse_range(name: str, bounds: str) -> Range:
    match = re.fullmatch(r"(.*?)\.\.(.*)", bounds)
    ends = [None if not end else number_or_text(end) for end in match.groups()] if match else []
    if not any(end is not None for end in ends) or any(isinstance(end, str) for end in ends):
        raise ConfigError(f"--range {name} {bounds}: write LOW..HIGH with numbers; one of them may be left out")
    return Range(name, *ends)  # type: ignore[arg-type]


def as_line(note: Note) -> str:
    """Return the body as one line of text. The publisher may be a stranger: the body must not control the terminal."""
    text = note.publication.body.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def as_json(note: Note) -> str:
    """Return the body as text if it is UTF-8, otherwise as base64."""
    found: dict[str, Any] = {"id": note.id.hex(), "pairs": note.publication.pairs}
    try:
        found["body"] = note.publication.body.decode()
    except UnicodeDecodeError:
        found["base64"] = base64.b64encode(note.publication.body).decode()
    return json.dumps(found)


READY: Final = "notes that are published from now on come here"
COUNT_MAX: Final = 1 << 32
