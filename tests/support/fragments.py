"""Fragments: short modules that only one other module imports, and that might read better inside it.

Modules are given as texts, by dotted name. A module that a table loads by name has no importer and is no fragment. A
module that its own package's `__init__` imports is part of the package's face, and is used by all who use the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def find_fragments(modules: Mapping[str, str], shortest: int) -> dict[str, str]:
    """The modules with fewer than `shortest` lines and one importer, each with that importer.

    A package's name stands for its `__init__`.
    """
    importers: dict[str, set[str]] = {name: set() for name in modules}
    packages = {name.rpartition(".")[0] for name in modules}
    for importer, text in modules.items():
        for imported in _imported_names(text, importer if importer in packages else importer.rpartition(".")[0]):
            if imported in modules and imported != importer:
                importers[imported].add(importer)
    return {
        name: next(iter(found))
        for name, found in importers.items()
        if name not in packages
        and len(modules[name].splitlines()) < shortest
        and len(found) == 1
        and name.rpartition(".")[0] not in found
    }


def _imported_names(text: str, package: str) -> Iterator[str]:
    """All that a module imports, at its beginning or in a function: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
