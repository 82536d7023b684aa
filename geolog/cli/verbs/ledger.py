"""The work behind `geolog ledger`."""

import base64
import math
import sys
from collections.abc import Sequence

import attrs
import click
import trio

from geolog.admin.ledger_description import MemberDetails, describe_ledger, find_ledger
from geolog.admin.ledger_entries import (
    details_of,
    ledger_end,
    read_entries,
    values_of,
)
from geolog.admin.queue_repair import QueueRepaired, repair_queue
from geolog.admin.repair import LedgerRepairer, RepairReport
from geolog.cli.arguments import confirm
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, this_invocation
from geolog.cli.session import Patience, ask, open_log, too_slow
from geolog.cli.terminal.copy_progress import CopyProgressBar
from geolog.cli.terminal.output import Plain, plain, print_json, show
from geolog.client.log import Log
from geolog.ledger.copying.copier import CopyProgress
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.ledger.recovery.ledger_recovery import recover_ledger
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState

_LEDGER_COLUMNS = (
    "ledger",
    "stream",
    "segment",
    "state",
    "epoch",
    "ensemble_size",
    "write_quorum",
    "ack_quorum",
    "min_regions",
    "durability",
    "last_entry",
    "lac",
    "is_in_repair_queue",
)

_MEMBER_COLUMNS = ("fragment", "entries", "node_id", "state", "copies", "corrupt", "unknown")

_ENTRY_COLUMNS = (
    "entry",
    "kind",
    "first_sequence",
    "records",
    "batches",
    "size_bytes",
    "append_time_us",
    "served_by",
)

_REPAIR_COLUMNS = (
    "ledger",
    "stream",
    "state",
    "entries",
    "damaged",
    "copies_stored",
    "bytes_stored",
    "lost_count",
    "is_complete",
)


def describe(ledger: LedgerId) -> None:
    """Show a ledger's state, and the copies that each member reports."""
    details = ask(lambda log: describe_ledger(log.access, ledger))
    output = this_invocation().config.output
    show(details, output, _LEDGER_COLUMNS)
    if output == "table":
        print()
        show([_member_row(one) for one in details.members], output, _MEMBER_COLUMNS)


def _member_row(member: MemberDetails) -> dict[str, object]:
    """Row of one member of one fragment, to fit 80 columns."""
    last = "" if member.last_entry is None else member.last_entry
    has = "?" if member.copies is None else member.copies
    return {
        "fragment": member.fragment,
        "entries": f"{member.first_entry}-{last}",
        "node_id": member.node_id,
        "state": member.state,
        "copies": f"{has} of {member.copies_expected}",
        "corrupt": member.corrupt,
        "unknown": member.unknown,
    }


def read(
    *, ledger: LedgerId, first: int, last: int | None, count: int | None, with_values: bool
) -> None:
    """Read the entries of a ledger: their headers, or with --values their records."""
    invocation = this_invocation()
    printer = _EntryPrinter(invocation.config.output, with_values=with_values)
    trio.run(_read, invocation, ledger, (first, last, count), printer)
    printer.end()


async def _read(
    invocation: Invocation,
    ledger: LedgerId,
    span: tuple[int, int | None, int | None],
    printer: "_EntryPrinter",
) -> None:
    patience = Patience(invocation)
    with patience.scope:
        async with open_log(invocation) as log:
            record = await find_ledger(log.access, ledger)
            first, last, count = span
            if last is None:
                last = await ledger_end(log.access, record)
            if count is not None:
                last = min(last, first + count - 1)

            def take(fetched: FetchedEntry) -> None:
                patience.progressed()
                printer.take(fetched)

            await read_entries(log.access, record, EntryId(first), EntryId(last), take)
        return
    raise await too_slow(invocation)


class _EntryPrinter:
    """Prints entries as they arrive, or at the end where the output is one document."""

    def __init__(self, output: str, *, with_values: bool) -> None:
        self._output = output
        self._with_values = with_values
        self._rows: list[Plain] = []

    def take(self, fetched: FetchedEntry) -> None:
        document = plain(details_of(fetched))
        assert isinstance(document, dict)
        if self._with_values:
            values: list[Plain] = [
                {"dlsn": str(one.dlsn), "sequence": one.sequence, **_text_or_base64(one.value)}
                for one in values_of(fetched)
            ]
            if self._output == "table":
                self._rows += values
                return
            document["values"] = values
        if self._output == "jsonl":
            print_json(document)
        else:
            self._rows.append(document)

    def end(self) -> None:
        """Print the collected rows, if the format needs them whole."""
        match self._output:
            case "json":
                print_json(self._rows)
            case "table":
                columns = ("dlsn", "sequence", "value") if self._with_values else _ENTRY_COLUMNS
                show(self._rows, "table", columns)
            case _:
                return


