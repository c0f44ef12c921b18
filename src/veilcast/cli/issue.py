"""The authority's side of `veilcast authority`: each command is one function from arguments and context to a report.

The state is one locked file in the authority's directory. It is written before anything is handed out, so an
interruption at any point is repaired by calling again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.authority import bulletin, issuer, request
from veilcast.authority.epoch import epoch_of, epochs_in
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.record import TopicRecord
from veilcast.authority.vault import alone, write_secret, write_whole
from veilcast.cli import passphrase
from veilcast.cli.attributes import parse_attribute
from veilcast.cli.context import Context, Report
from veilcast.cli.files import (
    check_place,
    make_directory,
    open_authority,
    passphrase_file,
    read_file,
    state_file,
    write_authority,
)
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ConfigError
from veilcast.topics import Schema


def init(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    length = round(arguments.epoch * 1_000_000)
    if length < 1_000_000:
        raise ConfigError("--epoch is at least one second")
    make_directory(directory)
    with alone(directory):
        if state_file(directory).exists():
            raise AuthorityError(f"{directory} holds an authority already; choose another directory")
        secret = passphrase.fresh(context, str(directory), arguments.passphrase_file, directory / "passphrase")
        authority = issuer.create(length, context.entropy)
        write_authority(context, directory, authority, secret)
    name = fingerprint(authority.root).hex()
    return Report(
        {"directory": str(directory), "fingerprint": name, "epoch_s": length / 1e6},
        [f"authority {name} made in {directory}"],
    )


def topic(arguments: argparse.Namespace, context: Context) -> Report:
    domains = tuple(parse_attribute(text) for text in arguments.attribute)
    record = TopicRecord(arguments.topic, Schema(domains), arguments.cover, arguments.profile)
    with alone(arguments.dir):
        authority, secret = open_authority(context, arguments)
        write_authority(context, arguments.dir, issuer.declare(authority, record, context.entropy), secret)
    return Report(
        {"topic": record.topic, "attributes": len(domains), "profile": record.profile},
        [f"topic {record.topic} declared with {len(domains)} attributes ({record.profile})"],
    )


def grant(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out, overwrite=arguments.force)
    with alone(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        known = set(authority.topics)
        if arguments.request is not None:
            asked = request.decode(read_file(arguments.request))
            if arguments.topic or arguments.role:
                raise ConfigError("--request says topic and role by itself; leave --topic and --role away")
            wanted = [(asked.topic, asked.role)]
            authority = issuer.declare_label(authority, asked.topic, arguments.profile, context.entropy)
            authority, reply = issuer.grant(authority, arguments.member, asked, now, epochs, context.entropy)
            write_authority(context, arguments.dir, authority, secret)
            write_whole(out, reply)
            first = asked.first
        else:
            if not arguments.topic or arguments.role is None:
                raise ConfigError("a grant needs --topic and --role, or --request")
            wanted = [(topic, arguments.role) for topic in dict.fromkeys(arguments.topic)]
            for topic, _ in wanted:
                authority = issuer.declare_label(authority, topic, arguments.profile, context.entropy)
            authority, keyring = issuer.grant_ready(authority, arguments.member, wanted, now, epochs, context.entropy)
            write_authority(context, arguments.dir, authority, secret)
            _lock_keyring(context, out, keyring, arguments.keyring_passphrase_file)
            first = now
    new = [topic for topic, _ in wanted if topic not in known]
    data = {
        "member": arguments.member,
        "grants": [{"topic": topic, "role": role} for topic, role in wanted],
        "first_epoch": first,
        "last_epoch": first + epochs - 1,
        "declared": new,
        "out": str(out),
    }
    lines = [f"declared topic {topic}" for topic in new]
    lines += [f"{arguments.member} is {role} of {topic} for {epochs} epochs" for topic, role in wanted]
    return Report(data, [*lines, f"wrote {out}"])


def revoke(arguments: argparse.Namespace, context: Context) -> Report:
    with alone(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        if arguments.group is not None:
            authority, notice = issuer.revoke_group(authority, arguments.group, now, context.entropy)
        else:
            authority, notice = issuer.revoke(authority, arguments.member, arguments.topic, now, context.entropy)
        return _publish_bulletin(context, arguments.dir, authority, secret, notice)


def rotate(arguments: argparse.Namespace, context: Context) -> Report:
    with alone(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        authority, notice = issuer.rotate(authority, arguments.topic, now, context.entropy)
        return _publish_bulletin(context, arguments.dir, authority, secret, notice)


def delegate(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    with alone(arguments.dir):
        authority, secret = open_authority(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        authority, child = issuer.delegate(authority, arguments.group, now, epochs, context.entropy)
        make_directory(out)
        if state_file(out).exists():
            raise AuthorityError(f"{out} holds an authority already; choose another directory")
        child_secret = passphrase.fresh(context, str(out), None, out / "passphrase", draw=True)
        # The child first: a root that lists a sub-authority nobody has would block its topics.
        write_authority(context, out, child, child_secret)
        write_authority(context, arguments.dir, authority, secret)
    name = fingerprint(child.key.public).hex()
    return Report(
        {"group": arguments.group, "directory": str(out), "fingerprint": name},
        [f"sub-authority {name} for {arguments.group}/... made in {out}"],
    )


def _publish_bulletin(
    context: Context, directory: Path, authority: Authority, secret: Secret, notice: bulletin.Bulletin
) -> Report:
    path = directory / "bulletins" / f"{notice.number:06}.bulletin"
    make_directory(path.parent)
    # The bulletin first: should the state be lost after it, the next one gets the same number and replaces it.
    write_whole(path, bulletin.encode(notice), mode=0o644)
    write_authority(context, directory, authority, secret)
    data = {"bulletin": notice.number, "effective_epoch": notice.effective, "out": str(path)}
    return Report(data, [f"wrote {path}, in force from epoch {notice.effective}; give it to any member to carry"])


def _lock_keyring(context: Context, path: Path, keyring: Keyring, option: Path | None) -> None:
    secret = passphrase.fresh(context, str(path), option, passphrase_file(path), draw=True)
    write_secret(path, keyring, secret, cost=context.cost, entropy=context.entropy)
