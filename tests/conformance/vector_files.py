"""The vectors: files of steps, each read and checked before any is played."""

import json
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.conformance.notation import Document, NotationError

FOLDER = Path(__file__).parent / "vectors"

HTTP = "HTTP"
"""The case of a vector that plays over HTTP."""

OTHER = "another proxy"
DRAIN = "a drain"
NEEDS = (OTHER, DRAIN)
"""Further things that a vector may need besides a proxy."""

_FILE_KEYS = {"title", "subprotocols", "steps", "needs", "is_dear"}
_DEEDS = {
    "connect": {"offering", "refused", "at"},
    "send": set(),
    "send_text": set(),
    "send_hex": set(),
    "send_bytes_count": set(),
    "expect": set(),
    "expect_each": set(),
    "expect_silence_s": set(),
    "expect_close": set(),
    "close": set(),
    "drain": set(),
    "request": {
        *("lines", "body", "body_bytes_count", "announced_bytes_count"),
        *("status", "headers", "answers", "tries_max"),
    },
}
"""Deeds of a step, each with the further keys that go with it."""


@attrs.frozen
class Step:
    """One step: `document` is as in the file."""

    number: int
    deed: str
    document: Document

    @property
    def socket(self) -> str:
        """The name of the session that it is about."""
        return str(self.document.get("as", ""))

    @property
    def is_late(self) -> bool:
        """Whether the proxy has to wait for something that does not come."""
        return "announced_bytes_count" in self.document

    def is_for(self, case: str) -> bool:
        """Whether it is part of this case."""
        return self.document.get("in", case) == case


@attrs.frozen
class Vector:
    """One story. It is played once for each of its cases: subprotocols, or HTTP."""

    name: str
    title: str
    cases: Sequence[str]
    steps: Sequence[Step]
    needs: str | None = None
    is_dear: bool = False
    """Whether its client has to be left alone for a while afterwards."""

    @property
    def turn(self) -> tuple[bool, bool, str]:
        """Its place in the order of play."""
        return self.needs == DRAIN, self.is_dear, self.name


def vectors_in(folder: Path = FOLDER) -> list[Vector]:
    """All vectors of a folder, in the order of play. NotationError."""
    found = [_vector_of(path) for path in folder.glob("*.json")]
    return sorted(found, key=lambda one: one.turn)


def _vector_of(path: Path) -> Vector:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotationError(f"{path.name}: {error}") from error
    if not isinstance(document, dict) or document.keys() - _FILE_KEYS:
        raise NotationError(f"{path.name}: the keys are {sorted(_FILE_KEYS)}")
    needs = document.get("needs")
    if needs not in (None, *NEEDS):
        raise NotationError(f"{path.name}: needs is {needs!r}, not one of {NEEDS}")
    return Vector(
        path.stem,
        str(document["title"]),
        [str(one) for one in document.get("subprotocols", [HTTP])],
        [_step_of(path, number, one) for number, one in enumerate(document["steps"], 1)],
        needs,
        bool(document.get("is_dear", False)),
    )


def _step_of(path: Path, number: int, document: Document) -> Step:
    deeds = document.keys() & _DEEDS.keys()
    if len(deeds) != 1:
        raise NotationError(f"{path.name}, step {number}: it does not do one of {set(_DEEDS)}")
    (deed,) = deeds
    strange = document.keys() - {deed, "as", "in"} - _DEEDS[deed]
    if strange:
        raise NotationError(f"{path.name}, step {number}: unknown keys {sorted(strange)}")
    return Step(number, deed, document)
