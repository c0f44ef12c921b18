"""What a program hands to a client, checked before anything goes to the node: a mistake names the argument and a way
out, and is never taken for a fault of the node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from veilcast.errors import ConfigError, LocalError, PermissionsError, UnreachableError
from veilcast.machine import Publication, Value
from veilcast.net.socketpath import control_path
from veilcast.topics.interests import Conjunction, Label, check_attribute, check_text, is_number


def publication_of(what: object, body: object, values: Mapping[str, object]) -> Publication:
    """Make a publication of the arguments of `publish`; `LocalError` for one that no node could take."""
    if isinstance(what, Publication):
        if values or not isinstance(body, bytes | str) or body:
            raise LocalError("a Publication has its body and values already")
        return Publication(tuple(_pair(each) for each in _pairs(what.pairs)), _body(what.body))
    if isinstance(what, str):
        what = Label(what)
    if not isinstance(what, Label):
        raise LocalError(f"the topic to publish on is a string, a Label or a Publication, not {_kind(what)}")
    return Publication((what.pair, *map(_pair, values.items())), _body(body))


def interest_of(interest: object) -> Conjunction:
    """What `subscribe` was asked for; a string is a topic's name."""
    if isinstance(interest, str):
        return Label(interest)
    if not isinstance(interest, Conjunction):
        raise LocalError(
            f"an interest is a topic's name, a Label, Equal, Range, Box, or All(...) of several, not {_kind(interest)}"
        )
    return interest


def seconds_of(timeout_s: object) -> float | None:
    if timeout_s is None or (is_number(timeout_s) and timeout_s >= 0):
        return timeout_s
    raise LocalError(f"a timeout is a number of seconds, or None for no end, not {timeout_s!r}")


def socket_of(config: object) -> Path:
    """The control socket of the node with this configuration file; `PermissionsError` if it is another user's."""
    if not isinstance(config, str | os.PathLike):
        raise LocalError(f"name the node's configuration file, as in 'node.toml', not {_kind(config)}")
    name = os.fspath(config)
    if not isinstance(name, str) or "\0" in name:
        raise ConfigError(f"the name of the configuration file is no text that a path can be: {name!r}")
    path = control_path(Path(name))
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise no_node(path, config, error) from error
    if owner != os.geteuid():
        raise PermissionsError(f"the node at {path} is another user's")
    return path


def no_node(path: Path, config: object, error: OSError) -> UnreachableError:
    return UnreachableError(
        f"no node answers at {path} ({error.strerror or error}); start it: veilcast node run -c {config}"
    )


def _body(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise LocalError(
                "a body that is a string must be valid Unicode; encode it yourself, and hand in bytes"
            ) from error
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise LocalError(f"a body is bytes or a string, not {_kind(body)}; encode it first, for example with json.dumps")


def _pairs(pairs: object) -> tuple[object, ...]:
    if not isinstance(pairs, tuple | list):
        raise LocalError(f"the pairs of a Publication are a tuple of (attribute, value), not {_kind(pairs)}")
    return tuple(pairs)


def _pair(pair: object) -> tuple[str, Value]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise LocalError(f"a pair of a Publication is (attribute, value), not {_kind(pair)}")
    attribute, value = pair
    check_attribute(attribute)
    if isinstance(value, str):
        check_text(value)
        return attribute, str(value)
    if is_number(value):
        # A subclass of a number, as numpy has them, is not one for the wire.
        return attribute, float(value) if isinstance(value, float) else int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise LocalError(f"the value of {attribute!r} must be a finite number of 64 bits at most")
    raise LocalError(f"the value of {attribute!r} is a number or a string, not {_kind(value)}")


def _kind(value: object) -> str:
    return type(value).__name__
