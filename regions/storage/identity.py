"""Who a node is: the cookie on its disk, and that metadata agrees (law 8).

A node's identity is minted with its disk and lives there. Metadata keeps, under the node's id,
the instance that belongs to it. So a disk that was lost, wiped or swapped is noticed at the
start, before it can say of an entry that was acknowledged that it never was there.

Order of a first start: cookie, then metadata, then journal. A cookie that metadata does not
know is therefore new only as long as there is no journal beside it.
"""

import logging
from collections.abc import Callable

import attrs

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.nodes import (
    NodeRecord,
    find_known_node,
    find_or_create_cluster,
    list_known_nodes,
)
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.replaced_nodes import find_replaced_node
from geolog.metadata.seam import BadVersionError, Metadata, NodeExistsError
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from regions.protocol.records import file_id_of
from regions.storage.disk import Disk
from regions.storage.membership import NodeReplacedError, wait_until_alone
from topology.errors import ConflictError, DamagedBytesError
from topology.location import Location

_log = logging.getLogger(__name__)

COOKIE_NAME = "cookie.json"
_COOKIE_NAME_NEW = "cookie.json.new"


class WrongDataDirectoryError(ConflictError):
    """The data directory belongs to another node, place or cluster: check the flags."""


class DamagedCookieError(DamagedBytesError):
    """The cookie cannot be trusted, so nothing on this disk can: replace the node."""


@attrs.frozen
class Cookie:
    """A node's identity, as its disk holds it."""

    instance: InstanceId
    cluster: str
    cluster_id: str
    node_id: str
    address: Address
    """Where it listened when the disk was new; later only metadata's record follows."""
    location: Location


@attrs.frozen
class Claim:
    """Who a process says it is when it starts."""

    cluster: str
    node_id: str
    address: Address
    location: Location


async def prove_identity(
    disk: Disk, metadata: Metadata, claim: Claim, *, random_bytes: Callable[[int], bytes]
) -> Cookie:
    """The node's cookie, made when all is new. Refuses when disk, claim, metadata disagree."""
    cluster = await find_or_create_cluster(
        metadata, claim.cluster, new_cluster_id=random_bytes(16).hex()
    )
    names = await disk.list()
    has_journal = any(file_id_of(name) is not None for name in names)
    known = await find_known_node(metadata, claim.cluster, claim.node_id)
    if COOKIE_NAME in names:
        cookie = await _read_cookie(disk)
        _check_claim(cookie, claim, cluster.cluster_id)
        await _check_not_replaced(metadata, cookie)
        _check_known(cookie, known, has_journal=has_journal)
    else:
        await _check_new(metadata, claim, known, has_journal=has_journal)
        cookie = Cookie(
            InstanceId(random_bytes(16).hex()),
            claim.cluster,
            cluster.cluster_id,
            claim.node_id,
            claim.address,
            claim.location,
        )
        await _write_cookie(disk, cookie)
        _log.info("minted instance %s for node %s", cookie.instance, cookie.node_id)
    record = NodeRecord(cookie.node_id, cookie.instance, claim.address, cookie.location)
    await wait_until_alone(metadata, claim.cluster, record)
    await _note_known(metadata, claim.cluster, record, known)
    return cookie


def _check_claim(cookie: Cookie, claim: Claim, cluster_id: str) -> None:
    if (cookie.cluster, cookie.cluster_id) != (claim.cluster, cluster_id):
        raise WrongDataDirectoryError(
            f"this data directory belongs to cluster {cookie.cluster!r} ({cookie.cluster_id}), "
            f"not to {claim.cluster!r} ({cluster_id}): check --data-dir, --cluster, --zookeeper"
        )
    if cookie.node_id != claim.node_id:
        raise WrongDataDirectoryError(
            f"this data directory belongs to node {cookie.node_id}, not to {claim.node_id}: "
            "check --data-dir and --node-id, or --advertise and --listen"
        )
    if cookie.location != claim.location:
        raise WrongDataDirectoryError(
            f"node {cookie.node_id} stands at {cookie.location}, not at {claim.location}: its "
            "entries were placed by that. Start it there, or replace it by a new node"
        )


async def _check_not_replaced(metadata: Metadata, cookie: Cookie) -> None:
    if await find_replaced_node(metadata, cookie.cluster, cookie.instance) is not None:
        raise NodeReplacedError(
            f"this data directory is that of instance {cookie.instance}, which was node"
            f" {cookie.node_id} and has been replaced: it is never used again. Start the node"
            " with an empty --data-dir"
        )


def _check_known(cookie: Cookie, known: NodeRecord | None, *, has_journal: bool) -> None:
    if known is None and has_journal:
        raise NodeReplacedError(
            f"metadata does not know node {cookie.node_id}, whose disk holds a journal: it was "
            "removed from the cluster, or --zookeeper names another one"
        )
    if known is not None and known.instance != cookie.instance:
        raise NodeReplacedError(
            f"node {cookie.node_id} is instance {known.instance} now; this disk is "
            f"{cookie.instance}, which was replaced"
        )


async def _check_new(
    metadata: Metadata, claim: Claim, known: NodeRecord | None, *, has_journal: bool
) -> None:
    if has_journal:
        raise DamagedCookieError(
            f"the data directory of node {claim.node_id} holds a journal but no {COOKIE_NAME}: "
            f"replace the node by `geolog node replace {claim.node_id}`"
        )
    if known is not None:
        raise NodeReplacedError(
            f"node {claim.node_id} is known with instance {known.instance}, but this data "
            "directory is empty: give it back its disk, or replace the node by "
            f"`geolog node replace {claim.node_id}`"
        )
    for other in await list_known_nodes(metadata, claim.cluster):
        if other.address == claim.address:
            raise NodeReplacedError(
                f"address {claim.address} is that of node {other.node_id}, and this data "
                "directory is empty: give it back its disk, or replace the node by "
                f"`geolog node replace {other.node_id}`"
            )


async def _note_known(
    metadata: Metadata, cluster: str, record: NodeRecord, known: NodeRecord | None
) -> None:
    paths = ClusterPaths(cluster)
    path = paths.node_known(record.node_id)
    if known is None:
        await metadata.ensure_path(paths.nodes_known)
        await metadata.ensure_path(paths.nodes_live)
        try:
            await metadata.create(path, seal_document(record))
        except NodeExistsError as error:
            raise NodeReplacedError(
                f"another process has just joined as node {record.node_id}"
            ) from error
    elif known.address != record.address:
        stored = await metadata.get(path)
        if open_document(stored.data, NodeRecord, path=path) != known:
            raise BadVersionError(f"another process has just changed {path}")
        await metadata.put(path, seal_document(record), stored.version)


async def _read_cookie(disk: Disk) -> Cookie:
    file = await disk.open(COOKIE_NAME)
    content = await file.read(0, file.size_bytes)
    await file.close()
    try:
        return open_document(content, Cookie, path=COOKIE_NAME)
    except DamagedBytesError as error:
        raise DamagedCookieError(
            f"{error}: replace the node by `geolog node replace`"
        ) from error


async def _write_cookie(disk: Disk, cookie: Cookie) -> None:
    file = await disk.create(_COOKIE_NAME_NEW)
    await file.write_synced(0, [seal_document(cookie)])
    await file.close()
    await disk.rename(_COOKIE_NAME_NEW, COOKIE_NAME)
    await disk.sync_directory()
