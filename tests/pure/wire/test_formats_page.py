"""docs/FORMATS.md shows batches, entries and frames byte by byte; this test rebuilds them.

A format that changes its bytes fails here first. That is intended: bytes on disk outlive the
code that wrote them, so a change of layout is a new version, not another page.
"""

import re
from pathlib import Path
from typing import get_args

import attrs
import pytest

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId, Sequence
from geolog.protocol.messages import Add
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.writer_standing import WriterFence
from geolog.wire import layouts, limits
from geolog.wire.batch import Batch, SealedBatch, open_batch, seal_batch
from geolog.wire.codec import FrameType, decode, encode
from geolog.wire.entry import EncodedEntry, WriterStamp, decode_entry, encode_entry
from geolog.wire.frame import FrameReader
from geolog.wire.multicast import MULTICAST_MESSAGE_TYPES, MulticastEntry
from geolog.wire.session.batches import MESSAGE_TYPES, BatchesFromClient
from geolog.wire.snapshot import seal_snapshot
from geolog.wire.writer_fence import open_fence, seal_fence
from relay.protocol.bridge_messages import FromHome, FromTarget
from relay.wire.bridge import BRIDGE_MESSAGE_TYPES

PAGE = (Path(__file__).parents[3] / "docs" / "FORMATS.md").read_text(encoding="utf-8")

Parts = list[tuple[int, str]]
"""Number of bytes, and their meaning; {} stands for the number they hold."""

BATCH: Parts = [
    (4, 'magic "GLBA"'),
    (4, "CRC32C of bytes 8 to 31"),
    (1, "version {}"),
    (1, "codec {}: stored as it is"),
    (2, "column flags: {}, keys"),
    (4, "{} records"),
    (4, "stored length of the body: {}"),
    (4, "raw length of the body: {}"),
    (4, "CRC32C of the body as stored"),
    (4, "zero"),
    (16, "created: 2013-01-01T05:17:00Z, twice"),
    (12, "offsets of the values: 0, 5, 11"),
    (4, "padding"),
    (11, 'values: "UA1545" has 6 bytes, after "AA725"'),
    (5, "padding"),
    (1, "keys, validity: row 0 has one, row 1 has none"),
    (7, "padding"),
    (12, "offsets of the keys: 0, 3, 3"),
    (4, "padding"),
    (3, 'keys: "JFK"'),
    (5, "padding"),
]
ENTRY: Parts = [
    (4, 'magic "GLEN"'),
    (4, "CRC32C of bytes 8 to 111"),
    (1, "version {}"),
    (1, "kind {}: data"),
    (2, "no flags"),
    (4, "length of the header: {}"),
    (4, "length of the body: {}"),
    (4, "{} records"),
    (4, "{} batch"),
    (4, "zero"),
    (8, "home epoch {}"),
    (8, "segment {}"),
    (8, "entry {}"),
    (8, "first sequence {}"),
    (8, "append time: 2013-01-01T05:17:00.25Z"),
    (4, "batch 0: its length, {}"),
    (4, "its records, {}"),
    (4, "its header's CRC32C, as above"),
    (4, "its body's CRC32C, as above"),
    (4, "writer epoch {}"),
    (2, "length of the gaps: {}"),
    (2, "divided among {} partitions"),
    (8, "writer seq {} of the first record"),
    (1, "length of the writer's id: {}"),
    (6, 'writer id "till-7"'),
    (1, "gaps: {} seqs were left out before the second record: it has seq 43"),
]
FRAME: Parts = [
    (4, 'magic "GLF", version 1'),
    (4, "CRC32C of bytes 8 to 77"),
    (2, "type {}: add"),
    (2, "length of the fields: {}"),
    (4, "length of the body: {}"),
    (4, "CRC32C of the body"),
    (8, "ordinal {}"),
    (8, "ledger {}"),
    (8, "entry {} of that ledger"),
    (8, "ledger epoch {}"),
    (8, "LAC {}"),
    (1, "{}: not by a recovery"),
    (1, "{}: no word when it is received"),
    (16, "the instance meant"),
]
FENCE: Parts = [
    (1, 'tag {} ("F")'),
    (3, "zero"),
    (4, "writer epoch {}"),
    (16, "nonce"),
]
WRITER: Parts = [
    (8, "writer epoch {}"),
    (8, "highest seq {}"),
    (8, "last append or fence: 2013-01-01T05:17:00.25Z"),
    (1, "{} batch"),
    (8, "batch 0: its first seq, {}"),
    (8, "its first sequence, {}"),
    (8, "its segment, {}"),
    (8, "its entry, {}"),
    (4, "its records, {}"),
    (4, "its first slot, {}"),
    (4, "its header's CRC32C"),
    (4, "its body's CRC32C"),
    (2, "length of its gaps: {}"),
    (1, "gaps: {} seqs were left out before its second record"),
    (2, "generation 0: divided among {} partitions"),
    (8, "up to seq {}"),
    (16, "nonce of the epoch"),
]
NONCE = int.from_bytes(bytes(range(0x10, 0x20)), "little")


