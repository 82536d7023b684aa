"""Lost files, against a naive check of each id."""

from hypothesis import given
from hypothesis import strategies as st

from regions.storage.protocol.known_files import FileRow, KnownFiles, merged_rows

NEWEST = 12
ids = st.integers(1, NEWEST)
rows = st.builds(FileRow, ids, st.integers(0, 5), st.integers(0, 2))


@given(st.sets(ids), st.sets(ids), st.integers(0, NEWEST))
def test_a_file_is_lost_unless_it_is_there_or_was_retired_before_an_intact_table(
    present: set[int], retired: set[int], table_newest: int
) -> None:
    files = KnownFiles()
    for file_id in retired:
        files.retire(file_id)
    for file_id in present:  # Including retired ones not removed yet.
        files.keep(FileRow(file_id, 1, 1))

    lost = [
        file_id
        for first, last in files.lost(NEWEST, table_newest=table_newest)
        for file_id in range(first, last + 1)
    ]

    excused = {file_id for file_id in retired if file_id < table_newest}
    assert lost == sorted(set(range(1, NEWEST + 1)) - present - excused)


def test_a_file_that_is_retired_has_no_row_any_more() -> None:
    files = KnownFiles()
    for file_id in (3, 1, 2):
        files.keep(FileRow(file_id, 10 * file_id, 7))
    files.retire(2)

    assert list(files.rows()) == [FileRow(1, 10, 7), FileRow(3, 30, 7)]
    assert (files.find(2), list(files.retired)) == (None, [(2, 2)])


@given(st.lists(rows))
def test_the_strongest_promise_of_a_file_counts(said: list[FileRow]) -> None:
    merged = merged_rows(said)

    for file_id in range(1, NEWEST + 1):
        of_file = [row for row in said if row.file_id == file_id]
        if not of_file:
            assert file_id not in merged
            continue
        assert merged[file_id].length_bytes == max(row.length_bytes for row in of_file)
        checksums = [row.table_crc for row in of_file if row.table_crc]
        assert merged[file_id].table_crc == (checksums[-1] if checksums else 0)
