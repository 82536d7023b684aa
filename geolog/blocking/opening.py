# Generated from geolog/aio/opening.py by `python -P -m sim.twins`: edit that file.
"""A block of a synchronous program, which holds a block open in the trio thread."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from geolog.blocking.waiting import settle, settle_at_last
from geolog.portal.residence import Residence
from geolog.portal.trio_thread import Tasks
from topology.errors import ClosedError

T = TypeVar("T")
S = TypeVar("S")


def _do_nothing(_: object, is_failed: bool) -> None:  # noqa: FBT001 - as `on_leave` is called.
    pass


class Opening(AbstractContextManager[S], Generic[S, T]):
    """Opens when `with` enters it and closes when the block ends. Use it once."""

    def __init__(
        self,
        prepare: Callable[[], tuple[Residence[T], Tasks]],
        surface: Callable[[Residence[T], T], S],
        *,
        on_leave: Callable[[S, bool], None] = _do_nothing,
    ) -> None:
        """on_leave: called as the block ends, with whether it failed."""
        self._prepare = prepare
        self._surface = surface
        self._on_leave = on_leave
        self._leaving: Callable[[bool], None] = partial(_do_nothing, None)
        self._residence: Residence[T] | None = None

    def __enter__(self) -> S:
        if self._residence is not None:
            raise ClosedError("this block was entered before: open a new one")
        residence, tasks = self._prepare()
        self._residence = residence
        residence.start(tasks)
        try:
            settle(residence.opened)
            opened = self._surface(residence, residence.opened.result())
        except BaseException:
            residence.cancel()
            settle_at_last(residence.ended)
            raise
        self._leaving = partial(self._on_leave, opened)
        return opened

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        residence = self._residence
        assert residence is not None, "the block was entered"
        if residence.thread.is_forked:
            return  # The parent closes it.
        self._leaving(error is not None)
        residence.leave(is_failed=error is not None)
        try:
            settle(residence.ended)
        except BaseException:
            residence.cancel()
            settle_at_last(residence.ended)
            raise
        residence.raise_end(error)
