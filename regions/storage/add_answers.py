"""Cumulative answers to the adds of one client: what is in memory, and what is on disk."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from regions.storage.journal import Journal
from regions.storage.protocol.add_runs import AddRuns


class AddsClient(Protocol):
    """The sender of the adds."""

    def send_received_nowait(self, through: int) -> None:
        """Say that all adds up to this ordinal are in memory, except refused ones."""
        ...

    def send_synced_nowait(self, through: int) -> None:
        """Say that all adds up to this ordinal are on disk, except refused ones."""
        ...


class AddAnswers:
    """Tracks how far one client's adds were answered, and sends the answers still due."""

    def __init__(self, client: AddsClient, journals: Sequence[Journal]) -> None:
        self._client = client
        self._journals = journals
        self._runs = AddRuns(len(journals))
        self._received_through = self._told_received_through = 0

    def on_add(self, ordinal: int, directory: int, *, wants_received: bool) -> None:
        """Answer the add once everything journaled in its directory so far is on disk."""
        if wants_received:
            self._received_through = ordinal
        journal = self._journals[directory]
        if self._runs.take(directory, journal.group_newest, ordinal):
            journal.when_synced(partial(self._on_synced, directory))

    def tell_received(self) -> None:
        """Acknowledge receipt up to the newest add that wants it, if not done yet."""
        if self._received_through > self._told_received_through:
            self._told_received_through = self._received_through
            self._client.send_received_nowait(self._received_through)

    def _on_synced(self, directory: int) -> None:
        through = self._runs.on_synced(directory)
        if through is not None:
            self.tell_received()  # Before the answer that covers it.
            self._client.send_synced_nowait(through)
