"""What `relay failover` asks before it moves a home, and what an export does not overwrite."""

from pathlib import Path

import attrs
import pytest

import geolog
from geolog.cli.nouns import relay_divergence, relay_failover
from geolog.client.relays.failover_plan import FailoverPlan

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
    relay_failover._confirm([attrs.evolve(PLAN, home_answers=True)])  # noqa: SLF001

    assert len(asked) == 2
    assert "shop/carts still answers: a switch-over would lose nothing" in asked[0]
    assert asked[1] == "Fail over shop/carts?"


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
