"""Shows the progress of the recovery when a writer opens: it can take long on slow links."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TextIO, TypeVar

from geolog.cli.session import Patience
from geolog.cli.terminal.progress import Progress
from geolog.ledger.recovery.recovery_progress import RecoveryProgress

W = TypeVar("W")


@asynccontextmanager
async def opened_with_progress(
    opening: AbstractAsyncContextManager[W],
    recovery: RecoveryProgress,
    patience: Patience,
    stream: TextIO,
    *,
    is_forced: bool = False,
) -> AsyncIterator[W]:
    """Open a writer; show each recovered entry, and count it as progress."""
    async with AsyncExitStack() as stack:
        with Progress(
            "entries recovered or read back", stream, is_forced=is_forced
        ) as progress:

            def tell(count: int) -> None:
                patience.progressed()
                progress.at(count)

            recovery.tell = tell
            try:
                writer = await stack.enter_async_context(opening)
            finally:
                recovery.tell = None
        yield writer
