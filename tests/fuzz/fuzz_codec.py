"""A coverage-guided hunt for bytes that make the decoder do anything but answer or refuse.

    ./run fuzz [SECONDS]

Our own messages and packets of MQTT. Runs atheris where it has a wheel, starting from one of each type; elsewhere the
same check runs under hypothesis for the same time. A crash is printed with the bytes that caused it, and the exit code
is not 0.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.strategies import SearchStrategy

from veilcast.errors import MalformedError
from veilcast.wire import decode, encode, mqtt, unpad

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))
from mqtt_strategies import packets
from strategies import of_type

from veilcast.wire.codec import TYPE_BYTES

T = TypeVar("T")


def check(data: bytes) -> None:
    for version in mqtt.Version:
        _check_packet(data, version)
    for read in (decode, unpad):
        try:
            read(data)
        except MalformedError:
            continue
    try:
        message = decode(data)
    except MalformedError:
        return
    if encode(message) != data:
        raise AssertionError(f"two encodings of one message: {data.hex()}")


def _check_packet(data: bytes, version: mqtt.Version) -> None:
    try:
        packet = mqtt.decode(data, version)
    except MalformedError:
        return
    if isinstance(packet, mqtt.Connect):
        version = packet.version
    if mqtt.decode(mqtt.encode(packet, version), version) != packet:
        raise AssertionError(f"a packet that does not come back: {data.hex()}")


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seeds = [encode(_one(of_type(kind))) for kind in TYPE_BYTES.values()]
    for version in mqtt.Version:
        seeds += [mqtt.encode(_one(packets(version), kind), version) for kind in mqtt.Packet.__subclasses__()]
    try:
        import atheris
    except ImportError:
        sys.stderr.write(f"atheris has no wheel here; hypothesis for {seconds} s\n")
        _with_hypothesis(seeds, seconds)
        return
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        atheris.instrument_all()
        atheris.Setup(
            [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", corpus], check
        )
        atheris.Fuzz()


def _one(strategy: SearchStrategy[T], kind: type[object] = object) -> T:
    quiet = settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), max_examples=1000)
    return find(strategy, lambda found: isinstance(found, kind), settings=quiet)


def _with_hypothesis(seeds: list[bytes], seconds: int) -> None:
    rng, deadline, tried = random.Random(0), time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            position = rng.randrange(len(data) + 1)
            data[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        check(bytes(data))
        tried += 1
    sys.stderr.write(f"{tried} inputs, no crash\n")


if __name__ == "__main__":
    main()
