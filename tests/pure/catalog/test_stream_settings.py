"""Settings of a stream: parsed once at the edge, changed field by field."""

import inspect

import attrs
import pytest

import geolog
from geolog.catalog.stream_settings import StreamChanges, StreamSettings
from geolog.protocol.loss_bound import LossTerms
from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from topology.errors import InvalidArgumentError, SealedError
from topology.quorum import Durability, QuorumConfig
from topology.stream_policy import PlacementTerms, PolicyKind

RECORD = StreamRecord(
    name=StreamName("shop", "orders"),
    life="1",
    mode=StreamMode.GLOBAL,
    quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2),
    partitions=2,
    segment_bytes=1 << 20,
    retention_s=60.0,
    created_us=0,
)


def test_texts_are_parsed_when_the_settings_are_built() -> None:
    settings = StreamSettings(mode="global", durability="count", policy="rack_aware")

    assert settings.mode is StreamMode.GLOBAL
    assert settings.durability is Durability.COUNT
    assert settings.policy == PlacementTerms(policy=PolicyKind.RACK_AWARE)


@pytest.mark.parametrize(
    ("mode", "durability", "policy", "says"),
    [
        ("continental", "regions", None, "'continental'"),
        ("global", "disks", None, "'disks'"),
        ("global", "regions", "Rack aware", "policy 'Rack aware' is no name"),
    ],
)
def test_unknown_texts_are_refused(
    mode: str, durability: str, policy: str | None, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        StreamSettings(mode=mode, durability=durability, policy=policy)


@pytest.mark.parametrize(("ack_quorum", "has_sizes"), [(None, False), (2, True)])
def test_any_quorum_size_counts_as_given(ack_quorum: int | None, *, has_sizes: bool) -> None:
    settings = StreamSettings(mode="global", durability="count", ack_quorum=ack_quorum)

    assert settings.has_sizes is has_sizes


OF_NAMESPACE = {"mode", "home", "relay_to"}
"""Settings for which a namespace may have defaults; None asks for them."""


UNDER_ANOTHER_NAME = {"isolation_lease_s": "on_isolation"}
"""Settings that callers give in words."""


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (geolog.Log.create_stream, StreamSettings),
        (geolog.Log.update_stream, StreamChanges),
    ],
)
def test_the_public_methods_take_every_setting_with_its_default(
    method: object, kind: type[attrs.AttrsInstance]
) -> None:
    assert callable(method)
    parameters = inspect.signature(method).parameters

    for field in attrs.fields(kind):
        if field.name in UNDER_ANOTHER_NAME:
            assert UNDER_ANOTHER_NAME[field.name] in parameters
            continue
        default = parameters[field.name].default
        is_of_namespace = field.name in OF_NAMESPACE and default is None
        assert is_of_namespace or field.default in (default, attrs.NOTHING), field.name


def test_a_change_leaves_the_settings_that_it_does_not_name() -> None:
    changed = StreamChanges(segment_age_s=5.0).applied_to(RECORD)

    assert changed == attrs.evolve(RECORD, segment_age_s=5.0)


def test_a_retention_of_none_keeps_all_records() -> None:
    assert StreamChanges(retention_s=None).applied_to(RECORD).retention_s is None
    assert StreamChanges().applied_to(RECORD).retention_s == RECORD.retention_s


def test_partitions_only_grow_and_not_once_a_stream_is_sealed() -> None:
    sealed = attrs.evolve(RECORD, is_sealed=True)

    assert StreamChanges(partitions=3).applied_to(RECORD).partitions == 3
    assert StreamChanges(partitions=2).applied_to(sealed).partitions == 2
    with pytest.raises(InvalidArgumentError, match="shop/orders has 2 partitions"):
        StreamChanges(partitions=1).applied_to(RECORD)
    with pytest.raises(SealedError):
        StreamChanges(partitions=3).applied_to(sealed)


RELAYED = attrs.evolve(
    RECORD,
    mode=StreamMode.REGIONAL,
    placement=PlacementTerms(policy=PolicyKind.RACK_AWARE, region="us-east"),
    relay_to=("ap-northeast", "eu-west"),
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (StreamChanges(rpo_max_bytes=1000), "rpo max must be >= 1024KiB, got 1000 bytes"),
        (StreamChanges(rpo_max_s=0.0), "rpo max must be >= 0.1s, got 0 s"),
        (StreamChanges(rpo_max_s=5.0, rpo_max_bytes=1 << 20), "give one of the two"),
        (StreamChanges(rpo_targets="any"), "rpo targets any: give the bound, too"),
        (
            StreamChanges(rpo_max_s=5.0, rpo_targets="eu-west,mars"),
            "name mars, to which the stream is not relayed; its targets are ap-northeast",
        ),
        (StreamChanges(rpo_max_s=5.0, relay_to=()), "the stream has none: name them"),
    ],
)
def test_a_bound_on_loss_that_cannot_be_kept_is_refused(
    changes: StreamChanges, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        changes.applied_to(RELAYED)


@pytest.mark.parametrize("given", ["", " , ", "all,any", "any,eu-west"])
def test_targets_of_a_bound_are_all_any_or_names(given: str) -> None:
    with pytest.raises(InvalidArgumentError, match="give 'all', 'any', or names"):
        StreamChanges(rpo_targets=given)


def test_a_bound_in_bytes_replaces_one_in_seconds_and_none_forgets_the_targets() -> None:
    in_time = StreamChanges(rpo_max_s=5.0, rpo_targets="eu-west").applied_to(RELAYED)
    in_bytes = StreamChanges(rpo_max_bytes=1 << 20).applied_to(in_time)
    off = StreamChanges(rpo_max_bytes=None).applied_to(in_bytes)

    assert in_time.loss_terms == LossTerms(targets=("eu-west",), max_s=5.0)
    assert in_bytes.loss_terms == LossTerms(targets=("eu-west",), max_bytes=1 << 20)
    assert (off.loss_terms, off.rpo_targets) == (None, ("all",))


def test_any_target_is_one_of_those_that_the_stream_has() -> None:
    any_of = StreamChanges(rpo_max_s=5.0, rpo_targets=["any"]).applied_to(RELAYED)
    fewer = StreamChanges(relay_to=("eu-west",)).applied_to(any_of)

    assert any_of.loss_terms == LossTerms(targets=RELAYED.relay_to, is_any=True, max_s=5.0)
    assert fewer.loss_terms == LossTerms(targets=("eu-west",), is_any=True, max_s=5.0)


def test_a_target_that_is_named_cannot_be_removed() -> None:
    named = StreamChanges(rpo_max_s=5.0, rpo_targets="eu-west").applied_to(RELAYED)
    with pytest.raises(InvalidArgumentError, match="rpo targets name eu-west"):
        StreamChanges(relay_to=("ap-northeast",)).applied_to(named)
