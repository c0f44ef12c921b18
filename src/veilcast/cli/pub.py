"""`veilcast pub TOPIC`: publishes through the running node."""

from __future__ import annotations

import argparse

from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import parse_value, read_file
from veilcast.cli.phrases import format_delay, is_worth_telling, pluralize
from veilcast.cli.running_node import config_path, warn_if_hindered
from veilcast.machine import Publication
from veilcast.net.sync_client import connect_sync
from veilcast.topics import Label


def pub(arguments: argparse.Namespace, context: Context) -> Report:
    pairs = (Label(arguments.topic).pair, *map(parse_value, arguments.value))
    config = config_path(arguments)
    if arguments.message is not None:
        body = arguments.message.encode()
    elif arguments.file is not None:
        body = read_file(arguments.file)
    else:
        if context.has_terminal():
            context.warn("type the text to publish, and end with Ctrl-D on a line of its own")
        body = context.read_input()
    with connect_sync(config) as me:
        me.publish(Publication(pairs, body))
        status = warn_if_hindered(me, context)
    delay, now_us = status.delay, context.now_us()
    if delay is not None and is_worth_telling(delay, now_us) and not (status.hindrances and delay.until_us is None):
        context.warn(f"it waits: {format_delay(delay, now_us)}")
    delay_data = None if delay is None else {"reason": delay.reason, "until_us": delay.until_us}
    return Report(
        {"published": len(body), "delay": delay_data},
        [f"published {pluralize(len(body), 'byte')}; the node has it on its disk"],
    )
