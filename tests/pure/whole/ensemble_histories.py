"""Histories in which needed members are killed and replaced all the time.

Like `histories`, but all copies or all but one are needed, there are spare nodes, metadata is
cut off at any moment (also in the middle of changes), and rivals recover the writer's open
ledger. To run many by hand:

    python -m tests.pure.whole.ensemble_histories 0 500
"""

import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio
from trio.testing import MockClock

import geolog
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import LedgerId
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.histories import STREAM, Hazards, History, Told, latency_of

REGIONS = {"us-east": 3, "eu-west": 3, "ap-northeast": 2}


@attrs.frozen
class Quorums:
    """The quorum sizes of a stream, by the names of `create_stream`."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int


WORLDS = (Quorums(3, 3, 3, 2), Quorums(3, 3, 2, 2), Quorums(4, 3, 3, 2), Quorums(5, 4, 3, 2))


class EnsembleHistory(History):
    """A run with more members to replace. `run_history` makes it."""

    def __init__(self, cluster: InProcessCluster, hazards: Hazards, rng: Random) -> None:
        super().__init__(cluster, hazards, rng)
        self.sessions: list[MemoryMetadata] = []
        self.down: set[str] = set()

    async def kill_and_start(self) -> None:
        """Kill and start random nodes, again and again."""
        rng, nodes = self.rng, self.cluster.nodes
        while not self.quiet.is_set():
            await trio.sleep(rng.random())
            up = [name for name in sorted(nodes) if name not in self.down]
            name = rng.choice(up)
            self.down.add(name)
            await self.cluster.kill(name, power_loss=rng.random() < 0.5)
            await trio.sleep(rng.choice((0, 1, 15)) * rng.random())
            await self.cluster.start(name)
            self.down.discard(name)

    def _trouble(self, session: MemoryMetadata) -> None:
        """Do nothing: metadata is cut off at any time here, not just between appends."""

    async def cut_metadata(self) -> None:
        """Cut the metadata sessions of writers, each for a while."""
        while not self.quiet.is_set():
            await trio.sleep(self.rng.random() * 2)
            if not self.sessions:
                continue
            session = self.rng.choice(self.sessions)
            match self.rng.randrange(4):
                case 0:
                    session.cut_off(noticed_after_s=self.rng.choice((0.0, 1.0)))
                case 1:
                    session.lose_next_answer()
                case _:
                    session.restore()
        for session in self.sessions:
            session.restore()

    async def recover_as_rival(self) -> None:
        """Take the stream over briefly from time to time, as a reader or a person might."""
        while not self.quiet.is_set():
            await trio.sleep(4 + self.rng.random() * 8)
            with trio.move_on_after(self.rng.random() * 3):
                try:
                    async with self.open_writer_as("rival"):
                        await trio.sleep(self.rng.random())
                except geolog.GeologError:
                    continue

    @asynccontextmanager
    async def open_writer_as(self, host: str) -> AsyncIterator[geolog.Writer]:
        """A writer in its own process."""
        async with (
            self.cluster.open_client("ap-northeast", host=host) as log,
            log.open_writer(STREAM) as writer,
        ):
            yield writer

    async def _append_share(
        self, writer: geolog.Writer, name: str, session: MemoryMetadata
    ) -> None:
        if session not in self.sessions:
            self.sessions.append(session)
        for share in range(self.rng.randrange(3, 10)):
            await super()._append_share(writer, f"{name} {share}", session)


async def fragments_of(cluster: InProcessCluster, log: geolog.Log) -> list[int]:
    """How many fragments the stream's ledgers have."""
    async with cluster.store.open_session() as session:
        ledgers = LedgerMetadata(session, ClusterPaths("default"))
        return [
            len((await ledgers.read(LedgerId(segment.ledger))).record.fragments)
            for segment in await log.list_segments(STREAM)
        ]


async def run_history(seed: int) -> tuple[Told, Counter[str]]:
    """Run the history of a seed. AssertionError if it breaks a law."""
    rng = Random(seed)
    hazards = Hazards.drawn(rng)
    quorums = rng.choice(WORLDS)
    is_contended = rng.random() < 0.3
    async with open_in_process_cluster(REGIONS, seed=seed) as cluster:
        cluster.network.latency_s = latency_of(hazards, rng)
        cluster.store.round_trip_s = lambda: rng.random() * 0.1
        async with cluster.open_client("us-east") as log:
            await log.create_stream(
                STREAM, segment_bytes=hazards.segment_bytes, **attrs.asdict(quorums)
            )
        history = EnsembleHistory(cluster, hazards, rng)
        async with trio.open_nursery() as breakers:
            for _ in range(3):
                breakers.start_soon(history.kill_and_start)
            breakers.start_soon(history.cut_metadata)
            if is_contended:
                breakers.start_soon(history.recover_as_rival)
            if hazards.are_links_cut:
                breakers.start_soon(history.cut_and_mend)
            breakers.start_soon(history.read_for_a_while, "reader", "ap-northeast")
            async with trio.open_nursery() as appenders:
                appenders.start_soon(history.append_for_a_while, "one", "us-east")
                if is_contended:
                    appenders.start_soon(history.append_for_a_while, "two", "eu-west")
            history.quiet.set()
        await history.heal()
        cluster.store.round_trip_s = lambda: 0.0
        async with cluster.open_client("ap-northeast", host="last") as log:
            async with log.open_reader(STREAM) as reader:
                records = [record async for record in reader]
            report = await log.verify_stream(STREAM)
            fragments = await fragments_of(cluster, log)
    history.check(records, report)
    return history.told, Counter(
        {
            "ledgers": len(fragments),
            "changes": sum(fragments) - len(fragments),
            "answered": len(history.told.acknowledged),
            "reads": history.told.reads_count,
        }
    )


def main(first: int, end: int) -> None:
    """Run the histories of these seeds; report which ones broke a law, and how."""
    broken_count = 0
    total: Counter[str] = Counter()
    for seed in range(first, end):
        try:
            _, counted = trio.run(run_history, seed, clock=MockClock(autojump_threshold=0))
        except BaseException as broken:
            if isinstance(broken, KeyboardInterrupt):
                raise
            broken_count += 1
            sys.stdout.write(f"seed {seed}:\n")
            traceback.print_exception(broken, file=sys.stdout)
            sys.stdout.flush()
        else:
            total += counted
    counts = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    sys.stdout.write(f"{end - first} seeds, {broken_count} broken; {counts}\n")
    sys.exit(1 if broken_count else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
