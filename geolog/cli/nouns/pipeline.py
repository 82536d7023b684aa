"""`geolog pipeline`: jobs over whole streams, run by Spark."""

import os
import random
from functools import partial

import attrs
import click
import trio

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, examples, named_zookeeper, tell, this_invocation
from geolog.cli.spark_needs import check_spark
from geolog.cli.terminal.output import show
from geolog.settings.quantities import counted, parse_bytes, parse_seconds
from topology.errors import InvalidArgumentError

_SUM_COLUMNS = ("partitions", "entries", "copies", "mirrored", "bytes_read", "rate")
_FINDING_COLUMNS = ("stream", "partition", "kind", "detail")
_EXPORT_COLUMNS = ("stream", "batches", "records", "files", "bytes_written", "elapsed_s")
_REPLAY_COLUMNS = ("stream", "writer", "records", "elapsed_s")
_JSON_NAMES = tuple(
    f".{name}{packed}" for name in ("json", "jsonl", "ndjson") for packed in ("", ".gz")
)


def _parse_batch_bytes(text: str) -> int:
    size_bytes = parse_bytes(text)
    if size_bytes < 1:
        raise InvalidArgumentError(
            f"--batch-bytes must be at least 1B, e.g. 1GiB; got {text!r}"
        )
    return size_bytes


_MASTER = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Spark cluster to run on.",
)


@click.group(cls=Noun, name="pipeline")
def command() -> None:
    """Run jobs over whole streams with Spark."""


@command.command(
    "audit",
    epilog=examples(
        "geolog pipeline audit",
        "geolog pipeline audit shop/orders shop/carts -o json",
        "geolog pipeline audit --master spark://master:7077",
    ),
)
@click.argument("streams", metavar="[STREAM[#P]]...", nargs=-1)
@_MASTER
@click.option(
    "--mirror-wait",
    "mirror_wait_s",
    type=parse_seconds,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long a mirror may take to have what its home had at the start.",
)
def audit(*, streams: tuple[str, ...], master: str, mirror_wait_s: float) -> None:
    """Compare every copy of every entry of streams, and mirrors with their homes.

    Audits all streams by default. Reads from the disks of nodes, as `geolog verify` does, with
    a Spark task for each partition. Exits with 10 if it finds a difference.
    """
    check_spark("pipeline audit")
    from geolog.spark.audit import AuditSite
    from geolog.spark.audit import audit as run_audit
    from geolog.spark.connecting import look_for_streams
    from geolog.spark.job_session import open_job_session

    invocation = this_invocation()
    config = invocation.config
    site = AuditSite(
        zookeeper=named_zookeeper(invocation),
        cluster=config.cluster,
        gateway=config.gateway,
        region=config.region,
        mirror_patience_s=mirror_wait_s,
    )
    trio.run(look_for_streams, site, streams)
    with open_job_session(os.environ, master=master, name="geolog pipeline audit") as spark:
        report = run_audit(spark, site, streams)
    if config.output == "table":
        rate = f"{report.gb_per_s:.3f} GB/s"
        show([attrs.asdict(report) | {"rate": rate}], config.output, _SUM_COLUMNS)
        findings = [attrs.asdict(one) for one in report.findings]
        show(findings, config.output, _FINDING_COLUMNS, empty="no differences")
    else:
        show(report, config.output)
    if report.findings_count:
        raise CheckFailedError(f"the audit has {counted(report.findings_count, 'finding')}")


