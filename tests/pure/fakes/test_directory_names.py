"""Names of a directory after power loss: every subset of the unsynced changes may survive."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from sim.fakes.directory_names import DirectoryNames

NAMES = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES)),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("sync")),
)


class File:
    pass


@given(st.lists(STEPS, max_size=12))
def test_with_all_changes_kept_names_are_as_seen_and_with_none_as_synced(
    steps: list[tuple[str, ...]],
) -> None:
    names, seen, synced = DirectoryNames[File]({}), dict[str, File](), dict[str, File]()
    for kind, *args in steps:
        if kind in ("rename", "remove") and args[0] not in seen:
            continue
        match kind:
            case "create":
                seen[args[0]] = File()
                names.create(args[0], seen[args[0]])
            case "rename":
                seen[args[1]] = seen.pop(args[0])
                names.rename(*args)
            case "remove":
                del seen[args[0]]
                names.remove(*args)
            case _:
                synced = dict(seen)
                names.sync(names.changes_count)

    count = names.unsynced_count
    assert names.seen == seen
    assert names.after_power_loss([True] * count) == seen
    assert names.after_power_loss([False] * count) == synced
    assert all(names.is_synced(name, file) for name, file in synced.items())
    assert names.copied(lambda file: file).after_power_loss([True] * count) == seen


def test_a_later_name_may_survive_without_an_earlier_one() -> None:
    names = DirectoryNames[File]({})
    first, second = File(), File()
    for file, name in ((first, "first"), (second, "second")):
        names.create(f"{name}.new", file)
        names.rename(f"{name}.new", name)

    left = [names.after_power_loss(kept) for kept in product([False, True], repeat=4)]

    assert {"second": second} in left
    assert {"first": first} in left
    assert {} in left


def test_a_sync_covers_the_changes_before_it_began() -> None:
    names = DirectoryNames[File]({})
    first, second = File(), File()
    names.create("first", first)
    through = names.changes_count
    names.create("second", second)

    for _ in range(2):
        names.sync(through)
        assert names.after_power_loss([False]) == {"first": first}
    names.sync(names.changes_count)

    assert names.after_power_loss([]) == {"first": first, "second": second}
