"""How many descriptors the process may have, and what of a storage node fits into that."""

import logging
import resource
from contextlib import suppress

import attrs

from topology.errors import GeologError

_log = logging.getLogger(__name__)

_LIMITS_TRIED = (1 << 20, 10_240)
"""Where the hard limit is no limit at all, and the kernel does not take that: macOS."""

_OTHERS_COUNT = 32
"""Standard streams, metadata, the event loop, the listener, and some to spare."""
_PER_DIRECTORY_COUNT = 8
"""The directory, the file that is written, its successor, a table file; reads under way."""
_CONNECTIONS_MIN = 16
_FILES_SHARE = 4
"""Journal files get no more than a quarter of what connections could use."""


class TooFewDescriptorsError(GeologError):
    """The process may not open as many files as a storage node needs: raise its limit."""


@attrs.frozen
class DescriptorPlan:
    """What the process may open, and how that is divided."""

    limit: int
    connections_max: int
    journal_files_open_max: int


def raise_descriptor_limit() -> int:
    """Raise the process's own limit as far as it may, never lower it; the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_LIMITS_TRIED):
        is_more = wanted > soft or wanted == resource.RLIM_INFINITY
        if soft != resource.RLIM_INFINITY and is_more:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LIMITS_TRIED[0] if soft == resource.RLIM_INFINITY else soft


def plan_descriptors(
    limit: int, *, connections_max: int, journal_files_open_max: int, directories: int
) -> DescriptorPlan:
    """Divide the limit. TooFewDescriptorsError if it cannot hold the least that is needed."""
    left = limit - _OTHERS_COUNT - _PER_DIRECTORY_COUNT * directories
    if left < _CONNECTIONS_MIN + directories:
        least = limit - left + _CONNECTIONS_MIN + directories
        raise TooFewDescriptorsError(
            f"this process may have {limit} open files, and a storage node with {directories}"
            f" data {'directory' if directories == 1 else 'directories'} needs {least} at the"
            " least: raise the limit (`ulimit -Hn`, or LimitNOFILE of a systemd unit)"
        )
    files = min(journal_files_open_max, max(directories, left // _FILES_SHARE))
    planned = DescriptorPlan(limit, min(connections_max, left - files), files)
    if planned.connections_max < connections_max:
        wanted = limit - left + connections_max + journal_files_open_max
        _log.warning(
            "this process may have %d open files: %d connections are taken, not %d. For all of"
            " them raise the limit to %d (`ulimit -Hn`, or LimitNOFILE of a systemd unit)",
            limit,
            planned.connections_max,
            connections_max,
            wanted,
        )
    return planned
