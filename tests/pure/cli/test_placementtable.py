"""The table of where fragments lie, with a picture of regions and nodes."""

import attrs

from geolog.admin.placement.placement_description import (
    FragmentPlacement,
    NodePlace,
    PlacedMember,
    PlacementTotals,
)
from geolog.admin.placement.placement_moves import FragmentMove, SlotMove
from geolog.cli.terminal.placement_table import PlacementTable, move_line, totals_line


def places(**counts: int) -> dict[str, list[NodePlace]]:
    return {
        region: [
            NodePlace(
                node_id=f"{region}-{number}",
                instance=f"{region}{number}",
                region=region,
                rack="r",
                state="up",
            )
            for number in range(1, count + 1)
        ]
        for region, count in counts.items()
    }


def fragment(*members: str, **changes: object) -> FragmentPlacement:
    """Members as `a1:down`: instance and state."""
    placed = []
    for slot, text in enumerate(members):
        instance, _, state = text.partition(":")
        placed.append(
            PlacedMember(
                slot=slot,
                node_id=f"{instance[0]}-{instance[1:]}",
                instance=instance,
                region=instance[0],
                rack="r",
                state=state or "up",
                is_forbidden=False,
            )
        )
    one = FragmentPlacement(
        stream="t/s",
        partition=0,
        segment=3,
        ledger=17,
        ledger_state="closed",
        fragment=0,
        first_entry=0,
        last_entry=99,
        entries=100,
        policy="region_aware",
        adherence="strict",
        adherence_now="soft",
        keeps_promise=True,
        why="",
        copies_missing=0,
        is_repairable=False,
        obstacle="",
        members=placed,
    )
    return attrs.evolve(one, **changes)  # type: ignore[arg-type]


def test_each_region_is_a_group_of_marks_one_per_node() -> None:
    table = PlacementTable(places(a=3, b=2, c=2), frozenset("c"))

    lines = list(table.lines(fragment("a1", "a3:readonly", "b2:down", "c1:replaced")))

    assert lines[0] == "t/s#0, policy region_aware"
    assert lines[1].split() == [
        *("segment", "ledger", "fragment", "entries", "adherence", "now"),
        *("a", "b", "c", "(forbidden)"),
    ]
    assert lines[2].split() == ["3", "17", "0", "0..99", "strict", "soft", "●·◐", "·○", "✗·"]


def test_a_narrow_terminal_stacks_the_names_of_regions() -> None:
    regions = places(**{"ap-northeast": 3, "eu-west": 3, "us-east": 3})
    wide = PlacementTable(regions, frozenset(), width=100)
    narrow = PlacementTable(regions, frozenset(), width=80)

    lines = list(narrow.lines(fragment("us-east1")))

    assert list(wide.lines(fragment("us-east1")))[1].endswith("ap-northeast  eu-west  us-east")
    assert lines[1].split() == ["ap-", "eu-", "us-"]
    assert lines[2].endswith("now     northeast  west  east")
    assert max(map(len, [*lines, *narrow.legend()])) <= 80


def test_the_legend_explains_marks_and_names_nodes() -> None:
    table = PlacementTable(places(a=2), frozenset())
    list(table.lines(fragment("a1", "a2:down")))

    legend = list(table.legend())

    assert "● up  ○ down  · not a member" in legend
    assert "a: a-1 a-2" in legend


def test_each_partition_has_one_heading() -> None:
    table = PlacementTable(places(a=2), frozenset())
    lines = [*table.lines(fragment("a1")), *table.lines(fragment("a1"))]
    lines += table.lines(fragment("a1", partition=1))
    assert [line for line in lines if "#" in line] == [
        "t/s#0, policy region_aware",
        "t/s#1, policy region_aware",
    ]


def test_members_of_a_large_region_are_counted() -> None:
    table = PlacementTable(places(a=40), frozenset())
    *_, row = table.lines(fragment("a1", "a2:down", "a9"))
    assert row.endswith("3, 1 down")


def test_a_problem_is_shown_below_the_row_with_the_next_step() -> None:
    table = PlacementTable(places(a=2), frozenset())
    mended = fragment("a1", why="it is bad", is_repairable=True)
    stays = fragment("a1", why="it is bad", obstacle="there is no other")

    assert list(table.lines(mended))[-1] == (
        "    it is bad; fix it with `geolog placement repair`"
    )
    assert list(table.lines(stays))[-1] == "    it is bad; there is no other"


def test_open_entries_have_no_end_and_an_empty_fragment_says_none() -> None:
    table = PlacementTable(places(a=1), frozenset())
    open_ = fragment("a1", first_entry=7, last_entry=None, entries=None)
    assert "7.." in list(table.lines(open_))[-1].split()
    assert "none" in list(table.lines(fragment("a1", entries=0)))[-1].split()


def test_totals_and_moves_take_one_line_each() -> None:
    totals = PlacementTotals(segments=1)
    totals.add(fragment("a1", "a2:replaced", copies_missing=1))
    move = FragmentMove(
        stream="t/s",
        partition=0,
        segment=3,
        ledger=17,
        fragment=0,
        first_entry=0,
        last_entry=99,
        before="soft",
        after="strict",
        slots=[
            SlotMove(slot=1, from_node="a-2", from_region="a", to_node="b-1", to_region="b")
        ],
        bytes_about=2048,
    )

    assert totals_line(totals) == (
        "1 fragment in 1 segment: 1 strict, 0 soft, 0 fail; 1 on a disk that was given up;"
        " 1 member missing"
    )
    assert move_line(move) == (
        "t/s#0 segment 3 ledger 17 fragment 0: slot 1 from a-2 (a) to b-1 (b); soft to strict,"
        " about 2KiB"
    )
