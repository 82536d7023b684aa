"""One seed, one history: a cluster under faults, its users, and the answers they got.

A history draws its hazards from its seed and runs writers and readers under them. Then it lets
the cluster heal, reads everything again, and checks all answers against the laws. To run many
by hand:

    python -m tests.pure.whole.histories 0 2000
"""

import random
import sys
import traceback

import attrs
import trio
from trio.testing import MockClock

import geolog
from geolog.admin.verification import VerifyReport
from sim.fakes.memory_metadata import MemoryMetadata
from sim.fakes.memory_transport import Latency
from sim.in_process import InProcessCluster, open_in_process_cluster

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
STREAM = "shop/orders"
TURNS = 4
PATIENCE_S = 60.0


@attrs.frozen
class Hazards:
    """The hazards of one history."""

    latency_s_max: float
    """Latency between hosts of different regions, drawn once per pair."""
    are_links_cut: bool
    """Whether links between two hosts are cut for a while."""
    are_all_killed: bool
    """Whether all nodes may lose power at once."""
    are_answers_lost: bool
    """Whether answers of the metadata store are lost, and reads of it lag."""
    are_sessions_expired: bool
    """Whether the metadata store ends sessions of living clients."""
    segment_bytes: int
    pipelined_max: int
    """How many appends a writer sends before waiting for their answers."""

    @classmethod
    def drawn(cls, rng: random.Random) -> "Hazards":
        """Draw hazards; some histories have few, so that each can be seen alone."""
        return cls(
            latency_s_max=rng.choice((0.0, 0.0, 0.05, 0.2)),
            are_links_cut=rng.random() < 0.5,
            are_all_killed=rng.random() < 0.3,
            are_answers_lost=rng.random() < 0.5,
            are_sessions_expired=rng.random() < 0.3,
            segment_bytes=rng.choice((64 * 1024, 64 * 1024, 1024 * 1024)),
            pipelined_max=rng.choice((1, 1, 4, 40)),
        )


@attrs.define
class Told:
    """The answers that writers and readers got."""

    acknowledged: dict[int, bytes] = attrs.field(factory=dict)
    refused: set[bytes] = attrs.field(factory=set)
    shown: dict[int, bytes] = attrs.field(factory=dict)
    answered_last: int = -1
    """Highest sequence answered so far."""
    reads_count: int = 0
    reads_failed: list[geolog.GeologError] = attrs.field(factory=list)

    def on_answered(self, receipt: geolog.Receipt, value: bytes, answered_before: int) -> None:
        """Record an answered append; `answered_before`: `answered_last` when it was sent."""
        assert receipt.sequence not in self.acknowledged, "one position for two records"
        # Law 13: real time orders positions.
        assert receipt.sequence > answered_before, "a later append got an earlier position"
        self.acknowledged[receipt.sequence] = value
        self.answered_last = max(self.answered_last, receipt.sequence)

    def on_failed(self, value: bytes, error: geolog.GeologError) -> None:
        """Record an append that failed."""
        if error.outcome == "refused":
            self.refused.add(value)

    def on_shown(self, record: geolog.Record) -> None:
        """Record a record that a reader got."""
        before = self.shown.setdefault(record.sequence, record.value)
        assert before == record.value, f"sequence {record.sequence} was shown with other bytes"


