"""Scenario files: steps, `----`, and what the core said to them; blank lines between.

A line that starts with `#` gives the reason of the step below it. The core lives from the first
step of a file to its last.
"""

from typing import Protocol

RULE = "----"


class Story(Protocol):
    """A core that is told its story line by line."""

    def tell(self, line: str) -> list[str]:
        """What the core says to one step."""
        ...


def retold(text: str, story: Story) -> str:
    """The same scenario, with what the core says now."""
    return "\n\n".join(_retold_step(step, story) for step in text.strip().split("\n\n")) + "\n"


def _retold_step(step: str, story: Story) -> str:
    told, _rule, _said = step.partition(f"\n{RULE}")
    lines = told.split("\n")
    said = [answer for line in lines if not line.startswith("#") for answer in story.tell(line)]
    return "\n".join([*lines, RULE, *(said or ["nothing"])])
