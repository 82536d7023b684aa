"""A progress line on stderr, for work of over two seconds, when a person is watching."""

import shutil
from types import TracebackType
from typing import Self, TextIO

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

    def __enter__(self) -> Self:
        self._started_s = self._shown_s = trio.current_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown and self._is_forced:
            self._write("\n")
        else:
            self.clear()

    def at(self, done: int, total: int | None = None, *, share: float | None = None) -> None:
        """So much is done: of `total`, or that `share` of all, where one is known."""
        if self._is_due():
            share = done / total if total else share
            elapsed_s = self._shown_s - self._started_s
            self._draw(progress_line(done, self._noun, share, elapsed_s))

    def clear(self) -> None:
        """Take the line away until there is more progress, so that others may print."""
        if self._is_shown:
            self._write("\r\x1b[K")

    def _is_due(self) -> bool:
        """Whether to draw the line now."""
        if not self._is_watched:
            return False
        now_s = trio.current_time()
        is_due = now_s - self._shown_s >= _SHOWN_EVERY_S and (
            self._is_forced or now_s - self._started_s >= _SHOWN_AFTER_S
        )
        if is_due:
            self._shown_s = now_s
        return is_due

    def _draw(self, line: str) -> None:
        self._is_shown = True
        # One that went on below could not be drawn over.
        self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def progress_line(done: int, noun: str, share: float | None, elapsed_s: float) -> str:
    """What is done, how fast, and of a known whole a bar and the time that is left."""
    return line_with_bar(
        f"{done:,} {noun}, {done / max(elapsed_s, 1e-9):,.0f}/s", share, elapsed_s
    )


def line_with_bar(told: str, share: float | None, elapsed_s: float) -> str:
    """What is told, and of a known whole a bar and the time that is left."""
    if share is None:
        return told
    filled = min(_BAR_CELLS, int(_BAR_CELLS * share))
    bar = f"[{'█' * filled}{'░' * (_BAR_CELLS - filled)}] {int(100 * share):3}%"
    if not 0 < share < 1:
        return f"{bar} {told}"
    left_s = round(elapsed_s * (1 - share) / share)
    return f"{bar} {told}, {left_s // 60}:{left_s % 60:02} left"
