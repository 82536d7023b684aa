"""Placement policies that are given, or offered by another package."""

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from geolog.client.placement_policies import own_policies
from topology.errors import InvalidArgumentError
from topology.membership import KnownNode
from topology.own_policy import GROUP, Ring, UnknownPolicyError
from topology.ring.window_rule import Adherence

PACKAGE = """
class Thrifty:
    def __init__(self, name="thrifty"):
        self.name = name

    def fill(self, ring, free, rng):
        return {}

    def adherence(self, ring):
        return None

made_before = Thrifty("ready")
nothing_of_the_kind = "here"
"""

OFFERED = f"""
[{GROUP}]
thrifty = offered_placement:Thrifty
ready = offered_placement:made_before
broken = offered_placement:nothing_of_the_kind
missing = offered_placement:not_there
renamed = offered_placement:Thrifty
rack_aware = offered_placement:Thrifty
"""


class Given:
    """A policy of the caller's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fill(
        self, ring: Ring, free: Sequence[KnownNode], rng: random.Random
    ) -> Mapping[int, str]:
        return {}

    def adherence(self, ring: Ring) -> Adherence:
        return Adherence.STRICT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers policies."""
    (tmp_path / "offered_placement.py").write_text(PACKAGE)
    info = tmp_path / "offered_placement-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: offered-placement\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(OFFERED)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_policy_that_is_given_is_known_by_its_name() -> None:
    policy = Given("mine")

    assert own_policies([policy]).find("mine") is policy


@pytest.mark.usefixtures("installed")
def test_policies_of_installed_packages_are_known_and_made_once() -> None:
    known = own_policies()

    assert known.find("thrifty").name == "thrifty"
    assert known.find("thrifty") is known.find("thrifty")
    assert known.find("ready").name == "ready"
    assert "rack_aware" not in known.makers, "ours cannot be replaced"


@pytest.mark.usefixtures("installed")
def test_a_process_looks_for_installed_policies_once(tmp_path: Path) -> None:
    own_policies()
    shutil.rmtree(tmp_path / "offered_placement-1.0.dist-info")

    assert "thrifty" in own_policies().makers


@pytest.mark.usefixtures("installed")
def test_a_given_policy_goes_before_an_installed_one() -> None:
    policy = Given("thrifty")

    assert own_policies([policy]).find("thrifty") is policy


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "'here' is not a placement policy; it needs `name`, `fill` and"),
        ("missing", "cannot be loaded: AttributeError"),
        ("renamed", "has the name 'thrifty': streams freeze the name, so the two must agree"),
        ("thirfty", "known here are broken, missing, ready, renamed, .*did you mean 'thrifty'"),
    ],
)
def test_a_name_that_names_no_policy_is_refused(name: str, says: str) -> None:
    with pytest.raises(UnknownPolicyError, match=says):
        own_policies().find(name)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([Given("zone_aware")], "which is one of geolog's"),
        ([Given("Mine")], "policy 'Mine' is no name"),
        ([Given("a"), Given("a")], "two placement policies have the name 'a'"),
        (["mine"], "'mine', which is not a placement policy"),
    ],
)
def test_policies_that_cannot_be_named_are_refused(given: list[Given], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        own_policies(given)
