"""A coverage-guided hunt for bytes that make the decoder do anything but answer or refuse.

    ./run fuzz [SECONDS]

Runs atheris where it has a wheel, starting from one encoded message of each type; elsewhere the same check runs under
hypothesis for the same time. A crash is printed with the bytes that caused it, and the exit code is not 0.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, find, settings

from veilcast.errors import MalformedError
from veilcast.wire import decode, encode, unpad

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))
from strategies import of_type

from veilcast.wire.codec import TYPE_BYTES


def check(data: bytes) -> None:
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


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seeds = [_one(number) for number in TYPE_BYTES]
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


def _one(number: int) -> bytes:
    """One encoded message of this type."""
    quiet = settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    return encode(find(of_type(TYPE_BYTES[number]), lambda _: True, settings=quiet))


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
