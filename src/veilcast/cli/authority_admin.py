"""The authority's side of `veilcast authority`: each command is one function from arguments and context to a report.

The state is one locked file in the authority's directory. Everything that can be refused is refused before the state is
written, and the state is written before anything is handed out. So a repeated call repairs an interruption at any
point.

Attribute declarations look like `temp:float:-40:60:12`, `floor:int:0:31` or `class:str`. A second number of bits, as in
`temp:float:-40:60:12:3`, is the resolution at which the mesh routes by the attribute; without it, the mesh does not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from veilcast.authority import issuer, request
from veilcast.authority.epoch import epoch_of, epochs_in
from veilcast.authority.issuer import Authority
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import lock_directory, replace_file, write_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import TopicRecord, choose_cover_share
from veilcast.cli import passphrase
from veilcast.cli.context import Context, Report
from veilcast.cli.files import (
    check_place,
    make_directory,
    open_authority,
    passphrase_file,
    publish_bulletin,
    state_file,
    write_authority,
)
from veilcast.cli.input_checks import read_file
from veilcast.cli.phrases import format_epoch
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ConfigError, LocalError
from veilcast.topics import Domain, Integers, Reals, Schema, Strings, all_cells


def parse_attribute(text: str) -> Domain:
    name, *rest = text.split(":")
    try:
        match rest:
            case ["str"]:
                return Strings(name)
            case ["int", low, high, *bits]:
                width = (int(high) - int(low)).bit_length()
                return Integers(name, int(low), int(high), *_bits(bits, min(_BITS, max(1, width))))
            case ["float", low, high, *bits]:
                return Reals(name, float(low), float(high), *_bits(bits, _BITS))
    except (ValueError, LocalError) as error:
        raise ConfigError(f"attribute {text!r}: {error}") from error
    raise ConfigError(
        f"attribute {text!r}: write NAME:str, or NAME:int or NAME:float with :LOW:HIGH, :BITS and :ROUTING if wanted"
    )


def _bits(given: list[str], default: int) -> tuple[int, int]:
    """Return the number of bits, and the number of bits by which the mesh routes."""
    if len(given) > 2:
        raise ValueError("too many parts")
    bits, routing = [*map(int, given), *(default, 0)[len(given) :]]
    return bits, routing


_BITS: Final = 16


def init(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    length = round(arguments.epoch * 1_000_000)
    if length < 1_000_000:
        raise ConfigError("--epoch is at least one second")
    make_directory(directory)
    with lock_directory(directory):
        _check_empty(directory)
        secret = passphrase.new_passphrase(context, str(directory), arguments.passphrase_file, directory / "passphrase")
        authority = issuer.create(length, context.entropy)
        write_authority(context, directory, authority, secret)
    name = fingerprint(authority.root).hex()
    return Report(
        {"directory": str(directory), "fingerprint": name, "epoch_s": length / 1e6},
        [f"authority {name} made in {directory}"],
    )


def topic(arguments: argparse.Namespace, context: Context) -> Report:
    schema = Schema(tuple(parse_attribute(text) for text in arguments.attribute))
    given = _cover(arguments)
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
        known = authority.topics.get(arguments.topic)
        cover = _default_cover(authority) if given is None and known is None else given
        # Options that are not given leave the declaration as it is.
        record = known.record if known is not None else TopicRecord(arguments.topic, schema)
        record = msgspec.structs.replace(
            record,
            schema=schema if arguments.attribute else record.schema,
            cover_share=record.cover_share if cover is None else cover,
            profile=record.profile if arguments.profile is None else arguments.profile,
        )
        authority = issuer.declare(authority, record, context.entropy)
        write_authority(context, arguments.dir, authority, secret)
    count, cells = len(record.schema.domains), len(all_cells(record.schema))
    cut = f" in {cells} cells" if cells > 1 else ""
    cover_told = f"cover {record.cover_share:g} ({record.profile})"
    return Report(
        {
            "topic": record.topic,
            "attributes": count,
            "cells": cells,
            "profile": record.profile,
            "cover_share": record.cover_share,
        },
        [f"topic {record.topic} declared with {count} attributes{cut}, {cover_told}"],
    )


def grant(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out, overwrite=arguments.force, option="--force")
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        asked = None if arguments.request is None else request.decode_request(read_file(arguments.request))
        wanted, standing = _wanted_grants(arguments, asked), _standing(arguments)
        new = [name for name, _ in wanted if name not in authority.topics]
        for name in new:
            authority = issuer.declare_label(authority, name, arguments.profile or "hardened", context.entropy)
        first = now if asked is None else asked.first
        if asked is not None:
            authority, reply = issuer.grant(authority, arguments.member, asked, now, epochs, context.entropy, standing)
            write_authority(context, arguments.dir, authority, secret)
            replace_file(out, reply)
        else:
            authority, keyring = issuer.grant_ready(
                authority, arguments.member, wanted, now, epochs, context.entropy, standing
            )
            option: Path | None = arguments.keyring_passphrase_file
            theirs = passphrase.new_passphrase(context, str(out), option, passphrase_file(out), draw=True)
            write_authority(context, arguments.dir, authority, secret)
            write_secret(out, keyring, theirs, cost=context.cost, entropy=context.entropy)
    data = {
        "member": arguments.member,
        "standing": standing,
        "grants": [{"topic": name, "role": role} for name, role in wanted],
        "first_epoch": first,
        "last_epoch": first + epochs - 1,
        "declared": new,
        "out": str(out),
    }
    until = format_epoch(first + epochs, authority.epoch_us)
    lines = [f"declared topic {name}" for name in new]
    lines += [f"{arguments.member} is {role} of {name} until {until}" for name, role in wanted]
    lines += [] if wanted else [f"{arguments.member} is a {standing}, with no topic, until {until}"]
    return Report(data, [*lines, f"wrote {out}"])


def revoke(arguments: argparse.Namespace, context: Context) -> Report:
    if arguments.group is not None and (arguments.topic is not None or arguments.every_topic):
        raise ConfigError("--group ends a whole sub-authority; leave --topic and --every-topic away")
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        if arguments.group is not None:
            authority = issuer.revoke_group(authority, arguments.group, now, context.entropy)
        else:
            member, topic, every_topic = arguments.member, arguments.topic, arguments.every_topic
            authority = issuer.revoke(authority, member, topic, now, context.entropy, every_topic=every_topic)
        return _report_bulletin(context, arguments.dir, authority, secret)


def rotate(arguments: argparse.Namespace, context: Context) -> Report:
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        authority = issuer.rotate(authority, arguments.topic, now, context.entropy)
        return _report_bulletin(context, arguments.dir, authority, secret)


def delegate(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        authority, child = issuer.delegate(authority, arguments.group, now, epochs, context.entropy)
        make_directory(out)
        _check_empty(out)
        child_secret = passphrase.new_passphrase(context, str(out), None, out / "passphrase", draw=True)
        # The root first: it could never end a sub-authority that it does not know.
        write_authority(context, arguments.dir, authority, secret)
        write_authority(context, out, child, child_secret)
    name = fingerprint(child.key.public).hex()
    return Report(
        {"group": arguments.group, "directory": str(out), "fingerprint": name},
        [f"sub-authority {name} for {arguments.group}/... made in {out}"],
    )


def _wanted_grants(arguments: argparse.Namespace, asked: request.Request | None) -> list[tuple[str, TopicRole]]:
    """Return the grants that the operator means; a request must agree with the operator's options."""
    named: list[tuple[str, TopicRole]] = [(name, arguments.role) for name in dict.fromkeys(arguments.topic)]
    if _standing(arguments) != "member":
        if named:
            raise ConfigError(f"a {arguments.role} has no topics; leave --topic away")
    elif bool(arguments.topic) != (arguments.role is not None):
        raise ConfigError("--topic and --role go together; with neither, the member gets a membership alone")
    if asked is None:
        return named
    wanted: list[tuple[str, TopicRole]] = [(asked.topic, asked.role)] if asked.topic else []
    if named and named != wanted:
        raise ConfigError(f"the request asks for something else: {asked.role} of {asked.topic or 'nothing'}")
    return wanted


