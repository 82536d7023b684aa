"""The commands that move homes, end to end, with a log that moves what it is told to."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from geolog.catalog.home_moves import HomeMoveConflictError
from geolog.cli.exits import Exit
from geolog.cli.main import run
from geolog.cli.verbs import relay_failover, relay_moves
from geolog.client.relays.failover_plan import FailoverPlan
from geolog.client.relays.stream_home import StreamHome
from geolog.client.relays.switch_plan import SwitchOverPlan
from geolog.partition.home_failover import FailoverReport
from geolog.partition.home_switch import SwitchOverReport
from geolog.protocol.relay_report import LinkState
from topology.errors import DamagedBytesError, GeologError, NoSuchStreamError

EAST, WEST = "us-east", "eu-west"


@attrs.define
class MovingLog:
    """A log whose streams have their home in us-east until it is told to move them."""

    homes: dict[str, str]
    during: Callable[[str], None] = lambda _stream: None
    """Called in the middle of the move of a stream."""
    unplannable: dict[str, GeologError] = attrs.field(factory=dict)
    """Errors of a look ahead at a stream."""

    @property
    def access(self) -> "MovingLog":
        return self

    def now_us(self) -> int:
        return 1_000_000

    async def streams_at_home(self, region: str) -> list[str]:
        return [name for name, home in self.homes.items() if home == region]

    async def home_of(self, name: str) -> StreamHome:
        await trio.lowlevel.checkpoint()
        return StreamHome(region=self.homes[name], home_epoch=1, moving_to="")

    async def plan_failover(
        self, name: str, *, to: str | None, without: Sequence[str]
    ) -> FailoverPlan:
        assert not without
        if name in self.unplannable:
            raise self.unplannable[name]
        return FailoverPlan(
            stream=name,
            home=self.homes[name],
            home_epoch=1,
            to=to or WEST,
            partitions=1,
            candidates=(),
            home_answers=False,
            ranges=(),
            why_not=None,
        )

    async def plan_switch_over(
        self, name: str, *, to: str, counts_open: bool
    ) -> SwitchOverPlan:
        assert not counts_open
        if name in self.unplannable:
            raise self.unplannable[name]
        return SwitchOverPlan(
            stream=name,
            home=self.homes[name],
            to=to,
            partitions=1,
            state=LinkState.LIVE,
            lag_records=0,
            lag_bytes=0,
            lag_s=0.0,
            round_trip_s=0.1,
            catch_up_s=0.0,
            close_s=0.3,
            drain_s=0.1,
            flip_s=0.2,
            local_only=0,
            why_not=None,
        )

    async def _move(self, name: str, to: str, home: str | None) -> None:
        self.during(name)
        if home != self.homes[name]:
            raise HomeMoveConflictError(f"{name} has another home")
        await trio.sleep(0.05)
        self.homes[name] = to

    async def failover(
        self,
        name: str,
        *,
        to: str,
        home: str | None,
        home_epoch: int | None,
        confirmed: Mapping[int, int],
        without: Sequence[str],
        progress: Callable[[str], None] | None,
        timeout_s: float,
    ) -> FailoverReport:
        if progress is not None:
            progress("comparing logs")
            progress("comparing logs")
        assert not confirmed
        assert not without
        before = self.homes[name]
        await self._move(name, to, home)
        return FailoverReport(
            stream=name,
            home_before=before,
            home=to,
            home_epoch=1 + (home_epoch or 1),
            partitions=1,
            ranges=(),
            fetched=(),
            out_of_reach=(before,),
            may_answer_on=(),
            ended_s=timeout_s,
            flipped_s=0,
        )

    async def switch_over(
        self, name: str, *, to: str, home: str | None, home_epoch: int | None, timeout_s: float
    ) -> SwitchOverReport:
        before = self.homes[name]
        await self._move(name, to, home)
        return SwitchOverReport(
            stream=name,
            home_before=before,
            home=to,
            home_epoch=1 + (home_epoch or 1),
            partitions=1,
            records=0,
            local_only=0,
            caught_up_s=timeout_s,
            closed_s=0,
            drained_s=0,
            flipped_s=0,
        )


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingLog]:
    found = MovingLog({"shop/a": EAST, "shop/b": EAST, "shop/c": EAST})

    @asynccontextmanager
    async def opened(_invocation: object) -> AsyncIterator[MovingLog]:
        yield found

    for module in (relay_failover, relay_moves):
        monkeypatch.setattr(module, "open_log", opened)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield found
    signal.signal(signal.SIGHUP, before)


def interrupted_behind(log: MovingLog, moved_count: int) -> Callable[[str], None]:
    def during(_stream: str) -> None:
        if list(log.homes.values()).count(WEST) == moved_count:
            os.kill(os.getpid(), signal.SIGTERM)

    return during


MOVES = {
    "failover": ["relay", "failover", "--home", EAST, "--parallel", "1"],
    "switch-over": ["relay", "switch-over", "--home", EAST, "--to", WEST, "--parallel", "1"],
}


@pytest.mark.parametrize("verb", MOVES)
def test_a_move_of_many_homes_that_is_interrupted_tells_which_have_moved(
    verb: str, log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.during = interrupted_behind(log, 1)
    code = run(["--yes", "-o", "json", *MOVES[verb]])
    out, told = capsys.readouterr()

    assert code == Exit.INTERRUPTED
    assert [one["stream"] for one in json.loads(out)] == [
        name for name, home in log.homes.items() if home == WEST
    ]
    assert told.count(": interrupted; its home is us-east\n") == 1
    assert "not named here were not touched" in told


@pytest.mark.parametrize("verb", MOVES)
def test_an_interrupted_move_of_one_stream_tells_where_its_home_is(
    verb: str, log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.during = interrupted_behind(log, 0)
    code = run(["--yes", "relay", verb, "shop/a", "--to", WEST])
    out, told = capsys.readouterr()

    assert (code, out) == (Exit.INTERRUPTED, "")
    assert told.splitlines()[-1] == "shop/a: interrupted; its home is us-east"


@pytest.mark.parametrize("verb", MOVES)
def test_a_move_that_is_not_interrupted_ends_with_0(verb: str, log: MovingLog) -> None:
    assert run(["--yes", *MOVES[verb]]) == Exit.DONE
    assert set(log.homes.values()) == {WEST}


@pytest.mark.parametrize("verb", MOVES)
def test_a_stream_that_another_operator_has_moved_meanwhile_stays_there(
    verb: str, log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    def during(_stream: str) -> None:
        log.homes["shop/b"] = "ap-northeast"

    log.during = during
    code = run(["--yes", *MOVES[verb]])

    assert code == Exit.ERROR
    assert log.homes == {"shop/a": WEST, "shop/b": "ap-northeast", "shop/c": WEST}
    assert "shop/b has another home" in capsys.readouterr().err


def test_a_switch_over_of_one_stream_asks_with_the_home_that_it_is_moved_from(
    log: MovingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def confirm(question: str) -> None:
        questions.append(question)
        log.homes["shop/a"] = "ap-northeast"  # While the question was on the screen.

    monkeypatch.setattr(relay_moves, "confirm", confirm)

    assert run(["relay", "switch-over", "shop/a", "--to", WEST]) == Exit.ERROR
    assert questions == ["Move the home of shop/a from us-east to eu-west?"]
    assert log.homes["shop/a"] == "ap-northeast"


def test_a_stream_that_cannot_be_planned_does_not_stop_the_failover_of_the_others(
    log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.unplannable = {
        "shop/a": NoSuchStreamError("shop/a"),
        "shop/b": DamagedBytesError("its record is damaged"),
    }
    code = run(["--yes", *MOVES["failover"]])
    told = capsys.readouterr().err

    assert code == Exit.ERROR
    assert log.homes == {"shop/a": EAST, "shop/b": EAST, "shop/c": WEST}
    assert "shop/a has been deleted meanwhile" in told
    assert "shop/b cannot be failed over now: its record is damaged" in told
    assert "1 of 2 streams keep their home" in told


def test_nobody_is_asked_whether_no_stream_is_to_be_failed_over(
    log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.unplannable = {name: DamagedBytesError("damaged") for name in log.homes}

    assert run(MOVES["failover"]) == Exit.UNAVAILABLE
    assert "none of 3 streams can be failed over now" in capsys.readouterr().err


def test_the_plan_of_a_move_tells_the_pause_and_names_a_stream_that_cannot_be_planned(
    log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.unplannable = {"shop/b": NoSuchStreamError("shop/b")}
    code = run([*MOVES["switch-over"], "--dry-run"])
    out, told = capsys.readouterr()

    assert code == Exit.DONE
    assert [line.split()[0] for line in out.splitlines()] == ["stream", "shop/a", "shop/c"]
    assert "600ms" in out
    assert "shop/b cannot move now" in told


def test_a_failover_of_one_stream_tells_its_steps_once(
    log: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["--yes", "relay", "failover", "shop/a"])

    assert capsys.readouterr().err.count("shop/a: comparing logs\n") == 1
