"""A plot of latency distributions: how many of a hundred thousand reads take longer than x.

Both axes are logarithmic, because the tail is what matters. The picture is an SVG without
scripts or fonts: a panel for each scenario, a line for each policy.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _GAP, _LEFT, _TOP = 380, 190, 56, 64, 58
_COLUMNS = 2
_SHARES = (1.0, 0.1, 0.01, 0.001)
_MS_MIN, _MS_MAX = 0.1, 10_000.0
_COLOURS = ("steelblue", "crimson", "darkorange", "seagreen", "purple")

Distributions = Mapping[str, Mapping[str, Sequence[float]]]
"""By scenario and policy: the latency of each read, in seconds."""


def latency_svg(title: str, distributions: Distributions) -> str:
    """Draw the picture."""
    rows = math.ceil(len(distributions) / _COLUMNS)
    width = _LEFT + _COLUMNS * (_WIDTH + _GAP)
    height = _TOP + rows * (_HEIGHT + _GAP)
    policies = list(dict.fromkeys(name for each in distributions.values() for name in each))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{_LEFT}" y="18" '
        f'font-size="14">{escape(title)}</text>',
    ]
    for place, policy in enumerate(policies):
        parts.append(
            f'<text x="{_LEFT + 110 * place}" y="36" fill="{_colour(place)}">'
            f"{escape(policy)}</text>"
        )
    for number, (scenario, of_policies) in enumerate(distributions.items()):
        left = _LEFT + (number % _COLUMNS) * (_WIDTH + _GAP)
        top = _TOP + (number // _COLUMNS) * (_HEIGHT + _GAP)
        parts += _panel(scenario, of_policies, policies, left, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    scenario: str,
    of_policies: Mapping[str, Sequence[float]],
    policies: Sequence[str],
    left: float,
    top: float,
) -> Iterator[str]:
    yield f'<text x="{left}" y="{top - 6}" font-weight="bold">{escape(scenario)}</text>'
    yield (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" '
        'stroke="gray"/>'
    )
    for share in _SHARES:
        y = _y(share, top)
        yield (
            f'<line x1="{left}" x2="{left + _WIDTH}" y1="{y}" y2="{y}" stroke="gainsboro"/>'
            f'<text x="{left - 4}" y="{y + 4}" text-anchor="end">{share:.4g}</text>'
        )
    for exponent in range(round(math.log10(_MS_MIN)), round(math.log10(_MS_MAX)) + 1):
        x = _x(10.0**exponent, left)
        yield (
            f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + _HEIGHT}" stroke="gainsboro"/>'
            f'<text x="{x}" y="{top + _HEIGHT + 13}" text-anchor="middle">'
            f"{_label(10.0**exponent)}</text>"
        )
    for policy, took_s in reversed(list(of_policies.items())):  # The first ends on top.
        points = " ".join(_points(sorted(took_s), left, top))
        colour = _colour(policies.index(policy))
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _points(took_s: Sequence[float], left: float, top: float) -> Iterator[str]:
    """The share of reads that take at least as long as each, as steps."""
    last = ""
    for place, each_s in enumerate(took_s):
        x = _x(each_s * 1e3, left)
        for share in (1 - place / len(took_s), 1 - (place + 1) / len(took_s)):
            point = f"{x},{_y(share, top)}"
            if point != last:
                yield point
            last = point


def _x(milliseconds: float, left: float) -> float:
    within = min(max(milliseconds, _MS_MIN), _MS_MAX)
    return round(
        left + _WIDTH * math.log10(within / _MS_MIN) / math.log10(_MS_MAX / _MS_MIN), 1
    )


def _y(share: float, top: float) -> float:
    within = min(max(share, _SHARES[-1] / 2), 1.0)
    return round(top + _HEIGHT * math.log10(within) / math.log10(_SHARES[-1] / 2), 1)


def _label(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:g} s" if milliseconds >= 1e3 else f"{milliseconds:g} ms"


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]
