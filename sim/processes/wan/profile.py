"""The default WAN of a demo."""

from collections.abc import Iterable

from sim.processes.wan.conditions import LinkChange, Wan

RTT_S_DEFAULT = {
    frozenset({"us-east", "eu-west"}): 0.080,
    frozenset({"us-east", "ap-northeast"}): 0.150,
    frozenset({"eu-west", "ap-northeast"}): 0.220,
}
"""Typical round trips between data centres in those parts of the world."""

RTT_S_ELSEWHERE = 0.100
"""Between regions with other names."""


def default_wan(regions: Iterable[str]) -> Wan:
    """Default round trips without jitter or stalls, at one gigabit per second."""
    wan = Wan.between(tuple(regions))
    for here, there in wan.directions:
        rtt_s = RTT_S_DEFAULT.get(frozenset({here, there}), RTT_S_ELSEWHERE)
        wan = wan.changed(here, there, LinkChange(rtt_s=rtt_s), is_one_way=True)
    return wan
