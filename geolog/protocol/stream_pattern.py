"""Patterns of stream names: `shop/*` names every stream of `shop`, now and later."""

import re
from functools import cached_property

import attrs

from geolog.protocol.stream_state import StreamName
from topology.errors import InvalidArgumentError

_ANY = "*"
_PART = re.compile(r"[a-z0-9*][a-z0-9._*-]{0,127}")
_SHOWN_MAX = 200
_OF_OTHER_TOOLS = re.compile(r"[>?\[\]()+$^|\\]|\.\*|\*\*")
"""Wildcards of NATS and shells, and what a regular expression has."""


def is_pattern(text: str) -> bool:
    """Whether the text can only be meant as a pattern, right or wrong: no name has a `*`."""
    return _ANY in text or text.endswith("/>")


@attrs.frozen
class StreamPattern:
    """NAMESPACE/NAME, where `*` stands for any characters of one of the two, also for none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "StreamPattern":
        """Parse a pattern. InvalidArgumentError names the nearest right one."""
        shown = repr(text[:_SHOWN_MAX])
        if "#" in text:
            raise InvalidArgumentError(
                f"pattern {shown} names a partition; a pattern names whole streams: use"
                f" {text[: text.index('#')][:_SHOWN_MAX]!r}"
            )
        parts = text.split("/")
        is_foreign = _OF_OTHER_TOOLS.search(text) is not None
        if is_foreign or len(parts) != 2 or not all(map(_PART.fullmatch, parts)):
            raise InvalidArgumentError(
                f"pattern {shown} is not NAMESPACE/NAME with '*' for any characters, e.g."
                f" 'shop/*' or '*/orders'{_nearest(text)}"
            )
        return cls(*parts)

    def matches(self, stream: StreamName) -> bool:
        """Whether the stream is one of those that the pattern names."""
        return self.has_namespace(stream.namespace) and bool(self._name.fullmatch(stream.name))

    def has_namespace(self, namespace: str) -> bool:
        """Whether streams of this namespace may be meant."""
        return self._namespace.fullmatch(namespace) is not None

    @cached_property
    def _namespace(self) -> re.Pattern[str]:
        return _expression(self.namespace)

    @cached_property
    def _name(self) -> re.Pattern[str]:
        return _expression(self.name)


def _expression(part: str) -> re.Pattern[str]:
    first, *others = [re.escape(one) for one in part.split(_ANY)]
    if not others:
        return re.compile(first)
    *middle, last = others
    # Text between two wildcards is looked for once: its first place in the name is as good as
    # any later one. Trying them all takes time exponential in the number of wildcards.
    found = "".join(f"(?>[^/]*?{one})" for one in middle if one)
    return re.compile(f"{first}{found}[^/]*{last}")


def _nearest(text: str) -> str:
    """The end of the error for a pattern of another tool: ours that it may stand for."""
    if len(text) > _SHOWN_MAX:
        return ""
    plain = text.strip("^$").lower()
    if "/" not in plain:  # NATS has dots.
        plain = plain.replace(".", "/", 1) if "." in plain else f"{plain}/*"
    plain = re.sub(r"\.\*|\.\+|[>?+]|\*\*+", _ANY, plain)
    parts = plain.split("/")
    if len(parts) != 2 or not all(map(_PART.fullmatch, parts)) or _ANY not in plain:
        return ""
    return f"; did you mean {plain!r}?" if plain != text else ""
