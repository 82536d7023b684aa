"""Asks the coordinators of all homes how their links are, and puts the answers together.

Each home's coordinator tells its own links. A stream whose coordinator does not answer is shown
as down, with the reason: what nobody tells is not left out.

Rules: PROTOCOL T3.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.relays.switch_plan import LinksSeen, is_behind
from geolog.partition.relay_multicast import FindRelays
from geolog.protocol.failover_record import HeardTail, HeardTailsReport
from geolog.protocol.relay_report import LinkState, RelayedStreamReport, RelayEvent, RelayReport
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.transport.message_socket import MessageTransport
from geolog.transport.seam import Address, ConnectionFailedError
from geolog.wire.relay_report import (
    REPORT_BYTES_MAX,
    REPORT_PATH,
    SUBPROTOCOL_HEARD,
    SUBPROTOCOL_REPORT,
    decode_heard,
    decode_report,
)
from topology.errors import GeologError

_ANSWER_S = 3.0
"""How long a coordinator may take to answer."""

_STANDBY_S = 0.5
"""How much longer than the coordinator the standby may take."""

_HEARD_S = 1.0
"""How long answers about tails serve for further streams."""

_WATCHED_S = 1.0
"""How long a mirror that is behind is watched, for the rate at which it catches up."""

_AGAIN_S = 1.0
_SILENT_S_MAX = 5.0
"""A coordinator that sends no report for this long is dialled again."""

_EVENTS_AHEAD_MAX = 256


def _no_relay(home: str) -> str:
    return f"no relay of {home} is up: start one with `geolog serve relay`"


@attrs.frozen
class _NoReport:
    """No coordinator of a home has answered."""

    why: str


@attrs.frozen
class _Told:
    """Tails that relays have told of."""

    told_s: float
    tails: dict[str, list[HeardTail]]
    """By the life of the stream."""

    @classmethod
    def of(cls, reports: Iterable[HeardTailsReport]) -> "_Told":
        tails: dict[str, list[HeardTail]] = {}
        for report in reports:
            for tail in report.tails:
                tails.setdefault(tail.life, []).append(tail)
        return cls(trio.current_time(), tails)


class RelayLinks:
    """The links between all regions."""

    def __init__(
        self,
        catalog: StreamCatalog,
        *,
        messages: MessageTransport,
        find_relays: FindRelays,
    ) -> None:
        self._catalog = catalog
        self._messages = messages
        self._find_relays = find_relays
        self._hearing = trio.Lock()
        self._heard: dict[tuple[str, ...], _Told] = {}
        """The answers of regions that were asked. There are few such groups."""

    async def status(self, stream: StreamName | None = None) -> list[RelayedStreamReport]:
        """Each relayed partition on its way to each target, in the order of their names.

        stream: only of this one. NoSuchStreamError.
        """
        if stream is None:
            records = await self.relayed()
        else:
            records = [one for one in [await self._catalog.read(stream)] if one.relay_to]
        homes = sorted({one.home for one in records if one.home is not None})
        answers = await all_of([partial(self.ask, home) for home in homes])
        by_home = dict(zip(homes, answers, strict=True))
        found = []
        for record in records:
            assert record.home is not None
            answer = by_home[record.home]
            found += [
                _told_of(answer, record, number, target)
                for number in range(record.partitions)
                for target in record.relay_to
            ]
        return found

    async def watched(self, stream: StreamName, to: str) -> LinksSeen:
        """The links of a stream; if region `to` is behind, once more a second later."""
        asked_s = trio.current_time()
        await self._catalog.read_latest(stream)
        begun_s = trio.current_time()
        before = after = await self.status(stream)
        if is_behind(before, to):
            await trio.sleep(_WATCHED_S)
            after = await self.status(stream)
        passed_s = trio.current_time() - begun_s
        return LinksSeen(
            before=before, after=after, passed_s=passed_s, metadata_s=begun_s - asked_s
        )

    async def relayed(self) -> list[StreamRecord]:
        """The streams that are relayed, in the order of their names."""
        records = []
        for name in sorted(await self._catalog.names(), key=str):
            try:
                record = await self._catalog.read(name)
            except GeologError as error:
                if error.retriable:
                    raise
                continue  # It is being made or deleted.
            if record.home is not None and record.relay_to:
                records.append(record)
        return records

    @asynccontextmanager
    async def open_events(self, *, follow: bool) -> AsyncIterator[AsyncIterator[RelayEvent]]:
        """Changes of links that coordinators remember; then new ones, if it follows.

        Those remembered come in the order of their times, which are the homes'; new ones as
        they come, and those of one coordinator in their order. Homes and coordinators that come
        later are asked, too.
        """
        send, receive = trio.open_memory_channel[RelayEvent](_EVENTS_AHEAD_MAX)
        async with open_background() as nursery, receive:
            nursery.start_soon(_Listening(self, send, nursery).run, follow)
            yield receive

    async def homes(self) -> list[str]:
        """The homes of all relayed streams."""
        return sorted({one.home for one in await self.relayed() if one.home is not None})

    async def hear(
        self, home: str, take: Callable[[RelayReport], Awaitable[bool]], *, silent_s_max: float
    ) -> None:
        """Take reports of a home's coordinator until `take` says that it is enough.

        ConnectionFailedError if no relay answers as coordinator, or it falls silent.
        """
        error: GeologError = ConnectionFailedError(_no_relay(home))
        for address in await self._find_relays(home):
            try:
                await self._hear_from(address, home, take, silent_s_max=silent_s_max)
            except GeologError as failed:
                error = failed
            else:
                return
        raise error

    async def _hear_from(
        self,
        address: Address,
        home: str,
        take: Callable[[RelayReport], Awaitable[bool]],
        *,
        silent_s_max: float,
        is_of_all: bool = False,
    ) -> None:
        """Take reports of one relay. ConnectionFailedError if it does not coordinate.

        is_of_all: also reports of members that tell of their buffers alone.
        """
        try:
            with trio.fail_after(silent_s_max) as patience:
                async with self._messages.open(
                    address,
                    REPORT_PATH,
                    subprotocols=(SUBPROTOCOL_REPORT,),
                    message_bytes_max=REPORT_BYTES_MAX,
                ) as socket:
                    while True:
                        report = decode_report(await socket.receive())
                        if report.is_of_buffers and not is_of_all:
                            raise ConnectionFailedError("it does not coordinate")
                        if not await take(report):
                            return
                        patience.deadline = trio.current_time() + silent_s_max
        except GeologError as failed:
            raise ConnectionFailedError(f"relay {address} of {home}: {failed}") from failed
        except trio.TooSlowError:
            raise ConnectionFailedError(
                f"relay {address} of {home} said nothing for {silent_s_max:g} s"
            ) from None

    async def heard_tails(self, record: StreamRecord) -> list[HeardTail]:
        """How far the stream's home had come, as far as relays of its targets have heard.

        Relays that do not answer in time are left out. Answers of the last second serve for
        further streams: a report tells of all.
        """
        asked = tuple(sorted(record.relay_to))
        async with self._hearing:
            known = self._heard.get(asked)
            if known is None or trio.current_time() >= known.told_s + _HEARD_S:
                known = self._heard[asked] = _Told.of(await self._ask_heard(asked))
        passed_s = trio.current_time() - known.told_s
        return [
            _older(one, passed_s)
            for one in known.tails.get(record.life, ())
            if one.home_epoch == record.home_epoch
        ]

    async def _ask_heard(self, regions: Sequence[str]) -> list[HeardTailsReport]:
        addresses = [
            address for region in regions for address in await self._find_relays(region)
        ]
        answers: list[HeardTailsReport] = []

        async def ask_one(address: Address) -> None:
            with trio.move_on_after(_ANSWER_S), suppress(GeologError):
                async with self._messages.open(
                    address,
                    REPORT_PATH,
                    subprotocols=(SUBPROTOCOL_HEARD,),
                    message_bytes_max=REPORT_BYTES_MAX,
                ) as socket:
                    answers.append(decode_heard(await socket.receive()))

        await all_of([partial(ask_one, one) for one in addresses])
        return answers

    async def ask(self, home: str) -> RelayReport | _NoReport:
        """One report of a home's coordinator."""
        answers: list[RelayReport] = []
        coverages: dict[str, RelayReport] = {}
        errors: dict[Address, GeologError] = {}
        addresses = await self._find_relays(home)

        async def take(report: RelayReport) -> bool:
            if report.is_of_buffers:
                coverages[report.standby or ""] = report
            else:
                answers.append(report)
            return False

        async def ask_one(address: Address, scope: trio.CancelScope) -> None:
            try:
                await self._hear_from(
                    address, home, take, silent_s_max=_ANSWER_S, is_of_all=True
                )
            except GeologError as error:
                errors[address] = error
            if answers and (answers[0].standby or "") in {"", *coverages}:
                scope.cancel(reason="coordinator and standby have answered")
            elif answers:
                soon_s = trio.current_time() + _STANDBY_S
                scope.deadline = min(scope.deadline, soon_s)

        # All at once: a relay that is gone must not delay the answer of the one that is not.
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask_one, address, nursery.cancel_scope)
        if answers:
            return _with_coverage(answers[0], coverages.get(answers[0].standby or ""))
        told = [str(errors[one]) for one in addresses if one in errors]
        return _NoReport("; ".join(told) or _no_relay(home))


