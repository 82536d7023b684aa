"""Faults of metadata and clocks: lost sessions, late or stale answers, wrong times."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from sim.world.faults.targets import (
    one_process,
    processes,
    without_metadata,
)
from sim.world.world import World

_CLOCK_JUMP_US = 3600 * 1_000_000
_CLOCK_SKEW_US = 5_000_000

_DAY_S = 86400.0
_FAR_CLOCKS_S = (
    _DAY_S,
    -_DAY_S,
    8 * _DAY_S,
    40 * _DAY_S,
    -40 * _DAY_S,
    365 * _DAY_S,
    36_500 * _DAY_S,
    -18_000 * _DAY_S,
)
_WRITER_CHANCE = 0.8
"""Share of strikes at writers: others rely on their clocks."""

_READER_CHANCE = 0.6
"""Share of strikes at readers: versions protect writers, while readers believe any answer."""

_LONG_BEHIND_CHANCE = 0.5
"""Share in which the server stopped long ago, rather than lacking only the last write."""


@contextmanager
def metadata_cut(world: World, rng: Random) -> Iterator[str | None]:
    """A process cannot reach the metadata store."""
    process = one_process(world, rng)
    if process is None:
        yield None
        return
    with without_metadata([process], rng):
        yield process.host


@contextmanager
def metadata_away(world: World, rng: Random) -> Iterator[str | None]:
    """No process can reach the metadata store."""
    with without_metadata(processes(world), rng):
        yield "everybody"


@contextmanager
def metadata_lag(world: World, rng: Random) -> Iterator[str | None]:
    """A process reads from a metadata server that lags; its watches fire late."""
    process = one_process(world, rng, among="reader-" if rng.random() < _READER_CHANCE else "")
    if process is None or process.session is None:
        yield None
        return
    process.session.lag()
    try:
        yield process.host
    finally:
        process.session.catch_up()


@contextmanager
def leader_deposed(world: World, rng: Random) -> Iterator[str | None]:
    """A process's metadata server follows a deposed leader: a sync brings nothing new."""
    process = one_process(world, rng, among="reader-" if rng.random() < _READER_CHANCE else "")
    if process is None or process.session is None:
        yield None
        return
    process.session.lag_deposed()
    try:
        yield process.host
    finally:
        process.session.catch_up()


@contextmanager
def session_behind(world: World, rng: Random) -> Iterator[str | None]:
    """A writer's session ends after a write; the next one is at a server that lags."""
    process = one_process(world, rng, among="writer-")
    if process is None or process.session is None:
        yield None
        return
    if rng.random() < _LONG_BEHIND_CHANCE:
        process.session.lag_next()
        try:
            yield process.host
        finally:
            process.session.expire_after_write()
    else:
        process.session.expire_after_write()
        yield process.host


@contextmanager
def metadata_expiry(world: World, rng: Random) -> Iterator[str | None]:
    """The metadata store expires the session of a live process."""
    process = one_process(world, rng)
    if process is None or process.session is None:
        yield None
        return
    process.session.expire()
    yield process.host


@contextmanager
def metadata_answer_lost(world: World, rng: Random) -> Iterator[str | None]:
    """A write to metadata is carried out, but its answer is lost."""
    process = one_process(world, rng)
    if process is None or process.session is None:
        yield None
        return
    process.session.lose_next_answer()
    yield process.host


@contextmanager
def clock_jump(world: World, rng: Random) -> Iterator[str | None]:
    """A host's wall clock is an hour fast or slow."""
    host = rng.choice(sorted(world.links.region_of))
    world.seams.clock_offsets_us[host] = rng.choice((-_CLOCK_JUMP_US, _CLOCK_JUMP_US))
    try:
        yield host
    finally:
        world.seams.clock_offsets_us.pop(host, None)


@contextmanager
def far_clock(world: World, rng: Random) -> Iterator[str | None]:
    """A host's wall clock is off by days, months or a century, either way."""
    hosts = sorted(world.links.region_of)
    writers = [host for host in hosts if host.startswith("writer-")]
    host = rng.choice(writers if rng.random() < _WRITER_CHANCE else hosts)
    off_s = rng.choice(_FAR_CLOCKS_S)
    world.seams.clock_offsets_us[host] = round(off_s * 1e6)
    try:
        yield f"{host} {off_s:+.0f} s"
    finally:
        world.seams.clock_offsets_us.pop(host, None)


@contextmanager
def store_clock(world: World, rng: Random) -> Iterator[str | None]:
    """The metadata store's clock is off by days, months or a century, either way."""
    off_s = rng.choice(_FAR_CLOCKS_S)
    world.store.clock_offset_us = round(off_s * 1e6)
    try:
        yield f"store {off_s:+.0f} s"
    finally:
        world.store.clock_offset_us = 0


@contextmanager
def clock_skew(world: World, rng: Random) -> Iterator[str | None]:
    """All wall clocks differ, by up to five seconds either way."""
    hosts = sorted(world.links.region_of)
    for host in hosts:
        world.seams.clock_offsets_us[host] = rng.randint(-_CLOCK_SKEW_US, _CLOCK_SKEW_US)
    try:
        yield "everybody"
    finally:
        for host in hosts:
            world.seams.clock_offsets_us.pop(host, None)
