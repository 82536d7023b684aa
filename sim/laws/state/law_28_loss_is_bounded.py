"""Law 28: losing the home of a bounded stream costs no more than its bound.

At each moment the acknowledged records that no ack set of a mirror has are within the bound, at
all mirrors or at one of them, as the stream says. The batches of their entries are counted, as
the owner counts them; of an entry that no node was heard to store, the random parts of values.
"""

from collections.abc import Iterator

import attrs
import trio

from geolog.protocol.ids import SegmentEntry
from geolog.protocol.loss_bound import LossTerms
from sim.laws.state.law_18_mirrors_are_prefixes import Place, mirror_has
from sim.laws.state.seen import Look, MirrorKey, partition_of
from sim.laws.state.wire import EntryStored
from sim.world.history import Append

_SETTLED_S = 10.0
"""An owner without metadata learns of a bound late; faults last for a few seconds."""


@attrs.frozen
class _Acknowledged:
    append: Append
    seen_s: float
    """When it was first seen acknowledged."""

    @property
    def size_bytes(self) -> int:
        return len(self.append.value.partition(b"|")[2])


@attrs.define
class LossIsBounded:
    """Keeps, for each mirror, the acknowledged records that it lacks, by sequence."""

    _batches_bytes: dict[Place, int] = attrs.field(factory=dict)
    """Of the entries of the home."""
    _lacking: dict[MirrorKey, dict[int, _Acknowledged]] = attrs.field(factory=dict)
    _terms: LossTerms | None = None
    _since_s: float | None = None
    """When these terms were first seen; None before the stream was."""
    _judged_from_s: float = 0.0
    """A bound in seconds is for what was acknowledged since then."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Drop what mirrors have by now, and judge the rest."""
        terms = None if now.stream is None else now.stream.loss_terms
        now_s = trio.current_time()
        if now.stream is None:
            return
        if terms != self._terms or self._since_s is None:
            if self._since_s is not None:  # Appends that are under way met the old terms.
                self._judged_from_s = now_s + _SETTLED_S
            self._terms, self._since_s = terms, now_s
        if not now.world.options.relay_to:
            return
        if terms is not None and terms.max_bytes is not None:
            self._note_sizes(now)
        for mirror in now.made_again:
            self._lacking.pop(mirror, None)
        for append in now.told:
            assert append.sequence is not None
            for region in now.stream.relay_to:
                lacking = self._lacking.setdefault((region, append.partition), {})
                lacking.setdefault(append.sequence, _Acknowledged(append, now_s))
        for mirror in self._lacking:
            self._drop(now, mirror)
        if terms is None or (terms.max_s is None and now_s < self._since_s + _SETTLED_S):
            return
        for partition in now.lists:
            lost = {one: self._lost(terms, (one, partition)) for one in terms.targets}
            region = (min if terms.is_any else max)(lost, key=lambda one: lost[one])
            allowed = terms.max_s if terms.max_bytes is None else terms.max_bytes
            assert allowed is not None
            if lost[region] > allowed:
                unit = "s" if terms.max_bytes is None else "bytes"
                yield (
                    f"losing the home would cost {lost[region]:g} {unit} of partition"
                    f" {partition}, which {region} lacks, and the bound is {allowed:g}"
                )

    def _note_sizes(self, now: Look) -> None:
        for fact in now.said:
            if isinstance(fact, EntryStored):
                record = now.ledgers.get(fact.ledger)
                if record is not None and record.segment and now.is_of_home(record):
                    entry = record.numbering.in_segment(fact.entry)
                    place = partition_of(record), record.segment, entry
                    self._batches_bytes.setdefault(place, fact.batches_bytes)

    def _drop(self, now: Look, mirror: MirrorKey) -> None:
        """Forget what the mirror has, or need not have: a mirror is a prefix."""
        lacking = self._lacking[mirror]
        trim = now.log_trims.get(mirror)
        begin = 0 if trim is None else trim.first_sequence
        for sequence in sorted(lacking):
            append = lacking[sequence].append
            assert append.dlsn is not None
            segment, entry = append.dlsn.segment, SegmentEntry(append.dlsn.entry)
            is_gone = sequence < begin or now.is_trimmed(append)
            if not (is_gone or mirror_has(now, mirror, segment, entry)):
                return
            del lacking[sequence]

    def _lost(self, terms: LossTerms, mirror: MirrorKey) -> float:
        """Bytes that the mirror lacks, or the seconds between the first and the last of them.

        An append was taken in between its sending and its answer. One that was sent again may
        have been taken in before.
        """
        lacking = list(self._lacking.get(mirror, {}).values())
        if terms.max_bytes is not None:
            return self._bytes_of(lacking)
        sent_s = [
            one.append.sent_s
            for one in lacking
            if one.seen_s >= self._judged_from_s
            and not (one.append.is_sent_again or one.append.is_repeated)
        ]
        if not sent_s:
            return 0.0
        return max(sent_s) - min(
            one.seen_s for one in lacking if one.seen_s >= self._judged_from_s
        )

    def _bytes_of(self, lacking: list[_Acknowledged]) -> int:
        """Bytes of the entries in which these are."""
        guessed: dict[Place, int] = {}
        for one in lacking:
            dlsn = one.append.dlsn
            assert dlsn is not None
            place = one.append.partition, dlsn.segment, SegmentEntry(dlsn.entry)
            guessed[place] = guessed.get(place, 0) + one.size_bytes
        return sum(
            self._batches_bytes.get(place, size_bytes) for place, size_bytes in guessed.items()
        )
