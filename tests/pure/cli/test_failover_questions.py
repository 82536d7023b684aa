"""What `relay failover` asks before it moves a home, and what an export does not overwrite."""

import json
from pathlib import Path

import attrs
import pytest

import geolog
from geolog.cli.main import run
from geolog.cli.verbs import relay_divergence, relay_failover
from geolog.client.relays.failover_plan import FailoverPlan
from geolog.protocol.failover_record import FailoverRecord, RangeAtRisk
from geolog.protocol.ids import Sequence

PLAN = FailoverPlan(
    stream="shop/carts",
    home="us-east",
    home_epoch=1,
    to="eu-west",
    partitions=1,
    candidates=(),
    home_answers=False,
    ranges=(),
    why_not=None,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions; each is answered with yes."""
    questions: list[str] = []
    monkeypatch.setattr(relay_failover, "confirm", questions.append)
    return questions


def test_a_failover_asks_once(asked: list[str]) -> None:
    relay_failover._confirm([PLAN])  # noqa: SLF001

    assert asked == ["Fail over shop/carts?"]


def test_a_failover_of_a_home_that_answers_asks_twice(asked: list[str]) -> None:
    answers = attrs.evolve(PLAN, home_answers=True, home_partitions_reached=1)
    relay_failover._confirm([answers])  # noqa: SLF001

    assert len(asked) == 2
    assert "shop/carts still answers: `geolog relay switch-over` would lose nothing" in asked[0]
    assert asked[1] == "Fail over shop/carts?"


def test_a_failover_of_a_home_that_answers_in_part_asks_twice(asked: list[str]) -> None:
    partly = attrs.evolve(PLAN, partitions=64, home_partitions_reached=63)
    relay_failover._confirm([partly])  # noqa: SLF001

    assert len(asked) == 2
    assert "shop/carts still answers, at least in part" in asked[0]


def risk_of(*ranges: RangeAtRisk) -> str:
    plan = attrs.evolve(PLAN, partitions=len(ranges), ranges=ranges)
    return relay_failover._risk_of(plan)  # noqa: SLF001


HEARD = RangeAtRisk(
    partition=0,
    from_sequence=Sequence(7),
    to_sequence=Sequence(10),
    heard_us=1,
    heard_ago_s=5.0,
    bytes_max=1024,
    seconds=0.4,
)
UNHEARD = RangeAtRisk(partition=1, from_sequence=Sequence(0), to_sequence=Sequence(2))


def test_what_is_at_risk_is_told_with_its_size_and_its_age() -> None:
    assert risk_of(HEARD) == (
        "At risk: 3 records, at most 1KiB, 400ms of appends, as known 5s ago. All that the home"
        " acknowledged since then is at risk, too"
    )


def test_an_age_that_nobody_knows_is_not_told_as_0() -> None:
    assert "as known an unknown time ago" in risk_of(attrs.evolve(HEARD, heard_ago_s=None))


def test_a_loss_that_nobody_has_heard_of_is_told_as_unknown() -> None:
    told = risk_of(HEARD, UNHEARD)

    assert "At risk: not known, at least 5 records" in told
    assert "how far 1 of 2 partitions had got, so it may be any number of records" in told


def test_past_failovers_do_not_show_an_unknown_loss_as_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    past = FailoverRecord(
        home_epoch=2,
        home_before="us-east",
        home="eu-west",
        decided_us=1,
        who="w",
        ranges=(attrs.evolve(UNHEARD, to_sequence=None),),
    )
    monkeypatch.setattr(relay_failover, "ask", lambda _question: [past])
    run(["relay", "failover", "shop/carts", "--past"])
    table = capsys.readouterr().out
    run(["-o", "json", "relay", "failover", "shop/carts", "--past"])
    (document,) = json.loads(capsys.readouterr().out)

    assert "not known" in table
    assert document["at_risk"]["records"] is None


def test_an_export_does_not_overwrite_a_file_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    there = tmp_path / "left.jsonl"
    there.write_text("an earlier export\n", encoding="utf-8")
    which = relay_divergence._Which("shop/carts", "us-east~2#0")  # noqa: SLF001

    with pytest.raises(geolog.ConflictError, match=r"exists already.*name another file"):
        relay_divergence._export_to_file(which, there)  # noqa: SLF001

    assert there.read_text(encoding="utf-8") == "an earlier export\n"


def test_an_export_to_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    which = relay_divergence._Which("shop/carts", "us-east~2#0")  # noqa: SLF001

    with pytest.raises(geolog.InvalidArgumentError, match="cannot be written"):
        relay_divergence._export_to_file(which, tmp_path / "missing" / "left.jsonl")  # noqa: SLF001
