"""Processes of the world: killed ones never run again, paused ones miss events."""

import pytest
import trio

import geolog
from geolog.metadata.seam import SessionState
from sim.world.draws.base_options import BASE
from sim.world.process import Life, Process
from sim.world.trace import Trace
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world


async def live(_process: Process, _log: geolog.Log) -> None:
    await trio.sleep_forever()


class Ticking:
    """A client that counts the seconds in which it ran, including its cleanup."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, _process: Process, _log: geolog.Log) -> None:
        try:
            while True:
                await trio.sleep(1.0)
                self.count += 1
        finally:
            self.count += 100


async def append_one(_process: Process, log: geolog.Log) -> None:
    async with log.open_writer(STREAM) as writer:
        await writer.append(b"kept")


def test_no_code_of_a_killed_process_runs_any_more() -> None:
    async def story(world: World) -> int:
        ticking = Ticking()
        world.start_client("victim", "us-east", ticking.run)
        await trio.sleep(2.5)
        world.kill("victim")
        await trio.sleep(10.0)
        return ticking.count

    assert in_a_calm_world(story) == 2


def test_a_killed_process_leaves_its_session_to_expire() -> None:
    async def story(world: World) -> tuple[int, int]:
        world.start_client("victim", "us-east", live)
        await trio.sleep(1.0)
        before = world.store.statistics().sessions_count
        world.kill("victim")
        await trio.sleep(BASE.knobs.session_timeout_s - 0.1)
        at_last = world.store.statistics().sessions_count
        await trio.sleep(0.2)
        return at_last - before, world.store.statistics().sessions_count - before

    assert in_a_calm_world(story) == (0, -1)


def test_acknowledged_records_outlive_a_power_loss_of_all_nodes() -> None:
    values: list[bytes] = []

    async def read_all(_process: Process, log: geolog.Log) -> None:
        async with log.open_reader(STREAM) as reader:
            values.extend([record.value async for record in reader])

    async def story(world: World) -> None:
        await do(world, append_one)
        for host in sorted(world.nodes):
            world.kill(host, power_loss=True)
        await trio.sleep(1.0)
        for host in sorted(world.nodes):
            world.restart(host)
        await trio.sleep(5.0)
        await do(world, read_all)

    in_a_calm_world(story)

    assert values == [b"kept"]


@pytest.mark.parametrize(("pause_s", "sessions_count"), [(3.0, 1), (20.0, 2)])
def test_a_process_paused_for_too_long_finds_its_session_over(
    pause_s: float, sessions_count: int
) -> None:
    async def story(world: World) -> tuple[SessionState, SessionState, int]:
        process = world.start_client("sleeper", "us-east", live)
        await trio.sleep(1.0)
        session = process.session
        assert session is not None
        sessions = {session.session_id}
        world.pause("sleeper")
        await trio.sleep(pause_s)
        believed = session.session_state
        world.resume(process)
        await trio.sleep(1.0)
        sessions.add(session.session_id)
        return believed, session.session_state, len(sessions)

    # Until it runs again it has noticed nothing.
    connected = SessionState.CONNECTED
    assert in_a_calm_world(story) == (connected, connected, sessions_count)


def test_a_paused_process_can_be_killed() -> None:
    async def story(world: World) -> tuple[int, Life]:
        ticking = Ticking()
        process = world.start_client("victim", "us-east", ticking.run)
        await trio.sleep(1.5)
        world.pause("victim")
        world.kill("victim")
        world.resume(process)
        await trio.sleep(5.0)
        return ticking.count, process.life

    assert in_a_calm_world(story) == (1, Life.KILLED)


def test_a_node_whose_disk_fails_ends_and_is_restarted() -> None:
    async def story(world: World) -> int:
        host = "us-east-1"
        [bay] = world.nodes[host].bays
        bay.disk.faults.sync_failing = bay.disk.syncs_count + 1
        await do(world, append_one)
        await trio.sleep(5.0)
        assert world.surprises == []
        return world.processes[host].incarnation

    assert in_a_calm_world(story) == 2


def test_an_unexpected_error_is_kept() -> None:
    async def stumble(_process: Process, _log: geolog.Log) -> None:
        raise AssertionError("a defect")

    async def story(world: World) -> list[str]:
        process = world.start_client("stumbler", "us-east", stumble, is_restarted=False)
        await process.ended.wait()
        return [process.key for process, _ in world.surprises]

    assert in_a_calm_world(story) == ["stumbler.1"]


def test_a_story_leaves_the_same_trace_every_time() -> None:
    async def story(world: World) -> None:
        await do(world, append_one)

    hashes = set()
    for _ in range(2):
        trace = Trace()
        in_a_calm_world(story, trace)
        hashes.add(trace.hash)

    assert len(hashes) == 1
