"""The table `foil` of a node's file: a valid table is read completely, and every error names its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.errors import ConfigError, PermissionsError
from veilcast.node.config import parse_config
from veilcast.node.foil import FoilSettings, read_login, with_history

FILE = Path("/etc/veilcast/node.toml")
HEAD = 'mode = "foil"\nkeyring = "k"\n'
WAY = '[foil]\nbroker = "mqtts://192.0.2.1:8883"\n'
HERE = '[foil]\nbroker = "mqtt://127.0.0.1:1883"\n'


def settings(text: str) -> FoilSettings:
    found = parse_config((HEAD + text).encode(), FILE).settings
    assert isinstance(found, FoilSettings)
    return found


def test_a_broker_is_an_address_a_name_authorities_and_a_login() -> None:
    found = settings(WAY + 'name = "broker.example.org"\nca = "ca.pem"\nlogin = "login"\nk_p = 9\nk_s = 2\n')
    assert (found.broker, found.tls, found.name) == ("192.0.2.1:8883", True, "broker.example.org")
    assert (found.ca, found.login) == ("/etc/veilcast/ca.pem", "/etc/veilcast/login")
    assert (found.member.k_p, found.member.k_s, found.member.profile) == (9, 2, "hardened")


def test_without_a_name_the_certificate_must_be_for_the_address() -> None:
    found = settings('[foil]\nbroker = "mqtts://[2001:db8::1]:8883"')
    assert (found.broker, found.name, found.ca) == ("[2001:db8::1]:8883", "2001:db8::1", None)


def test_a_broker_may_have_a_host_name_which_its_certificate_has_too() -> None:
    found = settings('[foil]\nbroker = "mqtts://mq-1.example.org:8883"')
    assert (found.broker, found.tls, found.name) == ("mq-1.example.org:8883", True, "mq-1.example.org")


def test_on_this_machine_a_broker_may_be_called_in_the_clear() -> None:
    assert not settings(HERE).tls


def test_attribute_settings_reach_the_machine() -> None:
    assert settings(HERE).member.k_p == 9, "as many as foil-default measures"
    found = settings(HERE + "[foil.attributes.price]\ndeviation = 1.5\npublic_after = 15\n")
    assert (found.member.attributes["price"].deviation, found.member.attributes["price"].public_after) == (1.5, 15)


def test_an_attribute_may_depend_on_another() -> None:
    found = settings(
        HERE + '[foil.attributes.volume]\nmaster = "price"\nline = [2.0, 100.0]\ndeviation = 20.0\n'
        '[foil.attributes.colour]\nprimary = "fruit"\nvalues = ["red", "blue"]\ngiven = [[0.5, 0.5], [0.1, 0.9]]\n'
    )
    volume, colour = (found.member.attributes[name] for name in ("volume", "colour"))
    assert (volume.depends_on, volume.line, volume.deviation) == ("price", (2.0, 100.0), 20.0)
    assert (colour.depends_on, colour.given) == ("fruit", ((0.5, 0.5), (0.1, 0.9)))


WRONG = {
    "": "foil.broker: needed",
    "[foil]\nbroker = 4": "foil.broker: must be a text",
    WAY + "ca = 4": "foil.ca: must be a text",
    WAY + 'name = ""': "foil.name: must be a text",
    '[foil]\nbroker = "192.0.2.1:8883"': "foil.broker: write mqtts://ADDRESS:PORT or mqtt://",
    '[foil]\nbroker = "https://192.0.2.1:8883"': "foil.broker: write mqtts://",
    '[foil]\nbroker = "mqtts://Broker.example.org:8883"': "foil.broker: .* or a host name like mq.example.org:8883",
    '[foil]\nbroker = "mqtts://a..example.org:8883"': "foil.broker: .* or a host name",
    '[foil]\nbroker = "mqtts://1.2.3:8883"': "foil.broker: .* or a host name",
    '[foil]\nbroker = "mqtts://broker.example.org:08883"': "a port is a number from 1 to 65535",
    '[foil]\nbroker = "mqtts://broker.example.org:0"': "a port is a number from 1 to 65535",
    '[foil]\nbroker = "mqtt://localhost:1883"': "foil.broker: in the clear only on this machine",
    '[foil]\nbroker = "mqtt://192.0.2.1:1883"': "foil.broker: in the clear only on this machine",
    HERE + 'ca = "ca.pem"': "foil.ca: of use only with mqtts://",
    HERE + 'name = "x"': "foil.name: of use only with mqtts://",
    HERE + "[foil.attributes.price]\nmastre = 'x'": "foil.attributes.price.mastre: unknown key",
    HERE + "[foil.attributes.price]\nline = [1.0]": "foil.attributes.price.line: Expected",
    HERE + "[foil.attributes.price]\nline = [1.0, 0.0]": "foil.attributes.price: line and given need",
    HERE + "[foil.attributes.price]\ndeviation = 'much'": "foil.attributes.price.deviation",
    HERE
    + "[foil.attributes.price]\ndeviation = 1.0": "foil.attributes.price: the generator sign-flip has no deviation",
    HERE + "[foil.attributes.price]\nhistory = [1.0, nan]": "foil.attributes.price: .* finite numbers; fill gaps first",
    HERE + "[foil.attributes]\nprice = 4": "foil.attributes: write a table",
    WAY + "colour = 1": "foil.colour: unknown key",
    WAY + "k_p = -1": "foil.k_p must be at least 0",
    WAY + 'generator = "magic"': "foil.generator",
    WAY + "profile = 'paper'": "foil.profile: the profile is named once",
    'listen = "127.0.0.1:4000"\n' + WAY: "listen: a node of mode 'foil' is called by nobody",
    'peers = ["127.0.0.1:4000"]\n' + WAY: "peers: a node of mode 'foil' is called by nobody",
    WAY + "[tor]\ndanger_off = true": "tor: a node of mode 'foil' uses no Tor",
    WAY + "[mesh]": "mesh: the mode is 'foil'",
}


@pytest.mark.parametrize(("text", "told"), WRONG.items())
def test_an_error_names_its_key(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings(text)


def test_past_values_come_from_a_file_with_a_column_for_each_attribute(tmp_path: Path) -> None:
    file = tmp_path / "past.csv"
    file.write_text("when,price,volume\nmonday,500,1e3\ntuesday,501.5,900\n")
    read = HEAD + HERE + 'history = "past.csv"\n[foil.attributes.price]\nperiod = 24\n'
    found = parse_config(read.encode(), tmp_path / "node.toml").settings
    member = with_history(found)
    assert {name: each.history for name, each in member.attributes.items()} == {
        "price": (500.0, 501.5),
        "volume": (1000.0, 900.0),
    }
    assert member.attributes["price"].period == 24
    assert with_history(settings(HERE)) == settings(HERE).member


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "foil.history: cannot read .*past.csv: No such file"),
        ("price\n500\n\n501,7\n", None),
        ("price,volume\n500,1\n,2\n", "past.csv, line 3: no number in column 'price'; fill gaps first"),
        ("price\n500\nnan\n", "past.csv, line 3: no number in column 'price'"),
        ("level\n5\n", "has a column 'level', and its table a history, too"),
        ('price\n"500\n', "foil.history: .*past.csv: unexpected end of data"),
    ],
)
def test_past_values_that_cannot_be_read_are_reported(text: str | None, told: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "past.csv").write_text(text)
    read = HEAD + HERE + 'history = "past.csv"\n[foil.attributes.level]\nhistory = [1.0, 2.0, 3.0]\n'
    found = parse_config(read.encode(), tmp_path / "node.toml").settings
    if told is None:
        assert with_history(found).attributes["price"].history == (500.0, 501.0)
        return
    with pytest.raises(ConfigError, match=told):
        with_history(found)


def test_a_login_is_a_private_file_of_two_lines_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text("somebody\nopen sesame\n")
    with pytest.raises(PermissionsError):
        read_login(str(file))
    file.chmod(0o600)
    login = read_login(str(file))
    assert login is not None
    assert (login.user, login.password) == ("somebody", b"open sesame")
    assert "sesame" not in repr(login)
    for text in ("somebody\n", "a\nb\nc\n", ""):
        file.write_text(text)
        with pytest.raises(ConfigError, match="two lines"):
            read_login(str(file))
    assert read_login(None) is None
