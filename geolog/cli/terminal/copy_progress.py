"""Shows the progress of copying on stderr: a bar on a terminal, lines in a log."""

import trio

from geolog.cli.terminal.progress import Progress, line_with_bar

_LINE_EVERY_S = 5.0
_MIB = 1024 * 1024


class CopyProgressBar(Progress):
    """Shows the bytes copied, and how many of the noun's things are done."""

    def copied(self, copied_bytes: int, done: int, total: int | None) -> None:
        """Update the progress; `total` is None if unknown."""
        now_s = trio.current_time()
        elapsed_s = now_s - self._started_s
        rate = copied_bytes / max(elapsed_s, 1e-9)
        of = "" if total is None else f" of {total}"
        told = (
            f"{copied_bytes / _MIB:,.1f} MiB copied, {rate / 1e6:,.1f} MB/s;"
            f" {done}{of} {self._noun} done"
        )
        if self._is_due():
            self._draw(line_with_bar(told, done / total if total else None, elapsed_s))
        elif not self._is_watched and now_s - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = now_s
            self.note(told)

    def note(self, text: str) -> None:
        """Print a separate line."""
        self.clear()
        self._write(f"{text}\n")
