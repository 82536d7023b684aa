"""Coordinators of other regions: a coordinator admits some, and refuses strangers."""

import attrs
import pytest

from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import BridgeHello, BridgeRefused, BridgeWelcome

HELLO = BridgeHello(cluster="shop", region="eu-west", relay_epoch=3, window_bytes=1)
WELCOME = BridgeWelcome(cluster="shop", region="us-east", relay_epoch=3)


def test_a_target_of_the_same_cluster_is_welcome() -> None:
    gate = BridgeGate("shop", "us-east", 5)

    assert gate.answer(HELLO) == BridgeWelcome(cluster="shop", region="us-east", relay_epoch=5)


@pytest.mark.parametrize(
    ("hello", "code", "said"),
    [
        (
            attrs.evolve(HELLO, cluster="bank"),
            403,
            "of cluster 'shop', the other side of 'bank'",
        ),
        (attrs.evolve(HELLO, region="us-east"), 409, "region is 'us-east'"),
        (attrs.evolve(HELLO, version_first=2, version_last=9), 400, "version 1 .* 2 to 9"),
        (attrs.evolve(HELLO, compressions=("zstd",)), 400, "'none'.* takes zstd"),
    ],
    ids=["another cluster", "one region name twice", "other versions", "compression"],
)
def test_a_stranger_is_told_why_it_is_refused(hello: BridgeHello, code: int, said: str) -> None:
    refused = BridgeGate("shop", "us-east", 1).answer(hello)

    assert isinstance(refused, BridgeRefused)
    assert refused.code == code
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(refused.error)


def test_a_deposed_coordinator_is_refused_once_its_successor_was_seen() -> None:
    gate = BridgeGate("shop", "us-east", 1)
    gate.answer(attrs.evolve(HELLO, relay_epoch=4))

    assert isinstance(gate.answer(HELLO), BridgeRefused)
    assert isinstance(gate.answer(attrs.evolve(HELLO, region="asia")), BridgeWelcome)
    assert isinstance(gate.answer(attrs.evolve(HELLO, relay_epoch=4)), BridgeWelcome)


def test_a_relay_of_another_version_does_not_depose_the_real_one() -> None:
    gate = BridgeGate("shop", "us-east", 1)
    stranger = attrs.evolve(HELLO, relay_epoch=1 << 40, version_first=2, version_last=9)

    assert isinstance(gate.answer(stranger), BridgeRefused)
    assert isinstance(gate.answer(HELLO), BridgeWelcome)


def test_a_target_leaves_a_home_that_is_not_the_one_it_wanted() -> None:
    gate = BridgeGate("shop", "eu-west", 1)

    assert gate.fault_of_welcome(WELCOME, expected_region="us-east") is None
    for welcome in (
        attrs.evolve(WELCOME, cluster="bank"),
        attrs.evolve(WELCOME, region="eu-west"),
        attrs.evolve(WELCOME, region="asia"),
        attrs.evolve(WELCOME, version=2),
        attrs.evolve(WELCOME, relay_epoch=2),
    ):
        assert gate.fault_of_welcome(welcome, expected_region="us-east") is not None
