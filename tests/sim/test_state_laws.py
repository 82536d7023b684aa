"""Each state law, with a world that breaks it and one that does not."""

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

import geolog
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import DLSN, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.replica import NOTHING_HELD, LedgerReplica
from sim.fakes.memory_metadata import MemoryMetadata
from sim.laws.state.all_laws import StateLaws
from sim.laws.state.seen import Look, Looking
from sim.planted.bugs import planted
from sim.world.history import Append, History
from sim.world.process import Process
from sim.world.seams import CLUSTER
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world


@attrs.define
class Stage:
    """A calm world with a few records, and the laws that check it."""

    world: World
    history: History
    looking: Looking
    broken: list[str] = attrs.field(factory=list)
    laws: StateLaws = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.laws = StateLaws(
            Looking(self.world, self.history), lambda law, _message: self.broken.append(law)
        )

    @property
    def record(self) -> LedgerRecord:
        """The ledger that holds the records."""
        [record] = [one for one in self.now.ledgers.values() if one.stream and one.segment == 1]
        return record

    @property
    def now(self) -> Look:
        return self.looking.look()

    @property
    def replicas(self) -> list[LedgerReplica]:
        """Each node's replica of the ledger."""
        return [
            replica
            for stores in self.now.stores.values()
            for store in stores
            for replica in store.ledgers
            if replica.ledger == self.record.ledger
        ]

    def write_record(self, **changes: object) -> None:
        """Overwrite the ledger's record in metadata."""
        tree = self.world.store.tree
        path = ClusterPaths(CLUSTER).ledger(self.record.ledger)
        changed = attrs.evolve(self.record, **changes)  # type: ignore[arg-type]
        node = attrs.evolve(tree.nodes[path], data=seal_document(changed))
        self.world.store.tree = attrs.evolve(tree, nodes={**tree.nodes, path: node})


async def _nothing(_stage: Stage) -> None:
    await trio.sleep(1.0)


async def _copies_vanish(stage: Stage) -> None:
    for stores in list(stage.now.stores.values())[:2]:
        vars(stores[0].entries)["held"] = lambda _ledger, _entry: NOTHING_HELD


async def _open_again(stage: Stage) -> None:
    stage.write_record(state=LedgerState.CLOSED, last_entry=EntryId(2))
    stage.laws.look()
    stage.write_record(state=LedgerState.OPEN, last_entry=None)


async def _seal_and_leave_it_open(stage: Stage) -> None:
    async def main(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM):
            await trio.sleep_forever()

    stage.world.start_client("late", "us-east", main, is_restarted=False)
    await trio.sleep(5.0)
    stage.history.sealed_at = 9


async def _truncate_on_nobodys_word(stage: Stage) -> None:
    async def main(_process: Process, log: geolog.Log) -> None:
        await log.truncate_stream(STREAM, before=geolog.AtSequence(1))

    await do(stage.world, main, "truncater")


async def _lower_the_epoch(stage: Stage) -> None:
    stage.write_record(epoch=Epoch(7))
    stage.laws.look()
    stage.write_record(epoch=Epoch(6))


async def _close_too_low(stage: Stage) -> None:
    stage.write_record(state=LedgerState.CLOSED, last_entry=EntryId(0))


async def _forget_a_fence(stage: Stage) -> None:
    stage.replicas[0].is_fenced = True
    stage.laws.look()
    stage.replicas[0].is_fenced = False


async def _answer_as_another(stage: Stage) -> None:
    stage.laws.look()
    core = stage.world.cores["us-east-1"]
    core._cookie = attrs.evolve(core._cookie, instance=InstanceId("f" * 32))  # noqa: SLF001 - a defect.


async def _let_the_lac_fall(stage: Stage) -> None:
    stage.laws.look()
    stage.replicas[0].lac = EntryId(stage.replicas[0].lac - 1)


async def _close_unfenced(stage: Stage) -> None:
    stage.write_record(state=LedgerState.IN_RECOVERY, epoch=Epoch(9))
    stage.laws.look()
    stage.write_record(state=LedgerState.CLOSED, last_entry=EntryId(2))


async def _take_behind_a_fence(stage: Stage) -> None:
    stage.replicas[0].is_fenced = True
    stage.laws.look()
    stage.replicas[0].lac = EntryId(stage.replicas[0].lac + 1)


async def _close_a_ledger_behind_the_list(stage: Stage) -> None:
    await _take_over(stage.world)
    stage.laws.look()
    stage.write_record(last_entry=EntryId(7))


async def _forget_a_segment(stage: Stage) -> None:
    stage.laws.look()
    tree = stage.world.store.tree
    [bucket] = [path for path in tree.nodes if path.endswith("/segments/000000000000")]
    emptied = attrs.evolve(tree.nodes[bucket], children=frozenset())
    stage.world.store.tree = attrs.evolve(tree, nodes={**tree.nodes, bucket: emptied})


async def _stamp_a_record_far_ahead(stage: Stage) -> None:
    async def main(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"late")

    stage.world.seams.clock_offsets_us["late"] = 400_000_000
    with planted("append-time-unclamped"):
        await do(stage.world, main, "late")


async def _answer_for_another(stage: Stage) -> None:
    append = stage.history.on_sent(Append(value=b"stolen", writer="another", sent_at=9))
    append.answered_by = "another"
    append.sequence, append.dlsn = 3, DLSN(1, 2, 0)
    stage.history.on_answered(append, "acknowledged", 9)


async def _gather_in_one_region(stage: Stage) -> None:
    [fragment] = stage.record.fragments
    here = fragment.ensemble[0]
    ensemble = tuple(attrs.evolve(each, location=here.location) for each in fragment.ensemble)
    stage.write_record(fragments=(attrs.evolve(fragment, ensemble=ensemble),))


