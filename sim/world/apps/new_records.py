"""The records that writers append next: unanswered ones again, then new ones."""

from collections.abc import Iterator

import attrs
import trio

from sim.world.calls import Calls
from sim.world.history import Append
from sim.world.process import Process

_KEYS_COUNT = 8
_GOING_BACK_SHARE = 0.05


@attrs.define
class Numbering:
    """The numbers of one named writer; they outlive its processes."""

    seq_next: int = 0
    unanswered: dict[int, Append] = attrs.field(factory=dict)
    """By number: records that were sent and not acknowledged so far."""
    answered_last: Append | None = None


@attrs.define(eq=False)
class NewRecords:
    """The records of all writers of a world."""

    calls: Calls
    _numberings: dict[str, Numbering] = attrs.field(factory=dict, init=False)
    """By host of a writer, if writers number their records."""
    _transaction_next: int = attrs.field(default=1, init=False)
    _sequence_next: int = attrs.field(default=0, init=False)
    """Above every sequence acknowledged in the first partition."""

    @property
    def are_numbered(self) -> bool:
        """Whether writers have names; a writer that waits for no answer resends nothing."""
        return self.calls.knobs.are_writers_named and self.calls.stream.answers != "none"

    def numbering(self, host: str) -> Numbering | None:
        """The numbers of a writer, if it has a name."""
        return self._numberings.setdefault(host, Numbering()) if self.are_numbered else None

    def next_appends(
        self, process: Process, count: int, partitions_known: tuple[int, int]
    ) -> Iterator[Append]:
        """Unanswered records first, in order, and then new ones."""
        numbering = self.numbering(process.host)
        waiting = sorted(numbering.unanswered)[:count] if numbering else []
        for seq in waiting:
            assert numbering is not None
            append = numbering.unanswered[seq]
            self.calls.begin(process, f"append again {seq}")
            self.calls.history.on_sent_again(append)
            append.partitions_known = append.partitions_known[0], partitions_known[1]
            yield append
        is_alone = count - len(waiting) == 1
        for _ in range(count - len(waiting)):
            yield self._next_append(process, numbering, partitions_known, is_alone=is_alone)

    def _next_append(
        self,
        process: Process,
        numbering: Numbering | None,
        partitions_known: tuple[int, int],
        *,
        is_alone: bool,
    ) -> Append:
        calls = self.calls
        at = calls.begin(process, "append")
        filling = calls.rng.randbytes(calls.rng.randrange(calls.knobs.value_bytes_max))
        append = Append(
            value=f"{process.key}#{calls.count}".encode() + b"|" + filling,
            writer=process.key,
            sent_at=at,
            sent_s=trio.current_time(),
            partitions_known=partitions_known,
        )
        if not calls.stream.is_plain:
            self._dress(append, is_alone=is_alone)
        share = calls.knobs.headers_share
        if share and calls.rng.random() < share:
            append.headers = ("filled", b"%d" % len(filling)), ("host", process.host.encode())
        local_share = calls.knobs.local_only_share
        if local_share and calls.rng.random() < local_share:
            append.is_local_only = True
            calls.history.happened.add("appended-local-only")
        if numbering is not None:
            append.seq = numbering.seq_next
            numbering.seq_next += 1
            numbering.unanswered[append.seq] = append
        return calls.history.on_sent(append)

    def _dress(self, append: Append, *, is_alone: bool) -> None:
        """Give a record what its stream needs: key, transaction id, expected sequence."""
        rng, stream = self.calls.rng, self.calls.stream
        if rng.random() < stream.keyed_share:
            append.key = b"key-%d" % rng.randrange(_KEYS_COUNT)
        if stream.has_transactions:
            is_back = rng.random() < _GOING_BACK_SHARE
            append.transaction_id = self._transaction_next // 2 if is_back else self._next_id()
        if is_alone and self._may_expect and rng.random() < stream.expecting_share:
            append.expected = self._sequence_next

    def _next_id(self) -> int:
        self._transaction_next += 1
        return self._transaction_next

    @property
    def _may_expect(self) -> bool:
        stream = self.calls.stream
        is_one = stream.partitions == 1 and not stream.partitions_added
        return is_one and stream.answers == "durable" and not self.are_numbered

    def on_answered(self, append: Append, host: str) -> None:
        """An append was acknowledged."""
        assert append.sequence is not None
        if append.partition == 0:
            self._sequence_next = max(self._sequence_next, append.sequence + 1)
        numbering = self.numbering(host)
        if append.seq is not None and numbering is not None:
            numbering.unanswered.pop(append.seq, None)
            numbering.answered_last = append

    def give_up(self, append: Append, host: str) -> None:
        """An append was refused, and would be refused again."""
        numbering = self.numbering(host)
        if append.seq is not None and numbering is not None:
            numbering.unanswered.pop(append.seq, None)
