"""Sessions of an overloaded proxy: refused early, in order, and never begun too late."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Pending
from geolog.wire.batch import seal_batch
from geolog.wire.session.frames import MSGPACK_FRAMES
from geolog.wire.session.messages import Ack, ErrorAnswer
from regions.proxy.append_session import HELD_S_MAX, AppendSession
from regions.proxy.append_targets import OwnedTarget
from regions.proxy.session_host import ANSWER_TAKEN_S
from tests.pure.garbage import only_collected
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import Frame, OpenSession, SessionClient, open_proxy
from tests.pure.proxy.proxies import open_session as open_session_in
from tests.pure.whole.clusters import STREAM, World, open_world
from topology.errors import OverCapacityError, UnavailableError

APPEND = f"/v1/streams/{STREAM}/append"
READ = f"/v1/streams/{STREAM}/read"
PIPE_BYTES = 32 << 10
"""Bytes that a connection holds that nobody reads."""


def cut_all(world: World) -> None:
    """Let nothing be answered from now on."""
    for node_id in world.cluster.nodes:
        world.cluster.network.cut("proxy-1", node_id)


def mend_all(world: World) -> None:
    for node_id in world.cluster.nodes:
        world.cluster.network.mend("proxy-1", node_id)


async def append_all(
    client: SessionClient, count: int, *, first: int = 0
) -> tuple[list[Frame], list[Frame]]:
    """Append numbered records, all at once, and those that are refused again until none is.

    All acknowledgements, and all refusals.
    """
    acks: list[Frame] = []
    refusals: list[Frame] = []
    left = list(range(first, first + count))
    while left:
        for number in left:
            # A short record would fit where a long one before it did not.
            width = 10 if number % 2 else 400
            await client.send(id=number, seq=number, value=f"{number:0{width}}")
        answers = [await client.receive() for _ in left]
        assert [one["id"] for one in answers] == left
        acks += [one for one in answers if one["type"] == "ack"]
        refusals += [one for one in answers if one["type"] == "error"]
        assert {one["code"] for one in refusals} <= {429}, refusals[-1]
        left = [one for one in left if answers[left.index(one)]["type"] == "error"]
    return acks, refusals


async def test_a_full_partition_refuses_early_and_keeps_the_order_of_numbered_records(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        acks, refusals = await append_all(client, 60)
        async with open_session(world.cluster, proxy, READ) as reader:
            _, *records, _ = await reader.receive_all()

    assert {(one["code"], one["outcome"], one["retriable"]) for one in refusals} == {
        (429, "refused", True)
    }
    assert all(isinstance(one["retry_after_s"], float) for one in refusals)
    assert any("#0 has " in str(one["error"]) for one in refusals)
    assert any("send it again before seq" in str(one["error"]) for one in refusals)
    assert [one["sequence"] for one in acks] == list(range(60))
    assert [int(one["value"]) for one in records] == list(range(60))  # type: ignore[call-overload]
    assert {one["duplicate"] for one in acks} == {False}


async def test_a_numbered_record_that_comes_again_and_is_bad_holds_up_no_later_one(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        await client.send(id=0, seq=0, value="x" * 900)
        await client.send(id=1, seq=1, valeu="y" * 900)  # It is refused without a look at it.
        await client.send(id=2, seq=2, value="z")
        answers = [await client.receive() for _ in range(3)]
        again = [
            await client.ask(id=3, seq=1, valeu="y" * 900),
            await client.ask(id=4, seq=2, value="z"),
        ]

    assert [one.get("code") for one in answers] == [None, 429, 429]
    assert [(one["type"], one["id"]) for one in again] == [("error", 3), ("ack", 4)]
    assert again[0]["code"] == 400


async def test_a_client_has_only_its_share_of_the_bytes_in_flight(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", in_flight_bytes_max=10_000, client_share=0.2
        ) as proxy,
        open_session(world.cluster, proxy, APPEND, host="greedy") as greedy,
        open_session(world.cluster, proxy, APPEND, host="modest") as modest,
    ):
        await greedy.receive()
        await modest.receive()
        for number in range(20):
            await greedy.send(id=number, value="x" * 500)
        await modest.send(id="modest", value="x" * 500)
        answers = [await greedy.receive() for _ in range(20)]
        answer = await modest.receive()

    codes = [one.get("code") for one in answers]
    assert set(codes) == {None, 429}
    assert "client greedy has " in str(answers[codes.index(429)]["error"])
    assert answer["type"] == "ack"


async def test_an_append_that_cannot_begin_in_its_time_is_refused(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        cut_all(world)
        # The session of a named writer cannot be opened before the nodes are back.
        await client.send(id=1, writer="till-7", seq=0, value="a", timeout_s=1)
        await trio.sleep(2)
        mend_all(world)
        late = await client.receive()
        overtaking = await client.ask(id=2, writer="till-7", seq=1, value="b")
        again = [
            await client.ask(id=3, writer="till-7", seq=0, value="a", timeout_s=0.5),
            await client.ask(id=4, writer="till-7", seq=1, value="b"),
        ]

    assert (late["code"], late["outcome"], late["retriable"]) == (504, "refused", True)
    assert (overtaking["code"], overtaking["id"]) == (429, 2)
    assert [(one["type"], one["sequence"]) for one in again] == [("ack", 0), ("ack", 1)]


async def test_the_time_of_an_append_runs_while_it_waits_for_those_before_it(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", credit_bytes=1000) as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.ask(value="first")
        cut_all(world)
        await client.send(id=1, value="x" * 1000)
        await client.send(id=2, value="y", timeout_s=1)
        await client.send(id=3, value="z")
        await trio.sleep(5)
        mend_all(world)
        answers = [await client.receive() for _ in range(3)]

    assert [one.get("code") for one in answers] == [None, 504, None]


async def test_a_record_does_not_overtake_one_that_met_a_passing_error(
    autojump_clock: MockClock, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_writer, failures = OwnedTarget.open_writer, [UnavailableError("not just now")]

    def open_later(
        target: OwnedTarget, writer_id: str | None
    ) -> AbstractAsyncContextManager[Writer]:
        if writer_id is not None and failures:
            raise failures.pop()
        return open_writer(target, writer_id)

    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        monkeypatch.setattr(OwnedTarget, "open_writer", open_later)
        await client.send(id=0, writer="till-7", seq=0, value="a")
        await client.send(id=1, writer="till-7", seq=1, value="b")
        failed = await client.receive()
        overtaking = await client.receive()
        again = [
            await client.ask(id=2, writer="till-7", seq=0, value="a"),
            await client.ask(id=3, writer="till-7", seq=1, value="b"),
        ]

    assert (failed["id"], failed["retriable"]) == (0, True)
    assert (overtaking["id"], overtaking["code"]) == (1, 429)
    assert [one["type"] for one in again] == ["ack", "ack"]


async def test_a_client_that_comes_back_too_soon_is_read_slowly_until_there_is_room(
    autojump_clock: MockClock, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OverCapacityError, "retry_after_s", 9.0)  # While no speed is known.
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session(world.cluster, proxy, APPEND) as filling,
        open_session(world.cluster, proxy, APPEND) as hasty,
    ):
        for client in (filling, hasty):
            await client.receive()
            await client.ask(value="first")
        cut_all(world)
        await filling.send(value="x" * 900)
        refusal = await hasty.ask(value="y" * 900)
        begun_s = trio.current_time()
        hasty_answers = [await hasty.ask(value="z" * 900) for _ in range(2)]
        took_s = trio.current_time() - begun_s
        for _ in range(5):
            await hasty.send(value="z" * 900)
        begun_s = trio.current_time()
        hasty_answers += [await hasty.receive() for _ in range(5)]
        together_s = trio.current_time() - begun_s
        for _ in range(4):
            await hasty.send(value="z" * 90)
        await trio.sleep(0.1)
        mend_all(world)
        begun_s = trio.current_time()
        acks = [await hasty.receive() for _ in range(4)]
        calm_s = trio.current_time() - begun_s

    assert {one["code"] for one in (refusal, *hasty_answers)} == {429}
    assert took_s == pytest.approx(2 * HELD_S_MAX, abs=0.1)
    assert together_s <= HELD_S_MAX + 0.1
    assert {one["type"] for one in acks} == {"ack"}
    assert calm_s <= HELD_S_MAX + 0.1


@attrs.define(eq=False)
class LongestTurn(trio.abc.Instrument):
    """The most records that a task has handed to writers without letting others run."""

    most: int = 0
    _count: int = 0

    def note(self) -> None:
        self._count += 1
        self.most = max(self.most, self._count)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count = 0


@pytest.mark.parametrize(("frames", "records", "most"), [(1000, 1, 20), (2, 5000, 500)])
async def test_a_session_with_much_to_append_lets_others_run(
    autojump_clock: MockClock,
    open_session: OpenSession,
    monkeypatch: pytest.MonkeyPatch,
    frames: int,
    records: int,
    most: int,
) -> None:
    longest, append = LongestTurn(), Writer.append_fields_nowait
    append_plain = Writer.append_plain_nowait

    def noted(writer: Writer, fields: RecordFields) -> Pending:
        longest.note()
        return append(writer, fields)

    def noted_plain(
        writer: Writer, value: bytes, key: bytes | None, size_bytes: int
    ) -> Pending | None:
        pending = append_plain(writer, value, key, size_bytes)
        if pending is not None:
            longest.note()
        return pending

    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.ask(value="first")
        cut_all(world)
        # While the session of a named writer is opened, all others arrive.
        await client.send(writer="till-7", value="a")
        for _ in range(frames):
            await client.send(records=[{"value": ""}] * records)
        await trio.sleep(2)
        monkeypatch.setattr(Writer, "append_fields_nowait", noted)
        monkeypatch.setattr(Writer, "append_plain_nowait", noted_plain)
        trio.lowlevel.add_instrument(longest)
        mend_all(world)
        answers = [await client.receive() for _ in range(1 + frames)]
        trio.lowlevel.remove_instrument(longest)

    assert {one["type"] for one in answers} == {"ack"}
    assert 0 < longest.most <= most


async def test_a_frame_that_is_refused_is_not_parsed_beyond_its_head(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session_in(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        await client.ask(seq=0, value="first")
        cut_all(world)
        await client.send(seq=1, value="x" * 900)
        await client.socket.send('{"id":"a","seq":2,"records":[{"value":"' + "y" * 900)
        await client.send(id="b", seq=3, value="z")
        await trio.sleep(0.1)
        mend_all(world)
        answers = [await client.receive() for _ in range(3)]

    assert [(one.get("id"), one.get("code")) for one in answers] == [
        (None, None),
        ("a", 429),
        ("b", 429),
    ]
    assert "send it again before seq 3" in str(answers[2]["error"])


async def test_refused_lines_are_answered_in_short_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest, push = LongestTurn(), AppendSession._push_answer  # noqa: SLF001 - what takes time.
    lines = b"".join(b'{"value":"%d"}\n' % number for number in range(2000))

    def noted(session: AppendSession, answer: Ack | ErrorAnswer, counted_bytes: int) -> None:
        longest.note()
        push(session, answer, counted_bytes)

    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        monkeypatch.setattr(AppendSession, "_push_answer", noted)
        trio.lowlevel.add_instrument(longest)
        answer = await client.ask("POST", APPEND, lines)
        trio.lowlevel.remove_instrument(longest)

    assert {one.get("code") for one in answer.lines} == {None, 429}
    assert 0 < longest.most <= 64


@attrs.define(eq=False)
class Steps(trio.abc.Instrument):
    """How often a task ran."""

    count: int = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_records_that_are_stored_together_are_answered_in_few_turns(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    steps = Steps()
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        trio.lowlevel.add_instrument(steps)
        for _ in range(10):
            answer = await client.ask(records=[{"value": "v"}] * 1000)
            assert answer["type"] == "ack"
        trio.lowlevel.remove_instrument(steps)

    assert steps.count < 3000


async def test_refused_frames_count_and_name_no_more_writers_than_a_session_may_have(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session(world.cluster, proxy, APPEND) as plain,
        open_session(world.cluster, proxy, APPEND) as naming,
    ):
        await plain.receive()
        await naming.receive()
        await plain.ask(value="first")
        cut_all(world)
        await plain.send(value="x" * 900)
        for number in range(100):
            await plain.send(id=f"{number:0100}", value="y" * 900)
        await trio.sleep(0.5)
        held_bytes = proxy.in_flight.refused_bytes
        for number in range(100):
            await naming.send(writer=f"till-{number}", seq=0, value="y" * 900)
        ended = (await naming.receive_all())[-1]
        mend_all(world)
        answers = [await plain.receive() for _ in range(101)]
        left_bytes = proxy.in_flight.bytes, proxy.in_flight.refused_bytes

    assert held_bytes == 100 * (512 + 100)
    assert (ended["code"], ended.get("id")) == (429, None)
    assert [one.get("code") for one in answers] == [None] + 100 * [429]
    assert left_bytes == (0, 0)


async def test_appends_whose_answers_nobody_takes_do_not_keep_a_partition_full(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=400_000
        ) as proxy,
        open_session(world.cluster, proxy, APPEND) as stuck,
        open_session(world.cluster, proxy, APPEND) as other,
    ):
        world.cluster.network.pipe_bytes_max = PIPE_BYTES
        await stuck.receive()
        await other.receive()
        for _ in range(25):  # Their answers are several times as long.
            await stuck.send(records=[{"value": ""}] * 1000)
        await trio.sleep(5)
        answer = await other.ask(value="v" * 200_000)
        held_bytes = proxy.answers.bytes
        await trio.sleep(2 * ANSWER_TAKEN_S)
        left_bytes = proxy.in_flight.bytes, proxy.answers.bytes

    assert answer["type"] == "ack"
    assert held_bytes > 500_000
    assert left_bytes == (0, 0)


async def test_sessions_that_take_no_answers_are_bounded_and_hold_up_no_other_client(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """Answers may be many times the frames."""
    bound, held_bytes, answered_s = 400_000, 0, []
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", in_flight_bytes_max=bound) as proxy,
        AsyncExitStack() as stack,
    ):
        stuck = [
            await stack.enter_async_context(
                open_session(world.cluster, proxy, APPEND, host="stuck")
            )
            for _ in range(6)
        ]
        other = await stack.enter_async_context(
            open_session(world.cluster, proxy, APPEND, host="other")
        )
        world.cluster.network.pipe_bytes_max = PIPE_BYTES
        await other.receive()
        for client in stuck:
            for _ in range(30):
                await client.send(records=[{"value": ""}] * 200)
        for _ in range(20):
            began_s = trio.current_time()
            assert (await other.ask(value="v" * 1000))["type"] == "ack"
            answered_s.append(trio.current_time() - began_s)
            held_bytes = max(held_bytes, proxy.answers.bytes)
            await trio.sleep(0.1)
        answers = [
            [frame async for frame in frames_of(client, 31)][1:] for client in stuck
        ]  # They read late, and lose nothing.
        left_bytes = proxy.in_flight.bytes, proxy.answers.bytes

    codes = [frame.get("code") for frames in answers for frame in frames]
    assert max(answered_s) < 1
    assert bound // 4 < held_bytes <= bound // 2 + 20_000
    assert set(codes) == {None, 429}
    assert left_bytes == (0, 0)


async def frames_of(client: SessionClient, count: int) -> AsyncIterator[Frame]:
    """So many frames of a session."""
    for _ in range(count):
        yield await client.receive()


async def test_a_client_that_reads_late_and_slowly_gets_all_answers(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """It takes longer than any single answer may."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        world.cluster.network.pipe_bytes_max = PIPE_BYTES
        await client.receive()
        for number in range(30):
            await client.send(id=number, records=[{"value": ""}] * 1000)
        answers = []
        for _ in range(30):
            await trio.sleep(ANSWER_TAKEN_S / 5)
            answers.append(await client.receive())

    assert [(one["type"], one["id"]) for one in answers] == [
        ("ack", number) for number in range(30)
    ]


