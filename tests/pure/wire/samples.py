"""Small batches, entries and frames, shared by the tests of the formats."""

from geolog.protocol.batch_seqs import RisingSeqs
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsReceived,
    AddsSynced,
    Answer,
    Cancel,
    DoubtSettled,
    EntryAnswer,
    Fence,
    Fenced,
    Follow,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
    SettleDoubt,
    Status,
    StatusRequest,
)
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.codec import encode
from geolog.wire.entry import EncodedEntry, WriterStamp, encode_entry

INSTANCE = InstanceId("00112233445566778899aabbccddeeff")


def batch_of_all_columns(*, compress: bool = False) -> SealedBatch:
    """Three records; each nullable column has a null and an empty string."""
    return seal_batch(
        [b"depart", b"", b"land" * 20],
        created_us=[1_700_000_000_000_000, 1_700_000_000_000_001, -1],
        keys=[b"EWR", None, b""],
        transaction_ids=[7, None, 9],
        headers=[{"trace": b"\x00\xff"}, {}, {"größe": b"", "b": b"2"}],
        compress=compress,
    )


def batch_of_values(*values: bytes) -> SealedBatch:
    return seal_batch(values, created_us=1_700_000_000_000_000, compress=False)


def entry_of(*batches: SealedBatch, entry: int = 4) -> EncodedEntry:
    """An entry of a log's first home; only the first batch has a named writer.

    Its seqs have gaps, if there is more than one.
    """
    seqs = RisingSeqs(40)
    for _ in range(batches[0].record_count - 1):
        seqs.add(seqs.last + 300)
    writers = [WriterStamp(b"till-7", 2, seqs.gathered()), *[None] * (len(batches) - 1)]
    return encode_entry(
        batches,
        home_epoch=1,
        segment=3,
        entry=entry,
        first_sequence=100,
        append_time_us=1_700_000_000_000_500,
        writers=writers,
    )


def add_of(encoded: EncodedEntry) -> Add:
    return Add(
        ordinal=1,
        ledger=LedgerId(12),
        entry=EntryId(4),
        epoch=Epoch(2),
        lac=EntryId(3),
        is_recovery=False,
        wants_received=False,
        instance=INSTANCE,
        body=encoded.join(),
        body_crc=encoded.crc,
    )


def frame_bytes(message: Message) -> bytes:
    return b"".join(encode(message))


def one_of_each_message() -> list[Message]:
    ledger, epoch, entry = LedgerId(12), Epoch(2), EntryId(4)
    return [
        Hello(1, 1, "production"),
        HelloAnswer(1, 1, INSTANCE, "/eu-west/a", 64 << 20),
        Refused(2, Reason.WRONG_INSTANCE, epoch, "meant for another node"),
        add_of(entry_of(batch_of_values(b"a"))),
        AddsSynced(17),
        AddRefused(18, Reason.FENCED, Epoch(3)),
        OpenLedger(3, ledger, epoch, INSTANCE),
        LedgerOpened(3),
        Fence(4, ledger, epoch, INSTANCE),
        Fenced(4, EntryId(-1), EntryId(-1)),
        Read(5, ledger, entry, 100, 1 << 20, 4, Epoch(0), INSTANCE, is_from_disk=True),
        ReadAnswer(
            5,
            EntryId(3),
            entry,
            (
                EntryAnswer(Answer.HAVE, b"the bytes of an entry"),
                EntryAnswer(Answer.ABSENT),
                EntryAnswer(Answer.CORRUPT),
                EntryAnswer(Answer.HAVE, b"of another"),
                EntryAnswer(Answer.UNKNOWN),
            ),
        ),
        Probe(6, ledger, entry, 0, INSTANCE),
        ProbeAnswer(6, EntryId(3), entry, True, epoch, (Answer.HAVE, Answer.ABSENT)),  # noqa: FBT003 - as fenced as it stands
        PushLac(ledger, epoch, EntryId(3), INSTANCE),
        StatusRequest(7),
        Status(7, '{"größe": 1}'),
        AddsReceived(19),
        Follow(8, ledger, entry, 100, 1 << 20, 500, INSTANCE),
        SettleDoubt(9, ledger, 77, INSTANCE),
        DoubtSettled(9),
        Cancel(8),
    ]
