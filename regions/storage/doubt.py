"""Bounds of doubt: which ledgers damage cannot have touched, and when it is made good.

A damaged file can only have held records of ledgers that existed by then. So the cluster's
ledger counter at the start bounds the doubt: the node takes ledgers created later at once, and
its live record stays true.
"""

from collections.abc import Callable, Sequence
from functools import partial

from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Metadata
from geolog.protocol.ids import LEDGER_FIRST, NO_EPOCH, InstanceId, LedgerId
from geolog.protocol.messages import DoubtSettled, Message, Reason, Refused, SettleDoubt
from regions.storage.protocol.records import settle_record
from regions.storage.store import Store
from topology.errors import DamagedBytesError


async def bound_doubt(stores: Sequence[Store], metadata: Metadata, cluster: str) -> None:
    """Ask metadata which ledgers existed at this start, if damage took records.

    There is no counter until the first ledger is allocated, so then none is in doubt. If a
    ledger is known here all the same, metadata is damaged: every ledger stays in doubt.
    """
    damaged = [store for store in stores if store.ledgers.is_any_in_doubt]
    if not damaged:
        return
    path = ClusterPaths(cluster).ledger_next
    # An older count would exclude ledgers from doubt that the damage may have touched.
    found = await metadata.find(path, freshness=Freshness.CERTAIN)
    if found is None:
        if any(store.ledgers.knows_any for store in stores):
            return
        below = LEDGER_FIRST
    elif found.data.isdigit():
        below = LedgerId(int(found.data))
    else:
        raise DamagedBytesError(f"ledger counter at {path} is not a number: {found.data!r}")
    for store in damaged:
        store.ledgers.bound_doubt(below)


def doubt_below(stores: Sequence[Store]) -> LedgerId:
    """The bound of doubt: ledgers with ids >= it are not in doubt; 0 if none is."""
    return max(store.ledgers.doubt_below for store in stores)


def settle_doubt(
    request: SettleDoubt,
    instance: InstanceId,
    start_number: int,
    stores: Sequence[Store],
    send: Callable[[Message], None],
) -> None:
    """Note that all damage was made good; `send` the answer when the note is on disk."""
    if request.instance != instance:
        why = f"this node is {instance}, not the instance that the request names"
        send(Refused(request.request, Reason.WRONG_INSTANCE, NO_EPOCH, why))
        return
    if request.start_number != start_number:
        why = "this node has restarted since it was inspected, and may lack more: inspect again"
        send(Refused(request.request, Reason.CONFLICT, NO_EPOCH, why))
        return
    below = doubt_below(stores)
    if request.ledgers_below < below:
        why = (
            f"ledgers below {below} are in doubt here; repairing those below"
            f" {request.ledgers_below} does not settle it"
        )
        send(Refused(request.request, Reason.CONFLICT, NO_EPOCH, why))
        return
    for store in stores:
        for damage in store.ledgers.damaged:
            store.journal.append_nowait(settle_record(damage))
            store.ledgers.settle(damage)
    _when_all_synced(stores, partial(send, DoubtSettled(request.request)))


def _when_all_synced(stores: Sequence[Store], call: Callable[[], None]) -> None:
    left = {store.directory for store in stores}

    def on_synced(directory: int) -> None:
        left.discard(directory)
        if not left:
            call()

    for store in stores:
        store.journal.when_synced(partial(on_synced, store.directory))
