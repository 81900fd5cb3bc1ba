"""LeakGauge: what a federated-learning update gives away, and which defence stops it at what cost.

Nothing is imported before it is used: torch alone takes seconds, which ``--help`` should not spend. The public names
live in `leakgauge.public`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leakgauge.version import VERSION as __version__

if TYPE_CHECKING:
    from leakgauge.public import *  # noqa: F403

_ALSO_A_ROOM = "audit"
"""The one public function that has the name of a room."""


class _Lazy(ModuleType):
    """This package: its public names are found when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # what Python itself asks modules for
            raise AttributeError(f"module 'leakgauge' has no attribute {name!r}")
        if name != _ALSO_A_ROOM and find_spec(f"leakgauge.{name}") is not None:
            return import_module(f"leakgauge.{name}")
        import leakgauge.public as public

        offered = {own: getattr(public, own) for own in public.__all__}
        offered["__all__"] = ["__version__", *public.__all__]
        if name not in offered:
            raise AttributeError(f"module 'leakgauge' has no attribute {name!r}")
        setattr(self, name, offered[name])
        return offered[name]

    def __setattr__(self, name: str, value: object) -> None:
        # Importing the room would put it in the place of the function of that name.
        if not (name == _ALSO_A_ROOM and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self.__all__})


sys.modules[__name__].__class__ = _Lazy
