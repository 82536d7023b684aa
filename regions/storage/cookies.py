"""The cookie of a data directory, and the check that several directories are of one node.

Each directory of a node has a cookie with the node's identity, the directory's index, and the
number of directories. So a node accepts its directories in any order, and notices a missing,
foreign, empty or surplus one before it opens anything.

Rules: PROTOCOL D5.
"""

from collections.abc import Sequence

import attrs

from geolog.metadata.documents import open_document, seal_document
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from regions.storage.disk import Disk
from regions.storage.protocol.records import file_id_of
from regions.storage.readable import read_what_can_be
from topology.errors import ConflictError, DamagedBytesError
from topology.location import Location

COOKIE_NAME = "cookie.json"
_COOKIE_NAME_NEW = "cookie.json.new"


class WrongDataDirectoryError(ConflictError):
    """The data directory belongs to another node, location or cluster: check the flags."""


class DamagedCookieError(DamagedBytesError):
    """The cookie cannot be trusted, so nothing on this disk can be: replace the node."""


@attrs.frozen(kw_only=True)
class Cookie:
    """A node's identity, as each of its disks records it."""

    instance: InstanceId
    cluster: str
    cluster_id: str
    node_id: str
    address: Address
    """Listen address when the disk was new; later changes go to metadata's record only."""
    location: Location
    directory: int
    """The index of this directory, from 0."""
    directories: int
    """How many data directories the node has, for good."""


@attrs.frozen
class FoundDirectory:
    """A data directory as found at a start."""

    disk: Disk
    cookie: Cookie | None
    has_journal: bool


async def find_directory(disk: Disk) -> FoundDirectory:
    """Inspect one data directory. DamagedCookieError."""
    names = await disk.list()
    cookie = await _read_cookie(disk) if COOKIE_NAME in names else None
    return FoundDirectory(disk, cookie, any(file_id_of(name) is not None for name in names))


def check_together(found: Sequence[FoundDirectory]) -> None:
    """WrongDataDirectoryError unless all cookies are of one node and no directory is missing.

    A directory without a cookie may stand in for a missing one: the caller must check those.
    """
    marked = [(each.disk, each.cookie) for each in found if each.cookie is not None]
    if not marked:
        return
    first_disk, first = marked[0]
    seen: dict[int, Disk] = {}
    for disk, cookie in marked:
        if attrs.evolve(cookie, directory=first.directory) != first:
            raise WrongDataDirectoryError(
                f"data directory {disk} belongs to {_owner(cookie)}, but {first_disk} to"
                f" {_owner(first)}: pass only directories of one node to --data-dir"
            )
        if cookie.directory in seen:
            raise WrongDataDirectoryError(
                f"data directories {seen[cookie.directory]} and {disk} are both number"
                f" {cookie.directory + 1} of node {cookie.node_id}: one is a copy of the other."
                " Remove the copy and pass the missing directory instead"
            )
        seen[cookie.directory] = disk
    _check_count(found, first, seen)


def _check_count(
    found: Sequence[FoundDirectory], cookie: Cookie, seen: dict[int, Disk]
) -> None:
    expected = f"node {cookie.node_id} was created with {cookie.directories} data directories"
    if cookie.directories == 1:
        expected = f"node {cookie.node_id} was created with one data directory"
    if len(found) > cookie.directories:
        extra = next(each.disk for each in found if each.cookie is None)
        raise WrongDataDirectoryError(
            f"data directory {extra} is empty and one too many: {expected}, and the number"
            " cannot change. Leave it out, or start another node in it"
        )
    if len(found) < cookie.directories:
        missing = [str(index + 1) for index in range(cookie.directories) if index not in seen]
        raise WrongDataDirectoryError(
            f"{expected}, but {len(found)} given; missing: number {', '.join(missing)}."
            " Pass all of them to --data-dir, in any order. If a disk is lost, replace the"
            f" node: `geolog node replace {cookie.node_id}`"
        )


def _owner(cookie: Cookie) -> str:
    return (
        f"node {cookie.node_id} (instance {cookie.instance}, {cookie.directories} data"
        f" {'directory' if cookie.directories == 1 else 'directories'})"
    )


async def _read_cookie(disk: Disk) -> Cookie:
    file = await disk.open(COOKIE_NAME)
    content = await read_what_can_be(file, 0, file.size_bytes)
    await file.close()
    try:
        return open_document(content, Cookie, path=f"{COOKIE_NAME} of {disk}")
    except DamagedBytesError as error:
        raise DamagedCookieError(
            f"{COOKIE_NAME} of data directory {disk} is damaged, so the disk's owner is"
            f" unknown: replace the node with `geolog node replace` ({error})"
        ) from error


async def write_cookie(disk: Disk, cookie: Cookie) -> None:
    """Write a new directory's cookie durably and atomically."""
    file = await disk.create(_COOKIE_NAME_NEW)
    await file.write_synced(0, [seal_document(cookie)])
    await file.close()
    await disk.rename(_COOKIE_NAME_NEW, COOKIE_NAME)
    await disk.sync_directory()
