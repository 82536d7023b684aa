"""Binary messages of subprotocol `geolog.v2.multicast`: acknowledged entries for a relay.

Each WebSocket message is one or more messages. Layout, little-endian:

    0  type u8                      8  length of the body u32
    1  zero, 3 bytes                12 CRC32C of bytes 0 to 12, and of the body of a document
    4  log u32, or 0                16 body

The first message is a hello. A log is named before its first entry: the name is given a number
for this connection. The body of MULTICAST_ENTRY is the entry as its owner sealed it, which has
checksums of its own; the others are JSON objects.

Owners of streams whose loss is bounded ask how far the targets of a log are. The relay tells
it from then on, if it coordinates; and the owner tells when it holds appends back. Subprotocol
`geolog.v1.multicast` has none of these three messages.

Rules: PROTOCOL T4 and T8.
"""

import enum
import json
import struct
from collections.abc import Iterator

import attrs
import cattrs
from crc32c import crc32c

from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.wire.entry import EncodedEntry, decode_entry
from geolog.wire.limits import DOCUMENT_BYTES_MAX, ENTRY_BYTES_MAX, INT64_MAX
from topology.errors import DamagedBytesError, GeologError

SUBPROTOCOL_MULTICAST = "geolog.v2.multicast"

SUBPROTOCOL_MULTICAST_OF_ENTRIES = "geolog.v1.multicast"
"""The version before, in which nobody asks for progress."""

MULTICAST_PATH = "/relay/multicast"

MULTICAST_BYTES_MAX = ENTRY_BYTES_MAX + DOCUMENT_BYTES_MAX
"""One WebSocket message: an entry at its limit, with room for what is sent with it."""


@attrs.frozen
class MulticastHello:
    """First words of an owner's process."""

    cluster: str
    region: str
    sender: str
    """Its name in owner records, for people."""


@attrs.frozen
class MulticastLog:
    """Gives a partition a number on this connection."""

    log: int
    stream: str
    life: str
    partition: int

    @property
    def name(self) -> PartitionName:
        """The partition."""
        return PartitionName(StreamName.parse(self.stream), self.partition, self.life)


@attrs.frozen(eq=False)
class MulticastEntry:
    """An acknowledged entry of a log."""

    log: int
    encoded: EncodedEntry


@attrs.frozen
class MulticastAsk:
    """The owner wants to be told how far the targets of a log are, from now on."""

    log: int


@attrs.frozen(kw_only=True)
class MulticastProgress:
    """The place of one target of a log, as it told a coordinator."""

    log: int
    target: str
    relay_epoch: int
    """Of the coordinator that the target told; it may be an earlier one."""
    durable_next: int
    """The first sequence that the target has not durably."""
    tail_next: int
    """The sequence up to which `lag_bytes` counts; the coordinator may have read further."""
    lag_bytes: int
    """Bytes between the two, at most."""
    since_us: int
    """When the oldest record between them was appended, or earlier; 0 if there is none."""


@attrs.frozen
class MulticastHeld:
    """The owner holds appends to a log back, or does not any more."""

    log: int
    target: str
    """The target that is too far behind; empty: appends go on."""


MulticastDocument = (
    MulticastHello | MulticastLog | MulticastAsk | MulticastProgress | MulticastHeld
)
MulticastMessage = MulticastDocument | MulticastEntry


class _Type(enum.IntEnum):
    MULTICAST_HELLO = 1
    MULTICAST_LOG = 2
    MULTICAST_ENTRY = 3
    MULTICAST_ASK = 4
    MULTICAST_PROGRESS = 5
    MULTICAST_HELD = 6


_FRONT = struct.Struct("<B3xIII")
_CHECKED_BYTES = 12
_DOCUMENTS: dict[int, type[MulticastDocument]] = {
    _Type.MULTICAST_HELLO: MulticastHello,
    _Type.MULTICAST_LOG: MulticastLog,
    _Type.MULTICAST_ASK: MulticastAsk,
    _Type.MULTICAST_PROGRESS: MulticastProgress,
    _Type.MULTICAST_HELD: MulticastHeld,
}

