"""The parts of docs/ARCHITECTURE.md that follow from the source: the tree of files, and the picture of the rooms.

./run test tests/test_architecture.py --write-pages    writes both again
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "veilcast"
PAGE: Final = ROOT / "docs" / "ARCHITECTURE.md"
PICTURE: Final = ROOT / "docs" / "images" / "rooms.svg"

LAYERS: Final = (
    ("cli",),
    ("lab",),
    ("sim", "net"),
    ("node",),
    ("mesh", "relay", "tree", "foil", "brokers"),
    ("link", "invitation"),
    ("core",),
    ("authority",),
    ("wire",),
    ("crypto",),
    ("topics",),
)
"""Rooms from top to bottom, as .importlinter has them. The modules beside them are below all rooms."""


def render_tree(source: Path = SOURCE) -> str:
    """One line a file: its name and the first sentence of its docstring, below a heading for each directory."""
    lines = []
    for directory in [source, *sorted(path for path in source.rglob("*") if path.is_dir())]:
        files = [path for path in sorted(directory.glob("*.py")) if path.name != "__init__.py" or _summary(path)]
        if files:
            name = directory.relative_to(source.parent).as_posix()
            lines += ["", f"### {name}/", ""]
            lines += [f"- `{path.name}`: {_summary(path)}" for path in files]
    return "\n".join(lines[1:]) + "\n"


def room_imports(source: Path = SOURCE) -> dict[str, set[str]]:
    """For each room, the rooms that its files import."""
    rooms = {room for layer in LAYERS for room in layer}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for room in rooms:
        for path in (source / room).rglob("*.py"):
            found[room] |= {name for name in _imported_rooms(path) if name in rooms and name != room}
    return found


def reduce_imports(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same reachability with the fewest edges: an edge goes if another path leads to its target."""
    reach: dict[str, set[str]] = {}

    def reachable(room: str) -> set[str]:
        if room not in reach:
            reach[room] = set().union(*({target} | reachable(target) for target in imports[room]), set())
        return reach[room]

    return {
        room: {target for target in targets if not any(target in reachable(other) for other in targets - {target})}
        for room, targets in imports.items()
    }


def render_picture(imports: Mapping[str, set[str]]) -> str:
    places = {
        room: ((index + 0.5) * WIDTH / len(layer), 30 + level * STEP)
        for level, layer in enumerate(LAYERS)
        for index, room in enumerate(layer)
    }
    shapes = []
    for room, targets in sorted(reduce_imports(imports).items()):
        x, y = places[room]
        for target in sorted(targets):
            to_x, to_y = places[target]
            shapes.append(f'<path d="M{x:.0f} {y + 15:.0f}L{to_x:.0f} {to_y - 19:.0f}" class="edge"/>')
    for room, (x, y) in places.items():
        shapes.append(f'<rect x="{x - 45:.0f}" y="{y - 15:.0f}" width="90" height="30" rx="5"/>')
        shapes.append(f'<text x="{x:.0f}" y="{y + 5:.0f}">{escape(room)}</text>')
    height = 30 + len(LAYERS) * STEP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The rooms of Veilcast: an arrow leads from a room to a room that it imports">\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L6 3L0 6z"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" class="ground"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _summary(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    sentence, dot, _ = text.partition(". ")
    return (sentence + dot).strip().rstrip(".") + "." if text else ""


def _imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="veilcast", names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)) if module.startswith("veilcast."):
                yield module.split(".")[1]
            case ast.Import(names=names):
                yield from (alias.name.split(".")[1] for alias in names if alias.name.startswith("veilcast."))


WIDTH: Final = 620
STEP: Final = 62
STYLE: Final = (
    "rect{fill:#f6f7f9;stroke:#59626d}.ground{fill:#fff;stroke:none}.edge{fill:none;stroke:#0072c6;stroke-opacity:.6;"
    "marker-end:url(#tip)}marker path{fill:#0072c6}text{font:14px sans-serif;text-anchor:middle;fill:#1b1f24}"
)
