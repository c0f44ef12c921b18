"""`veilcast brokers ...`: an overlay of replicated brokers, from the operator's key to its last replica.

The operator's commands need neither a driver nor local networks: these modules are imported when a broker runs or is
queried.
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from typing import Any

import msgspec

from veilcast.brokers.overlay import BrokerOverlay, sign_overlay
from veilcast.cli import passphrase
from veilcast.cli.context import Context, Report
from veilcast.cli.files import check_place, check_there, open_keyring, passphrase_file
from veilcast.cli.phrases import pluralize
from veilcast.crypto.sign import SigningKey
from veilcast.node.broker_overlay import (
    broker_public,
    decode_operator_line,
    encode_broker_line,
    encode_operator_line,
    load_broker,
    load_overlay,
    read_operator_key,
    read_signed,
    write_operator_key,
    write_signed,
)


def init(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli.identity import check_role

    keyring, _ = open_keyring(context, arguments)
    check_role(keyring, "broker")
    line = encode_broker_line(broker_public(keyring))
    return Report({"broker": line}, ["tell the overlay's operator, with the address and port:", f'broker = "{line}"'])


def run(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli import service_run
    from veilcast.cli.compose_brokers import compose_broker

    config = service_run.load_process_config(arguments.config, load_broker)
    with compose_broker(config, service_run.process_passphrase(arguments, config, context)) as setup:
        left = "the senders repeat what was under way"
        return service_run.run_service(setup, context, as_json=arguments.json, left=left)


def status(arguments: argparse.Namespace, _: Context) -> Report:
    from veilcast.cli.broker_facts import ask_brokers, facts_lines, majority_lines
    from veilcast.net.host_queries import ask_host

    if arguments.dir is not None:
        answer = ask_brokers(arguments.dir)
        return Report({"brokers": answer}, [*facts_lines(answer), *majority_lines(answer)])
    path = load_broker(arguments.config).control_path
    answer = {str(arguments.config): ask_host(path, {"ask": "facts"})}
    return Report({"brokers": answer}, facts_lines(answer))


def order(arguments: argparse.Namespace, _: Context) -> Report:
    from veilcast.net.host_queries import ask_host

    config = load_broker(arguments.config)
    signed = read_signed(arguments.overlay, config.operator_key)
    order = base64.b64encode(signed.encode()).decode()
    answer = ask_host(config.control_path, {"order": order})
    others = "and tells all others" if answer["tells"] else "and tells nobody: hand it to a broker of a node, too"
    return Report(answer, [f"the broker has version {answer['version']} of the overlay, {others}"])


def init_operator(arguments: argparse.Namespace, context: Context) -> Report:
    out: Path = arguments.out
    check_place(out)
    secret = passphrase.new_passphrase(context, str(out), arguments.passphrase_file, passphrase_file(out))
    key = SigningKey.generate(context.entropy)
    write_operator_key(out, key, secret, cost=context.cost, entropy=context.entropy)
    line = encode_operator_line(key.public)
    return Report({"key": str(out), "operator": line}, [f"wrote {out}; tell everybody:", f'operator = "{line}"'])


def sign(arguments: argparse.Namespace, context: Context) -> Report:
    out, key_file = arguments.out, arguments.key
    check_place(out, overwrite=True)
    check_there(key_file)
    secret = passphrase.read_passphrase(context, str(key_file), arguments.passphrase_file, passphrase_file(key_file))
    key = read_operator_key(key_file, secret)
    before = read_signed(out, key.public).verify(key.public) if out.exists() else None
    overlay = load_overlay(arguments.description, before)
    write_signed(out, sign_overlay(overlay, key))
    line = encode_operator_line(key.public)
    answer = [f"wrote {out}; brokers and members need this line, too:", f'operator = "{line}"', *_lines(overlay)]
    return Report({"out": str(out), "operator": line, **_describe(overlay)}, answer)


def show(arguments: argparse.Namespace, _: Context) -> Report:
    operator = decode_operator_line("--operator", arguments.operator)
    overlay = read_signed(arguments.overlay, operator).verify(operator)
    return Report(_describe(overlay), _lines(overlay))


def _describe(overlay: BrokerOverlay) -> dict[str, Any]:
    entries = [
        {"name": node.name, "scheme": node.version, "replicas": [replica.address for replica in node.replicas]}
        for node in overlay.all_nodes
    ]
    nodes, repository_entries = entries[: len(overlay.nodes)], entries[len(overlay.nodes) :]
    links = msgspec.to_builtins(overlay.links)
    repository_entry = repository_entries[0] if repository_entries else None
    what = {"version": overlay.version, "profile": overlay.profile}
    return {**what, "nodes": nodes, "links": links, "repository": repository_entry}


def _lines(overlay: BrokerOverlay) -> list[str]:
    count = sum(len(node.replicas) for node in overlay.nodes)
    size = f"{pluralize(len(overlay.nodes), 'virtual node')}, {pluralize(count, 'replica')}"
    lines = [f"version {overlay.version} ({overlay.profile}): {size}"]
    for node in overlay.nodes:
        beside = ", ".join(other.name for other in overlay.neighbours(node.name))
        lines.append(f"  {node.name}: scheme {node.version}" + (f", beside {beside}" if beside else ""))
        lines += [f"    {replica.address}" for replica in node.replicas]
    if overlay.repository is not None:
        lines.append(f"  the repository: scheme {overlay.repository.version}")
        lines += [f"    {replica.address}" for replica in overlay.repository.replicas]
    return lines
