"""A frame of several records is refused only if each of them is."""

import pytest

from geolog.client.writing.writer_pending import Pending, Receipt, RepeatedRecord
from geolog.protocol.ids import DLSN
from geolog.wire.session.messages import AppendRequest, RecordContent
from regions.proxy.append_session import _receipts_of, _Unanswered
from topology.errors import ConflictError, GeologError, Outcome, OutcomeUnknownError

REFUSED = ConflictError("sequence 7 is expected")
UNKNOWN = OutcomeUnknownError("the owner was lost")
STORED = Receipt(0, DLSN(1, 0, 0), 0, 1)


def answered(answer: Receipt | GeologError) -> Pending:
    """A record with this answer."""

    async def ask() -> Receipt:
        if isinstance(answer, GeologError):
            raise answer
        return answer

    return RepeatedRecord(ask)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([REFUSED, REFUSED], "refused"),
        ([REFUSED, UNKNOWN], "unknown"),
        ([UNKNOWN, REFUSED], "unknown"),
        ([REFUSED, STORED], "unknown"),
        ([UNKNOWN, UNKNOWN], "unknown"),
    ],
)
async def test_a_frame_is_refused_only_if_all_of_its_records_are(
    answers: list[Receipt | GeologError], outcome: Outcome
) -> None:
    records = tuple(RecordContent(value=b"") for _ in answers)
    append = AppendRequest(id=1, records=records, is_list=True)
    pendings = list(map(answered, answers))
    told = await _receipts_of(
        _Unanswered(None, "s#0", 0, 0.0, append=append, pendings=pendings)
    )

    assert isinstance(told, GeologError)
    assert told.outcome == outcome
