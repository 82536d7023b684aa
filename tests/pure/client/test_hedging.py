"""Hedge policies that are named, given, or offered by another package."""

from pathlib import Path
from typing import cast

import attrs
import pytest
from trio.testing import MockClock

from geolog.client.arguments import checked
from geolog.client.hedging import GROUP, hedge_policy
from geolog.protocol.hedge_policy import AUTO, OFF, HedgeMoment, HedgePolicy, HedgeTerms
from tests.pure.whole.clusters import STREAM, append_each, numbered, open_world
from topology.errors import InvalidArgumentError

PACKAGE = """
from geolog.protocol.hedge_policy import HedgeTerms

class Patient:
    name = "patient"
    terms = HedgeTerms()

    def pause_s(self, moment):
        return 5.0

made_before = Patient()
nothing_of_the_kind = "soon"

def fail():
    raise RuntimeError("no licence")
"""

OFFERED = f"""
[{GROUP}]
patient = offered_policies:Patient
ready = offered_policies:made_before
broken = offered_policies:nothing_of_the_kind
failing = offered_policies:fail
missing = offered_policies:not_there
off = offered_policies:Patient
"""


class Twice:
    """A policy of the caller's own."""

    name = "twice"
    terms = HedgeTerms()

    def pause_s(self, moment: HedgeMoment) -> float:
        return 0.01 * moment.asked_count


@attrs.frozen
class Odd:
    """A policy with a mistake."""

    answer: object
    name: str = "odd"
    terms: HedgeTerms = attrs.field(factory=HedgeTerms)

    def pause_s(self, _moment: HedgeMoment) -> float | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("float", self.answer)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers policies."""
    (tmp_path / "offered_policies.py").write_text(PACKAGE)
    info = tmp_path / "offered_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: offered-policies\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(OFFERED)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_policy_that_is_given_is_taken_as_it_is() -> None:
    policy = Twice()
    moment = HedgeMoment((), 2, 0.0, 0.0)
    taken = hedge_policy(policy)

    assert (taken.name, taken.terms, taken.pause_s(moment)) == ("twice", policy.terms, 0.02)


def test_our_own_are_found_by_name() -> None:
    assert (hedge_policy("auto"), hedge_policy("off")) == (AUTO, OFF)


@pytest.mark.usefixtures("installed")
def test_a_policy_of_an_installed_package_is_found_by_name() -> None:
    moment = HedgeMoment((), 1, 0.0, 0.0)

    assert hedge_policy("patient").pause_s(moment) == 5.0
    assert hedge_policy("ready").name == "patient"
    assert hedge_policy("off") is OFF, "ours cannot be replaced"


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_is_refused_with_those_that_are_installed() -> None:
    with pytest.raises(InvalidArgumentError, match="policies: broken, failing, missing, off"):
        hedge_policy("patience")


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_names_no_policy_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'soon' is not a hedge policy"):
        hedge_policy("broken")


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_cannot_be_loaded_is_named_with_the_reason() -> None:
    with pytest.raises(InvalidArgumentError, match=r"hedge 'failing' \(entry.*no licence"):
        hedge_policy("failing")
    with pytest.raises(InvalidArgumentError, match=r"hedge 'missing' .* cannot be loaded"):
        hedge_policy("missing")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ZeroDivisionError("no routes"), r"hedge policy 'odd' failed: ZeroDivisionError"),
        ("soon", "hedge policy 'odd' answers 'soon': a pause is a number of seconds"),
        (-1.0, "answers -1.0"),
        (float("nan"), "answers nan"),
    ],
)
def test_a_policy_that_fails_or_answers_no_time_is_named(answer: object, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        hedge_policy(Odd(answer)).pause_s(HedgeMoment((), 1, 0.0, 0.0))


class Unlicensed(Twice):
    """A policy that fails before it is asked."""

    @property
    def terms(self) -> HedgeTerms:  # type: ignore[override]
        raise RuntimeError("no licence")


def test_a_policy_that_cannot_tell_its_terms_or_its_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"does not tell its terms.*no licence"):
        hedge_policy(Unlicensed())
    with pytest.raises(InvalidArgumentError, match="its name is ''"):
        hedge_policy(Odd(1.0, name=""))


async def test_a_read_under_a_failing_policy_ends_with_its_name(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(2))
        odd = Odd(ZeroDivisionError("no routes"))
        with pytest.raises(InvalidArgumentError, match="hedge policy 'odd' failed"):
            async with world.log.open_reader(STREAM, hedge=odd) as reader:
                await anext(reader)


def test_an_argument_is_a_name_or_a_policy() -> None:
    @checked
    def connect(*, hedge: str | HedgePolicy) -> None: ...

    connect(hedge="auto")
    connect(hedge=Twice())
    with pytest.raises(InvalidArgumentError, match="hedge is 25"):
        connect(hedge=25)  # type: ignore[arg-type]
