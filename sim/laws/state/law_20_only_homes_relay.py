"""Law 20: only the home relays a stream, and under one relay epoch only one member does.

A target takes entries from the newest coordinator of the home that it has met; a relay that
cannot supply the next entry stops with an alarm. `law_18_rows_in_order` finds what is skipped.
"""

from collections.abc import Iterator

import attrs

from relay.bridge.bridge_ends import BridgeEnds
from relay.server.relay import Relay
from sim.laws.state.seen import Look


@attrs.define
class OnlyHomesRelay:
    """Keeps the member that coordinated in each epoch, and the epochs that targets have met."""

    _coordinators: dict[tuple[str, int], Relay] = attrs.field(factory=dict)
    _met: dict[tuple[Relay, int, str], int] = attrs.field(factory=dict)
    """By target's member, its relay epoch, and home."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the relays that are there."""
        for host in sorted(now.world.relays):
            for relay in now.world.relays[host].relays[-1:]:
                ends = relay.ends
                if ends is None:
                    continue
                epoch = ends.relay_epoch
                first = self._coordinators.setdefault((ends.region, epoch), relay)
                if first is not relay:
                    yield (
                        f"{first.relay_id} and {relay.relay_id} both coordinate {ends.region}"
                        f" in epoch {epoch}"
                    )
                yield from _sent(now, relay, ends)
                yield from self._heard(relay, ends)

    def _heard(self, relay: Relay, ends: BridgeEnds) -> Iterator[str]:
        for region, bridge in ends.dialled.items():
            epoch, key = bridge.relay_epoch, (relay, ends.relay_epoch, region)
            highest = self._met.get(key, 0)
            if epoch and epoch < highest:
                yield (
                    f"{relay.relay_id} takes entries from {region} in relay epoch {epoch};"
                    f" it met {highest} before"
                )
            self._met[key] = max(highest, epoch)


def _sent(now: Look, relay: Relay, ends: BridgeEnds) -> Iterator[str]:
    """Links of a region that is not, and never was, the home.

    An earlier home may hear late of its end. It sends nothing wrong: its log is closed.
    """
    for bridge in ends.served:
        progress = bridge.progress()
        if progress and ends.region not in now.homes.values():
            yield (
                f"{relay.relay_id} in {ends.region} relays {progress[0].name} to"
                f" {bridge.target}; its home is {now.home}"
            )
