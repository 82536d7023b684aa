"""Progress of a long call, passed to another thread: only the latest news counts."""

import threading
from collections.abc import Callable


class LatestProgress:
    """Holds the latest news; calls `on_news` for it unless older news still waits."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._lock = threading.Lock()
        self._latest: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<LatestProgress {self._latest}>"

    def tell(self, done: int, total: int) -> None:
        """Record progress; called in the trio thread."""
        with self._lock:
            is_first = self._latest is None
            self._latest = done, total
        if is_first:
            self._on_news()

    def take(self) -> tuple[int, int] | None:
        """Take the latest news; None if there is none."""
        with self._lock:
            latest, self._latest = self._latest, None
            return latest
