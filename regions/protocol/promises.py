"""What a node has promised, put together for a table."""

from regions.protocol.known_files import KnownFiles
from regions.protocol.ledgers import Ledgers
from regions.protocol.tables import Promises


def promises_of(ledgers: Ledgers, files: KnownFiles) -> Promises:
    """All that is known of the whole node now, also by records that are in flight."""
    return Promises(
        list(ledgers.rows()),
        ledgers.deleted,
        list(files.rows()),
        files.retired,
        ledgers.damaged,
        ledgers.settled,
    )