async def test_a_client_that_takes_a_kibibyte_a_second_gets_all_answers(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """Answers that were all known at once are more than it can take in half a minute."""
    count = 3000
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        world.cluster.network.pipe_bytes_max = 1 << 10
        await client.receive()
        for number in range(count):
            await client.send(id=number, value="")
        answers = []
        for _ in range(count):
            await trio.sleep(0.1)
            answers.append(await client.receive())

    assert [(one["type"], one["id"]) for one in answers] == [
        ("ack", number) for number in range(count)
    ]


async def test_answers_that_are_due_hold_up_no_other_session_of_the_client(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """It could not take them; so its sessions are told to come back, and when."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", in_flight_bytes_max=40_000) as proxy,
        open_session(world.cluster, proxy, APPEND) as stuck,
        open_session(world.cluster, proxy, APPEND) as other,
    ):
        await stuck.receive()
        await other.receive()
        await stuck.ask(value="first")
        cut_all(world)
        for number in range(130):  # 160 bytes are reckoned for each, of the half of all.
            await stuck.send(id=number, value="")
        await trio.sleep(0.1)
        with trio.fail_after(1):
            refusal = await other.ask(id="other", value="")
        mend_all(world)
        answers = [await stuck.receive() for _ in range(130)]
        again = await other.ask(id="other", value="")
        await trio.sleep(1)
        left_bytes = proxy.in_flight.bytes, proxy.answers.bytes

    assert (refusal["code"], refusal["id"]) == (429, "other")
    assert 0.5 < refusal["retry_after_s"] < 1.5  # type: ignore[operator]
    assert [one["id"] for one in answers] == list(range(130))
    codes = [one.get("code") for one in answers]
    assert codes == [None] * codes.count(None) + [429] * codes.count(429)
    assert codes.count(None) > 100
    assert again["type"] == "ack"
    assert left_bytes == (0, 0)


async def test_frames_forwarded_to_a_partition_that_comes_home_do_not_wait_for_themselves(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """As batches they count for the partition, and as frames for what is forwarded."""
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=4000
        ) as proxy,
        trio.open_nursery() as nursery,
    ):
        to_end, ended = trio.Event(), trio.Event()

        async def own_at_first(task_status: trio.TaskStatus[None]) -> None:
            async with open_proxy(world.cluster, "proxy-2", "us-east") as other:
                query = f"avoid={proxy.address}"
                async with open_session(world.cluster, other, f"{APPEND}?{query}") as owning:
                    await owning.receive()
                    task_status.started()
                    await to_end.wait()
            ended.set()

        await nursery.start(own_at_first)
        async with open_session(
            world.cluster,
            proxy,
            f"{APPEND}?writer=till-7&redirect=forward",
            host="proxy-1",  # The address of its batches, too.
        ) as client:
            await client.receive()
            await client.ask(seq=0, value="first")
            owned_counts = [len(proxy.held)]
            to_end.set()
            await ended.wait()
            with trio.fail_after(600):
                acks, _ = await append_all(client, 60, first=1)
                owned_counts.append(len(proxy.held))

    assert owned_counts == [0, 1]
    assert [one["sequence"] for one in acks] == list(range(1, 61))


async def test_lines_over_http_are_refused_with_when_to_come_back(
    autojump_clock: MockClock,
) -> None:
    lines = b"".join(b'{"value":"%s"}\n' % (b"x" * 300) for _ in range(20))
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", APPEND, lines)
        later = await client.ask("POST", APPEND, b'{"value":"y"}')
        metrics = (await client.ask("GET", "/metrics")).body.decode()

    assert answer.status == 429
    assert answer.headers["retry-after"] in ("1", "2")
    assert {one.get("code") for one in answer.lines} == {None, 429}
    assert later.status == 200
    assert "geolog_proxy_early_refusals_total" in metrics


async def test_refusals_leave_nothing_for_the_garbage_collector(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    """It takes time from a proxy that has none to lose, or its memory grows until it runs."""
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=1000
        ) as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        with only_collected() as found:
            _, refusals = await append_all(client, 60)

    assert refusals
    assert found == []


async def test_appends_over_http_leave_nothing_for_the_garbage_collector(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await client.ask("POST", APPEND, b'{"value":"0"}')
        with only_collected() as found:
            for number in range(5):
                await client.ask("POST", APPEND, b'{"value":"%d"}' % number)

    assert found == []


async def test_records_are_not_kept_beside_the_log_until_they_are_answered(
    autojump_clock: MockClock,
) -> None:
    """A batch may be compressed to a hundredth."""
    sealed = bytes(seal_batch([bytes(1 << 20)] * 2, created_us=1).data)
    assert len(sealed) < 20_000
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session_in(
            world.cluster, proxy, APPEND, subprotocols=(MSGPACK_FRAMES.subprotocol,)
        ) as client,
    ):
        await client.receive()
        await client.ask(batch=sealed)
        cut_all(world)
        tracemalloc.start()
        try:
            for _ in range(40):
                await client.send(batch=sealed)
            await trio.sleep(0.5)
            held_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        mend_all(world)
        answers = [await client.receive() for _ in range(40)]

    assert all(one["type"] == "ack" for one in answers)
    assert held_bytes < 30 << 20
