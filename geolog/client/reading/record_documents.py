"""Records and gaps as JSON documents, as `geolog read -o jsonl` and proxies print them."""

from datetime import UTC, datetime

from geolog.client.reading.record import Gap, Record
from geolog.wire.session.json_records import Json, content_document


def record_document(record: Record) -> Json:
    """The document of a record, with all its fields."""
    time = datetime.fromtimestamp(record.timestamp_us // 1_000_000, UTC)
    time = time.replace(microsecond=record.timestamp_us % 1_000_000)
    head: Json = {
        "stream": record.stream,
        "partition": record.partition,
        "epoch": record.epoch,
        "dlsn": str(record.dlsn),
        "sequence": record.sequence,
        "transaction_id": record.transaction_id,
        "timestamp": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    tail: Json = {
        "origin": record.origin,
        "served_region": record.served_region,
        "hedged": record.hedged,
    }
    return head | content_document(record.value, record.key, record.headers) | tail


def gap_document(gap: Gap) -> Json:
    """The document of a gap: why, and from which sequence to which, exclusive."""
    return {
        "stream": gap.stream,
        "partition": gap.partition,
        "reason": gap.reason.value,
        "from": gap.from_sequence,
        "to": gap.to_sequence,
    }
