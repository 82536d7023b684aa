"""Worlds made for cursors: readers take them from each other, or share them, and fail."""

import attrs

from sim.world.chance import Draws
from sim.world.draws.proxy_draws import with_proxies
from sim.world.options import Options
from sim.world.stream_knobs import StreamKnobs

_SHARE = 0.04
_SHARED_SHARE = 0.7
_PROXIED_SHARE = 0.4


def draw_cursors(drawn: Options, draws: Draws) -> Options:
    """The same world, or one with readers of a cursor."""
    if not draws.happens("cursors", _SHARE):
        return drawn
    made = with_cursors(drawn, is_shared=draws.happens("shared cursor", _SHARED_SHARE))
    return with_proxied_cursors(made) if draws.happens("by proxies", _PROXIED_SHARE) else made


def with_proxied_cursors(drawn: Options) -> Options:
    """The same, but every other reader of the cursor knows write proxies alone."""
    proxied = with_proxies(drawn, per_region=1)
    return attrs.evolve(proxied, stream=attrs.evolve(proxied.stream, is_cursor_proxied=True))


def with_cursors(drawn: Options, *, is_shared: bool = True) -> Options:
    """The same, but four processes read three partitions by one cursor.

    They are killed, paused past their leases and cut off. Meanwhile the front is cut off, and
    positions are set back.
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=1, readers_count=1),
        stream=StreamKnobs(
            partitions=3,
            partitions_added=1,
            truncation_rest_s_max=4.0,
            cursor_readers=4,
            cursor_seek_rest_s_max=6.0,
            is_cursor_shared=is_shared,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            value_bytes_max=20,
            pipelined_max=4,
            appends_per_tenure=400,
            pause_s_max=0.1,
            rest_s_max=1.0,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=20.0,
            duration_s_max=4.0,
            strikes_per_s=(
                ("cut-link", 0.1),
                ("isolate-host", 0.1),
                ("kill-client", 0.3),
                ("metadata-answer-lost", 0.3),
                ("metadata-away", 0.05),
                ("metadata-cut", 0.2),
                ("metadata-expiry", 0.3),
                ("metadata-lag", 0.2),
                ("pause-process", 0.4),
            ),
            lies_in_wait=False,
        ),
    )
