"""Binary messages of a bridge: each comes back as it was, and damage is found."""

import json
from contextlib import suppress

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.partition.mirror_entry import SegmentBegin
from geolog.protocol.ids import Sequence
from geolog.wire.entry import EncodedEntry
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeLeaving,
    BridgeMessage,
    BridgeRefused,
    BridgeWelcome,
    ChannelEnded,
    DurableTold,
    RelayedEntry,
    SendEntry,
    TailTold,
    WatermarkTold,
    WindowTold,
)
from relay.wire.bridge import decode_from_home, decode_from_target, encode_bridge
from tests.pure.relay.logs import home_log, marked
from topology.errors import DamagedBytesError, TooLargeError

FROM_TARGET = [
    BridgeHello(cluster="shop", region="eu-west", relay_epoch=3, window_bytes=1 << 24),
    WatermarkTold(1, None),
    WatermarkTold(1, marked(3, 4, crc=5, sequence=6)),
    DurableTold(2, marked(3, 4, crc=(1 << 32) - 1, sequence=6)),
    WindowTold(1 << 20),
    BridgeHeartbeat(5),
    ChannelEnded(7, 409, "no"),
    BridgeLeaving(),
    BridgeRefused(403, "wrong cluster"),
]
ASKED = AskWatermark(channel=1, stream="shop/carts", life="l1", partition=2, home_epoch=1)
FROM_HOME = [
    BridgeWelcome(cluster="shop", region="us-east", relay_epoch=2),
    ASKED,
    BridgeHeartbeat(5, (TailTold(1, Sequence(9), 8, 7),)),
    ChannelEnded(7, 410, "größe"),
    BridgeLeaving(),
    BridgeRefused(412, "over"),
]


@pytest.mark.parametrize("message", FROM_TARGET, ids=lambda one: type(one).__name__)
def test_a_targets_message_comes_back_as_it_was(message: BridgeMessage) -> None:
    assert decode_from_target(encode_bridge(message)) == message


@pytest.mark.parametrize("message", FROM_HOME, ids=lambda one: type(one).__name__)
def test_a_homes_message_comes_back_as_it_was(message: BridgeMessage) -> None:
    assert decode_from_home(encode_bridge(message)) == message


def same(one: RelayedEntry, other: RelayedEntry) -> bool:
    facts = (one.watermark, one.previous, one.begin, one.encoded.header, one.encoded.crc)
    others = (other.watermark, other.previous, other.begin, other.encoded.header)
    return facts == (*others, other.encoded.crc) and one.encoded.join() == other.encoded.join()


@given(st.text("c123|", max_size=12))
def test_entries_come_back_with_their_places_and_bytes(shape: str) -> None:
    for channel, entry in enumerate(home_log(shape).entries):
        found = decode_from_home(encode_bridge(SendEntry(channel, entry)))

        assert isinstance(found, SendEntry)
        assert found.channel == channel
        assert same(found.entry, entry)


@pytest.mark.parametrize("local_only", [0, 5])
def test_the_facts_of_a_segment_come_back(local_only: int) -> None:
    begin = SegmentBegin(
        first_sequence=Sequence(0),
        append_time_us_before=-2,
        transaction_id_before=3,
        size_bytes_before=4,
        local_only_before=local_only,
    )
    entry = attrs.evolve(home_log("1").entries[0], begin=begin)

    found = decode_from_home(encode_bridge(SendEntry(1, entry)))

    assert isinstance(found, SendEntry)
    assert found.entry.begin == begin


@pytest.mark.parametrize("message", [*FROM_TARGET, SendEntry(1, home_log("11").entries[1])])
def test_no_changed_bit_and_no_cut_passes(message: BridgeMessage) -> None:
    data = encode_bridge(message)
    decode = decode_from_home if isinstance(message, SendEntry) else decode_from_target

    for end in range(len(data)):
        with pytest.raises(DamagedBytesError):
            decode(data[:end])
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedBytesError):
            decode(bytes(changed))


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_another_error(data: bytes) -> None:
    for decode in (decode_from_home, decode_from_target):
        with suppress(DamagedBytesError):
            decode(data)


def test_messages_of_the_wrong_side_are_refused() -> None:
    with pytest.raises(DamagedBytesError, match="WindowTold is a message of the target"):
        decode_from_home(encode_bridge(WindowTold(1)))
    with pytest.raises(DamagedBytesError, match="AskWatermark is a message of the home"):
        decode_from_target(encode_bridge(ASKED))


ENTRIES = home_log("12|1").entries


@pytest.mark.parametrize(
    "entry",
    [
        attrs.evolve(ENTRIES[1], previous=marked(1, 1, sequence=1)),
        attrs.evolve(ENTRIES[1], previous=marked(1, 0, sequence=2)),
        attrs.evolve(ENTRIES[2], previous=marked(2, 9, sequence=3)),
        attrs.evolve(ENTRIES[0], begin=None),
        attrs.evolve(ENTRIES[1], begin=ENTRIES[0].begin),
        attrs.evolve(ENTRIES[2], begin=ENTRIES[0].begin),
    ],
    ids=["its own place", "sequence", "a later one", "no facts", "facts inside", "their start"],
)
def test_an_entry_that_contradicts_itself_is_refused(entry: RelayedEntry) -> None:
    with pytest.raises(DamagedBytesError):
        decode_from_home(encode_bridge(SendEntry(1, entry)))


def test_an_entry_whose_records_were_changed_is_refused() -> None:
    entry = ENTRIES[1]
    body = bytearray(entry.encoded.join())
    body[-9] ^= 1
    changed = EncodedEntry(entry.encoded.header, (bytes(body),), 0)

    with pytest.raises(DamagedBytesError, match="checksum"):
        decode_from_home(encode_bridge(SendEntry(1, attrs.evolve(entry, encoded=changed))))


@pytest.mark.parametrize(
    "message",
    [
        WatermarkTold(-1, None),
        WatermarkTold(1 << 32, None),
        WatermarkTold(1, marked(0, 1)),
        WatermarkTold(1, marked(1, 1, crc=1 << 32)),
        WindowTold(0),
        ChannelEnded(1, 1 << 63, ""),
        BridgeHeartbeat(1, (TailTold(1, Sequence(-1), 0, 0),)),
    ],
    ids=str,
)
def test_impossible_numbers_are_refused(message: BridgeMessage) -> None:
    data = encode_bridge(message)

    with pytest.raises(DamagedBytesError):
        (decode_from_home if isinstance(message, BridgeHeartbeat) else decode_from_target)(data)


def test_a_text_where_a_number_belongs_is_refused() -> None:
    data = encode_bridge(WindowTold("1"))  # type: ignore[arg-type]

    with pytest.raises(DamagedBytesError, match="not of type int"):
        decode_from_target(data)
    assert json.loads(data[20:]) == {"window_bytes": "1"}


def test_a_document_over_its_limit_is_not_sent() -> None:
    with pytest.raises(TooLargeError, match="BridgeRefused of"):
        encode_bridge(BridgeRefused(400, "x" * (1 << 20)))
