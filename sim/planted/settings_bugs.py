"""Defects of streams whose settings change while they are relayed."""

import attrs
import trio

from geolog.catalog.stream_settings import StreamChanges
from geolog.protocol.stream_state import StreamRecord
from relay.bridge.home_feed import HomeFeed, HomeFeeds, _unbegun
from sim.planted.planted_bug import PlantedBug
from sim.world.chance import Draws
from sim.world.draws.relay_draws import with_settings_changed
from sim.world.options import Options
from topology.errors import SealedError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_applied_to = StreamChanges.applied_to


def with_targets_that_come_and_go(options: Options, draws: Draws) -> Options:
    """A world with two mirrors, one of which is away for some seconds, again and again."""
    drawn = with_settings_changed(options, draws)
    home, count = drawn.shape.nodes_by_region[0]
    regions = [home, *(one for one in ("eu-west", "ap-northeast", "us-east") if one != home)]
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape, nodes_by_region=tuple((region, count) for region in regions[:3])
        ),
        stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
        knobs=attrs.evolve(drawn.knobs, relay_evict_bytes=None, settings_rest_s_max=1.0),
    )


def with_settings_of_sealed_streams(options: Options, draws: Draws) -> Options:
    """A world whose stream is sealed soon, while an operator changes its settings."""
    drawn = with_settings_changed(options, draws)
    return attrs.evolve(
        drawn,
        stream=attrs.evolve(drawn.stream, seal_after_s_max=5.0),
        knobs=attrs.evolve(drawn.knobs, settings_rest_s_max=1.0),
    )


async def look_and_keep_targets(feeds: HomeFeeds, nursery: trio.Nursery) -> None:
    """Keep what is known of targets that are removed."""
    wanted = await feeds._wanted()
    for name, feed in list(feeds.by_name.items()):
        latest = wanted.get(name)
        if latest is None or latest.home_epoch != feed.record.home_epoch:
            del feeds.by_name[name]
            feed.reading.cancel(reason="the partition is not relayed from here any more")
            feeds.forget(feed)
    for name, record in wanted.items():
        known = feeds.by_name.get(name)
        if known is not None:
            known.record = record
            continue
        at_home = record.log_in(feeds.region, name.number)
        feed = HomeFeed(at_home, record, feeds, _unbegun(feeds._config.buffer))
        feeds.by_name[name] = feed
        nursery.start_soon(feed.run, name=f"tail of {name}")


def nothing_of_a_sealed_stream(changes: StreamChanges, record: StreamRecord) -> StreamRecord:
    """Take a seal for one of the settings, too."""
    if record.is_sealed:
        raise SealedError(f"{record.name} is sealed; its settings cannot change")
    return _applied_to(changes, record)


SETTINGS_BUGS: dict[str, PlantedBug] = {
    "removed-target-remembered": PlantedBug(
        168,
        "a home takes the mirror of a target that was removed and added again for the old one",
        [(HomeFeeds, "_look", look_and_keep_targets)],
        drawn_for=with_targets_that_come_and_go,
    ),
    "sealed-settings-refused": PlantedBug(
        169,
        "the settings of a sealed stream cannot change",
        [(StreamChanges, "applied_to", nothing_of_a_sealed_stream)],
        drawn_for=with_settings_of_sealed_streams,
    ),
}
