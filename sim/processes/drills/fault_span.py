"""The time of one fault, and how long a writer had no answer around it."""

import attrs

from sim.processes.drills.proxied_load import ProxiedWriter


@attrs.frozen
class FaultSpan:
    """A fault, from when it was caused until it no longer mattered."""

    begin_s: float
    end_s: float

    def pause(self, writer: ProxiedWriter) -> tuple[float, float]:
        """The writer's longest pause between two answers; all of it if there was none."""
        pauses = writer.pauses(self.begin_s, self.end_s)
        return max(
            pauses, key=lambda pause: pause[1] - pause[0], default=(self.begin_s, self.end_s)
        )

    def outage_s(self, writer: ProxiedWriter) -> float:
        """Time from the fault until the writer's longest pause was over."""
        return self.pause(writer)[1] - self.begin_s

    def pause_s(self, writer: ProxiedWriter) -> float:
        """The length of the writer's longest pause."""
        begin_s, end_s = self.pause(writer)
        return end_s - begin_s