async def _take_too_many_reads(stage: Stage) -> None:
    core = stage.world.cores["us-east-1"]
    core._reads.taken_count = 1_000_000  # noqa: SLF001 - a defect.


async def _send_more_than_there_is_room_for(stage: Stage) -> None:
    [writer] = stage.history.writers.values()
    writer._window.in_flight_bytes = 1 << 40  # noqa: SLF001 - a defect.


async def _lose_what_was_synced(stage: Stage) -> None:
    stage.write_record(state=LedgerState.OPEN, last_entry=None)
    stage.laws.look()
    for member in stage.record.fragments[-1].ensemble[:2]:
        [bay] = stage.world.nodes[member.node_id].bays
        disk = bay.disk
        vars(disk)["is_synced"] = lambda _name, _offset, _length: False


async def _one_member_gives_up(stage: Stage) -> None:
    stage.laws.look()
    await trio.sleep(6.0)
    [store] = stage.now.stores[stage.record.fragments[0].ensemble[0].instance]
    vars(store.entries)["held"] = lambda _ledger, _entry: NOTHING_HELD


async def _name_a_member_without_copies(stage: Stage) -> None:
    [fragment] = stage.record.fragments
    here, *others = fragment.ensemble
    gone = attrs.evolve(here, instance=InstanceId("e" * 32))
    stage.write_record(fragments=(attrs.evolve(fragment, ensemble=(gone, *others)),))
    stage.laws.look()
    [store] = stage.now.stores[here.instance]
    vars(store.entries)["held"] = lambda _ledger, _entry: NOTHING_HELD
    stage.write_record(fragments=(fragment,))


async def _write_on_after_a_failure(stage: Stage) -> None:
    stage.world.nodes["us-east-1"].bays[0].failure.used_again.append("a file")


async def _make_a_ledger_up(stage: Stage) -> None:
    [store] = stage.world.cores["us-east-1"].service.stores
    made_up = LedgerReplica(LedgerId(1 << 40), stage.replicas[0].instance, Epoch(1))
    store.ledgers.keep(made_up, first_file_id=1)


async def _recover_from_a_live_owner(stage: Stage) -> None:
    await _hold(stage)
    stage.laws.look()
    await trio.sleep(20.0)
    await _look_take_and_look(stage)


async def _recover_from_an_owner_that_is_back_for_a_moment(stage: Stage) -> None:
    session = await _hold(stage)
    session.expire()
    stage.laws.look()
    await trio.sleep(3.0)
    await _look_take_and_look(stage)


async def _hold(stage: Stage) -> MemoryMetadata:
    """Let a process own the stream for the rest of the world."""

    async def main(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM):
            await trio.sleep_forever()

    process = stage.world.start_client("holds", "us-east", main, is_restarted=False)
    await trio.sleep(5.0)
    assert process.session is not None
    return process.session


async def _look_take_and_look(stage: Stage) -> None:
    stage.laws.look()
    tree = stage.world.store.tree
    open_one = max(stage.now.ledgers.values(), key=lambda one: one.segment)
    path = ClusterPaths(CLUSTER).ledger(open_one.ledger)
    data = seal_document(open_one.taken_over())
    node = attrs.evolve(tree.nodes[path], data=data)
    stage.world.store.tree = attrs.evolve(tree, nodes={**tree.nodes, path: node})


async def _take_over(world: World) -> None:
    async def main(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"next")

    await do(world, main, "next")


@pytest.mark.parametrize(
    ("spoil", "laws"),
    [
        (_nothing, []),
        (_copies_vanish, ["2"]),
        (_lose_what_was_synced, ["2", "9"]),
        (_one_member_gives_up, ["2"]),
        (_name_a_member_without_copies, ["2"]),
        (_write_on_after_a_failure, ["2"]),
        (_close_unfenced, ["3", "9"]),
        (_open_again, ["4", "9"]),
        (_lower_the_epoch, ["4"]),
        (_seal_and_leave_it_open, ["4"]),
        (_truncate_on_nobodys_word, ["1"]),
        (_close_too_low, ["5", "9"]),
        (_take_behind_a_fence, ["6"]),
        (_forget_a_fence, ["7"]),
        (_answer_as_another, ["8"]),
        (_close_a_ledger_behind_the_list, ["4", "9"]),
        (_forget_a_segment, ["9"]),
        (_stamp_a_record_far_ahead, ["9"]),
        (_answer_for_another, ["10"]),
        (_let_the_lac_fall, ["12"]),
        (_make_a_ledger_up, ["15"]),
        (_gather_in_one_region, ["2", "21"]),
        (_take_too_many_reads, ["22"]),
        (_send_more_than_there_is_room_for, ["22"]),
        (_recover_from_a_live_owner, ["26"]),
        (_recover_from_an_owner_that_is_back_for_a_moment, []),
    ],
)
def test_each_law_reports_a_world_that_breaks_it(
    spoil: Callable[[Stage], Awaitable[None]], laws: list[str]
) -> None:
    history = History()

    async def append_three(process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM) as writer:
            history.writers[process.key] = writer
            for number in range(3):
                append = history.on_sent(
                    Append(value=b"%d" % number, writer="w", sent_at=number)
                )
                receipt = await writer.append(append.value)
                append.sequence, append.dlsn = receipt.sequence, receipt.dlsn
                append.answered_by = process.key
                history.on_answered(append, "acknowledged", number)

    async def story(world: World) -> list[str]:
        await do(world, append_three)
        stage = Stage(world, history, Looking(world, history))
        await spoil(stage)
        stage.laws.look()
        return stage.broken

    assert sorted(set(in_a_calm_world(story)), key=int) == laws
