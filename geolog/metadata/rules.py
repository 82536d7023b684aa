"""Checks and composite operations shared by all metadata stores.

Rules: PROTOCOL M1.
"""

import re

from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)
from topology.errors import InvalidArgumentError, TooLargeError

REQUEST_BYTES_MAX = (1 << 20) - (16 << 10)
"""ZooKeeper closes the connection at 1 MiB; the margin is for its headers."""

_OVERHEAD_BYTES = 24
"""Of an operation, besides its path and data; ZooKeeper takes up to 21."""
_CREATE_OVERHEAD_BYTES = 64
"""Likewise, with an access list and flags; ZooKeeper takes up to 52."""
_VERSION_MAX = (1 << 31) - 1
_NOT_ALLOWED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str) -> None:
    """Refuse paths that are not absolute, normalised and acceptable to ZooKeeper."""
    if path == "/":
        return
    names = path.split("/")
    if names[0] or any(name in ("", ".", "..") for name in names[1:]) or len(names) < 2:
        raise InvalidArgumentError(f"{path!r} is not a metadata path: use e.g. /a/b")
    if _NOT_ALLOWED.search(path):
        raise InvalidArgumentError(f"{path!r} has a character not allowed in metadata paths")


def check_operations(operations: list[Operation]) -> None:
    """Refuse operations that no store would carry out, whatever its content."""
    for operation in operations:
        check_path(operation.path)
        match operation:
            case Create(path=path):
                if path == "/":
                    raise NodeExistsError("/ always exists")
            case Put(version=version):
                _check_version(operation.path, version)
            case Check(version=version):
                if version is not None:
                    _check_version(operation.path, version)
            case Delete(path=path, version=version):
                if path == "/":
                    raise InvalidArgumentError("/ cannot be deleted")
                if version is not None:
                    _check_version(path, version)
    size_bytes = request_bytes(operations)
    if size_bytes > REQUEST_BYTES_MAX:
        raise TooLargeError(
            f"a metadata request of {size_bytes} bytes is over the limit of {REQUEST_BYTES_MAX}"
        )


def request_bytes(operations: list[Operation]) -> int:
    """Bytes of a request with these operations, as the limit counts them."""
    size_bytes = 0
    for operation in operations:
        size_bytes += len(operation.path.encode())
        match operation:
            case Create(data=data):
                size_bytes += _CREATE_OVERHEAD_BYTES + len(data)
            case Put(data=data):
                size_bytes += _OVERHEAD_BYTES + len(data)
            case _:
                size_bytes += _OVERHEAD_BYTES
    return size_bytes


async def ensure_path_by_creates(metadata: Metadata, path: str) -> None:
    """Create the node and its missing parents, starting at the leaf: usually one request."""
    if path == "/":
        return
    try:
        await metadata.create(path)
    except NodeExistsError:
        return
    except NoNodeError:
        await ensure_path_by_creates(metadata, parent_of(path))
        # Another process may have deleted the parent again: then start over.
        await ensure_path_by_creates(metadata, path)


def parent_of(path: str) -> str:
    """The path of the parent; `/` is its own parent."""
    return path.rpartition("/")[0] or "/"


def _check_version(path: str, version: int) -> None:
    # ZooKeeper takes -1 to mean any version: a compare-and-set that compares nothing.
    if not 0 <= version <= _VERSION_MAX:
        raise InvalidArgumentError(f"{version} is not a possible version of {path}")
