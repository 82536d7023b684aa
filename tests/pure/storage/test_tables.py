"""Tables of entry offsets, against plain dicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, LedgerId
from regions.storage.protocol.damage import Damage, DamageSet
from regions.storage.protocol.intervals import IntervalSet
from regions.storage.protocol.known_files import FileRow
from regions.storage.protocol.tables import (
    FOOTER_BYTES,
    EntryPlace,
    Footer,
    FoundTable,
    LedgerRow,
    OpenTable,
    Promises,
    encode_table,
)
from topology.errors import DamagedBytesError

keys = st.tuples(st.integers(0, 5), st.integers(0, 40))
far_numbers = st.integers(0, 2**63 - 1)
far_keys = st.tuples(far_numbers, far_numbers)
places = st.builds(
    EntryPlace, st.integers(0, 2**63), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
)
ledger_rows = st.builds(
    LedgerRow,
    st.integers(0, 2**63 - 1).map(LedgerId),
    st.integers(1, 2**63 - 1).map(Epoch),
    st.integers(-1, 2**63 - 1).map(EntryId),
    st.integers(-1, 2**63 - 1).map(EntryId),
    st.integers(0, 2**63),
    st.booleans(),
)


@given(st.lists(st.tuples(keys | far_keys, places)), st.lists(keys))
def test_a_table_finds_what_a_dict_finds_open_and_sealed(
    rows: list[tuple[tuple[int, int], EntryPlace]], asked: list[tuple[int, int]]
) -> None:
    naive: dict[tuple[int, int], EntryPlace] = {}
    table = OpenTable()
    for (ledger, entry), place in rows:
        naive[ledger, entry] = place
        table.add(ledger, entry, place.offset, place.length, place.crc)
    sealed = table.sealed()

    assert len(table) == len(sealed) == len(naive)
    for key in [*asked, *naive]:
        assert table.find(*key) == sealed.find(*key) == naive.get(key)


intervals = st.lists(st.tuples(st.integers(0, 99), st.integers(100, 2**63))).map(IntervalSet)
damages = st.lists(
    st.builds(Damage, st.integers(0, 99), st.integers(100, 2**63), st.integers(0, 2**32 - 1))
).map(DamageSet)
promises = st.builds(
    Promises,
    st.lists(ledger_rows),
    intervals,
    st.lists(st.builds(FileRow, far_numbers, far_numbers, st.integers(0, 2**32 - 1))),
    intervals,
    damages,
    damages,
)


@given(promises, st.lists(st.tuples(keys | far_keys, places)))
def test_a_table_read_back_is_the_same(
    promised: Promises, rows: list[tuple[tuple[int, int], EntryPlace]]
) -> None:
    table = OpenTable()
    for (ledger, entry), place in rows:
        table.add(ledger, entry, place.offset, place.length, place.crc)
    found = FoundTable(encode_table(promised, table.sealed()))

    assert list(found.ledgers()) == promised.ledgers
    assert found.deleted == promised.deleted
    assert found.files == promised.files
    assert found.retired == promised.retired
    assert found.damaged == promised.damaged
    assert found.settled == promised.settled
    assert found.entries.rows == table.sealed().rows


@pytest.mark.parametrize("length", [0, 15, 55, 56, 57, 60, 200])
def test_a_table_whose_counts_do_not_add_up_is_damaged(length: int) -> None:
    body = (b"\x02" + bytes(7) + b"\x01" + bytes(300))[:length]

    with pytest.raises(DamagedBytesError):
        FoundTable(body)


def test_a_footer_matches_its_file_and_is_intact() -> None:
    footer = Footer(3, 8192, 128, 7)
    encoded = footer.encode()

    assert len(encoded) == FOOTER_BYTES
    assert Footer.decode(encoded, 3) == footer
    assert Footer.decode(encoded, 4) is None
    assert Footer.decode(encoded[1:], 3) is None
    for place in range(len(encoded)):
        for bit in range(8):
            flipped = bytearray(encoded)
            flipped[place] ^= 1 << bit
            assert Footer.decode(bytes(flipped), 3) is None