def batch() -> SealedBatch:
    return seal_batch(
        [b"AA725", b"UA1545"],
        created_us=1_357_017_420_000_000,
        keys=[b"JFK", None],
        compress=False,
    )


def entry() -> EncodedEntry:
    return encode_entry(
        [batch()],
        home_epoch=1,
        segment=3,
        entry=4,
        first_sequence=100,
        append_time_us=1_357_017_420_250_000,
        writers=[WriterStamp(b"till-7", 2, BatchSeqs(40, 2, b"\x02"), 5)],
    )


def add() -> Add:
    return Add(
        ordinal=9,
        ledger=LedgerId(12),
        entry=EntryId(4),
        epoch=Epoch(2),
        lac=EntryId(3),
        is_recovery=False,
        wants_received=False,
        instance=InstanceId("00112233445566778899aabbccddeeff"),
        body=entry().join(),
        body_crc=entry().crc,
    )


def fence() -> Batch:
    sealed = seal_fence(b"till-7", WriterFence(2, NONCE), now_us=1_357_017_420_250_000)
    return open_batch(sealed.data)


def snapshot() -> Batch:
    """The snapshot after the entry above, in the session that the fence above began."""
    line = entry().header.lines[0]
    assert line.writer is not None
    written = WrittenBatch(
        line.writer.seqs, 3, 4, 0, Sequence(100), line.header_crc, line.body_crc
    )
    state = PartitionState(sequence_next=Sequence(100))
    state.on_fence(b"till-7", WriterFence(2, NONCE), 1_357_017_420_000_000)
    state.on_entry(
        next_sequence=Sequence(102),
        append_time_us=1_357_017_420_250_000,
        transaction_id=None,
        batch_bytes=112,
    )
    state.on_batch(b"till-7", 2, written, state.append_time_us, partitions=5)
    (sealed,) = seal_snapshot(state, now_us=1_357_017_420_250_000)
    return open_batch(sealed.data)


def hexdump(data: bytes, parts: Parts, end: str = "") -> str:
    """Each part on lines of its own, eight bytes a line, with its meaning on the first."""
    assert sum(length for length, _ in parts) == len(data)
    lines = []
    start = 0
    for length, meaning in parts:
        part = data[start : start + length]
        note = meaning.format(int.from_bytes(part, "little"))
        for offset in range(0, length, 8):
            digits = part[offset : offset + 8].hex(" ")
            lines.append(f"{start + offset:4d}  {digits:23}  {note}".rstrip())
            note = ""
        start += length
    return "\n".join([*lines, *([f"{start:4d}  {end}"] if end else [])])


