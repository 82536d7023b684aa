"""Evidence for the death of a proxy, against a judge that remembers every event."""

import enum

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.peer_evidence import (
    BREAKS_MIN,
    SILENT_BEATS_MIN,
    PeerEvidence,
)


class Event(enum.Enum):
    ANSWER = "answer"
    BREAK = "break"
    BEAT = "beat"


def judged(events: list[Event]) -> PeerEvidence:
    evidence = PeerEvidence()
    for event in events:
        match event:
            case Event.ANSWER:
                evidence = evidence.on_answer()
            case Event.BREAK:
                evidence = evidence.on_break()
            case Event.BEAT:
                evidence = evidence.on_beat()
    return evidence


def naive_is_suspected(events: list[Event]) -> bool:
    """Whether what came since the last answer is enough; its first beat does not count."""
    answers = [place for place, event in enumerate(events) if event is Event.ANSWER]
    since = events[answers[-1] + 1 :] if answers else events
    silent = since.count(Event.BEAT) - (1 if answers else 0)
    return since.count(Event.BREAK) >= BREAKS_MIN or silent >= SILENT_BEATS_MIN


events = st.lists(
    st.sampled_from([Event.BEAT] * 6 + [Event.BREAK] * 2 + [Event.ANSWER]), max_size=40
)


@given(events)
def test_the_suspicion_is_that_of_a_judge_that_remembers_everything(
    happened: list[Event],
) -> None:
    for count in range(len(happened) + 1):
        before = happened[:count]
        assert judged(before).is_suspected == naive_is_suspected(before)


@given(events)
def test_one_answer_refutes_all_evidence(happened: list[Event]) -> None:
    assert judged([*happened, Event.ANSWER]) == PeerEvidence(has_answered=True)


def test_refused_connections_are_stronger_than_silence() -> None:
    assert BREAKS_MIN < SILENT_BEATS_MIN
    assert judged([Event.ANSWER, *[Event.BREAK] * BREAKS_MIN]).is_suspected
    assert not judged([Event.ANSWER, *[Event.BEAT] * SILENT_BEATS_MIN]).is_suspected


def test_a_silent_connection_is_given_up_once_per_suspicion() -> None:
    beats = [[Event.BEAT] * count for count in range(2 * SILENT_BEATS_MIN + 1)]
    stale = [len(one) for one in beats if judged(one).is_connection_stale]

    assert stale == [SILENT_BEATS_MIN, 2 * SILENT_BEATS_MIN]
