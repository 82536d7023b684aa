"""The notation of the vectors: documents to send and to expect, with places to fill in.

A document to expect names some keys; other keys may be there, too. A list has exactly these
items. In place of a value there may be an object whose first key begins with `$`:

| object | expects | sends |
|---|---|---|
| `{"$is": "integer"}` | a value of this kind: text, `integer or null`, …, or `absent` | |
| `{"$is": "integer", "$save": "x"}` | likewise, and remembers it as x | |
| `{"$saved": "x", "$plus": 1}` | what was remembered, plus 1 | the same |
| `{"$content": "paid"}` | text in JSON, its bytes in MessagePack | |
| `{"$hex": "ff"}` | these bytes | the same |
| `{"$text_of_bytes": 9}` | | a text of so many bytes |

In a text, `{x}` is what was remembered as x.
"""

import re
from collections.abc import Iterator, Mapping

import attrs

Document = dict[str, object]

_PLACE = re.compile(r"\{([a-z_]+)\}")
_IS_OF_KIND = {
    "integer": lambda found: type(found) is int,
    "number": lambda found: type(found) in (int, float),
    "text": lambda found: isinstance(found, str),
    "bytes": lambda found: isinstance(found, bytes),
    "boolean": lambda found: isinstance(found, bool),
    "null": lambda found: found is None,
}
_ABSENT = "absent"


class NotationError(Exception):
    """A vector has a mistake: correct its file."""


@attrs.define
class Memory:
    """Values that the steps of one vector have remembered."""

    known: dict[str, int | str]

    def text(self, text: str) -> str:
        """The text with its places filled in."""
        return _PLACE.sub(lambda found: str(self._recall(found[1])), text)

    def filled(self, wanted: object) -> object:
        """The value to send."""
        match wanted:
            case str():
                return self.text(wanted)
            case {"$saved": str(name), **more}:
                return self._saved(name, more.get("$plus"))
            case {"$hex": str(digits)}:
                return bytes.fromhex(digits)
            case {"$text_of_bytes": int(count)}:
                return "x" * count
            case dict():
                return {name: self.filled(one) for name, one in wanted.items()}
            case list():
                return [self.filled(one) for one in wanted]
            case _:
                return wanted

    def differences(
        self, wanted: object, found: object, *, is_binary: bool, at: str = ""
    ) -> Iterator[str]:
        """Values that are not as expected, each with its place; remembers the others."""
        where = at or "the message"
        match wanted:
            case {"$is": str(kinds), **more}:
                if not any(_IS_OF_KIND[one](found) for one in kinds.split(" or ")):
                    yield f"{where} is {_shown(found)}, not {kinds}"
                elif "$save" in more:
                    assert isinstance(found, int | str)
                    self.known[str(more["$save"])] = found
            case {"$saved": str(name), **more}:
                yield from _unlike(self._saved(name, more.get("$plus")), found, where)
            case {"$content": str(text)}:
                yield from _unlike(text.encode() if is_binary else text, found, where)
            case {"$hex": str(digits)}:
                yield from _unlike(bytes.fromhex(digits), found, where)
            case dict():
                yield from self._keys(wanted, found, is_binary=is_binary, at=at)
            case list():
                yield from self._items(wanted, found, is_binary=is_binary, at=where)
            case str():
                yield from _unlike(self.text(wanted), found, where)
            case _:
                yield from _unlike(wanted, found, where)

    def _keys(
        self, wanted: Mapping[str, object], found: object, *, is_binary: bool, at: str
    ) -> Iterator[str]:
        if not isinstance(found, dict):
            yield f"{at or 'the message'} is {_shown(found)}, not an object"
            return
        for name, one in wanted.items():
            where = f"{at}.{name}" if at else name
            is_absent = name not in found
            if isinstance(one, dict) and one.get("$is") == _ABSENT:
                if not is_absent:
                    yield f"{where} is {_shown(found[name])}; it must not be there"
            elif is_absent:
                yield f"{where} is missing"
            else:
                yield from self.differences(one, found[name], is_binary=is_binary, at=where)

    def _items(
        self, wanted: list[object], found: object, *, is_binary: bool, at: str
    ) -> Iterator[str]:
        if not isinstance(found, list) or len(found) != len(wanted):
            yield f"{at} is {_shown(found)}, not a list of {len(wanted)}"
            return
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from self.differences(one, other, is_binary=is_binary, at=f"{at}[{number}]")

    def _saved(self, name: str, plus: object) -> int | str:
        saved = self._recall(name)
        if isinstance(saved, int) and isinstance(plus, int):
            return saved + plus
        return saved

    def _recall(self, name: str) -> int | str:
        if name not in self.known:
            raise NotationError(f"no step before has remembered {name!r}")
        return self.known[name]


def _unlike(wanted: object, found: object, where: str) -> Iterator[str]:
    # A boolean is no number here, although Python takes True for 1.
    if wanted != found or isinstance(wanted, bool) != isinstance(found, bool):
        yield f"{where} is {_shown(found)}, not {_shown(wanted)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
