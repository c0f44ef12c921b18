"""`veilcast relay server audit` and `relay proxy audit`: what the records of a host tell about members."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret
from veilcast.cli import service_run
from veilcast.cli.context import Context, Report
from veilcast.cli.phrases import pluralize
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.node.database import DatabaseSnapshot
from veilcast.node.record_store import FILE, read_records
from veilcast.node.relay import RelayHostFile, load_proxy, load_server, read_server_keys
from veilcast.relay.ledger_audit import ProxyFindings, ServerFindings
from veilcast.relay.ledger_audit import audit_proxy as find_in_proxy
from veilcast.relay.ledger_audit import audit_server as find_in_server


def audit_server(arguments: argparse.Namespace, context: Context) -> Report:
    config = load_server(arguments.config)
    secret = service_run.process_passphrase(arguments, config, context, may_run=True)
    if config.database is None:
        records = _own_records(config, secret)
    else:
        from veilcast.node.postgres import PostgresSnapshot

        key = derive(read_server_keys(Path(config.keys), secret).box, b"vc/relay-state")
        with closing(PostgresSnapshot(config.database, key, os.urandom)) as snapshot:
            records = read_records(snapshot)
    found = find_in_server(records)
    return Report(msgspec.to_builtins(found), describe_server(found))


def audit_proxy(arguments: argparse.Namespace, context: Context) -> Report:
    config = load_proxy(arguments.config)
    found = find_in_proxy(
        _own_records(config, service_run.process_passphrase(arguments, config, context, may_run=True))
    )
    return Report(msgspec.to_builtins(found), describe_proxy(found))


def describe_server(found: ServerFindings) -> list[str]:
    one_name, equal = found.most_leases_of_one_name, pluralize(found.most_leases_with_equal_tags, "lease")
    links, waiting = found.tags_of_several_expiries, pluralize(found.most_subscribers_waiting, "name")
    together = pluralize(found.names_that_wait_together, "pair")
    rows = {
        "leases": f"{found.leases:,}, {_by_proxy(found.leases_by_proxy)}",
        "expiries": f"{found.expiries:,} different times",
        "members": "none by name",
        "one member": f"{one_name:,} leases have one name" if one_name > 1 else "each lease has a name of its own",
        "over epochs": f"{pluralize(links, 'tag')} in leases of different epochs, which link them",
        "interests": f"{found.interests:,} different ones; {equal} want the same",
        "kinds": f"{pluralize(found.widest_constraint, 'tag')} for the widest; a label or a word has one, a range more",
        "publications": f"{found.publications:,} wait, {_by_proxy(found.publications_by_proxy)}",
        "size": pluralize(found.bytes_held, "byte"),
        "readers": f"up to {waiting} for one publication",
        "overlaps": f"{together} of names wait for the same publications, two or more",
        "with a proxy": "a proxy's records name the member behind each of its leases",
    }
    return _format_rows(rows)


def describe_proxy(found: ProxyFindings) -> list[str]:
    most, held = max(found.leases_by_client.values(), default=0), found.deliveries_by_client
    rows = {
        "members": f"{found.clients:,} by name; --json lists them",
        "leases": f"{found.leases:,}, up to {most:,} of one member",
        "expiries": f"{found.expiries:,} different times",
        "waiting": f"{sum(held.values()):,} for {pluralize(len(held), 'member')} that are away or slow",
        "interests": "none: no tag, no topic, no text",
        "with a server": "the server's records have the interests behind each of these leases, as tags",
    }
    return _format_rows(rows)


def _format_rows(rows: Mapping[str, str]) -> list[str]:
    return [f"{name:15}{text}" for name, text in {**rows, **_CHANGED_HOST}.items()]


def _by_proxy(counts: Mapping[str, int]) -> str:
    return f"through {', '.join(f'{proxy} {count:,}' for proxy, count in sorted(counts.items())) or 'no proxy'}"


def _own_records(config: RelayHostFile, secret: Secret) -> Mapping[int, bytes]:
    link = read_secret(Path(config.keyring), Keyring, secret).membership.link
    with closing(DatabaseSnapshot(Path(config.state), FILE, link, os.urandom)) as snapshot:
        return read_records(snapshot)


_CHANGED_HOST: Final = {
    "not kept": "the times of requests, which would link leases of one member; a changed host could keep them",
}