class History:
    """A run of a history. `run_history` makes it."""

    def __init__(self, cluster: InProcessCluster, hazards: Hazards, rng: random.Random) -> None:
        self.cluster = cluster
        self.hazards = hazards
        self.rng = rng
        self.told = Told()
        self.quiet = trio.Event()
        self.hosts = sorted(cluster.nodes)
        """The hosts between which links may be cut."""

    # Writers.

    async def append_for_a_while(self, name: str, region: str) -> None:
        """Open one writer after another, each until it fails or has done its share."""
        sessions: list[MemoryMetadata] = []
        self.hosts.append(name)
        async with self.cluster.open_client(
            region, host=name, on_session=sessions.append
        ) as log:
            for turn in range(TURNS):
                try:
                    with trio.fail_after(PATIENCE_S):
                        async with log.open_writer(STREAM) as writer:
                            await self._append_share(writer, f"{name} {turn}", sessions[0])
                except (geolog.GeologError, trio.TooSlowError):
                    sessions[0].restore()
                    sessions[0].catch_up()
                    await trio.sleep(self.rng.random())

    async def _append_share(
        self, writer: geolog.Writer, name: str, session: MemoryMetadata
    ) -> None:
        left_count = self.rng.randrange(5, 40)
        number = 0
        while left_count:
            count = min(left_count, self.rng.randint(1, self.hazards.pipelined_max))
            await self._append_run(
                writer, [f"{name} {number + one}".encode() for one in range(count)]
            )
            number += count
            left_count -= count
            await trio.sleep(self.rng.random() * 0.2)
            self._trouble(session)

    async def _append_run(self, writer: geolog.Writer, names: list[bytes]) -> None:
        """Append some records together, then wait for all of them, even if the first fails."""
        told, answered_before = self.told, self.told.answered_last
        sent: list[tuple[bytes, geolog.Pending]] = []
        failure: geolog.GeologError | None = None
        for name in names:
            value = name + self.rng.randbytes(self.rng.choice((0, 100, 20_000)))
            try:
                sent.append((value, writer.append_nowait(value)))
            except trio.WouldBlock:
                break
            except geolog.GeologError as error:
                told.on_failed(value, error)
                failure = error
                break
        for value, pending in sent:
            try:
                told.on_answered(await pending.wait(), value, answered_before)
            except geolog.GeologError as error:
                told.on_failed(value, error)
                failure = error
        if failure is not None:
            raise failure

    def _trouble(self, session: MemoryMetadata) -> None:
        """Start or end a fault of a client's session."""
        rng, hazards = self.rng, self.hazards
        if rng.random() < 0.05:
            session.cut_off(noticed_after_s=rng.choice((0.0, 1.0)))
        if rng.random() < 0.1:
            session.restore()
        if hazards.are_answers_lost and rng.random() < 0.05:
            session.lose_next_answer()
        if hazards.are_answers_lost and rng.random() < 0.05:
            session.lag()
        if hazards.are_sessions_expired and rng.random() < 0.03:
            session.expire()

    # Readers.

    async def read_for_a_while(self, name: str, region: str) -> None:
        """Read the whole stream, or follow it for a while, again and again."""
        self.hosts.append(name)
        async with self.cluster.open_client(region, host=name) as log:
            while not self.quiet.is_set():
                try:
                    if self.rng.random() < 0.5:
                        await self._read_all(log)
                    else:
                        await self._follow(log)
                except geolog.GeologError as error:
                    self.told.reads_failed.append(error)
                await trio.sleep(self.rng.random())

    async def _read_all(self, log: geolog.Log) -> None:
        """Check that a bounded read has, without gap, all records answered before it."""
        due = set(self.told.acknowledged)
        async with log.open_reader(STREAM) as reader:
            sequences = [self._shown(record) async for record in reader]
        assert sequences == list(range(len(sequences))), "a read has gaps"
        assert due <= set(sequences), "a read ends before what was answered"
        self.told.reads_count += 1

    async def _follow(self, log: geolog.Log) -> None:
        start = self.rng.choice((geolog.EARLIEST, geolog.LATEST, geolog.LastRecords(3)))
        expected: int | None = None
        with trio.move_on_after(self.rng.random() * 4):
            async with log.open_reader(STREAM, start=start, follow=True) as reader:
                async for record in reader:
                    assert expected in (None, self._shown(record)), "a follower missed one"
                    expected = record.sequence + 1
        self.told.reads_count += 1

    def _shown(self, record: geolog.Record) -> int:
        self.told.on_shown(record)
        return record.sequence

    # Faults.

    async def kill_and_start(self) -> None:
        """Kill and start random nodes, seldom more than one region's worth at a time."""
        rng, nodes = self.rng, self.cluster.nodes
        while not self.quiet.is_set():
            await trio.sleep(rng.random() * 2)
            down = [node for node in nodes.values() if not node.is_running]
            if self.hazards.are_all_killed and rng.random() < 0.03:
                await self._kill_all()
                continue
            if down and (len(down) > 1 or rng.random() < 0.6):
                await self.cluster.start(rng.choice(down).node_id)
                continue
            region = down[0].region if down else rng.choice(sorted(REGIONS))
            up = [node for node in self.cluster.nodes_of(region) if node.is_running]
            if up:
                await self.cluster.kill(rng.choice(up).node_id, power_loss=rng.random() < 0.5)

    async def _kill_all(self) -> None:
        for node in self.cluster.nodes.values():
            if node.is_running:
                await self.cluster.kill(node.node_id, power_loss=True)
        await trio.sleep(self.rng.random() * 8)

    async def cut_and_mend(self) -> None:
        """Cut links between two hosts, each for a while."""
        network, rng = self.cluster.network, self.rng
        cut: list[tuple[str, str]] = []
        while not self.quiet.is_set():
            await trio.sleep(rng.random() * 2)
            if cut and rng.random() < 0.5:
                network.mend(*cut.pop(rng.randrange(len(cut))))
            elif len(cut) < 3:
                one, other = rng.sample(self.hosts, 2)
                network.cut(one, other)
                cut.append((one, other))
        for one, other in cut:
            network.mend(one, other)

    async def heal(self) -> None:
        """Start all nodes and restore all links."""
        for node in self.cluster.nodes.values():
            if not node.is_running:
                await self.cluster.start(node.node_id)

    # Checks.

    def check(self, records: list[geolog.Record], report: VerifyReport) -> None:
        """Check all answers, and the final stream, against the laws."""
        told = self.told
        values = {record.sequence: record.value for record in records}
        assert [record.sequence for record in records] == list(range(len(records))), "law 14"
        kept = {one: values.get(one) for one in told.acknowledged}
        assert kept == told.acknowledged, "law 1: an answered record is gone, or another's"
        shown = {one: values.get(one) for one in told.shown}
        assert shown == told.shown, "law 11: a record that was shown is gone, or another's"
        assert not told.refused & set(values.values()), "law 17: a refused append is there"
        assert len(set(values.values())) == len(values), "an append is in the log twice"
        dlsns = [record.dlsn for record in records]
        assert dlsns == sorted(set(dlsns)), "DLSNs do not rise"
        times = [record.timestamp_us for record in records]
        assert times == sorted(times), "append times fall"
        # No disk is damaged here, so nothing can be damaged or lost.
        harsh = [repr(error) for error in told.reads_failed if not error.retriable]
        assert not harsh, "a read failed for good"
        assert report.is_good, report.problems


