"""The error a writer's failure gives for records that it leaves unanswered.

A record without a number that was not sent is not in the log, so it stays `refused`. A record
that its named writer numbered may be in the log: a newer session of that writer, under another
owner, may have appended it. A failed owner can no longer tell, because a record that it judged
new may have been appended since. So the outcome of a numbered record is `unknown`.

Rules: PROTOCOL S19.
"""

from topology.errors import GeologError


def told_of_record(failure: GeologError, *, is_numbered: bool) -> GeologError:
    """The failure as reported for a record that was not sent."""
    if not is_numbered or failure.outcome != "refused":
        return failure
    return told_as_unknown(
        failure, f"{failure}; the log may or may not hold a record with this number"
    )


def told_as_unknown(failure: GeologError, words: str) -> GeologError:
    """The failure with outcome `unknown` and another message."""
    told = in_other_words(failure, words)
    told.outcome = "unknown"
    return told


def in_other_words(failure: GeologError, words: str) -> GeologError:
    """The same failure with another message."""
    kind = type(failure)
    told = kind.__new__(kind, words)  # Some error classes take more than a message.
    told.__dict__.update(vars(failure))
    told.__cause__ = failure
    return told
