"""A state of the model, the steps possible in it, and the laws that each state must keep.

A message on its way may be received at any time, or never, but not twice. In one step a client
acts, a message is received, or a node syncs or loses power. States share whatever a step did
not change.

Some orders are left out, because another order leads to the same states:

- A node with records to sync goes on until it has synced or lost power, before anything else
  happens. Until then nobody hears of what it has taken, so all that others could do meanwhile
  they can do before.
- A node loses power only when it has something to lose, and is reconnected at once: what it is
  sent then may come late, like any message.
- Messages that can change nothing any more are dropped (`_can_matter`). A refused owner is not
  told: an owner that goes on is more dangerous.
- Once the ledger is closed the recoverers are finished, and their requests are dropped: these
  could still only fence and add copies.
- Unless the shape has late answers, a recoverer hears an answer at once, or never. A fence that
  is reported late has the same effect as one taken late: every message that it keeps out
  meanwhile may as well be lost on the way. (This trusts a node to hold its fence, which law 7
  and smaller searches with late answers check.)
"""

import hashlib
import marshal
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import attrs

from geolog.protocol.add_window import AddWindow
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.model.clients import NOT_YET, OWNER, Owner, Recoverer
from sim.model.node import LawBrokenError, ModelNode, Packet, renamed
from sim.model.shape import FIRST_EPOCH, ModelShape

_REQUESTS = frozenset({"add", "fence", "read", "push-lac"})
_symmetries = lru_cache(ModelShape.symmetries)
_MARSHAL_VERSION = 2  # The last protocol without references: equal values give equal bytes.


