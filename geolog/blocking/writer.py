"""Appending from plain threads: records gather in a queue and cross together."""

from collections.abc import Mapping
from functools import partial

from geolog.blocking.waiting import Waiter, wait_for
from geolog.client.writer import Receipt, WriterStatistics
from geolog.client.writer import Writer as TrioWriter
from geolog.portal.inlet import Append, Inlet
from geolog.portal.residence import Residence
from geolog.portal.would_block import WouldBlock


class Pending:
    """An append on its way."""

    __slots__ = ("_append", "_inlet")

    def __init__(self, inlet: Inlet[Waiter], append: Append[Waiter]) -> None:
        self._inlet = inlet
        self._append = append

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'on its way'}>"

    @property
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""
        return self._append.is_done

    def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append, if it was not acknowledged."""
        waiter = Waiter()
        if not self.is_done and self._inlet.wait_done(self._append, waiter):
            try:
                waiter.sleep()
            except BaseException:
                self._inlet.forget(waiter, self._append)
                raise
        return self.receipt_nowait()

    def receipt_nowait(self) -> Receipt:
        """The answer, if it is there; WouldBlock if not yet."""
        return self._append.receipt_nowait()


class Writer:
    """Appends to one stream, in order; `Log.open_writer` makes it. Threads may share it."""

    def __init__(
        self, residence: Residence[TrioWriter], writer: TrioWriter, inlet: Inlet[Waiter]
    ) -> None:
        self.home_epoch = writer.home_epoch
        self._residence = residence
        self._writer = writer
        self._inlet = inlet

    def __repr__(self) -> str:
        return f"Writer({self._inlet.unanswered_bytes} bytes in flight)"

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
    ) -> Receipt:
        """Append one record; it is durable when this returns.

        FencedError: another writer owns the stream now. OutcomeUnknownError: it may or may not
        be in the log. TooLargeError, InvalidArgumentError: it was not sent. TimeoutError says
        which of the two.
        """
        append = self._put(value, key, headers, transaction_id)
        try:
            return Pending(self._inlet, append).wait()
        except TimeoutError:
            if append.is_done:
                raise
            is_out = self._inlet.withdraw(append)
            so = "it was not sent" if is_out else "it may or may not be in the log"
            raise TimeoutError(f"the time of fail_after is over: {so}") from None
        except KeyboardInterrupt:
            self._inlet.withdraw(append)
            raise

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
    ) -> Pending:
        """Append without waiting; WouldBlock while the window is full."""
        append = self._inlet.put_nowait(value, key, headers, transaction_id)
        return Pending(self._inlet, append)

    def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        It returns as well when the writer is closed.
        """
        waiter = Waiter()
        while self._inlet.wait_room(waiter):
            try:
                waiter.sleep()
            except BaseException:
                self._inlet.forget(waiter)
                raise

    def flush(self) -> None:
        """Wait until all that was appended before this call is acknowledged.

        Raises what stopped the writer, if so.
        """
        wait_for(self._residence.call(partial(self._inlet.flush, self._writer)))

    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return self._writer.statistics()

    def _put(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        transaction_id: int | None,
    ) -> Append[Waiter]:
        while True:
            try:
                return self._inlet.put_nowait(value, key, headers, transaction_id)
            except WouldBlock:
                self.wait_writable()
