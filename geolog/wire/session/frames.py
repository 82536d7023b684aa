"""Encodings of a session's messages: the frames of `geolog.v1.json` and `geolog.v1.msgpack`.

Both carry the same documents. JSON frames are text; MessagePack frames are binary, and carry
values, keys and headers as bytes.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import msgpack

from geolog.wire.limits import BATCH_BYTES_MAX
from geolog.wire.session.documents import (
    RECORDS_MAX,
    BadFrameError,
    Document,
    FromClient,
    FromProxy,
    document_of,
    message_of,
)
from geolog.wire.session.json_records import content_document, parse_object
from topology.errors import InvalidArgumentError

_ITEMS_MAX = 2 * RECORDS_MAX
"""Items of one list in a MessagePack frame; a few too many are told in the append's answer."""

_KEYS_MAX = 4096
"""Keys of one map in a MessagePack frame."""

_LISTS_MAX = 10_000
_MAPS_MAX = 5 * RECORDS_MAX
_MAP_KEYS_MAX = 50 * RECORDS_MAX
"""Lists, maps and keys in a frame: tiny ones would take fifty times the memory of the frame."""

_JSON_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A text, also one that is never closed. It gives nothing back: else a frame of many quotes in
a text that is never closed would be searched to its end from each of them."""

_BINARY_BYTES_MAX = 2 * BATCH_BYTES_MAX
"""A sealed batch is no larger, whatever its codec."""


_KEYS_UNSEEN = 2 * RECORDS_MAX
"""Keys of a JSON frame that are few enough, wherever they are."""

_TOO_MUCH = f"the frame has more lists or objects than {RECORDS_MAX} records can have"


class FrameCodec(ABC):
    """One encoding of the messages."""

    subprotocol: str

    def decode(self, frame: str | bytes) -> FromClient:
        """The client's message in a frame. BadFrameError."""
        return message_of(self.parse(frame))

    @abstractmethod
    def parse(self, frame: str | bytes) -> Document:
        """The document in a client's frame; `message_of` makes it a message. BadFrameError."""

    @abstractmethod
    def encode(self, message: FromProxy) -> str | bytes:
        """The frame of a proxy's message."""

    @abstractmethod
    def encode_read(self, type_: Literal["record", "gap"], document: Document) -> str | bytes:
        """The frame of a record or gap, from its document."""

    @abstractmethod
    def content(
        self,
        value: bytes | memoryview,
        key: bytes | memoryview | None,
        headers: Mapping[str, bytes] | None,
    ) -> Document:
        """The part of a record's document that its writer gave."""


class _Json(FrameCodec):
    subprotocol = "geolog.v1.json"

    def parse(self, frame: str | bytes) -> Document:
        if not isinstance(frame, str):
            raise BadFrameError(f"binary frames are not part of {self.subprotocol}", None)
        try:
            _check_contents(frame)
            return parse_object(frame, "the frame")
        except InvalidArgumentError as error:
            raise BadFrameError(str(error), None) from error

    def encode(self, message: FromProxy) -> str:
        return _json_text(document_of(message))

    def encode_read(self, type_: Literal["record", "gap"], document: Document) -> str:
        return _json_text({"type": type_, **document})

    def content(
        self,
        value: bytes | memoryview,
        key: bytes | memoryview | None,
        headers: Mapping[str, bytes] | None,
    ) -> Document:
        return content_document(value, key, headers)


class _MessagePack(FrameCodec):
    subprotocol = "geolog.v1.msgpack"

    def parse(self, frame: str | bytes) -> Document:
        if not isinstance(frame, bytes):
            raise BadFrameError(f"text frames are not part of {self.subprotocol}", None)
        return _unpacked(frame)

    def encode(self, message: FromProxy) -> bytes:
        return _packed(document_of(message))

    def encode_read(self, type_: Literal["record", "gap"], document: Document) -> bytes:
        return _packed({"type": type_, **document})

    def content(
        self,
        value: bytes | memoryview,
        key: bytes | memoryview | None,
        headers: Mapping[str, bytes] | None,
    ) -> Document:
        return {"key": key, "value": value, "headers": dict(headers or {})}


