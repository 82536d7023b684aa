"""Finds the head of an append in JSON without parsing its records, for frames that are refused.

An overloaded proxy should spend little on what it does not take. Members at the front of the
frame are read. The frame has no others that matter if their names do not occur behind these: in
a JSON string the quotes around a name would be escaped, and so would be letters of a name that
is written in another way.
"""

import re

from geolog.wire.session.documents import AppendHead, head_of

_MEMBER = re.compile(
    r'"(type|id|writer|seq|ack)": ?("[ !#-\[\]-~]{0,1024}"|-?(?:0|[1-9][0-9]{0,17}))(?=[,}])'
)
"""A member whose value is a plain text, or a whole number."""
_NAMES = ('"id"', '"seq"', '"writer"')
_ESCAPE = "\\u"


def early_head(frame: str) -> AppendHead | None:
    """The head of an append; None if only parsing the whole frame tells.

    The frame may be damaged behind its head.
    """
    if not frame.startswith("{"):
        return None
    found: dict[str, object] = {}
    end = 1
    while (member := _MEMBER.match(frame, end)) is not None:
        name, value = member.groups()
        if name in found:
            return None
        found[name] = value[1:-1] if value.startswith('"') else int(value)
        end = member.end()
        if frame[end] == "}":
            break
        end += 2 if frame.startswith(", ", end) else 1
    if any(frame.find(one, end) >= 0 for one in (*_NAMES, _ESCAPE)):
        return None
    return head_of(found)