@command.command(
    "export",
    epilog=examples(
        "geolog pipeline export shop/orders /data/orders",
        "geolog pipeline export shop/orders s3a://lake/orders --cursor lake",
    ),
)
@click.argument("stream", metavar="STREAM[#P]")
@click.argument("directory", metavar="DIRECTORY")
@_MASTER
@click.option(
    "--batch-bytes",
    type=_parse_batch_bytes,
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="Approximate bytes of the stream in a batch.",
)
@click.option(
    "--cursor",
    metavar="NAME",
    help="Cursor that shows the progress; use it for nothing else.",
)
@click.option(
    "--accept-gaps",
    is_flag=True,
    help="Skip records that were trimmed before they were exported, and continue after a"
    " failover that replaced exported ones.",
)
def export(
    *,
    stream: str,
    directory: str,
    master: str,
    batch_bytes: int,
    cursor: str | None,
    accept_gaps: bool,
) -> None:
    """Export a stream to Parquet, by day and hour of the append.

    DIRECTORY is a path, or a URL of a file system that Spark knows. Run it again to export what
    was appended since: each run exports what the stream had when it started. A run that was
    killed is continued by the next one: each record is in the files once.
    """
    check_spark("pipeline export")
    from geolog.spark.connecting import look_for_streams
    from geolog.spark.export import ExportSource
    from geolog.spark.export import export as run_export
    from geolog.spark.job_session import open_job_session

    invocation = this_invocation()
    config = invocation.config
    source = ExportSource(
        zookeeper=named_zookeeper(invocation),
        stream=stream,
        cluster=config.cluster,
        gateway=None if config.gateway is None else str(config.gateway),
        region=config.region,
        batch_bytes=batch_bytes,
        cursor=cursor,
        accepts_gaps=accept_gaps,
    )
    trio.run(look_for_streams, source, [stream])

    def on_batch(batch: int, records: int, files: int) -> None:
        tell(f"batch {batch}: {records:,} records in {files} files")

    with open_job_session(os.environ, master=master, name="geolog pipeline export") as spark:
        report = run_export(spark, source, directory, rng=random.Random(), on_batch=on_batch)
    if config.output == "table":
        show([attrs.asdict(report)], config.output, _EXPORT_COLUMNS)
    else:
        show(report, config.output)


@command.command(
    "replay",
    epilog=examples(
        "geolog pipeline replay /data/orders shop/orders-again",
        "geolog pipeline replay orders.jsonl shop/orders --writer orders-2026-11-27",
        "geolog pipeline replay s3a://lake/clicks shop/clicks --key user --order-by at",
    ),
)
@click.argument("source", metavar="SOURCE")
@click.argument("stream", metavar="STREAM")
@_MASTER
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "jsonl"]),
    help="Format of the files. [default: jsonl if SOURCE ends with .json, .jsonl or .ndjson,"
    " with or without .gz; else parquet]",
)
@click.option(
    "--writer",
    metavar="NAME",
    help="Name of this replay; a name is good for one. [default: from SOURCE and STREAM]",
)
@click.option(
    "--value", default="value", show_default=True, metavar="COLUMN", help="Column of values."
)
@click.option("--key", metavar="COLUMN", help="Column of keys. [default: key, if there is one]")
@click.option(
    "--order-by",
    multiple=True,
    metavar="COLUMN",
    help="Column that orders the rows; repeatable. [default: partition and sequence of an"
    " export, else by file name and row]",
)
def replay(
    *,
    source: str,
    stream: str,
    master: str,
    format_: str | None,
    writer: str | None,
    value: str,
    key: str | None,
    order_by: tuple[str, ...],
) -> None:
    """Append the rows of Parquet or JSON files to a stream, each once.

    SOURCE is a file or a directory, as a path or a URL of a file system that Spark knows: an
    export, other Parquet files, or lines of JSON as `geolog read -o jsonl` writes them. STREAM
    must exist. Rows are appended in order, so rows with the same key stay in order. A run that
    was killed is finished by the next one with the same name.
    """
    is_lines = source.endswith(_JSON_NAMES)
    chosen = format_ or ("jsonl" if is_lines else "parquet")
    if chosen == "jsonl" and (value != "value" or key is not None or order_by):
        raise click.UsageError(
            "--value, --key and --order-by name columns of Parquet files; lines of JSON have"
            " `value` and `key`, and are appended in the order of the files"
        )
    check_spark("pipeline replay")
    from geolog.spark.connecting import look_for_streams
    from geolog.spark.job_session import open_job_session
    from geolog.spark.replay import ReplaySource, ReplayTarget
    from geolog.spark.replay import replay as run_replay

    invocation = this_invocation()
    config = invocation.config
    target = ReplayTarget(
        zookeeper=named_zookeeper(invocation),
        stream=stream,
        cluster=config.cluster,
        gateway=None if config.gateway is None else str(config.gateway),
        region=config.region,
        writer=writer,
    )
    trio.run(partial(look_for_streams, target, [stream], takes_partitions=False))
    files = ReplaySource(files=source, format=chosen, value=value, key=key, order_by=order_by)
    with open_job_session(os.environ, master=master, name="geolog pipeline replay") as spark:
        report = run_replay(spark, files, target)
    if report.is_resumed:
        tell("finished the copy that an earlier run had begun")
    if config.output == "table":
        show([attrs.asdict(report)], config.output, _REPLAY_COLUMNS)
    else:
        show(report, config.output)
