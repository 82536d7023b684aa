"""What a writer's failure says to those whose records it leaves unanswered.

A record without a number that was not sent is not in the log: `refused` stays. One that its
named writer numbered may be there: a newer session of that writer, under another owner, may
have appended it. An owner that has failed can no longer tell, since what it judged to be new
may have come later. So the outcome is `unknown`.

Rules: PROTOCOL S19.
"""

from topology.errors import GeologError


def told_of_record(failure: GeologError, *, is_numbered: bool) -> GeologError:
    """The failure as it is told of a record that was not sent."""
    if not is_numbered or failure.outcome != "refused":
        return failure
    return told_as_unknown(
        failure, f"{failure}; whether a record with this number is in the log is not known"
    )


def told_as_unknown(failure: GeologError, words: str) -> GeologError:
    """The failure with other words, of what may or may not be in the log."""
    kind = type(failure)
    told = kind.__new__(kind, words)  # Some kinds are made of more than words.
    told.__dict__.update(vars(failure))
    told.outcome = "unknown"
    told.__cause__ = failure
    return told
