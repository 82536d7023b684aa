"""docs/FORMATS_JOURNAL.md shows a journal file byte by byte; this test rebuilds it."""

import re
from collections.abc import Sequence
from pathlib import Path

from trio.testing import MockClock

from regions.storage.protocol.records import DATA_OFFSET, FILE_HEADER_BYTES, file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import restarted, running

PAGE = (Path(__file__).parents[3] / "docs" / "FORMATS_JOURNAL.md").read_text(encoding="utf-8")

Parts = list[tuple[int, str]]
"""Number of bytes, and their meaning; {} stands for the number they hold."""

HEADER: Parts = [
    (8, 'magic "geologJF"'),
    (2, "version {}"),
    (2, "zero"),
    (4, "first record at {}"),
    (8, "file {}"),
    (16, "instance"),
    (16, "cluster"),
    (8, "salt"),
    (8, "no file before"),
    (8, "{} bytes of it"),
    (4, "no table"),
    (4, "CRC32C"),
]


def record(name: str, *, body: Sequence[tuple[int, str]] = ()) -> Parts:
    return [
        (4, 'magic "gJr", version 1'),
        (1, "kind {}: " + name),
        (1, "flags {}"),
        (2, "zero"),
        (8, "ledger {}"),
        (8, "entry {}"),
        (8, "epoch {}"),
        (8, "LAC"),
        (4, "length of the body: {}"),
        (4, "CRC32C of the body"),
        (4, "CRC32C, seeded"),
        *body,
    ]


RECORDS: Parts = [
    *record("mark"),
    *record("open, first"),
    *record("entry", body=[(4, '"zero"')]),
    *record("mark, last"),
    *record(
        "table",
        body=[
            (8, "{} ledger"),
            (8, "{} intervals of deleted ledgers"),
            (8, "{} files before this one"),
            (8, "{} intervals of retired files"),
            (8, "{} damages"),
            (8, "{} settled damages"),
            (8, "{} entry"),
            (8, "ledger {}"),
            (8, "highest epoch {}"),
            (8, "LAC: none"),
            (8, "highest entry {}"),
            (8, "first record in file {}"),
            (8, "not fenced"),
            (8, "ledger {}"),
            (8, "entry {}"),
            (8, "body at {}"),
            (4, "length {}"),
            (4, "CRC32C, as above"),
        ],
    ),
    (8, 'footer: magic "geologJT"'),
    (8, "file {}"),
    (8, "table at {}"),
    (8, "length {}"),
    (4, "CRC32C of the table"),
    (4, "CRC32C"),
]


def hexdump(data: bytes, start: int, parts: Parts) -> list[str]:
    """Each part on lines of its own, eight bytes a line, with its meaning on the first."""
    lines = []
    for length, meaning in parts:
        part, data = data[:length], data[length:]
        note = meaning.format(int.from_bytes(part, "little"))
        for offset in range(0, length, 8):
            digits = part[offset : offset + 8].hex(" ")
            lines.append(f"{start + offset:4d}  {digits:23}  {note}".rstrip())
            note = ""
        start += length
    assert not data
    return lines


async def a_journal_file() -> bytes:
    disk = MemoryDisk()
    async with running(disk) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
    return disk.content(file_name(1))


def example() -> str:
    found = re.search(r"^### Example.*?^```text\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


async def test_the_page_shows_a_journal_file_as_it_is(autojump_clock: MockClock) -> None:
    content = await a_journal_file()

    lines = hexdump(content[:FILE_HEADER_BYTES], 0, HEADER)
    lines += hexdump(content[DATA_OFFSET:], DATA_OFFSET, RECORDS)

    assert example() == "\n".join(lines)


async def test_the_bytes_on_the_page_are_still_understood(autojump_clock: MockClock) -> None:
    content = bytearray(DATA_OFFSET)
    for row in re.finditer(r"^ *(\d+)  ((?:[0-9a-f]{2} ?)+)", example(), re.MULTILINE):
        start, part = int(row[1]), bytes.fromhex(row[2])
        content[start : start + len(part)] = part
    disk = MemoryDisk()
    await disk.create(file_name(1))
    disk.overwrite(file_name(1), bytes(content))

    node = await restarted(disk)

    assert await node.read(7, 0) == b"zero"
    assert not node.ledgers.is_any_in_doubt
