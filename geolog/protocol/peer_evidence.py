"""Judges from connections and heartbeats whether another server of the same kind is dead.

Theory of operation. Each write proxy, and each member of a relay group, keeps a connection to
every other one, and asks for a sign of life at every beat. Connections that are refused, or end
without a farewell, are strong evidence: the kernel of a living host says that nothing listens
there. `BREAKS_MIN` of them in a row are enough. Silence is weaker: the other process, its host
or the network may only be slow. It takes `SILENT_BEATS_MIN` beats in a row without an answer.
Any answer refutes all of it.

Silence is counted in beats of the watcher, not in seconds. So a watcher that was paused itself
has missed one beat, not all that passed meanwhile, and suspects no one.

A suspicion is a guess. Only early takeovers use it; epochs and fences keep them safe.

Rules: PROTOCOL S26.
"""

import attrs

BEAT_S = 0.3
"""Time between two heartbeats."""

BREAKS_MIN = 3
"""Connections in a row that were refused or broken, before the other is taken for dead."""

SILENT_BEATS_MIN = 7
"""Beats in a row without an answer, likewise: about two seconds."""


@attrs.frozen
class PeerEvidence:
    """What speaks for the death of one server. Each event returns the successor."""

    breaks_count: int = 0
    silent_beats_count: int = 0
    has_answered: bool = False
    """Whether it answered since the last beat."""

    @property
    def is_suspected(self) -> bool:
        """Whether the server is taken for dead."""
        return self.is_refused or self.silent_beats_count >= SILENT_BEATS_MIN

    @property
    def is_refused(self) -> bool:
        """Whether its host says that nothing listens there."""
        return self.breaks_count >= BREAKS_MIN

    @property
    def is_connection_stale(self) -> bool:
        """Whether to give up the connection, or the attempt, and begin another."""
        count = self.silent_beats_count
        return count > 0 and count % SILENT_BEATS_MIN == 0

    def on_answer(self) -> "PeerEvidence":
        """The server accepted a connection, or answered a heartbeat."""
        return PeerEvidence(has_answered=True)

    def on_break(self) -> "PeerEvidence":
        """A connection was refused, or ended without a farewell."""
        return attrs.evolve(self, breaks_count=self.breaks_count + 1)

    def on_beat(self) -> "PeerEvidence":
        """The time between two heartbeats has passed."""
        if self.has_answered:
            return attrs.evolve(self, has_answered=False, silent_beats_count=0)
        return attrs.evolve(self, silent_beats_count=self.silent_beats_count + 1)
