"""The questions of a process's tails to one node: over one connection, without tasks.

Each question stays at the node until there is an answer, which goes to the tail by a call from
the task that receives for the connection. When a connection ends, tails that followed the node
are told, and go elsewhere; questions for the LAC alone are asked again once the node is back.

Rules: PROTOCOL R23.
"""

from typing import Protocol

import attrs

from geolog.ledger.nodes.connection import NodeConnection, StandingQuestion
from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.replicas.replicas import Replicas
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Member
from geolog.protocol.messages import Message


class Asker(Protocol):
    """A tail that waits at nodes."""

    def on_follow_answered(self, member: Member, answer: Message) -> None:
        """The followed member's answer, or its refusal."""
        ...

    def on_follow_lost(self, member: Member) -> None:
        """The followed member cannot be reached."""
        ...

    def on_watch_answered(self, member: Member, answer: Message) -> None:
        """A watched member's answer, or its refusal."""
        ...


@attrs.define(eq=False)
class _Asked:
    """One question, sent or not: see `AnswerSink`."""

    node: "TailNode"
    asker: Asker
    ledger: LedgerId
    member: Member
    first: EntryId
    count: int
    """Maximum number of entries; 0 for the LAC alone."""
    sent: StandingQuestion | None = None

    def on_answer(self, message: Message) -> None:
        """Pass the answer on."""
        self.sent = None
        self.node.forget(self)
        if self.count:
            self.asker.on_follow_answered(self.member, message)
        else:
            self.asker.on_watch_answered(self.member, message)

    def on_end(self) -> None:
        """The connection has ended."""
        self.sent = None
        if self.count:
            self.node.forget(self)
            self.asker.on_follow_lost(self.member)


class TailNode:
    """The questions to one node; a `LinkUser`. It keeps the link up while there are any."""

    def __init__(
        self, replicas: Replicas, instance: InstanceId, *, bytes_max: int, wait_s: float
    ) -> None:
        self._replicas = replicas
        self._link = replicas.pool.link(instance, LinkUse.READING)
        self._bytes_max = bytes_max
        self._wait_s = wait_s
        self._asked: dict[tuple[Asker, bool], _Asked] = {}

    def __repr__(self) -> str:
        return f"TailNode({self._link.instance}, {len(self._asked)} asked)"

    def __len__(self) -> int:
        return len(self._asked)

    def ask(
        self, asker: Asker, ledger: LedgerId, member: Member, first: EntryId, *, count: int
    ) -> None:
        """Ask for entries from `first` on, or for the LAC alone if `count` is 0.

        The asker has no other question of this kind here. The answer may come at once.
        """
        asked = _Asked(self, asker, ledger, member, first, count)
        is_first = not self._asked
        self._asked[asker, bool(count)] = asked
        connection = self._link.connection
        if is_first:
            self._link.subscribe(self)
        elif connection is not None:
            self._send(asked, connection)
        elif self._link.is_resting:
            asked.on_end()

    def drop(self, asker: Asker) -> None:
        """Drop the questions of this tail."""
        for kind in (True, False):
            asked = self._asked.get((asker, kind))
            if asked is not None:
                self.forget(asked)
                if asked.sent is not None:
                    asked.sent.cancel()

    def forget(self, asked: _Asked) -> None:
        """Forget a question that was answered or is not wanted."""
        key = asked.asker, bool(asked.count)
        if self._asked.get(key) is asked:
            del self._asked[key]
            if not self._asked:
                self._link.unsubscribe(self)

    def on_link_up(self, _instance: InstanceId, connection: NodeConnection) -> None:
        """Ask everything over the new connection."""
        for asked in list(self._asked.values()):
            if asked.sent is None:
                self._send(asked, connection)

    def on_link_down(self, _instance: InstanceId, _why: str) -> None:
        """Send the tails that follow this node elsewhere."""
        for asked in list(self._asked.values()):
            asked.on_end()

    def _send(self, asked: _Asked, connection: NodeConnection) -> None:
        sent = self._replicas.follow_nowait(
            connection,
            asked.ledger,
            asked.member,
            asked.first,
            asked.count,
            bytes_max=self._bytes_max,
            wait_s=self._wait_s,
            sink=asked,
        )
        if sent is None:
            asked.on_end()
        elif not connection.is_broken:
            asked.sent = sent
