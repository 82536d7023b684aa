"""One writer's time as owner of the stream: it sends records, hears answers and notes them."""

from collections.abc import Iterable, Iterator

import attrs
import trio

import geolog
from geolog.client.writing.writer_pending import NewRecord
from sim.world.apps.new_records import NewRecords
from sim.world.calls import Calls
from sim.world.history import Append, Outcome, words_of
from sim.world.process import Process


@attrs.define(eq=False)
class Tenure:
    """Rounds of appends with one open writer."""

    calls: Calls
    records: NewRecords
    process: Process
    writer: geolog.Writer
    partitions_known: tuple[int, int]
    partition: int | None = None
    """The partition that the writer was opened for, if only one."""
    session: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.calls.sessions_count += 1
        self.session = self.calls.sessions_count

    async def append_run(self, count: int) -> None:
        """Send some records, then wait for all answers, even if the first one fails."""
        appends = self._next_appends(count)
        if self.calls.stream.answers == "none":
            await self._post(appends)
            return
        sent: list[tuple[Append, geolog.Pending]] = []
        failure: geolog.GeologError | None = None
        for append in appends:
            if self.calls.knobs.spread_s_max:
                await trio.sleep(self.calls.rng.random() * self.calls.knobs.spread_s_max)
            try:
                sent.append((append, self._send(append)))
            except trio.WouldBlock:
                self._end(append, "refused", "no room")
                self.calls.history.happened.add("writer-full")
                break
            except geolog.GeologError as error:
                failure = self._fail(append, error) or failure
                if failure is not None:
                    break
        for append, pending in sent:
            failure = await self._hear(append, pending) or failure
        for append, pending in sent:
            if append.provisional is not None and append.outcome == "pending":
                failure = await self._hear_durable(append, pending) or failure
        if failure is not None:
            raise failure

    def _next_appends(self, count: int) -> Iterator[Append]:
        for append in self.records.next_appends(self.process, count, self.partitions_known):
            append.partition_named = self.partition
            append.session = self.session
            yield append

    def _send(self, append: Append) -> geolog.Pending:
        return self.writer.append_nowait(
            append.value,
            key=append.key,
            headers=dict(append.headers),
            transaction_id=append.transaction_id,
            seq=append.seq,
            expect_sequence=append.expected,
            local_only=append.is_local_only,
        )

    async def _hear(self, append: Append, pending: geolog.Pending) -> geolog.GeologError | None:
        """Wait for the answer at the writer's level; return the error that ends the round."""
        try:
            receipt = await pending.wait()
        except geolog.GeologError as error:
            return self._fail(append, error)
        if isinstance(pending, NewRecord) and receipt.dlsn.slot > pending.slot:
            self.calls.history.happened.add("entry-shared")
        if not receipt.provisional:
            self._on_receipt(append, receipt)
        elif self.calls.is_heard(self.process):
            self.calls.history.happened.add("answered-provisionally")
            append.provisional = receipt.partition, receipt.sequence
        return None

    async def _hear_durable(
        self, append: Append, pending: geolog.Pending
    ) -> geolog.GeologError | None:
        try:
            self._on_receipt(append, await pending.wait_durable())
        except geolog.GeologError as error:
            self.calls.history.happened.add("provisional-lost")
            return self._fail(append, error)
        return None

    async def _post(self, appends: Iterable[Append]) -> None:
        """Append without answers; a flush tells that everything is in the log."""
        posted: list[Append] = []
        try:
            for append in appends:
                try:
                    await self.writer.post(
                        append.value,
                        key=append.key,
                        headers=dict(append.headers),
                        transaction_id=append.transaction_id,
                        local_only=append.is_local_only,
                    )
                except geolog.ConflictError as error:
                    self._fail(append, error)
                else:
                    posted.append(append)
            await self.writer.flush()
        except geolog.GeologError as error:
            for append in posted:
                self._end(append, "unknown", repr(error))
            raise
        for append in posted:
            self._end(append, "flushed", "")
            self.calls.history.happened.add("flushed")

    async def repeat_now_and_then(self) -> None:
        """Between two rounds, sometimes repeat the last acknowledged record."""
        share = self.calls.knobs.repeats_share
        if not share or self.calls.repeats_rng.random() >= share:
            return
        numbering = self.records.numbering(self.process.host)
        if numbering is None or numbering.answered_last is None:
            return
        try:
            await self._repeat(numbering.answered_last)
        except geolog.RepeatUnreadError:
            self.calls.history.happened.add("repeat-unread")

    async def repeat_last(self) -> None:
        """Sometimes repeat an acknowledged record: it must be where it was."""
        numbering = self.records.numbering(self.process.host)
        if numbering is None or numbering.answered_last is None:
            return
        if self.calls.rng.random() < 0.5:
            return
        append = numbering.answered_last
        share = self.calls.knobs.other_bytes_share
        if share and self.calls.rng.random() < share:
            await self._repeat_with_other_bytes(append)
            return
        await self._repeat(append)

    async def _repeat(self, append: Append) -> None:
        self.calls.begin(self.process, f"repeat {append.seq}")
        self.calls.history.on_repeated(append)
        if self.calls.history.may_forget_writers:  # Then the current partition count decides.
            append.partitions_known = append.partitions_known[0], self.partitions_known[1]
        try:
            receipt = await self._send(append).wait()
        except geolog.GeologError as error:
            self._on_repeat_failed(append, error)
            if isinstance(error, geolog.ForgottenSeqError):
                self._on_forgotten(append, error)
                return  # The answer must say duplicate, and nothing is appended.
            raise
        if self.calls.is_heard(self.process):
            self._on_repeat_answered(append, receipt)

    async def _repeat_with_other_bytes(self, append: Append) -> None:
        """Repeat a number that is in the log, with other bytes: it must be refused."""
        has_others = bool(append.headers) and self.calls.rng.random() < 0.5
        other = (
            attrs.evolve(append, headers=())
            if has_others
            else attrs.evolve(append, value=append.value + b"|other bytes")
        )
        self.calls.begin(self.process, f"repeat {append.seq} with other bytes")
        try:
            receipt = await self._send(other).wait()
        except geolog.ForgottenSeqError as error:
            self._on_forgotten(append, error)
        except geolog.ConflictError:
            self.calls.history.happened.add("other-bytes-refused")
        else:
            if self.calls.is_heard(self.process):
                self.calls.history.taken_for_others.append(
                    f"other bytes than those at {words_of(append.place)} by {append.writer},"
                    f" under its number, were acknowledged at {receipt.dlsn} of partition"
                    f" {receipt.partition}"
                )

    def _on_repeat_answered(self, append: Append, receipt: geolog.Receipt) -> None:
        history, (partition, sequence) = self.calls.history, append.place
        self.calls.note_trims(append)
        is_there = sequence >= self.calls.trim_of(partition)
        if is_there or not history.may_forget_writers:
            history.repeats.append((append, receipt.partition, receipt.dlsn))
        elif not receipt.duplicate:
            history.happened.add("writer-forgotten")

    def _on_repeat_failed(self, append: Append, error: geolog.GeologError) -> None:
        """The record is in the log: a refusal is wrong unless its writer may be forgotten."""
        history = self.calls.history
        is_known = not history.may_forget_writers and self.calls.is_heard(self.process)
        if is_known and error.outcome == "refused":
            history.refused_repeats.append(
                f"{words_of(append.place)} by {append.writer} was acknowledged, but its"
                f" repeat was refused: {error!r}"
            )

    def _on_forgotten(self, append: Append, error: geolog.ForgottenSeqError) -> None:
        """The last acknowledged record must be remembered as long as it is in the log."""
        partition, sequence = append.place
        if append.is_local_only and not self.calls.knobs.has_one_home:
            return  # Its bytes may be in another region: it was appended, but where?
        if self.calls.is_heard(self.process) and sequence >= self.calls.trim_of(partition):
            self.calls.history.forgotten.append(
                f"{words_of(append.place)} by {append.writer}: {error}"
            )

    def _on_receipt(self, append: Append, receipt: geolog.Receipt) -> None:
        if not self.calls.is_heard(self.process):
            return
        if receipt.valid_until_s is not None:
            self.calls.history.happened.add("answered-in-lease")
            if trio.current_time() > receipt.valid_until_s:  # It was held up on its last way.
                self._end(append, "unknown", "heard too late")
                return
        append.partition, append.sequence = receipt.partition, receipt.sequence
        append.dlsn, append.answered_by = receipt.dlsn, self._owner_of(receipt)
        append.is_duplicate = receipt.duplicate
        _, append.home_epoch_then = self.calls.home_of()
        self.calls.note_trims(append)
        self.records.on_answered(append, self.process.host)
        self._end(append, "acknowledged", f"{receipt.sequence} {receipt.dlsn}")

    def _owner_of(self, receipt: geolog.Receipt) -> str:
        """The owner that answered: this process, or a proxy, which its epoch tells."""
        if self.calls.is_proxied:
            return f"the owner of epoch {receipt.epoch}"
        return self.process.key

    def _fail(self, append: Append, error: geolog.GeologError) -> geolog.GeologError | None:
        """Note the outcome of an append; return the error that ends the round, if any."""
        if "on_isolation=stop" in str(error):
            self.calls.history.happened.add("stopped-alone")
        if isinstance(error, geolog.ForgottenSeqError):
            self.records.give_up(append, self.process.host)
            self._end(append, error.outcome, repr(error))
            return error
        self._end(append, error.outcome, repr(error))
        has_wish = append.transaction_id is not None or append.expected is not None
        if not (has_wish and isinstance(error, geolog.ConflictError)):
            return error
        self.calls.history.happened.add("wish-refused")
        self.records.give_up(append, self.process.host)
        return None

    def _end(self, append: Append, outcome: Outcome, words: str) -> None:
        if not self.calls.is_heard(self.process):
            return
        name = append.value.partition(b"|")[0].decode()
        note = self.calls.done if outcome in ("acknowledged", "flushed") else self.calls.failed
        note(self.process, f"append {name} {outcome} {words}")
        self.calls.history.on_answered(append, outcome, self.calls.trace.events_count)
