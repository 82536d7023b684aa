"""A node's identity: the cookies on its disks, checked against metadata (law 8).

A node's identity is minted with its disks and lives there. Metadata records, under the node's
id, the instance that belongs to it. So a lost, wiped or swapped disk is noticed at the start,
before the node can deny an entry that it acknowledged.

Order of a first start: the cookies of all directories, on disk, then metadata, then journals.
So a cookie that metadata does not know is new only while there is no journal next to it, and a
directory may lack a cookie only while metadata does not know the node.

Rules: PROTOCOL D1 and D2.
"""

import logging
from collections.abc import Callable, Sequence

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
from regions.storage.cookies import (
    COOKIE_NAME,
    Cookie,
    DamagedCookieError,
    FoundDirectory,
    WrongDataDirectoryError,
    check_together,
    find_directory,
    write_cookie,
)
from regions.storage.disk import Disk
from regions.storage.registration import NodeReplacedError, wait_until_alone
from topology.location import Location

_log = logging.getLogger(__name__)


@attrs.frozen
class Claim:
    """The identity that a process claims when it starts."""

    cluster: str
    node_id: str
    address: Address
    location: Location


@attrs.frozen
class ProvenDirectory:
    """A data directory proven to be the node's, and its cookie."""

    disk: Disk
    cookie: Cookie


async def prove_identity(
    disks: Sequence[Disk],
    metadata: Metadata,
    claim: Claim,
    *,
    random_bytes: Callable[[int], bytes],
) -> list[ProvenDirectory]:
    """Return the node's data directories by index, creating cookies when all are new.

    Refuses, without writing anything, when disks, claim and metadata disagree.
    """
    cluster = await find_or_create_cluster(
        metadata, claim.cluster, new_cluster_id=random_bytes(16).hex()
    )
    found = [await find_directory(disk) for disk in disks]
    known = await find_known_node(metadata, claim.cluster, claim.node_id)
    cookie = next((each.cookie for each in found if each.cookie is not None), None)
    _check_cookies_there(claim, found)
    if cookie is not None:
        for each in found:
            _check_claim(each, claim, cluster.cluster_id)
        check_together(found)
        await _check_not_replaced(metadata, cookie)
        _check_known(cookie, known, found)
    else:
        await _check_new(metadata, claim, known, found)
        cookie = Cookie(
            instance=InstanceId(random_bytes(16).hex()),
            cluster=claim.cluster,
            cluster_id=cluster.cluster_id,
            node_id=claim.node_id,
            address=claim.address,
            location=claim.location,
            directory=0,
            directories=len(disks),
        )
        _log.info("minted instance %s for node %s", cookie.instance, cookie.node_id)
    proven = await _with_all_cookies(found, cookie)
    if known is None:
        # A cookie found here may have been named by a process that was killed before its sync.
        for each in found:
            await each.disk.sync_directory()
    record = NodeRecord(cookie.node_id, cookie.instance, claim.address, cookie.location)
    await wait_until_alone(metadata, claim.cluster, record)
    await _note_known(metadata, claim.cluster, record, known)
    return proven


async def _with_all_cookies(
    found: Sequence[FoundDirectory], cookie: Cookie
) -> list[ProvenDirectory]:
    """Add missing cookies: directories that a first start did not reach get free indices."""
    taken = {each.cookie.directory for each in found if each.cookie is not None}
    left = iter(index for index in range(cookie.directories) if index not in taken)
    proven: list[ProvenDirectory] = []
    for each in found:
        own = each.cookie
        if own is None:
            own = attrs.evolve(cookie, directory=next(left))
            await write_cookie(each.disk, own)
        proven.append(ProvenDirectory(each.disk, own))
    return sorted(proven, key=lambda one: one.cookie.directory)


def _check_cookies_there(claim: Claim, found: Sequence[FoundDirectory]) -> None:
    for each in found:
        if each.cookie is None and each.has_journal:
            raise DamagedCookieError(
                f"data directory {each.disk} of node {claim.node_id} holds a journal but no"
                f" {COOKIE_NAME}: replace the node: `geolog node replace {claim.node_id}`"
            )


def _check_claim(found: FoundDirectory, claim: Claim, cluster_id: str) -> None:
    cookie = found.cookie
    if cookie is None:
        return
    if (cookie.cluster, cookie.cluster_id) != (claim.cluster, cluster_id):
        raise WrongDataDirectoryError(
            f"data directory {found.disk} belongs to cluster {cookie.cluster!r}"
            f" ({cookie.cluster_id}), not to {claim.cluster!r} ({cluster_id}): check"
            " --data-dir, --cluster, --zookeeper"
        )
    if cookie.node_id != claim.node_id:
        raise WrongDataDirectoryError(
            f"data directory {found.disk} belongs to node {cookie.node_id}, not to"
            f" {claim.node_id}: check --data-dir and --node-id, or --advertise and --listen"
        )
    if cookie.location != claim.location:
        raise WrongDataDirectoryError(
            f"node {cookie.node_id} is at {cookie.location}, not {claim.location}: its entries "
            "were placed for that location. Start it there, or replace it with a new node"
        )


async def _check_not_replaced(metadata: Metadata, cookie: Cookie) -> None:
    if await find_replaced_node(metadata, cookie.cluster, cookie.instance) is not None:
        raise NodeReplacedError(
            f"this data directory belongs to instance {cookie.instance} of node"
            f" {cookie.node_id}, which has been replaced: it must never be used again. Start"
            " the node with an empty --data-dir"
        )


def _check_known(
    cookie: Cookie, known: NodeRecord | None, found: Sequence[FoundDirectory]
) -> None:
    if known is None and any(each.has_journal for each in found):
        raise NodeReplacedError(
            f"metadata does not know node {cookie.node_id}, whose disk holds a journal: it "
            "was removed from the cluster, or --zookeeper names that of another cluster"
        )
    if known is None:
        return  # A first start that did not finish.
    if known.instance != cookie.instance:
        raise NodeReplacedError(
            f"node {cookie.node_id} is now instance {known.instance}; this disk belongs to "
            f"instance {cookie.instance}, which was replaced"
        )
    for each in found:
        if each.cookie is None:
            raise NodeReplacedError(
                f"data directory {each.disk} is empty, but one of the {cookie.directories} data"
                f" directories of node {cookie.node_id} is missing: restore its disk, or"
                f" replace the node: `geolog node replace {cookie.node_id}`"
            )


async def _check_new(
    metadata: Metadata,
    claim: Claim,
    known: NodeRecord | None,
    found: Sequence[FoundDirectory],
) -> None:
    empty = " and ".join(str(each.disk) for each in found)
    if known is not None:
        raise NodeReplacedError(
            f"node {claim.node_id} is known as instance {known.instance}, but data directory"
            f" {empty} is empty: restore its disk, or replace the node:"
            f" `geolog node replace {claim.node_id}`"
        )
    for other in await list_known_nodes(metadata, claim.cluster):
        if other.address == claim.address:
            raise NodeReplacedError(
                f"address {claim.address} belongs to node {other.node_id}, and data directory"
                f" {empty} is empty: restore its disk, or replace the node:"
                f" `geolog node replace {other.node_id}`"
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
