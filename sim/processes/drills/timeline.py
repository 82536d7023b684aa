"""The course of a drill: its faults, and the answered appends of each lane over time.

A lane is a stream, or the writers of a region. A drill notes each fault and adds the answers of
each lane as it sees them. The picture is an SVG without scripts or fonts: bars per lane, a line
per fault, and a shaded span for each time without answers.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape

import attrs

UNAVAILABLE_S_MIN = 1.0
"""A shorter pause between answers does not count as unavailability."""

_BARS_MAX = 400
_LANE_HEIGHT = 90
_BAR_HEIGHT_MAX = 60
_LEFT, _WIDTH, _TOP = 10, 800, 58
_CHARACTER_WIDTH = 6.5
"""Of a text in 12 pixels, about: a fault is written out where it fits."""


@attrs.frozen
class Span:
    """A time without answers, in seconds."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s


@attrs.define
class Timeline:
    """Faults and answers of one drill. Times of all calls never go back."""

    lane_kind: str = "stream"
    """`stream`, or `region` if the answers of each region's writers are counted apart."""
    counted: str = "answers"
    """The word for those in the picture."""
    _faults: list[tuple[float, str]] = attrs.field(factory=list)
    _answers: dict[str, list[tuple[float, int]]] = attrs.field(
        factory=lambda: defaultdict(list)
    )

    def note_fault(self, at_s: float, text: str) -> None:
        """Note what the drill did."""
        self._faults.append((at_s, text))

    def add_answers(self, at_s: float, lane: str, count: int) -> None:
        """Add appends of the lane that were answered since the last call."""
        self._answers[lane].append((at_s, count))

    @property
    def is_empty(self) -> bool:
        """Whether no append was answered."""
        return not self._answers

    @property
    def faults(self) -> list[tuple[float, str]]:
        """Seconds since the first answer, and what the drill did then."""
        return [(at_s - self._begin_s, text) for at_s, text in self._faults]

    def unavailable(self) -> dict[str, list[Span]]:
        """The times without answers of each lane, in seconds since the first answer."""
        return {lane: list(self._pauses(lane)) for lane in sorted(self._answers)}

    def svg(self, title: str) -> str:
        """Draw the picture."""
        lanes = sorted(self._answers)
        height = _TOP + _LANE_HEIGHT * len(lanes) + 20
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _LEFT} '
            f'{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="100%" height="100%" fill="white"/><text x="{_LEFT}" y="18" '
            f'font-size="14">{escape(title)}</text>',
        ]
        for number, lane in enumerate(lanes):
            parts += self._lane(lane, _TOP + _LANE_HEIGHT * number)
        parts += self._fault_lines(height - 20)
        parts.append(
            f'<text x="{_LEFT}" y="{height - 5}">0 s</text><text x="{_LEFT + _WIDTH}" '
            f'y="{height - 5}" text-anchor="end">{self._length_s:.1f} s</text></svg>'
        )
        return "\n".join(parts) + "\n"

    @property
    def _begin_s(self) -> float:
        return min(answers[0][0] for answers in self._answers.values())

    @property
    def _length_s(self) -> float:
        ends_s = [answers[-1][0] for answers in self._answers.values()]
        return max(*ends_s, *(at_s for at_s, _ in self._faults), self._begin_s) - self._begin_s

    def _pauses(self, lane: str) -> Iterator[Span]:
        times_s = [at_s - self._begin_s for at_s, _ in self._answers[lane]]
        times_s.append(self._length_s)
        for before_s, after_s in pairwise(times_s):
            if after_s - before_s >= UNAVAILABLE_S_MIN:
                yield Span(before_s, after_s)

    def _fault_lines(self, foot: float) -> Iterator[str]:
        # Texts are in two rows in turn: what was broken is often mended soon.
        ends = [*(self._x(at_s) for at_s, _ in self.faults[2:]), *[_LEFT + _WIDTH] * 2]
        for number, ((at_s, text), end) in enumerate(zip(self.faults, ends, strict=False)):
            x, y = self._x(at_s), _TOP - 18 + 13 * (number % 2)
            yield (
                f'<line x1="{x}" x2="{x}" y1="{y - 8}" y2="{foot}" stroke="crimson" '
                f'stroke-dasharray="3 3"><title>{at_s:.1f} s: {escape(text)}</title></line>'
            )
            if len(text) * _CHARACTER_WIDTH < end - x:
                yield f'<text x="{x + 3}" y="{y}" fill="crimson">{escape(text)}</text>'

    def _lane(self, lane: str, top: float) -> Iterator[str]:
        bar_s = max(self._length_s / _BARS_MAX, 0.1)
        counts: dict[int, int] = defaultdict(int)
        for at_s, count in self._answers[lane]:
            counts[int((at_s - self._begin_s) / bar_s)] += count
        highest, foot = max(counts.values()), top + _LANE_HEIGHT - 10
        yield (
            f'<text x="{_LEFT}" y="{top + 12:.0f}">{escape(lane)}: up to '
            f"{highest / bar_s:,.0f} {escape(self.counted)} a second</text>"
        )
        for span in self._pauses(lane):
            width = self._x(span.end_s) - self._x(span.begin_s)
            yield (
                f'<rect x="{self._x(span.begin_s)}" y="{foot - _BAR_HEIGHT_MAX:.0f}" '
                f'width="{width:.1f}" height="{_BAR_HEIGHT_MAX}" fill="mistyrose"/>'
            )
            length = f"{span.length_s:.1f} s"
            if len(length) * _CHARACTER_WIDTH < width:
                yield (
                    f'<text x="{self._x(span.begin_s) + width / 2:.1f}" '
                    f'y="{foot - _BAR_HEIGHT_MAX / 2:.1f}" text-anchor="middle">{length}</text>'
                )
        bar_width = max(0.9 * _WIDTH * bar_s / max(self._length_s, bar_s), 1.0)
        for number, count in sorted(counts.items()):
            bar = _BAR_HEIGHT_MAX * count / max(highest, 1)
            yield (
                f'<rect x="{self._x(number * bar_s)}" y="{foot - bar:.1f}" '
                f'width="{bar_width:.1f}" height="{bar:.1f}" fill="steelblue"/>'
            )

    def _x(self, at_s: float) -> float:
        return round(_LEFT + _WIDTH * at_s / max(self._length_s, 0.1), 1)
