"""Rows that wait to be sealed into one entry of a staging ledger, column by column.

Rules: PROTOCOL S39.
"""

from collections.abc import Mapping
from zlib import crc32

import attrs

from geolog.client.writing.record_fields import record_size_bytes
from geolog.protocol.sink_copy import DIGEST_BITS
from geolog.wire.batch import SealedBatch, seal_batch

ENTRY_BYTES = 256 * 1024
"""Rows are sealed once they have this many bytes: as the batches of writers."""


@attrs.define
class StagedRows:
    """The rows of one stream that are in no entry yet."""

    values: list[bytes] = attrs.field(factory=list)
    keys: list[bytes | None] = attrs.field(factory=list)
    headers: list[Mapping[str, bytes]] = attrs.field(factory=list)
    size_bytes: int = 0
    _digests_sum: int = 0

    @property
    def digest(self) -> int:
        """The sum of the digests of all rows so far, sealed or not."""
        return self._digests_sum % (1 << DIGEST_BITS)

    @property
    def is_full(self) -> bool:
        """Whether it is time to seal them."""
        return self.size_bytes >= ENTRY_BYTES

    def add(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        """Add a row. TooLargeError, InvalidArgumentError for one that no stream would take."""
        self.size_bytes += record_size_bytes(value, key, headers, None)
        self._digests_sum += _digest(value, key, headers)
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers or {})

    def seal(self, *, now_us: int) -> SealedBatch:
        """Seal all rows, and begin again."""
        sealed = seal_batch(
            self.values,
            created_us=now_us,
            keys=self.keys if any(key is not None for key in self.keys) else None,
            headers=self.headers if any(self.headers) else None,
        )
        self.values, self.keys, self.headers, self.size_bytes = [], [], [], 0
        return sealed


def _digest(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
    digest = 0 if key is None else crc32(key, 1 + len(key))
    if headers:
        for name, content in sorted(headers.items()):
            digest = crc32(content, crc32(name.encode(), digest))
    return crc32(value, digest)
