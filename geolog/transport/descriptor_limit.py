"""The process's descriptor limit: each connection and each open file needs a descriptor."""

import resource
from contextlib import suppress

_LIMITS_TRIED = (1 << 20, 10_240)
"""Used where the hard limit is infinite and the kernel refuses infinity: macOS."""


def raise_descriptor_limit() -> int:
    """Raise the process's own limit as far as allowed, never lower it; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_LIMITS_TRIED):
        is_more = wanted > soft or wanted == resource.RLIM_INFINITY
        if soft != resource.RLIM_INFINITY and is_more:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LIMITS_TRIED[0] if soft == resource.RLIM_INFINITY else soft
