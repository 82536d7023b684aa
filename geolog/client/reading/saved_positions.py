"""Positions of a subscription as an application saves them: `{"shop/orders#0": "17@1:LIFE"}`.

The value has the sequence of the next record, the home epoch, and the life of the stream: after
a stream was deleted and made again, its old position means nothing.
"""

import re
from collections.abc import Mapping

from geolog.protocol.ids import Position
from geolog.protocol.stream_pattern import StreamPattern
from geolog.protocol.stream_state import parse_target
from geolog.protocol.subscription import SubscribedPartition
from topology.errors import InvalidArgumentError

_PLACE = re.compile(r"([0-9]{1,19})@([0-9]{1,19}):([^-\s/#]{1,100})")


def saved_texts(positions: Mapping[SubscribedPartition, Position]) -> dict[str, str]:
    """The positions as texts, sorted by partition."""
    return {str(one): f"{position}:{one.life}" for one, position in sorted(positions.items())}


def parse_saved(
    texts: Mapping[str, object], pattern: StreamPattern
) -> dict[SubscribedPartition, Position]:
    """Parse what `saved_texts` made. InvalidArgumentError names the entry that is wrong."""
    found: dict[SubscribedPartition, Position] = {}
    for target, text in texts.items():
        stream, number = parse_target(str(target))
        place = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if number is None or place is None:
            raise InvalidArgumentError(
                f"positions has {target!r:.100}: {text!r:.100}, which is no position of a"
                " partition, e.g. 'shop/orders#0': '17@1:LIFE': give what Reader.positions()"
                " returned"
            )
        if not pattern.matches(stream):
            raise InvalidArgumentError(
                f"positions has {target!r:.300}, which pattern {str(pattern)!r} does not match:"
                " give the pattern that they were saved of"
            )
        one = SubscribedPartition(stream, number, place[3])
        found[one] = Position(int(place[2]), int(place[1]))
    return found