async def run_history(seed: int) -> Told:
    """Run the history of a seed. AssertionError if it breaks a law."""
    rng = random.Random(seed)
    hazards = Hazards.drawn(rng)
    async with open_in_process_cluster(
        REGIONS, seed=seed, directories_per_node=1 + seed % 3
    ) as cluster:
        cluster.network.latency_s = latency_of(hazards, rng)
        async with cluster.open_client("us-east") as log:
            await log.create_stream(
                STREAM, survive="1 region", segment_bytes=hazards.segment_bytes
            )
        history = History(cluster, hazards, rng)
        async with trio.open_nursery() as breakers:
            breakers.start_soon(history.kill_and_start)
            if hazards.are_links_cut:
                breakers.start_soon(history.cut_and_mend)
            breakers.start_soon(history.read_for_a_while, "reader", "ap-northeast")
            async with trio.open_nursery() as appenders:
                appenders.start_soon(history.append_for_a_while, "one", "us-east")
                appenders.start_soon(history.append_for_a_while, "two", "eu-west")
            history.quiet.set()
        await history.heal()
        async with cluster.open_client("ap-northeast", host="last") as log:
            async with log.open_reader(STREAM) as reader:
                records = [record async for record in reader]
            report = await log.verify_stream(STREAM)
    history.check(records, report)
    return history.told


def latency_of(hazards: Hazards, rng: random.Random) -> Latency:
    """A latency per pair of hosts, drawn on first use."""
    drawn: dict[tuple[str, str], float] = {}

    def latency_s(one: str, other: str) -> float:
        pair = (min(one, other), max(one, other))
        if pair not in drawn:
            drawn[pair] = rng.random() * hazards.latency_s_max
        return drawn[pair]

    return latency_s


def main(first: int, end: int) -> None:
    """Run the histories of these seeds; report which ones broke a law, and how."""
    broken_count = reads_count = acknowledged_count = 0
    for seed in range(first, end):
        try:
            told = trio.run(run_history, seed, clock=MockClock(autojump_threshold=0))
        except BaseException as broken:
            if isinstance(broken, KeyboardInterrupt):
                raise
            broken_count += 1
            sys.stdout.write(f"seed {seed}:\n")
            traceback.print_exception(broken, file=sys.stdout)
            sys.stdout.flush()
        else:
            reads_count += told.reads_count
            acknowledged_count += len(told.acknowledged)
    sys.stdout.write(
        f"{end - first} seeds, {broken_count} broken; {acknowledged_count} records answered,"
        f" {reads_count} reads\n"
    )
    sys.exit(1 if broken_count else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
