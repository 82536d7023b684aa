"""Records and gaps as documents, as `geolog read -o jsonl` and proxies print them."""

from datetime import UTC, datetime

from geolog.client.reading.record import Gap, Record
from geolog.wire.session.documents import Document
from geolog.wire.session.frames import FrameCodec
from geolog.wire.session.json_records import Json, content_document


def record_document(record: Record) -> Json:
    """The JSON document of a record, with all its fields."""
    content = content_document(record.value, record.key, record.headers)
    return _place(record) | content | _origin(record)


def record_document_in(codec: FrameCodec, record: Record) -> Document:
    """Likewise, for the frames of a session."""
    content = codec.content(record.value, record.key, record.headers)
    return {**_place(record), **content, **_origin(record)}


def _place(record: Record) -> Json:
    time = datetime.fromtimestamp(record.timestamp_us // 1_000_000, UTC)
    time = time.replace(microsecond=record.timestamp_us % 1_000_000)
    place: Json = {
        "stream": record.stream,
        "partition": record.partition,
        "epoch": record.epoch,
        "dlsn": str(record.dlsn),
        "sequence": record.sequence,
        "transaction_id": record.transaction_id,
        "timestamp": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    return place | {"local_only": True} if record.is_local_only else place


def _origin(record: Record) -> Json:
    return {
        "origin": record.origin,
        "served_region": record.served_region,
        "hedged": record.hedged,
    }


def gap_document(gap: Gap) -> Json:
    """The document of a gap: why, and from which sequence to which, exclusive.

    `epoch` only if it diverged: the home epoch in which reading goes on; or if they are
    local-only, that in which they were appended.
    """
    document: Json = {
        "stream": gap.stream,
        "partition": gap.partition,
        "reason": gap.reason.value,
        "from": gap.from_sequence,
        "to": gap.to_sequence,
    }
    return document if gap.epoch is None else document | {"epoch": gap.epoch}
