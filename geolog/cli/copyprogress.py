"""How far a copy is, on stderr: a bar for a person who watches, lines for a log."""

from types import TracebackType

import trio

from geolog.cli.invocation import tell

_LINE_EVERY_S = 5.0
_MIB = 1024 * 1024


class CopyProgressBar:
    """Shows bytes copied, and ledgers done of how many where that is known."""

    def __init__(self) -> None:
        from rich.console import Console  # Slow to import, and few commands need it.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True)
        self._is_watched = console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("ledgers"),
            console=console,
            disable=not self._is_watched,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._started_s = self._told_s = 0.0

    def __enter__(self) -> "CopyProgressBar":
        self._started_s = self._told_s = trio.current_time()
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def at(self, copied_bytes: int, ledgers_done: int, ledgers_count: int | None) -> None:
        """So much is done."""
        now_s = trio.current_time()
        rate = copied_bytes / max(now_s - self._started_s, 1e-9)
        copied = f"{copied_bytes / _MIB:,.1f} MiB copied, {rate / 1e6:,.1f} MB/s"
        if self._is_watched:
            self._progress.update(
                self._task, description=copied, completed=ledgers_done, total=ledgers_count
            )
        elif now_s - self._told_s >= _LINE_EVERY_S:
            self._told_s = now_s
            of = "" if ledgers_count is None else f" of {ledgers_count}"
            tell(f"{copied}; {ledgers_done}{of} ledgers done")

    def note(self, text: str) -> None:
        """Say something besides."""
        if self._is_watched:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            tell(text)
