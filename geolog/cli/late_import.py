"""Imports what a verb needs only when the verb runs: help and completion need none of it."""

import functools
import gc
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, Protocol

import attrs

P = ParamSpec("P")


class VerbFunction(Protocol):
    """Does a verb."""

    def __call__(self, *arguments: object, **options: object) -> None:
        """Do it, with what was parsed."""
        ...


@attrs.frozen
class LateFunction:
    """A function whose module is not imported yet."""

    module: str
    name: str

    def found(self) -> VerbFunction:
        """Import the module and return the function."""
        function: VerbFunction = getattr(imported(self.module), self.name)
        return function


LATE: dict[object, LateFunction] = {}
"""Verbs that are imported late, each with the function that does it."""


def imported(module: str) -> ModuleType:
    """Import a module while the garbage collector rests.

    An import allocates a lot and frees little: collecting meanwhile takes a fifth of the
    start-up. To look at the imported objects again later never pays either.
    """
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def done_by(
    module: str, function: str | None = None
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Have a verb done by the function of its name, or of this one, in this module.

    The verb itself is its name and its help: decorators give it options.
    """

    def take(verb: Callable[P, None]) -> Callable[P, None]:
        late = LateFunction(module, function or verb.__name__)

        @functools.wraps(verb)
        def do(*arguments: P.args, **options: P.kwargs) -> None:
            late.found()(*arguments, **options)

        LATE[do] = late
        return do

    return take
