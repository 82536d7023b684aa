"""Offsets of a streaming query, as Spark keeps them in its checkpoint.

One has an object per partition: `{"shop/orders#0": {"epoch": 1, "sequence": 40, "from": 30,
"created": 1800000000000000}}`. The next trigger begins at this sequence of this home epoch;
the trigger that ended here began at `from`. `created` is when the stream was created, in
microseconds UTC.
"""

from collections.abc import Mapping

from geolog.protocol.stream_state import parse_target
from geolog.protocol.trigger_plan import PartitionKey, TriggerPlace
from topology.errors import GeologError, InvalidArgumentError

Offset = dict[str, dict[str, int]]


def offset_of(places: Mapping[PartitionKey, TriggerPlace]) -> Offset:
    """The offset with these places, in the order of their partitions."""
    return {
        f"{stream}#{partition}": {
            "epoch": place.home_epoch,
            "sequence": place.end,
            "from": place.first,
            "created": place.created_us,
        }
        for (stream, partition), place in sorted(places.items())
    }


def places_of(offset: object) -> dict[PartitionKey, TriggerPlace]:
    """The places of an offset. InvalidArgumentError if another source wrote it."""
    if not isinstance(offset, dict):
        raise _foreign(offset)
    return dict(_place_of(name, fields) for name, fields in offset.items())


def _place_of(name: str, fields: object) -> tuple[PartitionKey, TriggerPlace]:
    match fields:
        case {
            "epoch": int(epoch),
            "sequence": int(sequence),
            "from": int(first),
            "created": int(created_us),
        } if 0 <= first <= sequence:
            pass
        case _:
            raise _foreign({name: fields})
    try:
        stream, partition = parse_target(name)
    except GeologError:
        raise _foreign({name: fields}) from None
    if partition is None:
        raise _foreign({name: fields})
    return (str(stream), partition), TriggerPlace(
        created_us=created_us, home_epoch=epoch, first=first, end=sequence
    )


def _foreign(offset: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the checkpoint has the offset {offset!r}, which the source geolog did not write: give"
        " this query a checkpointLocation of its own"
    )
