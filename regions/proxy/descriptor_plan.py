"""How many clients of a proxy fit into the process's descriptor limit."""

import logging

import attrs

from regions.proxy.config import ProxyConfig
from regions.proxy.refused_connections import COUNT_MAX
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_OTHERS_COUNT = 64
"""Standard streams, metadata, the event loop, the listeners, and some spare."""
_SERVERS_MAX = 960
"""Connections to storage nodes and other proxies; where the limit is low, a quarter of it."""
_SERVERS_SHARE = 4
_HTTP_SHARE = 8
"""HTTP gets at most an eighth of what clients get, if that is too little for all."""
_CONNECTIONS_MIN = 16


class TooFewSocketsError(GeologError):
    """The process's open-file limit is too low for a write proxy: raise it."""


@attrs.frozen
class SocketPlan:
    """The process's descriptor limit, and the connections of clients that it allows."""

    limit: int
    connections_max: int
    http_connections_max: int


def plan_sockets(limit: int, config: ProxyConfig) -> SocketPlan:
    """Divide the limit. TooFewSocketsError if it is below the proxy's minimum.

    A proxy at the limit could reach no storage node, so clients never get all descriptors.
    """
    turned_away = COUNT_MAX * (1 if config.http is None else 2)
    servers = min(_SERVERS_MAX, limit // _SERVERS_SHARE)
    left = limit - _OTHERS_COUNT - turned_away - servers
    if left < _CONNECTIONS_MIN:
        # With a quarter for servers, clients have three quarters of the limit.
        needed = _OTHERS_COUNT + turned_away + _CONNECTIONS_MIN
        least = (needed * _SERVERS_SHARE - 1) // (_SERVERS_SHARE - 1)
        raise TooFewSocketsError(
            f"open-file limit: {limit}; a write proxy needs at least {least}. Raise the limit"
            " (`ulimit -Hn`, or LimitNOFILE of a systemd unit)"
        )
    wanted_http = 0 if config.http is None else config.http_connections_max
    rest = left - config.connections_max
    http = min(wanted_http, max(rest, left // _HTTP_SHARE))
    planned = SocketPlan(limit, min(config.connections_max, left - http), http)
    wanted = config.connections_max + wanted_http
    if planned.connections_max + planned.http_connections_max < wanted:
        _log.warning(
            "open-file limit: %d; accepts %d WebSockets and %d HTTP connections instead of %d"
            " together. To accept them all, raise the limit to %d (`ulimit -Hn`, or LimitNOFILE"
            " of a systemd unit)",
            limit,
            planned.connections_max,
            planned.http_connections_max,
            wanted,
            _OTHERS_COUNT + turned_away + _SERVERS_MAX + wanted,
        )
    return planned