def _older(tail: HeardTail, passed_s: float) -> HeardTail:
    if tail.heard_ago_s is None:
        return tail
    return attrs.evolve(tail, heard_ago_s=tail.heard_ago_s + passed_s)


async def next_event(events: AsyncIterator[RelayEvent]) -> RelayEvent | None:
    """The next of these events; None if there are no more."""
    async for event in events:
        return event
    return None


class _Listening:
    """Gathers the events of all homes."""

    def __init__(
        self,
        links: RelayLinks,
        send: trio.MemorySendChannel[RelayEvent],
        nursery: trio.Nursery,
    ) -> None:
        self._links = links
        self._send = send
        self._nursery = nursery
        self._heard: set[str] = set()
        self._told: dict[str, tuple[int, str, int]] = {}
        """For each home the last event: relay epoch, coordinator, number."""

    async def run(self, follow: bool) -> None:  # noqa: FBT001 - start_soon passes by position.
        async with self._send:
            remembered = await all_of(
                [partial(self._remembered, home) for home in await self._links.homes()]
            )
            merged = [event for events in remembered for event in events]
            for event in sorted(merged, key=lambda one: (one.time_us, one.home, one.number)):
                await self._tell(event)
            while follow:
                for home in await self._homes_to_hear():
                    self._nursery.start_soon(self._hear, home)
                await trio.sleep(_AGAIN_S)

    async def _remembered(self, home: str) -> tuple[RelayEvent, ...]:
        answer = await self._links.ask(home)
        return answer.events if isinstance(answer, RelayReport) else ()

    async def _homes_to_hear(self) -> list[str]:
        try:
            found = [one for one in await self._links.homes() if one not in self._heard]
        except GeologError as error:
            if not error.retriable:
                raise
            return []
        self._heard.update(found)
        return found

    async def _hear(self, home: str) -> None:
        """Hear a home's coordinator, and its successors; never returns."""

        async def take(report: RelayReport) -> bool:
            for event in report.events:
                await self._tell(event)
            return True

        while True:
            with suppress(GeologError):  # `status` tells why there is none.
                await self._links.hear(home, take, silent_s_max=_SILENT_S_MAX)
            await trio.sleep(_AGAIN_S)

    async def _tell(self, event: RelayEvent) -> None:
        """Tell an event, unless an earlier report had it."""
        before = self._told.get(event.home)
        is_same = before is not None and before[:2] == (event.relay_epoch, event.coordinator)
        if before is not None and is_same and event.number <= before[2]:
            return
        self._told[event.home] = (event.relay_epoch, event.coordinator, event.number)
        await self._send.send(event)


def _with_coverage(report: RelayReport, standby: RelayReport | None) -> RelayReport:
    """The report with what the standby's buffers have, if it has told."""
    if standby is None:
        return report
    known = {(one.life, one.partition, one.target): one for one in standby.streams}
    streams = []
    for one in report.streams:
        its = known.get((one.life, one.partition, one.target))
        streams.append(
            attrs.evolve(
                one,
                standby_buffered_records=0 if its is None else its.buffered_records,
                standby_is_covered=its is not None and its.is_covered,
            )
        )
    return attrs.evolve(report, streams=tuple(streams))


def _told_of(
    answer: RelayReport | _NoReport, record: StreamRecord, number: int, target: str
) -> RelayedStreamReport:
    """The report of one partition and target, or that there is none."""
    assert record.home is not None
    why = "its coordinator has not seen this stream yet"
    if isinstance(answer, _NoReport):
        why = answer.why
    else:
        for one in answer.streams:
            if (one.life, one.partition, one.target) == (record.life, number, target):
                return one
    return RelayedStreamReport(
        stream=str(record.name),
        partition=number,
        home=record.home,
        target=target,
        state=LinkState.DOWN if isinstance(answer, _NoReport) else LinkState.CONNECTING,
        alarm=why,
    )
