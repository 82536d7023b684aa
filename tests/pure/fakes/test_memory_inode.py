"""A file of a disk in memory, compared with a naive model that stores its bytes twice."""

from random import Random

import attrs
from hypothesis import given
from hypothesis import strategies as st

from sim.fakes.memory_inode import Inode

OFFSETS = st.integers(0, 1500)
ACTS = st.one_of(
    st.tuples(st.just("write"), OFFSETS, st.integers(1, 700)),
    st.tuples(st.just("truncate"), OFFSETS, st.just(0)),
    st.tuples(st.just("spoil"), OFFSETS, st.integers(1, 40)),
    st.tuples(st.just("hand on"), st.just(0), st.just(0)),
    st.tuples(st.just("sync"), st.just(0), st.just(0)),
)


@attrs.define
class TwoCopies:
    """A file's current and synced bytes, and its writes since the sync."""

    seen: bytes = b""
    synced: bytes = b""
    written: list[tuple[int, int]] = attrs.field(factory=list)

    def act(self, act: str, offset: int, content: bytes) -> None:
        match act:
            case "write":
                self.seen = overlaid(self.seen, offset, content)
                self.written.append((offset, offset + len(content)))
            case "truncate":
                self.seen = self.seen[:offset]
            case "spoil":
                self.seen = overlaid(self.seen, offset, content)
                self.synced = overlaid(self.synced, offset, content)
            case "sync":
                self.synced = self.seen
                self.written.clear()

    def is_synced(self, start: int, end: int) -> bool:
        return not any(first < end and start < last for first, last in self.written)


def overlaid(content: bytes, offset: int, written: bytes) -> bytes:
    return content[:offset].ljust(offset, b"\0") + written + content[offset + len(written) :]


def acted(inode: Inode, act: str, offset: int, content: bytes) -> Inode:
    match act:
        case "write":
            inode.write(offset, content)
        case "truncate":
            inode.truncate(offset)
        case "spoil":
            inode.spoil(offset, content)
        case "sync":
            inode.sync()
        case _:
            return inode.as_seen()
    return inode


@given(st.lists(ACTS, max_size=12), st.integers(0, 1500), st.integers(1, 600))
def test_it_equals_a_model_with_two_copies(
    acts: list[tuple[str, int, int]], start: int, length: int
) -> None:
    inode, naive = Inode(), TwoCopies()
    for number, (act, offset, size) in enumerate(acts):
        content = Random(number).randbytes(size)
        inode = acted(inode, act, offset, content)
        naive.act(act, offset, content)

        assert inode.seen == naive.seen
        assert inode.synced == naive.synced
    end = min(start + length, inode.synced_bytes)
    if start < end:
        assert inode.is_synced(start, end) == naive.is_synced(start, end)


@given(st.lists(ACTS, max_size=12))
def test_power_loss_may_drop_any_unsynced_data(
    acts: list[tuple[str, int, int]],
) -> None:
    inode, naive = Inode(), TwoCopies()
    for number, (act, offset, size) in enumerate(acts):
        content = Random(number).randbytes(size)
        inode = acted(inode, act, offset, content)
        naive.act(act, offset, content)

    assert inode.after_power_loss(lambda: False).seen == naive.synced


def test_synced_bytes_are_stored_once() -> None:
    inode = Inode()
    for number in range(100):
        inode.write(1000 * number, bytes(1000))
        inode.sync()

    assert inode == Inode(bytearray(100_000), 100_000, 100_000)
