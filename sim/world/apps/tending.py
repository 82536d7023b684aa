"""Operators of the stream: they truncate it, add partitions, seal it."""

import attrs
import trio

import geolog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.reading.bounds import Bound
from geolog.protocol.stream_state import StreamName, StreamRecord
from sim.world.calls import STREAM, Calls
from sim.world.history import Found, Truncation
from sim.world.options import Options
from sim.world.placement_knobs import StreamTerms, terms_of
from sim.world.process import Process
from sim.world.world import ClientMain

_RETRY_S = 0.25
_RECORDS_LEFT_MAX = 30
_ALL_BUT_LAST_SHARE = 0.2


@attrs.define(eq=False)
class Tending:
    """The main functions of stream operators."""

    calls: Calls

    # Creation.

    def found(self, options: Options) -> ClientMain:
        """A client `main` that creates the stream; it retries until it succeeds."""
        history, partitions = self.calls.history, self.calls.stream.partitions
        history.partitions = partitions, partitions
        nodes_count = sum(count for _, count in options.shape.nodes_by_region)

        async def main(process: Process, log: geolog.Log) -> None:
            while True:
                try:
                    placement = options.placement
                    needs_all = placement.survive is not None or placement.is_regional
                    if not needs_all or await _are_up(log, nodes_count):
                        await self._create(log, options)
                        return
                except geolog.GeologError as error:
                    self.calls.failed(process, f"create-stream {error!r}")
                    if not error.retriable:
                        raise
                await trio.sleep(_RETRY_S)

        return main

    async def _create(self, log: geolog.Log, options: Options) -> None:
        stream, placement = self.calls.stream, options.placement
        terms = terms_of(options.shape.quorum, placement)
        if placement.survive is not None:
            terms = StreamTerms(survive=placement.survive)
        if self.calls.knobs.rpo_max_bytes is None or not await self._is_there(log):
            await log.create_stream(
                STREAM,
                **terms,
                relay_to=list(options.relay_to),
                relay_evict_bytes=self.calls.knobs.relay_evict_bytes,
                on_isolation="stop" if self.calls.knobs.stops_when_isolated else "continue",
                rpo_max_s=self.calls.knobs.rpo_max_s,
                rpo_targets=self._rpo_targets() if self.calls.knobs.rpo_max_s else "all",
                partitions=stream.partitions,
                segment_bytes=self.calls.knobs.segment_bytes,
                segment_age_s=stream.segment_age_s,
                retention_s=stream.retention_s,
                retention_bytes=stream.retention_bytes,
                writer_retention_s=stream.writer_retention_s,
                if_not_exists=True,
            )
        if self.calls.knobs.rpo_max_bytes is not None:
            catalog = StreamCatalog(log.access.metadata, log.access.paths)
            await catalog.change(StreamName.parse(STREAM), self._bounded)

    async def _is_there(self, log: geolog.Log) -> bool:
        """Whether an earlier try has made the stream: it may have its bound by now."""
        try:
            await log.describe_stream(STREAM)
        except geolog.NoSuchStreamError:
            return False
        return True

    def _bounded(self, record: StreamRecord) -> StreamRecord:
        """The record with a bound in bytes; one that fits a world is too small for a caller."""
        return attrs.evolve(
            record,
            rpo_max_bytes=self.calls.knobs.rpo_max_bytes,
            rpo_targets=(self._rpo_targets(),),
        )

    def _rpo_targets(self) -> str:
        return "any" if self.calls.knobs.is_rpo_of_any else "all"

    # Truncation.

    async def truncate_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Cut off the front of a partition, rest; repeat."""
        rest_s_max = self.calls.stream.truncation_rest_s_max
        assert rest_s_max is not None
        while not self.calls.quiet.is_set():
            await self.calls.rest(rest_s_max)
            found = self._found_to_cut()
            if found is not None:
                await self._truncate(process, log, found)

    def _found_to_cut(self) -> Found | None:
        """A known record in the log that may be cut off with everything before it."""
        shown = self.calls.history.shown.values()
        there = [
            one
            for one in shown
            if one.sequence >= self.calls.trim_of(one.partition)
            and not self.calls.history.is_left_behind(one.partition, one.dlsn)
        ]
        return self.calls.rng.choice(there) if there else None

    async def _truncate(self, process: Process, log: geolog.Log, found: Found) -> None:
        before, truncation = self._demand(found)
        self.calls.begin(process, f"truncate {found.partition} {before}")
        self.calls.history.truncations.append(truncation)
        try:
            firsts = await log.truncate_stream(f"{STREAM}#{found.partition}", before=before)
        except geolog.GeologError as error:
            self._on_failed(process, "truncate", error)
        else:
            self.calls.done(process, f"truncate {firsts}")
            if self.calls.is_heard(process):
                truncation.answered = firsts[found.partition]
                self.calls.history.happened.add("truncated")

    def _demand(self, found: Found) -> tuple[Bound, Truncation]:
        """A truncation point, in one of many forms, and the most it may cut off."""
        rng, partition = self.calls.rng, found.partition
        if rng.random() < _ALL_BUT_LAST_SHARE:
            left = rng.randrange(_RECORDS_LEFT_MAX)
            return geolog.LastRecords(left), Truncation(
                partition=partition, limit=None, records_left=left
            )
        ways: list[Bound] = [
            geolog.AtSequence(found.sequence),
            geolog.AtDlsn(found.dlsn),
            geolog.AtTime(found.timestamp_us),
        ]
        if found.transaction_id is not None:
            ways.append(geolog.AtTransaction(found.transaction_id))
        before = rng.choice(ways)
        # The home keeps what a mirror may lack, so its truncations may fall short.
        is_exact = isinstance(before, geolog.AtSequence | geolog.AtDlsn) and not (
            self.calls.relay_regions
        )
        return before, Truncation(
            partition=partition,
            limit=found.sequence,
            reaches=found.sequence if is_exact else 0,
        )

    # Growth.

    async def add_partitions(self, process: Process, log: geolog.Log) -> None:
        """Add a partition, rest; until the stream has all that it shall get."""
        stream, history = self.calls.stream, self.calls.history
        wanted = stream.partitions + stream.partitions_added
        while history.partitions[0] < wanted and not self.calls.quiet.is_set():
            await self.calls.rest(stream.growth_rest_s_max)
            count = history.partitions[0] + 1
            history.partitions = history.partitions[0], max(history.partitions[1], count)
            self.calls.begin(process, f"add-partition {count}")
            try:
                await log.update_stream(STREAM, partitions=count)
            except geolog.SealedError as error:
                self._on_failed(process, "add-partition", error)
                return
            except geolog.GeologError as error:
                self._on_failed(process, "add-partition", error)
                await trio.sleep(_RETRY_S)
            else:
                self._on_grown(process, count)

    def _on_grown(self, process: Process, count: int) -> None:
        self.calls.done(process, f"add-partition {count}")
        if self.calls.is_heard(process):
            history = self.calls.history
            history.partitions = max(history.partitions[0], count), history.partitions[1]
            history.happened.add("partitions-added")

    # The seal.

    async def seal(self, process: Process, log: geolog.Log) -> None:
        """Seal the stream at some time; retry until it succeeds."""
        after_s_max = self.calls.stream.seal_after_s_max
        assert after_s_max is not None
        await self.calls.rest(after_s_max)
        history = self.calls.history
        while history.sealed_at is None:
            self.calls.begin(process, "seal")
            history.is_seal_asked = True
            try:
                await log.seal_stream(STREAM)
            except geolog.SealedError:
                self._on_sealed(process)  # By a call whose answer was lost.
            except geolog.GeologError as error:
                self._on_failed(process, "seal", error)
                await trio.sleep(_RETRY_S)
            else:
                self._on_sealed(process)

    def _on_sealed(self, process: Process) -> None:
        self.calls.done(process, "seal")
        if self.calls.is_heard(process):
            history = self.calls.history
            history.sealed_at = self.calls.trace.events_count
            history.happened.add("sealed")

    def _on_failed(self, process: Process, what: str, error: geolog.GeologError) -> None:
        self.calls.failed(process, f"{what} {error!r}")
        is_sealed = isinstance(error, geolog.SealedError) and self.calls.history.is_seal_asked
        # The part to be cut off may have been left behind meanwhile.
        may_be_gone = isinstance(error, geolog.InvalidArgumentError) and (
            self.calls.knobs.failovers_rest_s_max is not None
        )
        is_foreseen = error.retriable or is_sealed or may_be_gone
        if not is_foreseen and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(f"{what} failed: {error!r}")


async def _are_up(log: geolog.Log, count: int) -> bool:
    """Whether this many nodes can be chosen for placement: a survival promise counts them."""
    return sum(node.state == "writable" for node in await log.list_nodes()) >= count
