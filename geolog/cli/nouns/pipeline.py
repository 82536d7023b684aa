"""`geolog pipeline`: jobs over whole streams, run by Spark."""

import importlib.util
import os
import shutil

import attrs
import click

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, examples, named_zookeeper, this_invocation
from geolog.cli.terminal.output import show
from geolog.settings.quantities import parse_seconds
from topology.errors import UnavailableError

_SUM_COLUMNS = ("partitions", "entries", "copies", "mirrored", "bytes_read", "rate")
_FINDING_COLUMNS = ("stream", "partition", "kind", "detail")


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
@click.argument("streams", metavar="[STREAM]...", nargs=-1)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Spark cluster to run on.",
)
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
    if importlib.util.find_spec("pyspark") is None:
        raise click.UsageError(
            "pipeline audit needs PySpark, which is not installed: pip install 'geolog[spark]'"
        )
    if shutil.which("bash") is None:
        raise UnavailableError("Spark is started by a script, which needs bash on PATH")
    from geolog.spark.audit import AuditSite
    from geolog.spark.audit import audit as run_audit
    from geolog.spark.job_session import open_job_session

    invocation = this_invocation()
    config = invocation.config
    site = AuditSite(
        zookeeper=named_zookeeper(invocation),
        cluster=config.cluster,
        gateway=config.gateway,
        mirror_patience_s=mirror_wait_s,
    )
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
        raise CheckFailedError(f"the audit found {report.findings_count} differences")
