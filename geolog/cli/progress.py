"""A progress line on stderr, for work of over two seconds, when a person is watching."""

import shutil
from types import TracebackType
from typing import TextIO

import trio

_SHOWN_AFTER_S = 2.0
_SHOWN_EVERY_S = 0.2
_BAR_CELLS = 24


class Progress:
    """One line, drawn over and over; nothing at all where stderr is no terminal."""

    def __init__(
        self, noun: str, stream: TextIO, *, is_forced: bool = False, is_silent: bool = False
    ) -> None:
        self._noun = noun
        self._stream = stream
        self._is_watched = not is_silent and (is_forced or stream.isatty())
        self._started_s = 0.0
        self._shown_s = 0.0
        self._is_shown = False
        self._is_forced = is_forced

    def __enter__(self) -> "Progress":
        self._started_s = self._shown_s = trio.current_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._stream.write("\n" if self._is_forced else "\r\x1b[K")
            self._stream.flush()

    def at(self, done: int, total: int | None = None, *, share: float | None = None) -> None:
        """So much is done: of `total`, or that `share` of all, where one is known."""
        if not self._is_watched:
            return
        now_s = trio.current_time()
        if now_s - self._shown_s < _SHOWN_EVERY_S:
            return
        if not self._is_forced and now_s - self._started_s < _SHOWN_AFTER_S:
            return
        self._shown_s = now_s
        self._is_shown = True
        if total:
            share = done / total
        line = progress_line(done, self._noun, share, now_s - self._started_s)
        # One that went on below could not be drawn over.
        self._stream.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        self._stream.flush()


def progress_line(done: int, noun: str, share: float | None, elapsed_s: float) -> str:
    """What is done, how fast, and of a known whole a bar and the time that is left."""
    rate = f"{done:,} {noun}, {done / max(elapsed_s, 1e-9):,.0f}/s"
    if share is None:
        return rate
    filled = min(_BAR_CELLS, int(_BAR_CELLS * share))
    bar = f"[{'█' * filled}{'░' * (_BAR_CELLS - filled)}] {int(100 * share):3}%"
    if not 0 < share < 1:
        return f"{bar} {rate}"
    left_s = round(elapsed_s * (1 - share) / share)
    return f"{bar} {rate}, {left_s // 60}:{left_s % 60:02} left"
