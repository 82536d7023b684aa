"""The owners of a stream's partitions: `GET /v1/owner/NAMESPACE/NAME`."""

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from geolog.background import all_of
from geolog.metadata.proxies import ProxyRecord, list_live_proxies
from geolog.protocol.stream_state import PartitionName
from geolog.wire.session.json_records import Json
from geolog.wire.session.paths import parse_owner_path
from regions.proxy.http.answers import client_in, json_answer, target_of
from regions.proxy.http.proxy_view import ProxyView

_ASKED_AT_ONCE_MAX = 16
_COST = 3
_PARTITION_COST = 2
"""Requests to ZooKeeper for an answer, and for each partition in it."""


class Owners:
    """The endpoint."""

    def __init__(self, proxy: ProxyView) -> None:
        self._proxy = proxy
        self._owners = proxy.host.opener.upkeep.partitions.owners

    async def owner(self, request: Request) -> Response:
        """Say which process owns each partition, and where it takes appends."""
        path = parse_owner_path(target_of(request))
        client = client_in(request)
        stream = await self._proxy.host.find_stream(path.stream, client=client)
        names = stream.partition_names()
        if path.partition is not None:
            names = [stream.partition(path.partition)]
        self._proxy.host.charge(client, _COST + _PARTITION_COST * len(names))
        live = await list_live_proxies(self._proxy.metadata, self._proxy.cluster)
        proxies = {one.owner: one for one in live}
        partitions = await all_of(
            [partial(self._describe, name, proxies) for name in names],
            at_once_max=_ASKED_AT_ONCE_MAX,
        )
        return json_answer({"stream": str(path.stream), "partitions": partitions})

    async def _describe(self, name: PartitionName, proxies: Mapping[str, ProxyRecord]) -> Json:
        record = (await self._owners.read_latest(name)).record
        is_alive = await self._owners.is_owner_alive(record)
        proxy = proxies.get(record.owner) if is_alive else None
        return {
            "partition": name.number,
            "owner": record.owner or None,
            "epoch": record.epoch,
            "alive": is_alive,
            "location": None if proxy is None else f"ws://{proxy.address}",
            "http": None if proxy is None or proxy.http is None else f"http://{proxy.http}",
        }
