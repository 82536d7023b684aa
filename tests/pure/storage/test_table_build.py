"""The table that ends a file is built in short steps, and is true at the end."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Epoch, InstanceId, LedgerId
from regions.storage.protocol.known_files import FileRow, KnownFiles
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.promises import TableBuild, promises_of
from regions.storage.protocol.tables import FoundTable, OpenTable, TableSealing, encode_table

ROWS_MAX = 8
LEDGERS = range(30)
FILES = range(1, 6)

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=200)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("delete"), st.sampled_from(LEDGERS)),
        st.tuples(st.just("fence"), st.sampled_from(LEDGERS)),
        st.tuples(st.just("retire"), st.sampled_from(FILES)),
        st.tuples(st.just("nothing"), st.just(0)),
    ),
    max_size=40,
)


def a_table(added: list[tuple[int, int]]) -> OpenTable:
    table = OpenTable()
    for number, (ledger, entry) in enumerate(added):
        table.add(ledger, entry, 100 * number, 100, number)
    return table


def some_ledgers() -> Ledgers:
    ledgers = Ledgers(InstanceId("ab" * 16))
    for ledger in map(LedgerId, LEDGERS):
        replica = ledgers.replica_of(ledger)
        replica.restore_open(Epoch(1))
        ledgers.keep(replica, first_file_id=1)
    return ledgers


def some_files() -> KnownFiles:
    files = KnownFiles()
    for file_id in FILES:
        files.keep(FileRow(file_id, 4096, 7))
    return files


@given(rows)
def test_a_table_built_in_steps_equals_one_built_at_once(
    added: list[tuple[int, int]],
) -> None:
    ledgers, files, table = some_ledgers(), some_files(), a_table(added)
    build = TableBuild(ledgers, files, table)

    for _ in build.steps(rows_max=ROWS_MAX):
        assert [table.find(*key) is not None for key in added] == [True] * len(added)

    body = b"".join(build.pieces)
    assert body == encode_table(promises_of(ledgers, files), table.sealed())
    assert FoundTable(body).entries.ledgers == build.table.ledgers


@given(rows)
def test_no_step_sorts_many_rows(added: list[tuple[int, int]]) -> None:
    sealing = TableSealing(a_table(added))
    size = len(a_table([(0, 0)]).sealed().rows)

    steps = [len(done) // size for done in sealing.steps(rows_max=ROWS_MAX)]

    assert all(count <= ROWS_MAX for count in steps)
    assert sum(steps) == len(set(added))


def test_late_rows_are_sorted_in_pieces() -> None:
    """However many they are: each piece is a turn of work."""
    table = a_table([(0, 1000), *((0, entry) for entry in range(999, 0, -1))])
    [(_, of_ledger)] = table.ledger_rows()

    pieces = of_ledger.pieces(ROWS_MAX)

    sorted_first = list(islice(pieces, 999 // ROWS_MAX + 1))
    assert sorted_first == [b""] * len(sorted_first)
    assert sum(map(len, pieces)) == 1000 * len(a_table([(0, 0)]).sealed().rows)


@given(rows, changes)
def test_promises_between_steps_are_never_lost(
    added: list[tuple[int, int]], todo: list[tuple[str, int]]
) -> None:
    """A ledger has its row or is deleted; a fence is ahead; a file is present or retired."""
    ledgers, files = some_ledgers(), some_files()
    build = TableBuild(ledgers, files, a_table(added))
    fenced: set[int] = set()

    for _ in build.steps(rows_max=ROWS_MAX):
        match todo.pop() if todo else ("nothing", 0):
            case ("delete", ledger):
                ledgers.delete(LedgerId(ledger))
            case ("fence", ledger) if ledger not in ledgers.deleted:
                ledgers.replica_of(LedgerId(ledger)).restore_fence(Epoch(2))
                fenced.add(ledger)
            case ("retire", file_id):
                files.retire(file_id)
            case _:
                pass

    found = FoundTable(b"".join(build.pieces))
    in_rows = {row.ledger for row in found.ledgers()}
    for ledger in LEDGERS:
        assert ledger in in_rows or ledger in found.deleted
    assert {row.ledger for row in found.ledgers() if row.is_fenced} <= fenced
    kept = {row.file_id for row in found.files}
    assert all((file_id in kept) is not (file_id in found.retired) for file_id in FILES)
