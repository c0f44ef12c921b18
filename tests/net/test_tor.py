from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address
from veilcast.net import tor
from veilcast.net.tor import OnionService, Tor
from veilcast.net.tor_control import TorControl
from veilcast.net.tor_process import TorProcess

NAME, KEY = "a" * 56, "ED25519-V3:" + "A" * 86 + "=="
TARGET = ("127.0.0.1", 4000)


class ScriptedControl(TorControl):
    """Answers by what a command begins with; refuses a command that has `refuses` in it."""

    refuses = ""
    refusal = ""

    def __init__(self, answers: dict[str, list[str]], events: list[str] | None = None) -> None:
        self.answers = {
            "GETINFO net/listeners/socks": ['net/listeners/socks="127.0.0.1:9050"'],
            "SETEVENTS": [],
            **answers,
        }
        self.coming = events or []
        self.asked: list[str] = []

    def ask(self, command: str) -> list[str]:
        self.asked.append(command)
        if self.refuses and self.refuses in command:
            raise LocalError(self.refusal)
        return next(answer for begin, answer in self.answers.items() if command.startswith(begin))

    def await_event(self, within_s: float) -> str:
        if not self.coming:
            raise TimeoutError
        return self.coming.pop(0)


def test_a_service_leads_to_our_socket_and_returns_its_key() -> None:
    control = ScriptedControl({"ADD_ONION": [f"ServiceID={NAME}", f"PrivateKey={KEY}", "OK"]})
    service = Tor(control).serve(TARGET)
    assert (service.address, service.key) == (f"{NAME}.onion:80", KEY)
    assert control.asked[-1].startswith("ADD_ONION NEW:ED25519-V3 ")
    assert control.asked[-1].endswith(" Port=80,127.0.0.1:4000")
    control.answers["ADD_ONION"] = [f"ServiceID={NAME}", "OK"]
    assert Tor(control).serve(TARGET, key=KEY) == service
    assert control.asked[-1].startswith(f"ADD_ONION {KEY} ")


@pytest.mark.parametrize("key", ["", "RSA1024:AAAA", KEY + " Port=1,192.0.2.1:80", "NEW:BEST", KEY.replace("A", "?")])
def test_an_invalid_key_is_not_sent_to_tor(key: str) -> None:
    control = ScriptedControl({"ADD_ONION": []})
    with pytest.raises(ConfigError):
        Tor(control).serve(TARGET, key=key)
    assert "ADD_ONION" not in "".join(control.asked)


def test_callers_work_for_an_answer_under_load_where_tor_knows_how() -> None:
    """The refusal is that of Tor 0.4.8."""
    control = ScriptedControl({"ADD_ONION": [f"ServiceID={NAME}", f"PrivateKey={KEY}", "OK"]})
    Tor(control).serve(TARGET)
    assert " PoWDefensesEnabled=1 " in control.asked[-1]
    control.refuses = "PoW"
    control.refusal = 'Tor refuses: 512 Bad arguments to ADD_ONION: Unrecognized keyword argument "PoWDefensesEnabled"'
    assert Tor(control).serve(TARGET).key == KEY
    assert "PoW" not in control.asked[-1]
    control.refuses, control.refusal = "ADD_ONION", "Tor refuses: 550 something else"
    with pytest.raises(LocalError, match="something else"):
        Tor(control).serve(TARGET)


@pytest.mark.parametrize(
    "answer",
    [
        ["OK"],
        [f"PrivateKey={KEY}", "OK"],
        [f"ServiceID={NAME}", "OK"],
        ["ServiceID=evil.example", f"PrivateKey={KEY}", "OK"],
        [f"ServiceID={NAME}", "PrivateKey=RSA1024:x", "OK"],
    ],
)
def test_an_answer_without_a_service_or_its_key_is_a_named_error(answer: list[str]) -> None:
    with pytest.raises(LocalError, match="is it Tor that answers"):
        Tor(ScriptedControl({"ADD_ONION": answer})).serve(TARGET)


def test_an_event_that_ends_too_soon_is_passed_over() -> None:
    control = ScriptedControl({}, ["HS_DESC UPLOADED", f"HS_DESC UPLOADED {NAME} UNKNOWN x"])
    Tor(control).await_reachable([OnionService(Address(f"{NAME}.onion:80"), KEY)], 1.0)
    assert control.coming == []


def test_a_service_can_be_found_when_its_descriptor_is_with_others() -> None:
    events = [f"HS_DESC UPLOAD {NAME} UNKNOWN x", "CIRC 1", f"HS_DESC UPLOADED {'b' * 56} UNKNOWN x"]
    services = [tor.OnionService(Address(f"{name * 56}.onion:80"), KEY) for name in "ab"]
    with pytest.raises(LocalError, match="cannot be found"):
        Tor(ScriptedControl({}, events.copy())).await_reachable(services, 0.0)
    control = ScriptedControl({}, [*events, f"HS_DESC UPLOADED {NAME} UNKNOWN x"])
    Tor(control).await_reachable(services, 1.0)
    assert control.asked[-1] == "SETEVENTS"


@pytest.mark.parametrize("places", ["", '"unix:/run/tor/socks"'])
def test_a_tor_that_takes_no_callers_on_tcp_is_of_no_use(places: str) -> None:
    with pytest.raises(ConfigError, match="SocksPort"):
        Tor(ScriptedControl({"GETINFO net/listeners/socks": [f"net/listeners/socks={places}"]}))


def test_callers_come_on_the_first_place_that_is_no_file() -> None:
    places = 'net/listeners/socks="unix:/run/tor/socks" "[::1]:9050" "127.0.0.1:9150"'
    made = Tor(ScriptedControl({"GETINFO net/listeners/socks": [places]}))
    assert made.reach.dial("hop", f"{NAME}.onion:80").address[:2] == ("::1", 9050)


def test_how_far_a_tor_has_got() -> None:
    said = 'status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=75 TAG=enough_dirinfo SUMMARY="x"'
    assert tor.bootstrap_percent(ScriptedControl({"GETINFO status": [said]})) == 75


def test_an_invalid_network_file_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(LocalError), tor.start_tor(tmp_path / "tor", network=tmp_path / "none"):
        pass
    assert list(tmp_path.iterdir()) == []


ONE, OTHER = (f"DirAuthority a1 orport={port} no-v2 ..." for port in (1, 2))


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [([ONE], [ONE], True), ([ONE], [OTHER], False), ([ONE], [], False), ([], [], True), (None, [ONE], True)],
)
def test_tor_s_data_of_a_private_network_is_removed_with_it(
    tmp_path: Path, before: list[str] | None, now: list[str], kept: bool
) -> None:
    process = TorProcess(tmp_path)
    (tmp_path / "data").mkdir()
    if before is not None:
        (tmp_path / "torrc").write_text("\n".join(["ClientOnly 1", *before]))
    tor._renew(process, now)
    assert (tmp_path / "data").exists() is kept


def test_tor_s_data_of_the_public_network_is_not_removed_for_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "torrc").write_text("ClientOnly 1\n")
    with pytest.raises(ConfigError, match="directory of its own"):
        tor._renew(TorProcess(tmp_path), [ONE])