@attrs.define
class State:
    """All of the model's world at one moment."""

    shape: ModelShape
    nodes: tuple[ModelNode, ...]
    owner: Owner
    recoverers: tuple[Recoverer, ...]
    record: LedgerRecord
    packets: frozenset[Packet] = frozenset()
    takes_count: int = 0
    crashes_count: int = 0

    @classmethod
    def first(cls, shape: ModelShape) -> "State":
        """The initial state: the ledger is open and empty, and all its nodes know it."""
        return cls(
            shape,
            tuple(ModelNode.opened(shape, slot) for slot in range(len(shape.regions))),
            Owner(AddWindow(shape.rule())),
            tuple(Recoverer(OWNER + 1 + place) for place in range(shape.recoverers_count)),
            shape.record(),
        )

    def digest(self) -> bytes:
        """Equal for equal states, also if equal nodes are renamed."""
        return min(self._digest(names) for names in _symmetries(self.shape))

    def _digest(self, names: tuple[int, ...]) -> bytes:
        last = self.record.last_entry
        nodes = sorted((names[node.slot], node.key(names)) for node in self.nodes)
        key = (
            nodes,
            self.owner.key(names),
            [recoverer.key(names) for recoverer in self.recoverers],
            (int(self.record.epoch), self.record.state.value),
            NOT_YET if last is None else int(last),
            sorted(renamed(packet, names) for packet in self.packets),
            (self.takes_count, self.crashes_count),
        )
        data = marshal.dumps(key, _MARSHAL_VERSION)
        return hashlib.blake2b(data, digest_size=12).digest()

    def steps(self) -> Iterator[tuple[str, "Callable[[], State]"]]:
        """All possible next steps: words for each, and a function that makes the next state.

        That function raises LawBrokenError if the step itself breaks a law.
        """
        for node in self.nodes:
            if node.unsynced:
                yield from self._packet_steps(node.slot)
                yield from self._node_steps(node)
                return
        yield from self._owner_steps()
        for recoverer in self.recoverers:
            yield from self._recoverer_steps(recoverer)
        yield from self._packet_steps(None)
        for node in self.nodes:
            yield from self._node_steps(node)

    def check(self) -> None:
        """Raise LawBrokenError unless laws 2, 4, 5 and 7 hold now; adds check law 6."""
        for node in self.nodes:
            node.check()
        lac, last = self.owner.window.lac, self.record.last_entry
        for entry in range(lac + 1):
            self._check_ack_set(entry, "was acknowledged")
        if last is None:
            return
        if lac > last:
            raise LawBrokenError(f"4/5: closed at {last}, but entry {lac} was acknowledged")
        for entry in range(last + 1):
            self._check_ack_set(entry, f"is in a ledger closed at {last}")

    @property
    def is_goal(self) -> bool:
        """Whether a recoverer has closed the ledger, with an entry in it."""
        last = self.record.last_entry
        return self.record.epoch > FIRST_EPOCH and last is not None and last >= 0

    def _check_ack_set(self, entry: int, why: str) -> None:
        holders = sum(1 << node.slot for node in self.nodes if entry in node.synced_entries)
        if not self.shape.rule().is_ack(entry, holders):
            raise LawBrokenError(f"2: entry {entry} {why}, but no ack set has it on disk")

    def settled(self) -> "State":
        """The same state, without messages and clients that can change nothing any more."""
        if any(node.unsynced for node in self.nodes):
            return self
        if self.shape.has_late_answers:
            return self._without_idle()
        state = self
        while answers := [one for one in state.packets if one[0] not in _REQUESTS and one[1]]:
            state = state._receive(min(answers))
        return state._without_idle()  # noqa: SLF001

    def _without_idle(self) -> "State":
        recoverers = self.recoverers
        if self.record.state is LedgerState.CLOSED:
            recoverers = tuple(Recoverer(one.number) for one in recoverers)
        packets = frozenset(packet for packet in self.packets if self._can_matter(packet))
        return attrs.evolve(self, packets=packets, recoverers=recoverers)

    def _can_matter(self, packet: Packet) -> bool:
        client, slot = packet[1], packet[2]
        assert isinstance(client, int)
        assert isinstance(slot, int)
        if client != OWNER and self.record.state is LedgerState.CLOSED:
            return False
        if packet[0] in _REQUESTS:
            return self.nodes[slot].minds(packet)
        if client == OWNER:
            return self.owner.minds(packet)
        return self.recoverers[client - OWNER - 1].minds(packet)

    # Steps of clients.

    def _owner_steps(self) -> Iterator[tuple[str, "Callable[[], State]"]]:
        if self.owner.is_over:
            return
        if self.owner.window.entry_next < self.shape.entries_count:
            yield "owner appends", self._append
        if self.record.state is LedgerState.OPEN:
            yield "owner closes", self._close_as_owner

    def _recoverer_steps(
        self, recoverer: Recoverer
    ) -> Iterator[tuple[str, "Callable[[], State]"]]:
        name = f"recoverer {recoverer.number}"
        is_open = self.record.state is not LedgerState.CLOSED
        if is_open and self.takes_count < self.shape.takes_max:
            yield f"{name} takes the ledger", partial(self._take, recoverer)
        if recoverer.end != NOT_YET and recoverer.taken == self.record:
            yield f"{name} closes", partial(self._close_as_recoverer, recoverer)
        if self.shape.has_timeouts:
            for slot in recoverer.slots_to_time_out():
                yield f"{name} gives node {slot} up", partial(self._time_out, recoverer, slot)

    def _append(self) -> "State":
        owner = self.owner.copied()
        packets = self.packets.union(owner.push())
        return attrs.evolve(self, owner=owner, packets=packets)

    def _close_as_owner(self) -> "State":
        owner = self.owner.copied()
        owner.is_over = True
        return attrs.evolve(self, owner=owner, record=self.record.closed(owner.window.lac))

    def _take(self, recoverer: Recoverer) -> "State":
        twin, record = recoverer.copied(), self.record.taken_over()
        packets = self.packets.union(twin.begin(record, self.shape))
        return attrs.evolve(
            self._with_recoverer(twin, packets),
            record=record,
            takes_count=self.takes_count + 1,
        )

    def _close_as_recoverer(self, recoverer: Recoverer) -> "State":
        twin = recoverer.copied()
        twin.give_up()
        return attrs.evolve(
            self._with_recoverer(twin, self.packets),
            record=self.record.closed(EntryId(recoverer.end)),
        )

    def _time_out(self, recoverer: Recoverer, slot: int) -> "State":
        twin = recoverer.copied()
        packets = self.packets.union(twin.time_out(slot))
        return self._with_recoverer(twin, packets)

    def _with_recoverer(self, twin: Recoverer, packets: frozenset[Packet]) -> "State":
        place = twin.number - OWNER - 1
        others = (*self.recoverers[:place], twin, *self.recoverers[place + 1 :])
        return attrs.evolve(self, recoverers=others, packets=packets)

    # Steps of messages and nodes.

    def _packet_steps(self, slot: int | None) -> Iterator[tuple[str, "Callable[[], State]"]]:
        """The receipt of each message; only requests to one node, if one is given."""
        for packet in sorted(self.packets):
            if slot is None or (packet[0] in _REQUESTS and packet[2] == slot):
                yield " ".join(map(str, packet)), partial(self._receive, packet)

    def _receive(self, packet: Packet) -> "State":
        left = self.packets - {packet}
        kind, client, slot = packet[:3]
        assert isinstance(client, int)
        assert isinstance(slot, int)
        if kind in _REQUESTS:
            node = self.nodes[slot].copied()
            return self._with_node(node, left.union(node.receive(packet)))
        if client == OWNER:
            owner = self.owner.copied()
            packets = left.union(owner.hear(packet, self.shape))
            return attrs.evolve(self, owner=owner, packets=packets)
        twin = self.recoverers[client - OWNER - 1].copied()
        return self._with_recoverer(twin, left.union(twin.hear(packet, self.shape)))

    def _node_steps(self, node: ModelNode) -> Iterator[tuple[str, "Callable[[], State]"]]:
        if node.unsynced:
            yield f"node {node.slot} syncs", partial(self._sync, node)
        if node.has_to_lose and self.crashes_count < self.shape.crashes_max:
            for kept in range(len(node.unsynced) + 1):
                what = f"node {node.slot} loses power, {kept} unsynced records stay"
                yield what, partial(self._lose_power, node, kept)

    def _sync(self, node: ModelNode) -> "State":
        twin = node.copied()
        return self._with_node(twin, self.packets.union(twin.sync()))

    def _lose_power(self, node: ModelNode, kept_count: int) -> "State":
        twin = node.copied()
        twin.lose_power(kept_count)
        owner, recoverers = self.owner.copied(), tuple(one.copied() for one in self.recoverers)
        packets = self.packets.union(
            owner.connect_again(node.slot),
            *(one.connect_again(node.slot) for one in recoverers),
        )
        state = self._with_node(twin, packets)
        count = self.crashes_count + 1
        return attrs.evolve(state, owner=owner, recoverers=recoverers, crashes_count=count)

    def _with_node(self, twin: ModelNode, packets: frozenset[Packet]) -> "State":
        nodes = (*self.nodes[: twin.slot], twin, *self.nodes[twin.slot + 1 :])
        return attrs.evolve(self, nodes=nodes, packets=packets)
