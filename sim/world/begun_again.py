"""Mirrors that were begun again, by what is written to the metadata store.

A look at the world may come too late for that: the rows of a mirror may be noted as dropped,
and be gone, between two looks.
"""

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.seam import Create, Operation, Put
from geolog.protocol.stream_state import TrimRecord

_TRIM = "/trim"
"""Paths of such records end with this."""


@attrs.define(eq=False)
class BegunAgain:
    """How often each mirror was begun again, and which rows it lost by that.

    A mirror is named by the path of the record of where it begins.
    """

    _counts: dict[str, int] = attrs.field(factory=dict)
    _dropped: dict[str, int] = attrs.field(factory=dict)
    _dropping: dict[str, int] = attrs.field(factory=dict)
    """Rows noted as dropped that may still be there."""

    def on_written(self, operations: list[Operation]) -> None:
        """These operations were carried out."""
        for one in operations:
            if isinstance(one, Create) and one.path in self._counts:
                # Its target was removed, and is added again.
                del self._counts[one.path], self._dropped[one.path], self._dropping[one.path]
            elif isinstance(one, Put) and one.path.endswith(_TRIM):
                record = open_document(one.data, TrimRecord, path=one.path)
                self._on_trim(one.path, record.dropping_through)

    def _on_trim(self, path: str, dropping_through: int) -> None:
        if dropping_through and dropping_through != self._dropping.get(path):
            self._counts[path] = self._counts.get(path, 0) + 1
            self._dropped[path] = max(dropping_through, self._dropped.get(path, 0))
        if path in self._counts:
            self._dropping[path] = dropping_through

    def count(self, path: str) -> int:
        """How often this mirror was begun again since it was made."""
        return self._counts.get(path, 0)

    def dropped_through(self, path: str) -> int:
        """The last of its rows that are not part of it any more; 0 if there is none."""
        return self._dropped.get(path, 0)
