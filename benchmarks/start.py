"""How long does a command take to start: processor time and wall time, beside `python -c pass`?

    python benchmarks/start.py [--quick] [--json]

Every command is a process of its own, started through the `veilcast` script as a shell does. `pub`, `status` and
`sub --count 1` end when they have their answer, from members of a relay that `veilcast net up` has made on loopback.
`node run` counts until the node says that it listens or runs; its keyring is locked at the full cost of a passphrase,
as `authority grant` locks one. Beside them: `import numpy`, `mosquitto_pub` to a broker on this machine, and `nats pub`
where nats is installed.

The commands take turns, round after round, so that other load on the machine meets all of them alike; the median round
counts. A first round does not: it leaves compiled modules behind, as an installation does. A ratio is the command's
median over that of `python -c pass` in the same run. Targets are ratios of processor time; of `node run`, it is the
wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, Literal, NamedTuple, get_args

from veilcast import connect_sync
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret, write_secret
from veilcast.cli.context import Context
from veilcast.cli.files import passphrase_file
from veilcast.cli.local import mosquitto, network
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

Mode = Literal["mesh", "relay", "tree", "foil", "brokers"]


class Spent(NamedTuple):
    """Seconds of processor time, and of wall time."""

    cpu_s: float
    wall_s: float


class StartContestant(NamedTuple):
    name: str
    run: Callable[[], Spent]
    ratio_max: float | None = None
    """The target: processor time over that of `python -c pass`."""
    wall_max_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else ROUNDS
    with contextlib.ExitStack() as parts:
        home = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        contestants = [*bare(), *clients(home, parts, rounds), *nodes(home), *others(home, parts)]
        taken: dict[str, list[Spent]] = {contestant.name: [] for contestant in contestants}
        for number in range(1 + rounds):
            for contestant in contestants:
                took = contestant.run()
                if number > 0:
                    taken[contestant.name].append(took)
    medians = {
        name: Spent(
            statistics.median(each.cpu_s for each in spent),
            statistics.median(each.wall_s for each in spent),
        )
        for name, spent in taken.items()
    }
    if arguments.json:
        print(json.dumps({"rounds": rounds, "load": os.getloadavg()[0], "seconds": as_json(medians)}, indent=2))
    else:
        show(contestants, medians, rounds)


def bare() -> Iterator[StartContestant]:
    """Commands that need no node."""
    yield StartContestant(BASE, lambda: time_process([sys.executable, "-c", "pass"]))
    for line, ratio in (("--version", 5), ("--help", 5), ("pub --help", 5), ("lab --help", 5), ("lab list", 15)):
        yield StartContestant(line, lambda line=line: time_process(veilcast(*line.split())), ratio)  # type: ignore[misc]


def clients(home: Path, parts: contextlib.ExitStack, rounds: int) -> Iterator[StartContestant]:
    """Commands that talk to a running node: a relay's, where notifications take some milliseconds."""
    directory = home / "net"
    options = ["--mode", "relay", "--publishers", "1", "--subscribers", "1", "--epoch", "3600", "--dir", str(directory)]
    call("net", "up", "4", *options)
    parts.callback(call, "net", "down", "--dir", str(directory))
    net = network.read_network(directory)
    (publisher,), (reader,) = (net.nodes_with_role(role) for role in ("publisher", "subscriber"))
    config, reading = (str(network.node_file(directory, node)) for node in (publisher, reader))
    with connect_sync(reading) as member:
        member.subscribe(net.topic, keep=True).ready()
    for number in range(1 + rounds):  # A notification for each round of `sub`.
        call("pub", net.topic, "-m", str(number), "-c", config)
    while json.loads(call("status", "--json", "-c", reading))["inbox"] < 1 + rounds:
        time.sleep(0.05)
    yield StartContestant("pub", lambda: time_process(veilcast("pub", net.topic, "-m", "hello", "-c", config)), 8)
    yield StartContestant("status", lambda: time_process(veilcast("status", "-c", config)), 8)
    yield StartContestant(
        "sub --count 1", lambda: time_process(veilcast("sub", net.topic, "--keep", "--count", "1", "-c", reading)), 8
    )