MULTICAST_MESSAGE_TYPES: dict[type[MulticastMessage], int] = {
    MulticastHello: _Type.MULTICAST_HELLO,
    MulticastLog: _Type.MULTICAST_LOG,
    MulticastEntry: _Type.MULTICAST_ENTRY,
    MulticastAsk: _Type.MULTICAST_ASK,
    MulticastProgress: _Type.MULTICAST_PROGRESS,
    MulticastHeld: _Type.MULTICAST_HELD,
}
"""The number of each message on the wire."""

_NUMBER_MAX = (1 << 32) - 1


def encode_multicast(message: MulticastMessage) -> bytes:
    """The bytes of one message."""
    type_ = MULTICAST_MESSAGE_TYPES[type(message)]
    if isinstance(message, MulticastEntry):
        encoded = message.encoded
        front = _FRONT.pack(type_, message.log, encoded.length_bytes, 0)[:_CHECKED_BYTES]
        return b"".join((front, crc32c(front).to_bytes(4, "little"), *encoded.buffers))
    document = json.dumps(attrs.asdict(message), ensure_ascii=False).encode()
    front = _FRONT.pack(type_, 0, len(document), 0)[:_CHECKED_BYTES]
    return b"".join((front, crc32c(document, crc32c(front)).to_bytes(4, "little"), document))


def decode_multicast(data: str | bytes) -> Iterator[MulticastMessage]:
    """The messages of one WebSocket message. DamagedBytesError."""
    if isinstance(data, str):
        raise DamagedBytesError(f"a text in a multicast: {data[:100]!r}")
    view = memoryview(data)
    while view:
        if len(view) < _FRONT.size:
            raise DamagedBytesError(f"a multicast is cut within a header, at {len(view)} bytes")
        type_, log, body_bytes, crc = _FRONT.unpack_from(view)
        body = view[_FRONT.size : _FRONT.size + body_bytes]
        is_entry = type_ == _Type.MULTICAST_ENTRY
        checked = crc32c(view[:_CHECKED_BYTES])
        if len(body) < body_bytes:
            raise DamagedBytesError(f"a multicast has {len(body)} of {body_bytes} bytes")
        if (checked if is_entry else crc32c(body, checked)) != crc:
            raise DamagedBytesError("a multicast does not match its checksum")
        yield _entry(log, body) if is_entry else _document(type_, body)
        view = view[_FRONT.size + body_bytes :]


def _entry(log: int, body: memoryview) -> MulticastEntry:
    decoded = decode_entry(body)
    decoded.verify()
    return MulticastEntry(log, EncodedEntry(decoded.header, (body,), crc32c(body)))


def _document(type_: int, body: memoryview) -> MulticastDocument:
    class_ = _DOCUMENTS.get(type_)
    if class_ is None or len(body) > DOCUMENT_BYTES_MAX:
        raise DamagedBytesError(f"unknown message of type {type_}, {len(body)} bytes")
    try:
        message = _CONVERTER.structure(json.loads(bytes(body)), class_)
        _check(message)
    except DamagedBytesError:
        raise
    except GeologError as error:
        raise DamagedBytesError(f"{class_.__name__}: {error}") from error
    except Exception as error:
        raise DamagedBytesError(
            f"the fields of {class_.__name__} are wrong: {error}"
        ) from error
    return message


def _check(message: MulticastDocument) -> None:
    if isinstance(message, MulticastHello):
        return
    numbers: tuple[int, ...] = ()
    if isinstance(message, MulticastLog):
        StreamName.parse(message.stream)
        numbers = (message.partition,)
    elif isinstance(message, MulticastProgress):
        numbers = (
            message.relay_epoch,
            message.durable_next,
            message.tail_next,
            message.lag_bytes,
            message.since_us,
        )
    is_in_range = all(0 <= one <= INT64_MAX for one in numbers)
    if not (0 <= message.log <= _NUMBER_MAX and is_in_range):
        raise DamagedBytesError(f"numbers of {message} are out of range")


def _only(found: object, class_: type) -> object:
    """The value, of exactly this class: cattrs would convert others."""
    if type(found) is not class_:
        raise DamagedBytesError(f"{found!r:.60} is not of type {class_.__name__}")
    return found


def _json_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    for class_ in (int, str):
        converter.register_structure_hook(class_, _only)
    return converter


_CONVERTER = _json_converter()
