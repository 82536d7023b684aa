"""How much of a storage node fits into the process's descriptor limit."""

import logging

import attrs

from topology.errors import GeologError

_log = logging.getLogger(__name__)

_OTHERS_COUNT = 32
"""Standard streams, metadata, the event loop, the listener, and some spare."""
_PER_DIRECTORY_COUNT = 8
"""The directory, the open journal file, its successor, a table file; reads under way."""
_CONNECTIONS_MIN = 16
_FILES_SHARE = 4
"""Journal files get at most a quarter of the descriptors that connections could use."""


class TooFewDescriptorsError(GeologError):
    """The process's open-file limit is too low for a storage node: raise it."""


@attrs.frozen
class DescriptorPlan:
    """The process's descriptor limit and how it is divided."""

    limit: int
    connections_max: int
    journal_files_open_max: int


def plan_descriptors(
    limit: int, *, connections_max: int, journal_files_open_max: int, directories: int
) -> DescriptorPlan:
    """Divide the limit. TooFewDescriptorsError if it is below the node's minimum."""
    left = limit - _OTHERS_COUNT - _PER_DIRECTORY_COUNT * directories
    if left < _CONNECTIONS_MIN + directories:
        least = limit - left + _CONNECTIONS_MIN + directories
        raise TooFewDescriptorsError(
            f"open-file limit: {limit}; a storage node with {directories}"
            f" data {'directory' if directories == 1 else 'directories'} needs at least"
            f" {least}. Raise the limit (`ulimit -Hn`, or LimitNOFILE of a systemd unit)"
        )
    files = min(journal_files_open_max, max(directories, left // _FILES_SHARE))
    planned = DescriptorPlan(limit, min(connections_max, left - files), files)
    if planned.connections_max < connections_max:
        wanted = limit - left + connections_max + journal_files_open_max
        _log.warning(
            "open-file limit: %d; accepts %d connections instead of %d. To accept them all,"
            " raise the limit to %d (`ulimit -Hn`, or LimitNOFILE of a systemd unit)",
            limit,
            planned.connections_max,
            connections_max,
            wanted,
        )
    return planned