def nodes(home: Path) -> Iterator[StartContestant]:
    """`node run` of each mode that this machine has the means for, until it listens."""
    for mode in get_args(Mode):
        if mode == "foil" and not has_mosquitto():
            continue
        directory = home / mode
        plan = network.NetworkPlan(nodes=3, mode=mode, subscribers=1, tor=mode != "tree")
        network.lay_out(directory, plan, Context(), SystemRandom())
        file = network.node_file(directory, 0)
        keyring = file.parent / network.KEYRING
        secret = Secret(passphrase_file(keyring).read_bytes().strip())
        write_secret(keyring, read_secret(keyring, Keyring, secret), secret, cost=PassphraseCost(), entropy=os.urandom)
        line = veilcast("node", "run", "-c", str(file))
        yield StartContestant(f"node run, {mode}", lambda line=line: until_it_says(line), wall_max_s=1)  # type: ignore[misc]


def others(home: Path, parts: contextlib.ExitStack) -> Iterator[StartContestant]:
    yield StartContestant("import numpy", lambda: time_process([sys.executable, "-c", "import numpy"]))
    if has_mosquitto() and shutil.which("mosquitto_pub"):
        port = free_port()
        broker = mosquitto.Mosquitto(home / "mosquitto", f"127.0.0.1:{port}")
        broker.start()
        parts.callback(broker.end)
        line = ["mosquitto_pub", "-p", str(port), "-t", "news", "-m", "hello", "-q", "1"]
        yield StartContestant("mosquitto_pub", lambda: time_process(line))
    if shutil.which("nats") and shutil.which("nats-server"):
        port = free_port()
        server = parts.enter_context(subprocess.Popen(["nats-server", "-a", "127.0.0.1", "-p", str(port)]))
        parts.callback(server.terminate)
        line = ["nats", "-s", f"127.0.0.1:{port}", "pub", "news", "hello"]
        while subprocess.run(line, capture_output=True, check=False).returncode:
            time.sleep(0.05)
        yield StartContestant("nats pub", lambda: time_process(line))


def time_process(line: list[str]) -> Spent:
    """Time of a process from its start to its end; its exit code must be 0."""
    start = time.perf_counter()
    process = subprocess.Popen(
        line, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(line)}: {told.decode(errors='replace')}")
    return Spent(usage.ru_utime + usage.ru_stime, wall_s)


def until_it_says(line: list[str]) -> Spent:
    """Time of a process from its start to its first line; then it is ended."""
    start = time.perf_counter()
    with subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        wall_s, cpu_s = time.perf_counter() - start, processor_time(process.pid)
        process.send_signal(signal.SIGKILL)
    if not said:
        raise RuntimeError(f"{' '.join(line)}: it ended and said nothing")
    return Spent(cpu_s, wall_s)


def processor_time(pid: int) -> float:
    """Of all threads of a process that runs, in seconds; where the system does not tell, not a number."""
    try:
        tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        tasks = []
    return sum(int(task.split()[0]) for task in tasks) / 1e9 if tasks else float("nan")


def veilcast(*arguments: str) -> list[str]:
    """Through the script that an installation makes, which a shell would find."""
    script = Path(sys.executable).parent / "veilcast"
    return [sys.executable, *([str(script)] if script.exists() else ["-m", "veilcast.cli.main"]), *arguments]


def call(*arguments: str) -> str:
    return subprocess.run(veilcast(*arguments), env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True).stdout


def has_mosquitto() -> bool:
    try:
        return bool(mosquitto.find_mosquitto())
    except Exception:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def show(contestants: list[StartContestant], medians: dict[str, Spent], rounds: int) -> None:
    base = medians[BASE]
    print(f"{'':18} {'processor':>20} {'wall':>20}   target")
    for name, _, ratio_max, wall_max_s in contestants:
        cpu_s, wall_s = medians[name]
        ratio = cpu_s / base.cpu_s
        target = "" if ratio_max is None else format_target(f"{ratio_max:g} times", met=ratio <= ratio_max)
        if wall_max_s is not None:
            target = format_target(f"{wall_max_s:g} s", met=wall_s <= wall_max_s)
        cells = f"{1e3 * cpu_s:8.1f} ms {ratio:6.1f} x {1e3 * wall_s:8.1f} ms {wall_s / base.wall_s:6.1f} x"
        print(f"{name:18} {cells}   {target}".rstrip())
    for name in ("mosquitto_pub", "nats pub"):
        if name not in medians:
            print(f"{name.split()[0]} is not on this machine, so there is nothing to compare")
    print(f"medians of {rounds} rounds; load of this machine {os.getloadavg()[0]:.1f}")


def format_target(target: str, *, met: bool) -> str:
    return f"{target}: {'met' if met else 'MISSED'}"


def as_json(medians: dict[str, Spent]) -> dict[str, Any]:
    return {name: spent._asdict() for name, spent in medians.items()}


BASE: Final = "python -c pass"
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ROUNDS: Final = 11

if __name__ == "__main__":
    main()