def _standing(arguments: argparse.Namespace) -> TlsRole:
    """Publishers, subscribers and holders of no role are all members."""
    match arguments.role:
        case "proxy":
            return "proxy"
        case "server":
            return "server"
        case "directory":
            return "directory"
        case "broker":
            return "broker"
    return "member"


def _cover(arguments: argparse.Namespace) -> float | None:
    """Return the cover share that the operator means; None leaves it as it is."""
    size: dict[str, int | None] = {"subscribers": arguments.subscribers, "members": arguments.members}
    if arguments.privacy is not None and arguments.cover is not None:
        raise ConfigError("--privacy and --cover both say how much cover there is; give one of them")
    is_sized = any(number is not None for number in size.values())
    if arguments.cover is not None and is_sized:
        raise ConfigError("--subscribers and --members choose the cover, and --cover states it; give one of them")
    if arguments.privacy is not None or is_sized:
        return choose_cover_share(arguments.privacy or "high", **size)
    given: float | None = arguments.cover
    return given


def _default_cover(authority: Authority) -> float:
    """Return the cover share of a new topic, by the number of members that the authority has admitted so far."""
    members = sum(not member.revoked for member in authority.members.values())
    return choose_cover_share("high", members=max(1, members))


def _report_bulletin(context: Context, directory: Path, authority: Authority, secret: Secret) -> Report:
    assert authority.bulletin is not None
    write_authority(context, directory, authority, secret)
    path = publish_bulletin(directory, authority)
    effective = authority.bulletin.effective
    data = {"bulletin": authority.bulletins, "effective_epoch": effective, "out": str(path)}
    since = format_epoch(effective, authority.epoch_us)
    return Report(data, [f"wrote {path}, in force from {since}; give it to any member to carry"])


def _check_empty(directory: Path) -> None:
    if state_file(directory).exists():
        raise AuthorityError(f"{directory} holds an authority already; choose another directory")
