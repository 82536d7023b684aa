"""Tables for people: ids stay whole, and no line is wider than the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.cli.terminal.table import Cell, Tone, document_lines, list_lines, text_width

NODES = [
    [Cell("eu-west-storage-1"), Cell("up", tone="good"), Cell("7", is_number=True)],
    [Cell("us-east-storage-12"), Cell("down", tone="bad"), Cell("1200", is_number=True)],
]
HEADINGS = ["node id", "state", "closed fragments"]


def test_words_align_left_and_numbers_align_right() -> None:
    assert list(list_lines(HEADINGS, NODES, None)) == [
        "node id             state  closed fragments",
        "eu-west-storage-1   up                    7",
        "us-east-storage-12  down               1200",
    ]


def test_headings_are_stacked_before_cells_are_broken() -> None:
    assert list(list_lines(HEADINGS, NODES, 40)) == [
        "node                          closed",
        "id                  state  fragments",
        "eu-west-storage-1   up             7",
        "us-east-storage-12  down        1200",
    ]


def test_on_a_very_narrow_terminal_each_row_becomes_a_block() -> None:
    assert list(list_lines(HEADINGS, NODES, 30)) == [
        "node id           eu-west-storage-1",
        "state             up",
        "closed fragments  7",
        "",
        "node id           us-east-storage-12",
        "state             down",
        "closed fragments  1200",
    ]


def test_sentences_break_between_words_and_ids_stay_whole() -> None:
    why = Cell("a writer owns it, and is alive in eu-west")
    lines = list(list_lines(["ledger", "why"], [[Cell("77"), why]], 30))

    assert lines == [
        "ledger  why",
        "77      a writer owns it, and",
        "        is alive in eu-west",
    ]


def test_a_list_without_spaces_breaks_after_commas_and_a_number_does_not() -> None:
    servers = Cell("10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181")

    assert list(document_lines([("servers", servers)], 25)) == [
        "servers  10.0.0.1:2181,",
        "         10.0.0.2:2181,",
        "         10.0.0.3:2181",
    ]
    assert list(document_lines([("why", Cell("it holds 1,000,000 records"))], 21)) == [
        "why  it holds",
        "     1,000,000",
        "     records",
    ]


def test_a_long_value_continues_on_the_next_line() -> None:
    pairs = [("reasons", Cell("one node is down, and another")), ("healthy", Cell("no"))]

    assert list(document_lines(pairs, 30)) == [
        "reasons  one node is down, and",
        "         another",
        "healthy  no",
    ]


def test_a_wide_character_takes_two_cells_and_an_accent_none() -> None:
    assert text_width("日本") == 4
    assert text_width("e\u0301") == 1
    assert list(list_lines(["a", "b"], [[Cell("日本"), Cell("x")]], None)) == [
        "a     b",
        "日本  x",
    ]


def test_colours_do_not_change_the_columns() -> None:
    def marked(text: str, tone: Tone) -> str:
        return text if tone == "plain" else f"<{text}>"

    assert list(list_lines(HEADINGS, NODES, None, marked))[1:] == [
        "eu-west-storage-1   <up   >                 7",
        "us-east-storage-12  <down >              1200",
    ]


words = st.text("abc-", min_size=1, max_size=12)
sentences = st.lists(words, min_size=1, max_size=9).map(" ".join)


@given(
    rows=st.lists(st.tuples(words, sentences, words), min_size=1, max_size=5),
    width=st.integers(20, 120),
)
def test_no_line_is_too_wide_and_no_word_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    cells = [[Cell(text) for text in row] for row in rows]

    lines = list(list_lines(["one", "two", "three"], cells, width))

    is_blocks = lines[0].split() != ["one", "two", "three"]
    if not is_blocks:
        assert all(text_width(line) <= width for line in lines)
    heads = ["one", "two", "three"] * (len(rows) if is_blocks else 1)
    found = sorted(" ".join(lines).split())
    words_given = [word for row in rows for text in row for word in text.split()]
    assert found == sorted(heads + words_given)
