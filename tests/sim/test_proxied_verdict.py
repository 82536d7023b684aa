"""Outages, pauses and latencies of the writers that a drill watches."""

from geolog.metadata.seam import Stored
from geolog.protocol.ids import DLSN
from sim.processes.drills.failover_watch import Writes
from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.proxied_load import PACE_S, ProxiedWriter
from sim.processes.drills.proxied_verdict import percentile
from sim.processes.drills.writer_process import Acknowledged


def a_writer(*answers: tuple[float, float]) -> ProxiedWriter:
    """A writer whose records were sent and answered at these times."""
    writer = ProxiedWriter(0, "eu-west")
    for number, (sent_s, answered_s) in enumerate(answers):
        writer.acknowledged.append(Acknowledged(b"", DLSN(1, number, 0), number))
        writer.sent_s.append(sent_s)
        writer.answered_s.append(answered_s)
    return writer


def test_an_outage_lasts_from_the_fault_to_the_end_of_the_longest_pause() -> None:
    # An answer that was on its way arrives after the kill at 10.
    writer = a_writer((9.0, 9.1), (9.9, 10.1), (10.2, 16.5), (16.6, 16.7))
    span = FaultSpan(10.0, 17.0)

    assert span.outage_s(writer) == 6.5
    assert round(span.pause_s(writer), 6) == 6.4


def test_a_writer_that_is_never_answered_again_is_out_until_the_end() -> None:
    assert FaultSpan(10.0, 40.0).outage_s(a_writer((9.0, 9.1))) == 30.0


def test_a_writer_without_any_answer_is_out_all_the_time() -> None:
    span = FaultSpan(10.0, 14.0)

    assert span.outage_s(a_writer()) == span.pause_s(a_writer()) == 4.0


def test_records_that_were_due_in_an_outage_count_with_the_time_they_would_have_waited() -> (
    None
):
    latencies_s = list(a_writer((0.0, 100 * PACE_S)).latencies(0.0, 10.0))

    assert len(latencies_s) in (100, 101)
    assert max(latencies_s) == 100 * PACE_S
    assert min(latencies_s) < 1.01 * PACE_S


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


def test_a_multi_is_one_write_and_a_record_written_twice_is_two() -> None:
    before = Writes({"/owner": Stored(b"", 3, modified_us=1)})
    after = Writes(
        {
            "/owner": Stored(b"", 5, modified_us=9),
            "/ledger": Stored(b"", 0, modified_us=7),
            "/segment": Stored(b"", 0, modified_us=7),
        }
    )

    assert after.since(before) == 3
    assert after.since(after) == 0
