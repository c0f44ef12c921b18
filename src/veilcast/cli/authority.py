"""`veilcast authority ...`: the offline authority, and what a member does with its answers.

Each command is one function from arguments and context to a report. The authority's state is one locked file in its
directory; it is written before anything is handed out, so an interruption at any point is repaired by calling again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from veilcast.authority import bulletin, issuer, request
from veilcast.authority.epoch import BATCH_DAYS, epoch_of, epochs_in
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.record import TopicRecord
from veilcast.authority.request import Asking
from veilcast.authority.vault import alone, read_private, read_secret, write_secret, write_whole
from veilcast.cli import passphrase
from veilcast.cli.attributes import parse_attribute
from veilcast.cli.context import Context, Report
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ConfigError, ExpiredError, StorageError
from veilcast.topics import Schema


def add_commands(commands: Any) -> None:
    group = commands.add_parser("authority", help="the offline authority: init, grant, revoke, rotate, show, ...")
    group.set_defaults(parser=group)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="read the passphrase from FILE")
        parser.set_defaults(run=run, parser=parser)
        return parser

    init = verb("init", _init, "make a new authority in DIR")
    init.add_argument("dir", type=Path, metavar="DIR")
    init.add_argument("--epoch", type=float, default=3600, metavar="SECONDS", help="length of an epoch (3600)")

    topic = verb("topic", _topic, "declare a topic with attributes, or change what is declared")
    topic.add_argument("dir", type=Path, metavar="DIR")
    topic.add_argument("topic", metavar="TOPIC")
    topic.add_argument(
        "--attribute", action="append", default=[], metavar="SPEC", help="NAME:str, NAME:int:LOW:HIGH[:BITS] or NAME:float:..."
    )
    topic.add_argument("--cover", type=float, default=0.75, metavar="SHARE", help="share of others that act as cover (0.75)")
    _add_profile(topic)

    grant = verb("grant", _grant, "grant topics to a member: a ready keyring, or the answer to its request")
    grant.add_argument("dir", type=Path, metavar="DIR")
    grant.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="may be given several times")
    grant.add_argument("--role", choices=("publisher", "subscriber"))
    grant.add_argument("--member", required=True, metavar="NAME", help="known to the authority only")
    grant.add_argument("--request", type=Path, metavar="FILE", help="answer this request instead of making keys")
    grant.add_argument("--out", type=Path, required=True, metavar="FILE")
    grant.add_argument("--keyring-passphrase-file", type=Path, metavar="FILE", help="lock the keyring with this one")
    grant.add_argument("--force", action="store_true", help="overwrite --out")
    _add_days(grant)
    _add_profile(grant)

    ask = verb("request", _request, "as a member: make keys and a request for a grant")
    ask.add_argument("--topic", required=True, metavar="TOPIC")
    ask.add_argument("--role", choices=("publisher", "subscriber"), required=True)
    ask.add_argument("--keyring", type=Path, required=True, metavar="FILE", help="where the keys will be; may exist")
    ask.add_argument("--out", type=Path, required=True, metavar="FILE", help="the request, to bring to the authority")
    ask.add_argument("--epoch", type=float, default=3600, metavar="SECONDS", help="the authority's epoch (3600)")
    _add_days(ask)

    accept = verb("accept", _accept, "as a member: put the authority's answer into the keyring")
    accept.add_argument("answer", type=Path, metavar="ANSWER")
    accept.add_argument("--keyring", type=Path, required=True, metavar="FILE")

    revoke = verb("revoke", _revoke, "shut a member out from the next epoch on; writes a bulletin")
    revoke.add_argument("dir", type=Path, metavar="DIR")
    who = revoke.add_mutually_exclusive_group(required=True)
    who.add_argument("--member", metavar="NAME")
    who.add_argument("--group", metavar="PREFIX", help="end a sub-authority instead")
    revoke.add_argument("--topic", metavar="TOPIC", help="of this topic only")

    rotate = verb("rotate", _rotate, "new topic keys from the next epoch on; writes a bulletin")
    rotate.add_argument("dir", type=Path, metavar="DIR")
    rotate.add_argument("--topic", metavar="TOPIC", help="this topic only")

    apply = verb("apply", _apply, "as a member: apply a bulletin to a keyring")
    apply.add_argument("bulletin", type=Path, metavar="BULLETIN")
    apply.add_argument("--keyring", type=Path, required=True, metavar="FILE")

    delegate = verb("delegate", _delegate, "make a sub-authority for the topics under PREFIX/")
    delegate.add_argument("dir", type=Path, metavar="DIR")
    delegate.add_argument("--group", required=True, metavar="PREFIX")
    delegate.add_argument("--out", type=Path, required=True, metavar="DIR")
    delegate.add_argument("--days", type=float, default=365, help="how long it may act (365)")

    show = verb("show", _show, "show an authority (a directory) or a keyring (a file)")
    show.add_argument("path", type=Path, metavar="PATH")
    show.add_argument("--topic", metavar="TOPIC", help="this topic only")


def _init(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    length = round(arguments.epoch * 1_000_000)
    if length < 1_000_000:
        raise ConfigError("--epoch is at least one second")
    _make_directory(directory)
    with alone(directory):
        if _state_file(directory).exists():
            raise AuthorityError(f"{directory} holds an authority already; choose another directory")
        secret = passphrase.fresh(context, str(directory), arguments.passphrase_file, directory / _PASSPHRASE)
        authority = issuer.create(length, context.entropy)
        _write(context, directory, authority, secret)
    name = fingerprint(authority.root).hex()
    return Report(
        {"directory": str(directory), "fingerprint": name, "epoch_s": length / 1e6},
        [f"authority {name} made in {directory}"],
    )


def _topic(arguments: argparse.Namespace, context: Context) -> Report:
    domains = tuple(parse_attribute(text) for text in arguments.attribute)
    record = TopicRecord(arguments.topic, Schema(domains), arguments.cover, arguments.profile)
    with alone(arguments.dir):
        authority, secret = _open(context, arguments)
        _write(context, arguments.dir, issuer.declare(authority, record, context.entropy), secret)
    return Report(
        {"topic": record.topic, "attributes": len(domains), "profile": record.profile},
        [f"topic {record.topic} declared with {len(domains)} attributes ({record.profile})"],
    )


def _grant(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    if out.exists() and not arguments.force:
        raise StorageError(f"{out} exists; choose another name or add --force")
    with alone(arguments.dir):
        authority, secret = _open(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        known = set(authority.topics)
        if arguments.request is not None:
            asked = request.decode(_read(arguments.request))
            if arguments.topic or arguments.role:
                raise ConfigError("--request says topic and role by itself; leave --topic and --role away")
            wanted = [(asked.topic, asked.role)]
            authority = issuer.declare_label(authority, asked.topic, arguments.profile, context.entropy)
            authority, reply = issuer.grant(authority, arguments.member, asked, now, epochs, context.entropy)
            _write(context, arguments.dir, authority, secret)
            write_whole(out, reply)
            first = asked.first
        else:
            if not arguments.topic or arguments.role is None:
                raise ConfigError("a grant needs --topic and --role, or --request")
            wanted = [(topic, arguments.role) for topic in dict.fromkeys(arguments.topic)]
            for topic, _ in wanted:
                authority = issuer.declare_label(authority, topic, arguments.profile, context.entropy)
            authority, keyring = issuer.grant_ready(
                authority, arguments.member, wanted, now, epochs, context.entropy
            )
            _write(context, arguments.dir, authority, secret)
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


def _request(arguments: argparse.Namespace, context: Context) -> Report:
    if arguments.out.exists():
        raise StorageError(f"{arguments.out} exists; choose another name")
    secret, link = None, None
    if arguments.keyring.exists():
        secret = _keyring_passphrase(context, arguments)
        link = read_secret(arguments.keyring, Keyring, secret).membership.link
    else:
        secret = passphrase.fresh(
            context, str(arguments.keyring), arguments.passphrase_file, _beside(arguments.keyring)
        )
    length = round(arguments.epoch * 1_000_000)
    first = epoch_of(context.now_us(), length)
    asking, asked = request.ask(
        arguments.topic, arguments.role, first, epochs_in(arguments.days, length), context.entropy, link
    )
    # The private half first: a request whose keys were lost would be worth nothing.
    write_secret(_asking_file(arguments.keyring), asking, secret, cost=context.cost, entropy=context.entropy)
    write_whole(arguments.out, request.encode(asked), mode=0o644)
    return Report(
        {"topic": arguments.topic, "role": arguments.role, "out": str(arguments.out), "first_epoch": first},
        [f"wrote {arguments.out}; bring it to the authority, then `veilcast authority accept` its answer"],
    )


def _accept(arguments: argparse.Namespace, context: Context) -> Report:
    keyring_file: Path = arguments.keyring
    waiting = _asking_file(keyring_file)
    if not waiting.exists():
        raise AuthorityError(f"no request is waiting beside {keyring_file}; make one with `veilcast authority request`")
    secret = _keyring_passphrase(context, arguments)
    existing = read_secret(keyring_file, Keyring, secret) if keyring_file.exists() else None
    keyring = request.complete(read_secret(waiting, Asking, secret), _read(arguments.answer), existing)
    write_secret(keyring_file, keyring, secret, cost=context.cost, entropy=context.entropy)
    waiting.unlink()
    return _keyring_report(keyring, context, None, f"wrote {keyring_file}")


def _revoke(arguments: argparse.Namespace, context: Context) -> Report:
    with alone(arguments.dir):
        authority, secret = _open(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        if arguments.group is not None:
            authority, notice = issuer.revoke_group(authority, arguments.group, now, context.entropy)
        else:
            authority, notice = issuer.revoke(authority, arguments.member, arguments.topic, now, context.entropy)
        return _publish_bulletin(context, arguments.dir, authority, secret, notice)


def _rotate(arguments: argparse.Namespace, context: Context) -> Report:
    with alone(arguments.dir):
        authority, secret = _open(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        authority, notice = issuer.rotate(authority, arguments.topic, now, context.entropy)
        return _publish_bulletin(context, arguments.dir, authority, secret, notice)


def _apply(arguments: argparse.Namespace, context: Context) -> Report:
    secret = _keyring_passphrase(context, arguments)
    keyring = read_secret(arguments.keyring, Keyring, secret)
    notice = bulletin.decode(_read(arguments.bulletin))
    changed = bulletin.apply(keyring, notice, epoch_of(context.now_us(), keyring.epoch_us))
    write_secret(arguments.keyring, changed, secret, cost=context.cost, entropy=context.entropy)
    return Report(
        {"bulletin": notice.number, "effective_epoch": notice.effective, "changed": changed != keyring},
        [f"bulletin {notice.number} applied to {arguments.keyring}; in force from epoch {notice.effective}"],
    )


def _delegate(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    with alone(arguments.dir):
        authority, secret = _open(context, arguments)
        now = epoch_of(context.now_us(), authority.epoch_us)
        epochs = epochs_in(arguments.days, authority.epoch_us)
        authority, child = issuer.delegate(authority, arguments.group, now, epochs, context.entropy)
        _make_directory(out)
        if _state_file(out).exists():
            raise AuthorityError(f"{out} holds an authority already; choose another directory")
        child_secret = passphrase.fresh(context, str(out), None, out / _PASSPHRASE, draw=True)
        # The child first: a root that lists a sub-authority nobody has would block its topics.
        _write(context, out, child, child_secret)
        _write(context, arguments.dir, authority, secret)
    name = fingerprint(child.key.public).hex()
    return Report(
        {"group": arguments.group, "directory": str(out), "fingerprint": name},
        [f"sub-authority {name} for {arguments.group}/... made in {out}"],
    )


def _show(arguments: argparse.Namespace, context: Context) -> Report:
    path: Path = arguments.path
    if path.is_dir():
        arguments.dir = path
        return _authority_report(_open(context, arguments)[0], arguments.topic)
    arguments.keyring = path
    keyring = read_secret(path, Keyring, _keyring_passphrase(context, arguments))
    return _keyring_report(keyring, context, arguments.topic, f"keyring {path}")


def _authority_report(authority: Authority, only: str | None) -> Report:
    names = [authority.topic(only).record.topic] if only is not None else sorted(authority.topics)
    topics = [
        {
            "topic": name,
            "profile": authority.topics[name].record.profile,
            "cover_share": authority.topics[name].record.cover_share,
            "attributes": [domain.attribute for domain in authority.topics[name].record.schema.domains],
        }
        for name in names
    ]
    members = [
        {
            "member": name,
            "revoked": member.revoked,
            "grants": [
                {"topic": given.topic, "role": given.role, "first_epoch": given.first, "last_epoch": given.last}
                for given in member.given
                if given.topic in names
            ],
        }
        for name, member in sorted(authority.members.items())
    ]
    name = fingerprint(authority.key.public).hex()
    data = {
        "fingerprint": name,
        "epoch_s": authority.epoch_us / 1e6,
        "group": authority.group,
        "topics": topics,
        "members": members,
        "bulletins": authority.bulletins,
        "delegated": sorted(authority.delegated),
    }
    lines = [f"authority {name}, epochs of {authority.epoch_us / 1e6:g} s, {authority.bulletins} bulletins"]
    lines += [f"  topic   {t['topic']} ({t['profile']}, cover {t['cover_share']})" for t in topics]
    for member in members:
        held = ", ".join(f"{g['role']} of {g['topic']} to epoch {g['last_epoch']}" for g in member["grants"])
        lines.append(f"  member  {member['member']}: {'revoked' if member['revoked'] else held or 'nothing'}")
    lines += [f"  group   {group}/... is a sub-authority's" for group in sorted(authority.delegated)]
    return Report(data, lines)


def _keyring_report(keyring: Keyring, context: Context, only: str | None, title: str) -> Report:
    now = epoch_of(context.now_us(), keyring.epoch_us)
    held = keyring.at(now)
    if only is not None:
        held.topic(only)
    grants = [
        {"topic": record.topic, "role": grant.role, "first_epoch": grant.first, "last_epoch": grant.last(record)}
        for grant, record in keyring.records()
        if only in (None, record.topic)
    ]
    if grants and all(int(str(grant["last_epoch"])) < now for grant in grants):
        raise ExpiredError("every grant of this keyring has ended; ask the authority for new ones")
    data = {"authority": fingerprint(keyring.root).hex(), "epoch": now, "grants": grants}
    lines = [f"{title}, of authority {data['authority']}, now epoch {now}"]
    lines += [f"  {g['role']} of {g['topic']}, epochs {g['first_epoch']} to {g['last_epoch']}" for g in grants]
    return Report(data, lines)


def _publish_bulletin(
    context: Context, directory: Path, authority: Authority, secret: Secret, notice: bulletin.Bulletin
) -> Report:
    path = directory / "bulletins" / f"{notice.number:06}.bulletin"
    _make_directory(path.parent)
    # The bulletin first: should the state be lost after it, the next one gets the same number and replaces it.
    write_whole(path, bulletin.encode(notice), mode=0o644)
    _write(context, directory, authority, secret)
    data = {"bulletin": notice.number, "effective_epoch": notice.effective, "out": str(path)}
    return Report(data, [f"wrote {path}, in force from epoch {notice.effective}; give it to any member to carry"])


def _open(context: Context, arguments: argparse.Namespace) -> tuple[Authority, Secret]:
    directory: Path = arguments.dir
    if not _state_file(directory).exists():
        raise StorageError(f"{directory} holds no authority; make one with `veilcast authority init {directory}`")
    secret = passphrase.existing(context, str(directory), arguments.passphrase_file, directory / _PASSPHRASE)
    return read_secret(_state_file(directory), Authority, secret), secret


def _write(context: Context, directory: Path, authority: Authority, secret: Secret) -> None:
    write_secret(_state_file(directory), authority, secret, cost=context.cost, entropy=context.entropy)


def _lock_keyring(context: Context, path: Path, keyring: Keyring, option: Path | None) -> None:
    secret = passphrase.fresh(context, str(path), option, _beside(path), draw=True)
    write_secret(path, keyring, secret, cost=context.cost, entropy=context.entropy)


def _keyring_passphrase(context: Context, arguments: argparse.Namespace) -> Secret:
    return passphrase.existing(
        context, str(arguments.keyring), arguments.passphrase_file, _beside(arguments.keyring)
    )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def _state_file(directory: Path) -> Path:
    return directory / "authority.locked"


def _asking_file(keyring: Path) -> Path:
    return keyring.with_name(keyring.name + ".asking")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".passphrase")


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=float, default=BATCH_DAYS, help=f"how long the grant lasts ({BATCH_DAYS})")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", choices=("hardened", "paper"), default="hardened", help="of a topic declared by this (hardened)"
    )


_PASSPHRASE: Final = "passphrase"
