"""The rules for protocol rooms, as a checker over syntax trees: no I/O, no clock, no chance of their own.

`violations(source)` gives one line for each breach. What it bans and why stands in
docs/decisions/0002-rules.md; `tests/test_meta.py` runs it over the rooms and shows that it catches planted breaches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final


def violations(source: str) -> list[str]:
    tree = ast.parse(source)
    return [f"line {line}: {what}" for line, what in sorted(_found(tree))]


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    sets = _names_of_sets(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in MODULES:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module or "").split(".")[0] in MODULES or f"{node.module}.{alias.name}" in NAMES:
                    yield node.lineno, f"from {node.module} import {alias.name}"
                elif node.module == "random" and alias.name != "Random":
                    yield node.lineno, f"from random import {alias.name}"
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            global_chance = dotted.startswith("random.") and dotted != "random.Random"
            if dotted in NAMES or node.attr in ATTRIBUTES or global_chance:
                yield node.lineno, dotted
        elif isinstance(node, ast.Call):
            yield from _bad_call(node, sets)
        elif isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter, sets):
            yield node.iter.lineno, "iteration over a set"
        elif isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield node.lineno, "async"


def _bad_call(node: ast.Call, sets: frozenset[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node.func, ast.Name) and node.func.id == "print":
        yield node.lineno, "print"
    if isinstance(node.func, ast.Attribute) and node.func.attr in GENERATORS and not node.args and not node.keywords:
        yield node.lineno, f"{ast.unparse(node.func)}() draws its own randomness"
    ordered = isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "iter", "enumerate", "zip", "map")
    joined = isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "extend")
    if (ordered or joined) and any(_is_set(argument, sets) for argument in node.args):
        yield node.lineno, "the order of a set"


def _is_set(node: ast.AST, sets: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp):
        return _is_set(node.left, sets) or _is_set(node.right, sets)
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in sets


def _names_of_sets(tree: ast.AST) -> frozenset[str]:
    """Names that are assigned or declared a set anywhere in the file."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            names += [ast.unparse(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation).split("[")[0].split(".")[-1]
            if kind in ("set", "frozenset", "Set", "AbstractSet", "MutableSet"):
                names.append(node.arg if isinstance(node, ast.arg) else ast.unparse(node.target))
    return frozenset(names)


MODULES: Final = frozenset(
    {"asyncio", "socket", "selectors", "ssl", "threading", "time", "secrets", "uuid", "subprocess"}
)
NAMES: Final = frozenset(
    {
        "os.urandom",
        "os.getrandom",
        "datetime.now",
        "datetime.datetime.now",
        "datetime.utcnow",
        "datetime.datetime.utcnow",
        "datetime.today",
        "random.SystemRandom",
        "numpy.random",
        "np.random",
    }
)
ATTRIBUTES: Final = frozenset(
    {
        "randombytes",
        "crypto_sign_keypair",
        "crypto_box_keypair",
        "crypto_core_ristretto255_random",
        "crypto_core_ristretto255_scalar_random",
    }
)
GENERATORS: Final = frozenset({"generate", "generate_key"})
