"""Law 9: a list or a kept rest names every ledger with records, and every name is true."""

from collections.abc import Iterator, Set

from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerState
from sim.laws.state.seen import Look, is_of_stream


def misnamed(now: Look, kept: Set[LedgerId]) -> Iterator[str]:
    """Closed ledgers that nothing names, and names of ledgers that are gone.

    kept: the ledgers that kept rests name. Nobody changes a list any more.
    """
    listed = {row.ledger for rows in now.logs.values() for row in rows.values()} | kept
    for ledger in sorted(listed - now.ledgers.keys()):
        yield f"ledger {ledger} is gone, and a list or a kept rest names it"
    for ledger, record in sorted(now.ledgers.items()):
        is_closed = record.state is LedgerState.CLOSED
        if is_of_stream(record) and is_closed and ledger not in listed:
            yield f"ledger {ledger} is closed, and neither a list nor a kept rest names it"