def example(name: str) -> str:
    """Find the example of that name on the page."""
    found = re.search(
        rf"^### Example: {name}\n.*?^```text\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"docs/FORMATS.md has no example of {name}"
    return found.group(1)


def bytes_of_example(name: str) -> bytes:
    """Read the page's hexadecimal digits back."""
    rows = re.findall(r"^ *\d+  ((?:[0-9a-f]{2} ?)+?)(?:  .*)?$", example(name), re.MULTILINE)
    return bytes.fromhex(" ".join(rows))


def test_the_page_shows_a_batch_as_it_is() -> None:
    assert example("a sealed batch") == hexdump(bytes(batch().data), BATCH)


def test_the_page_shows_an_entry_as_it_is() -> None:
    front = bytes(entry().buffers[0])

    assert example("an entry") == hexdump(front, ENTRY, "the sealed batch above, 112 bytes")


def test_the_page_shows_a_fence_as_it_is() -> None:
    assert example("a fence") == hexdump(fence().value(0), FENCE)


def test_the_page_shows_a_writer_in_a_snapshot_as_it_is() -> None:
    assert example("a writer in a snapshot") == hexdump(snapshot().value(1), WRITER)


def test_the_page_shows_a_frame_as_it_is() -> None:
    front = bytes(encode(add())[0])

    assert example("a frame") == hexdump(front, FRAME, "the entry above, 224 bytes")


def test_the_bytes_on_the_page_are_still_understood() -> None:
    batch_bytes = bytes_of_example("a sealed batch")
    entry_bytes = bytes_of_example("an entry") + batch_bytes
    data = bytes_of_example("a frame") + entry_bytes
    reader = FrameReader()
    reader.buffer()[: len(data)] = data
    reader.received(len(data))

    (frame,) = reader.frames()

    assert decode(frame) == add()
    assert decode_entry(frame.body).header == entry().header
    assert open_batch(batch_bytes).values() == [b"AA725", b"UA1545"]


def test_a_fence_on_the_page_is_still_understood() -> None:
    sealed = seal_batch([bytes_of_example("a fence")], keys=[b"till-7"], created_us=1)

    assert open_fence(open_batch(sealed.data)).fence == WriterFence(2, NONCE)


@pytest.mark.parametrize("type_", FrameType, ids=lambda type_: type_.name)
def test_the_page_lists_each_message_with_its_struct(type_: FrameType) -> None:
    rows = dict(re.findall(r"^\| (\d+) \| `\w+` \| `(\S+)`", PAGE, re.MULTILINE))
    named = {
        "LEDGER_OPENED": "REQUEST",
        "STATUS_REQUEST": "REQUEST",
        "STATUS": "REQUEST",
        "DOUBT_SETTLED": "REQUEST",
        "CANCEL": "REQUEST",
    }
    layout = getattr(layouts, named.get(type_.name, type_.name))

    assert rows[str(int(type_))] == layout.format


@pytest.mark.parametrize(
    ("thing", "limit_bytes"),
    [
        ("record", limits.RECORD_BYTES_MAX),
        ("batch", limits.BATCH_BYTES_MAX),
        ("entry", limits.ENTRY_BYTES_MAX),
        ("frame", limits.FRAME_BYTES_MAX),
    ],
)
def test_the_page_states_each_limit(thing: str, limit_bytes: int) -> None:
    assert f"| {thing} | {limit_bytes >> 20} MiB |" in PAGE


def test_the_page_lists_the_messages_of_sessions_with_their_fields() -> None:
    section = PAGE.split("## Sessions of geolog's own clients")[1].split("\n## ")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in section.splitlines()
        if re.match(r"\| \d+ ", line)
    ]
    expected = []
    for class_, number in sorted(MESSAGE_TYPES.items(), key=lambda item: item[1]):
        sender = "client" if class_ in get_args(BatchesFromClient) else "proxy"
        fields = ", ".join(f"`{field.name}`" for field in attrs.fields(class_))
        expected.append((str(number), f"`{class_.__name__}`", sender, fields))

    assert [row[:3] for row in rows] == [one[:3] for one in expected]
    assert [row[3] for row in rows[2:]] == [one[3] for one in expected[2:]]


def test_the_page_lists_the_messages_of_bridges() -> None:
    section = PAGE.split("## Bridges between relays")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (`\w+`) \| (\w+) \| (.*) ?\|$", section, re.MULTILINE)
    expected = []
    for class_, number in sorted(BRIDGE_MESSAGE_TYPES.items(), key=lambda item: item[1]):
        from_home, from_target = class_ in get_args(FromHome), class_ in get_args(FromTarget)
        side = "both" if from_home and from_target else "home" if from_home else "target"
        fields = ", ".join(f"`{field.name}`" for field in attrs.fields(class_))
        expected.append((str(number), f"`{class_.__name__}`", side, fields))

    assert [row[:3] for row in rows] == [one[:3] for one in expected]
    assert [row[3].strip() for row in rows[2:]] == [one[3] for one in expected[2:]]


def test_the_page_lists_the_messages_of_the_multicast() -> None:
    section = PAGE.split("### The multicast to relays")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (\d+) \| (`\w+`) \| (.*) \|$", section, re.MULTILINE)
    expected = []
    for class_, number in sorted(MULTICAST_MESSAGE_TYPES.items(), key=lambda item: item[1]):
        fields = ", ".join(f"`{field.name}`" for field in attrs.fields(class_))
        told = "an [entry](#the-entry) of the log numbered at byte 4"
        if class_ is not MulticastEntry:
            told = f"a JSON object: {fields}"
        expected.append((str(number), f"`{class_.__name__}`", told))

    assert rows == expected
