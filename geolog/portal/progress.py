"""How far a long call has come, told to someone in another thread: only the latest counts."""

import threading
from collections.abc import Callable


class LatestProgress:
    """Holds the latest news; `on_news` is called for it, unless older news was not taken."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._lock = threading.Lock()
        self._latest: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<LatestProgress {self._latest}>"

    def tell(self, done: int, total: int) -> None:
        """In the trio thread: so much is done."""
        with self._lock:
            is_first = self._latest is None
            self._latest = done, total
        if is_first:
            self._on_news()

    def take(self) -> tuple[int, int] | None:
        """The latest news, if it was not taken."""
        with self._lock:
            latest, self._latest = self._latest, None
            return latest