def credit_frame(records: int) -> bytes:
    """A client's MessagePack frame that grants credit for so many records."""
    return _packed({"type": "credit", "records": records})


def commit_frame(sequence: int, partition: int, id_: int | None = None) -> bytes:
    """A client's MessagePack frame that commits a partition's records up to a sequence."""
    frame = {"type": "commit", "sequence": sequence, "partition": partition}
    return _packed(frame if id_ is None else {**frame, "id": id_})


def leave_frame() -> bytes:
    """A client's MessagePack frame that gives its cursor up."""
    return _packed({"type": "leave"})


def read_document(frame: str | bytes) -> Document:
    """The document of a proxy's MessagePack frame, for a client that reads. BadFrameError."""
    if not isinstance(frame, bytes):
        raise BadFrameError("text frames are not part of geolog.v1.msgpack", None)
    return _unpacked(frame)


JSON_FRAMES: FrameCodec = _Json()
MSGPACK_FRAMES: FrameCodec = _MessagePack()

FRAME_CODECS = {one.subprotocol: one for one in (JSON_FRAMES, MSGPACK_FRAMES)}
"""By subprotocol."""


def _json_text(document: Document) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _packed(document: Document) -> bytes:
    packed: bytes = msgpack.packb(document)
    return packed


def _unpacked(frame: bytes) -> Document:
    """The document in a frame; a length in it allocates no more than the frame can hold."""
    size, contents = len(frame), _Contents()
    try:
        document = msgpack.unpackb(
            frame,
            object_hook=contents.checked_map,
            list_hook=contents.checked_list,
            max_str_len=size,
            max_bin_len=min(size, _BINARY_BYTES_MAX),
            max_array_len=min(size, _ITEMS_MAX),
            max_map_len=min(size, _KEYS_MAX),
            max_ext_len=0,
        )
    except InvalidArgumentError as error:
        raise BadFrameError(str(error), None) from error
    except msgpack.StackError as error:
        raise BadFrameError("the frame is nested too deeply", None) from error
    except (ValueError, msgpack.UnpackException) as error:
        reason = str(error) or "a byte that begins no value"
        raise BadFrameError(f"the frame is not valid MessagePack: {reason}", None) from error
    if not isinstance(document, dict):
        raise BadFrameError(f"the frame is not a map: {document!r:.60}", None)
    return document


class _Contents:
    """Counts what a frame holds while it is unpacked."""

    def __init__(self) -> None:
        self._lists_count = 0
        self._maps_count = 0
        self._keys_count = 0

    def checked_list(self, items: list[object]) -> list[object]:
        self._lists_count += 1
        if self._lists_count > _LISTS_MAX:
            raise InvalidArgumentError(_TOO_MUCH)
        return items

    def checked_map(self, document: dict[object, object]) -> dict[object, object]:
        self._maps_count += 1
        self._keys_count += len(document)
        if self._maps_count > _MAPS_MAX or self._keys_count > _MAP_KEYS_MAX:
            raise InvalidArgumentError(_TOO_MUCH)
        for name in document:
            if not isinstance(name, str):
                raise InvalidArgumentError(f"key {name!r:.60} of a map is not text")
        return document


def _check_contents(text: str) -> None:
    """Refuse JSON with more lists, objects and keys than any message. InvalidArgumentError."""
    if (
        text.count("[") <= _LISTS_MAX
        and text.count("{") <= _MAPS_MAX
        and text.count(":") <= _KEYS_UNSEEN
    ):
        return
    outside = _JSON_TEXT.sub("", text)  # A value may be text that is itself JSON.
    maps_count = outside.count("{")
    if outside.count("[") > _LISTS_MAX or maps_count > _MAPS_MAX:
        raise InvalidArgumentError(_TOO_MUCH)
    keys_count = outside.count(":")
    if keys_count > max(_KEYS_UNSEEN, min(_MAP_KEYS_MAX, _KEYS_MAX * maps_count)):
        raise InvalidArgumentError(f"the frame has {keys_count} keys, more than any message")
