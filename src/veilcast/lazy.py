"""Names of a package that are imported at their first use (PEP 562).

A package lists its public names for the type checker under `if TYPE_CHECKING`, and for the interpreter by `lazy_names`:

    __getattr__, __dir__ = lazy_names(__name__, {"veilcast.topics.bloom": ("Geometry", "PUBLIC_KEY")})

The assignment stands under `else`, or the type checker would accept every misspelt name.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`.

    `homes` lists, for each module, the names that the package takes from it.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    namespace = vars(sys.modules[package])

    def get_name(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(import_module(home_of[name]), name)
        namespace[name] = value  # The next use does not come here.
        return value

    def list_names() -> list[str]:
        return sorted({*namespace, *home_of})

    return get_name, list_names
