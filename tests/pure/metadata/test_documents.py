"""Documents that a person can read and a program can trust."""

import json

import attrs
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId, Sequence
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.stream_state import (
    FIRST_HOME_EPOCH,
    OwnerRecord,
    SegmentRecord,
    StreamMode,
    StreamName,
    StreamRecord,
)
from topology.errors import DamagedBytesError, InvalidArgumentError
from topology.location import Location
from topology.quorum import Durability, QuorumConfig

QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)
LEDGER = LedgerRecord(
    ledger=LedgerId(9),
    state=LedgerState.IN_RECOVERY,
    epoch=Epoch(4),
    quorum=QUORUM,
    fragments=(
        Fragment(EntryId(0), (Member(InstanceId("a" * 32), "sn-é", Location("eu", "r1")),)),
    ),
    stream="shop/orders",
)
STREAM = StreamRecord(
    name=StreamName("shop", "orders"),
    mode=StreamMode.GLOBAL,
    quorum=attrs.evolve(QUORUM, ack_quorum=3, durability=Durability.COUNT),
    segment_bytes=1 << 26,
    created_us=1_700_000_000_000_000,
    life="1",
)
SEGMENT = SegmentRecord(
    segment=1,
    ledger=LedgerId(9),
    home_epoch=1,
    first_sequence=Sequence(0),
    owner_epoch=Epoch(2),
    activated_us=5,
    last_entry=EntryId(-1),
)
VALUES = [LEDGER, STREAM, SEGMENT, OwnerRecord()]


def sealed(body: object) -> bytes:
    """A document whose checksum is right, whatever its body is."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f'{{"body":{text},"crc32c":"{crc32c(text.encode()):08x}"}}'.encode()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_reads_back_as_it_was_sealed(value: object) -> None:
    assert open_document(seal_document(value), type(value), path="/x") == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_flipped_bit_is_found_or_changes_nothing(value: object) -> None:
    data = seal_document(value)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            read = open_document(bytes(flipped), type(value), path="/x")
        except DamagedBytesError:
            continue

        assert read == value, f"bit {bit}: {bytes(flipped)!r}"


def test_a_stream_record_without_a_home_epoch_has_the_first_one() -> None:
    body = json.loads(seal_document(STREAM))["body"]
    assert body.pop("home_epoch") == FIRST_HOME_EPOCH == 1

    assert open_document(sealed(body), StreamRecord, path="/x") == STREAM


def test_a_home_epoch_that_was_raised_reads_back() -> None:
    moved = attrs.evolve(STREAM, home_epoch=3)

    assert open_document(seal_document(moved), StreamRecord, path="/x") == moved


def test_every_shortened_document_is_found() -> None:
    data = seal_document(LEDGER)
    for length in range(len(data)):
        with pytest.raises(DamagedBytesError, match=r"^/ledgers/9 "):
            open_document(data[:length], LedgerRecord, path="/ledgers/9")


@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        "text",
        [],
        {},
        {"ensemble_size": 3, "write_quorum": 3},
        {"ensemble_size": "three", "write_quorum": 3, "ack_quorum": 2},
        {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 9},
        {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "durability": "maybe"},
    ],
)
def test_a_body_of_another_shape_is_found_although_its_checksum_is_right(body: object) -> None:
    with pytest.raises(
        DamagedBytesError, match=r"^/x is intact, but required fields are missing$"
    ):
        open_document(sealed(body), QuorumConfig, path="/x")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"7", b"null", b'{"body":{}}', b'{"crc32c":"0"}', b"\xff\xfe", b"[" * 100_000],
)
def test_bytes_that_are_not_a_document_are_detected(data: bytes) -> None:
    with pytest.raises(DamagedBytesError, match=r"^/x "):
        open_document(data, QuorumConfig, path="/x")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_are_found(data: bytes) -> None:
    with pytest.raises(DamagedBytesError):
        open_document(data, OwnerRecord, path="/x")


def test_a_document_can_be_read_by_a_person() -> None:
    assert seal_document(QUORUM).startswith(b'{"body":{"ack_quorum":2,"durability":"regions",')


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../other", "x" * 129])
def test_a_cluster_name_that_is_not_a_path_part_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid cluster name"):
        ClusterPaths(name)


@pytest.mark.parametrize("node_id", ["", "a/b", "..", "a b"])
def test_a_node_id_that_is_not_a_path_part_is_refused(node_id: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid node id"):
        ClusterPaths("default").node_known(node_id)
