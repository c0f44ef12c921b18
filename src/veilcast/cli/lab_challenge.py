"""`veilcast lab challenge` and `veilcast lab score`: a labelled set of observations, and anybody's attacker on it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.lab import lab_extra
from veilcast.cli.progress_bar import progress_bar
from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from veilcast.lab.challenge.plan import Setting
    from veilcast.lab.challenge.scores import RowScore, RunScore


def challenge(arguments: argparse.Namespace, _: Context) -> Report:
    action: Callable[[argparse.Namespace], Report] = _ACTIONS[arguments.action]
    if (arguments.dir is None) != (arguments.action in ("list", "digests")):
        needed = "needs a directory" if arguments.dir is None else "takes no directory"
        raise ConfigError(
            f"`lab challenge {arguments.action}` {needed}; `veilcast lab challenge --help` has an example"
        )
    return action(arguments)


def score(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.files import list_present, read_description
        from veilcast.lab.challenge.guesses import read_code, read_guesses
        from veilcast.lab.challenge.lab_attackers import attack_by_file
        from veilcast.lab.challenge.plan import list_settings
        from veilcast.lab.challenge.scores import score_code, score_guesses
    salt, size = _read_salt(arguments.salt_file), arguments.size or "small"
    if arguments.set is not None:
        description = read_description(arguments.set)
        description.check_salt(salt, arguments.set)
        size = description.size
    settings = list_settings(size, arguments.only)
    where = str(arguments.file)
    found: list[RunScore] = []
    if arguments.file.suffix == ".py":
        if arguments.set is None:
            raise ConfigError(
                f"{where} needs observations: --set names a set, and `veilcast lab challenge make` makes one"
            )
        present = list_present(arguments.set, settings)
        if not present:
            raise StorageError(f"{arguments.set} has none of these settings; `veilcast lab challenge make` adds them")
        code = read_code(arguments.file)
        with _bar(f"attacking by {arguments.file.name}", present) as show:
            if code is not None:
                found = score_code(code, arguments.set, present, salt, show)
            else:
                found = attack_by_file(arguments.file, arguments.set, present, salt, show)
    else:
        for attack, guesses in read_guesses(arguments.file).items():
            with _bar(f"scoring {attack}", settings) as show:
                found += score_guesses(guesses, settings, attack, where, salt, show)
    if not found:
        raise ConfigError(f"{where} guesses nothing in these rows; `veilcast lab challenge list` shows what is asked")
    return _report(found, settings, size)


def _list(arguments: argparse.Namespace) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.plan import list_rows, list_settings
    settings = list_settings(arguments.size or "small", arguments.only)
    rows, lines = [], list[str]()
    for row in list_rows(settings):
        own = [each for each in settings if each.row == row]
        lines.append(f"{row}: {len(own)} settings, {sum(each.runs for each in own)} runs to train and as many to test")
        for block in dict.fromkeys(id(each.block) for each in own):
            here = [each for each in own if id(each.block) == block]
            seen = here[0].block
            lines.append(f"  {here[0].number:02d} to {here[-1].number:02d}  {seen.view}: {seen.about} ({seen.made_by})")
            lines.append(f"            tables {', '.join(seen.tables)}; asked for: {', '.join(seen.asks)}")
        rows += [
            {
                "setting": each.name,
                "row": row,
                "view": each.block.view,
                "about": each.block.about,
                "made_by": each.block.made_by,
                "kind": each.block.kind,
                "params": dict(each.params),
                "tables": each.block.tables,
                "asks": each.block.asks,
                "runs": each.runs,
            }
            for each in own
        ]
    return Report({"settings": rows}, lines)


def _make(arguments: argparse.Namespace) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.files import make_set
        from veilcast.lab.challenge.plan import list_settings
    settings = list_settings(arguments.size or "small", arguments.only)
    with _bar("making", settings) as show:
        made = make_set(arguments.dir, arguments.size or "small", settings, _read_salt(arguments.salt_file), show)
    lines = [
        f"made {made.directories} directories, {made.found} were there; the set has {made.files:,} files of "
        f"{made.size_bytes / 1e6:.1f} MB with {made.rows:,} rows of observations, {made.cells:,} of them cells",
        f"`veilcast lab challenge check {arguments.dir}` compares it with the repository's digests; "
        f"`veilcast lab score FILE --set {arguments.dir}` scores an attacker",
    ]
    return Report(msgspec.to_builtins(made), lines)


def _check(arguments: argparse.Namespace) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.files import check_set
    with _bar("comparing", ()) as show:
        compared, different = check_set(arguments.dir, show)
    if not compared:
        raise ConfigError(f"{arguments.dir} has nothing that the repository has digests of")
    lines = [f"differs: {name}" for name in different]
    lines.append(f"{compared} directories compared, {len(different)} differ from the repository's digests")
    return Report({"compared": compared, "different": different}, lines, FAILED_CHECK if different else 0)


def _digests(arguments: argparse.Namespace) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.files import digest_setting
        from veilcast.lab.challenge.plan import digest_plan, list_settings
    size = arguments.size or "small"
    settings = list_settings(size, arguments.only)
    found = {"plan": digest_plan(size)}
    with _bar("making", settings) as show:
        for number, setting in enumerate(settings):
            found |= dict(digest_setting(setting))
            show(number + 1)
    return Report({"digests": found}, [f"{digest}  {name}" for name, digest in found.items()])


def _baselines(arguments: argparse.Namespace) -> Report:
    with lab_extra():
        from veilcast.lab.challenge.files import list_present, read_description
        from veilcast.lab.challenge.lab_attackers import CONTROL, attack_by_names
        from veilcast.lab.challenge.plan import list_settings
        from veilcast.lab.challenge.scores import choose_strongest, summarise_rows, write_baselines
    description, salt = read_description(arguments.dir), _read_salt(arguments.salt_file)
    description.check_salt(salt, arguments.dir)
    settings = list_present(arguments.dir, list_settings(description.size, arguments.only))
    parts: dict[str, list[RunScore]] = {"train": [], "test": []}
    with _bar("attacking", settings) as show:
        for number, setting in enumerate(settings):
            parts["train"] += attack_by_names(arguments.dir, setting, "train", salt)
            parts["test"] += attack_by_names(arguments.dir, setting, "test", salt)
            show(number + 1)
    rows = summarise_rows(parts["test"], choose_strongest(parts["train"], [CONTROL]))
    return Report({"rows": msgspec.to_builtins(rows)}, write_baselines(rows).splitlines())


def _report(found: list[RunScore], settings: Sequence[Setting], size: str) -> Report:
    from veilcast.lab.challenge.scores import read_baselines, summarise_rows

    rows = summarise_rows(found)
    strongest = {(each.row, each.view, each.role): each for each in read_baselines(size) if each.chosen}
    lines = [_HEADING]
    for row in rows:
        lines.append(_line(f"{row.row}, {row.view}, {row.role}", row))
        if best := strongest.get((row.row, row.view, row.role)):
            lines.append(_line("  the lab's strongest", best))
    lacking = [row for row in dict.fromkeys(each.row for each in settings) if all(each.row != row for each in found)]
    if lacking:
        lines.append(f"not guessed: {', '.join(lacking)}")
    lines.append("means over test runs with their 95 % intervals; base is the share of nodes that have the role")
    keys = [(row.row, row.view, row.role) for row in rows]
    beside = [msgspec.to_builtins(strongest[key]) for key in keys if key in strongest]
    told = {
        "rows": msgspec.to_builtins(rows),
        "lab": beside,
        "runs": msgspec.to_builtins(found),
        "not_guessed": lacking,
    }
    return Report(told, lines)


def _line(label: str, row: RowScore) -> str:
    def interval(name: str) -> str:
        value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
        return f"{value:.3f} [{low:.3f}, {high:.3f}]"

    measured = "  ".join(interval(name) for name in ("auc", "tpr_1", "precision"))
    return f"{label:36}  {row.attack:18}  {row.runs:5}  {row.base:.3f}  {measured}"


@contextmanager
def _bar(text: str, settings: Sequence[Setting]) -> Iterator[Callable[[int], object]]:
    with progress_bar(text, len(settings) or None) as advance:
        yield lambda done: advance(done)


def _read_salt(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        salt = path.read_bytes().strip()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(salt) < _SALT_LEAST:
        raise ConfigError(
            f"{path}: a salt has at least {_SALT_LEAST} bytes; `head -c 32 /dev/urandom | base64` makes one"
        )
    return salt


_SALT_LEAST = 16
_COLUMNS = f"{'attack':18}  {'runs':>5}  {'base':5}  {'AUC':20}  {'TPR at 1 % FPR':20}  precision at |S|"
_HEADING = f"{'row, view, role':36}  {_COLUMNS}"
_ACTIONS = {"list": _list, "make": _make, "check": _check, "digests": _digests, "baselines": _baselines}
