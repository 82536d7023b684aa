"""Scenario files: steps, `----`, and the core's output, separated by blank lines.

A line that starts with `#` explains the step below it. One core lives through the whole file.
"""

from typing import Protocol

RULE = "----"


class Story(Protocol):
    """A core that takes its scenario line by line."""

    def tell(self, line: str) -> list[str]:
        """The core's output for one line."""
        ...


def retold(text: str, story: Story) -> str:
    """The same scenario with the core's current output."""
    return "\n\n".join(_retold_step(step, story) for step in text.strip().split("\n\n")) + "\n"


def _retold_step(step: str, story: Story) -> str:
    told, _rule, _said = step.partition(f"\n{RULE}")
    lines = told.split("\n")
    said = [answer for line in lines if not line.startswith("#") for answer in story.tell(line)]
    return "\n".join([*lines, RULE, *(said or ["nothing"])])
