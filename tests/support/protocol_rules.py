"""The rules for protocol rooms, as a checker over syntax trees: no I/O, no clock, no randomness of their own.

`violations(source)` gives one line for each breach. docs/decisions/0002-rules.md says what is banned and why;
`tests/test_meta.py` runs the checker over the rooms and shows that it catches planted breaches. Names are compared by
what they were imported as, whatever a file calls them. The rule on sets is a heuristic: it follows names and attributes
within one file, and does not know the results of calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


def violations(source: str, *, may_use_files: bool = False) -> list[str]:
    tree = ast.parse(source)
    found = {*_outside(tree), *_order_of_sets(tree)}
    if not may_use_files:
        found |= {*_files(tree)}
    return [f"line {line}: {what}" for line, what in sorted(found)]


Breach = tuple[int, str]


def _outside(tree: ast.AST) -> Iterator[Breach]:
    """Clocks, sockets, threads, the console, and chance that nobody handed in."""
    for line, name in _imported_names(tree):
        if _is_or_is_in(name, OUTSIDE) or (name.startswith("random.") and not _is_or_is_in(name, {"random.Random"})):
            yield line, name
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                yield node.lineno, "async"
            case ast.Name(id="print" | "input"):
                yield node.lineno, node.id
            case ast.Attribute(attr=name) if name in OWN_CHANCE:
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[], keywords=[]) if (
                name in GENERATORS
            ):
                yield node.lineno, f"{ast.unparse(node)} draws its own randomness"


def _files(tree: ast.AST) -> Iterator[Breach]:
    for line, name in _imported_names(tree):
        if _is_or_is_in(name, FILES):
            yield line, name
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "open"
            case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str())]):
                # A mode as text is a file's; ciphers and agendas can be opened too.
                yield node.lineno, ast.unparse(node)
            case ast.Attribute(attr=method) if method in FILE_METHODS:
                yield node.lineno, ast.unparse(node)


# --- names ------------------------------------------------------------------------------------------------------------


def _imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported name and every use of one, in full: `import os as o; o.urandom` gives `os` and `os.urandom`."""
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.split(".")[0]
                full[alias.asname or package] = alias.name if alias.asname else package
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in full:
                yield node.lineno, f"{full[root]}.{rest}"


def _is_or_is_in(name: str, banned: frozenset[str] | set[str]) -> bool:
    """Whether the name, or a module or class that holds it, is in the set."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in banned for length in range(1, len(parts) + 1))


# --- sets -------------------------------------------------------------------------------------------------------------


class _Sets(NamedTuple):
    """The sets of a file: variables by name, and attributes by theirs, whatever object they belong to."""

    names: frozenset[str]
    attributes: frozenset[str]

    def holds(self, node: ast.AST | None) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return method in SET_METHODS and self.holds(value)
            case ast.BinOp(left=left, right=right):
                return self.holds(left) or self.holds(right)
            case ast.BoolOp(values=values):
                return any(map(self.holds, values))
            case ast.IfExp(body=body, orelse=orelse):
                return self.holds(body) or self.holds(orelse)
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=name):
                return name in self.attributes
        return False


def _order_of_sets(tree: ast.AST) -> Iterator[Breach]:
    sets = _sets_of(tree)
    unordered = {star for node in ast.walk(tree) if isinstance(node, ast.Set) for star in node.elts}
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=source) | ast.comprehension(iter=source) if sets.holds(source):
                yield source.lineno, "iteration over a set"
            case ast.Starred(value=value) | ast.YieldFrom(value=value) if node not in unordered and sets.holds(value):
                yield node.lineno, "the order of a set"
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value) if sets.holds(value):
                yield node.lineno, "the order of a set"
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]) if sets.holds(value):
                yield node.lineno, "whichever a set gives first"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in ORDERED:
                if any(sets.holds(argument) for argument in args):
                    yield node.lineno, "the order of a set"


def _sets_of(tree: ast.AST) -> _Sets:
    """Names and attributes that are assigned or declared a set anywhere in the file."""
    names: set[str] = set()
    attributes: set[str] = set()
    fields = {line for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for line in node.body}
    for node in ast.walk(tree):
        for target in _becoming_sets(node):
            match target:
                case ast.Attribute(attr=name):
                    attributes.add(name)
                case ast.Name(id=name) | ast.arg(arg=name):
                    (attributes if node in fields else names).add(name)
    return _Sets(frozenset(names), frozenset(attributes))


def _becoming_sets(node: ast.AST) -> Sequence[ast.AST]:
    """The targets that this node makes a set, by its value or its annotation."""
    plain = _Sets(frozenset(), frozenset())
    match node:
        case ast.arg() if _declares_set(node.annotation):
            return [node]
        case ast.Assign() if plain.holds(node.value):
            return node.targets
        case ast.AnnAssign() if _declares_set(node.annotation) or plain.holds(node.value):
            return [node.target]
        case ast.NamedExpr() if plain.holds(node.value):
            return [node.target]
    return []


def _declares_set(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SET_TYPES
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
            return name in SET_TYPES or (name in WRAPPERS and _declares_set(first))
        case ast.BinOp(left=left, right=right):
            return _declares_set(left) or _declares_set(right)
    return False


# --- what is banned ---------------------------------------------------------------------------------------------------

OUTSIDE: Final = frozenset(
    {
        "asyncio",
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "multiprocessing",
        "numpy.random",
        "os.getrandom",
        "os.urandom",
        "secrets",
        "selectors",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uuid",
    }
)
OWN_CHANCE: Final = frozenset(
    {
        "randombytes",
        "crypto_sign_keypair",
        "crypto_box_keypair",
        "crypto_core_ristretto255_random",
        "crypto_core_ristretto255_scalar_random",
    }
)
GENERATORS: Final = frozenset({"generate", "generate_key", "Random"})

FILES: Final = frozenset(
    {"fcntl", "importlib.resources", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"}
)
FILE_METHODS: Final = frozenset({"read_bytes", "read_text", "write_bytes", "write_text", "unlink"})

SET_TYPES: Final = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
WRAPPERS: Final = frozenset({"Annotated", "ClassVar", "Final", "Optional"})
SET_METHODS: Final = frozenset({"copy", "difference", "intersection", "symmetric_difference", "union"})
ORDERED: Final = frozenset(
    {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "deque", "join", "extend", "fromkeys", "chain"}
)
"""Calls that keep the order of what they are given. `sorted`, `sum`, `max`, `any` and the like do not show it."""