def _text_or_base64(value: bytes) -> dict[str, Plain]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}


def recover(ledger: LedgerId) -> None:
    """Fence a ledger and close it, even if a writer is using it."""
    record = ask(lambda log: find_ledger(log.access, ledger))
    if record.state is not LedgerState.CLOSED:
        confirm(
            f"Ledger {ledger} ({record.stream or 'no stream'}) is {record.state.value} at epoch"
            f" {record.epoch}. Fence its writer and close it?"
        )
        record = ask(lambda log: _recover(log, ledger))
    show(_end_of(record), this_invocation().config.output)


async def _recover(log: Log, ledger: LedgerId) -> LedgerRecord:
    access = log.access
    return await recover_ledger(
        ledger,
        ledgers=access.ledgers,
        replicas=access.replicas,
        rng=access.rng,
        config=access.recovery,
    )


@attrs.frozen
class _End:
    """End of a ledger."""

    ledger: int
    stream: str
    state: str
    epoch: int
    last_entry: int | None


def _end_of(record: LedgerRecord) -> _End:
    return _End(
        record.ledger, record.stream, record.state.value, record.epoch, record.last_entry
    )


def repair(
    *, ledgers: Sequence[LedgerId], is_queue: bool, is_deep: bool, rate: float | None
) -> None:
    """Restore missing and damaged copies from members that have them intact."""
    if bool(ledgers) == is_queue:
        raise click.UsageError("give either ledger ids or --queue")
    invocation = this_invocation()
    config = CopyConfig(rate_bytes_per_s=math.inf if rate is None else rate)
    done = trio.run(_repair, invocation, ledgers, config, is_deep)
    output = invocation.config.output
    if output == "table":
        show(
            done.ledgers,
            output,
            _REPAIR_COLUMNS,
            empty="the repair queue is empty, and no node in doubt lacks a copy",
        )
        if done.doubts:
            print()
            show(done.doubts, output)
    else:
        show(done, output)
    _check_repaired(done)


async def _repair(
    invocation: Invocation,
    ledgers: Sequence[LedgerId],
    config: CopyConfig,
    is_deep: bool,  # noqa: FBT001 - trio.run passes by position.
) -> QueueRepaired:
    patience = Patience(invocation)
    with patience.scope, CopyProgressBar("ledgers", sys.stderr) as bar:
        done: list[RepairReport] = []

        def on_progress(progress: CopyProgress) -> None:
            patience.progressed()
            bar.copied(progress.bytes_stored, len(done), len(ledgers) or None)

        async with open_log(invocation) as log:
            if not ledgers:
                return await repair_queue(
                    log.access, config, is_deep=is_deep, on_progress=on_progress
                )
            repairer = LedgerRepairer(log.access, config, on_progress)
            for ledger in ledgers:
                await find_ledger(log.access, ledger)
            for ledger in ledgers:
                done += [await repairer.repair(ledger, is_deep=is_deep)]
            return QueueRepaired(done, [])
    raise await too_slow(invocation)


def _check_repaired(done: QueueRepaired) -> None:
    complaints = [
        f"ledger {report.ledger}: {_why_incomplete(report)}"
        for report in done.ledgers
        if not report.is_complete
    ]
    complaints += [
        f"node {doubt.node_id} is still in doubt: {doubt.why_not}"
        for doubt in done.doubts
        if not doubt.is_settled
    ]
    if complaints:
        raise CheckFailedError("repair is incomplete: " + "; ".join(complaints))


def _why_incomplete(report: RepairReport) -> str:
    if report.is_moving and not report.incomplete:
        return "its members are changing, so some copies were not found; run the repair again"
    if report.incomplete:
        return ", ".join(f"{one.node_id}: {one.why}" for one in report.incomplete)
    if report.unreadable_why:
        return report.unreadable_why
    return f"it is {report.state}; only its writer repairs its last fragment until it is closed"
