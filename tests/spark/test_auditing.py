"""The audit as a job of Spark: a task for each partition, and one report.

Tests without Spark, in `tests/pure`, show the differences that it finds.
"""

import pytest
from pyspark.sql import SparkSession

from geolog.spark.audit import AuditSite, audit
from tests.spark.demo_stream import connected
from topology.errors import InvalidArgumentError, NoSuchStreamError


def test_a_healthy_stream_is_read_whole_and_has_no_findings(
    spark: SparkSession, zookeeper: str
) -> None:
    site = AuditSite(zookeeper=zookeeper, cluster="demo")
    with connected(zookeeper) as log:
        log.create_stream(
            "audit/one", ensemble_size=3, write_quorum=3, ack_quorum=3, partitions=2
        )
        with log.open_writer("audit/one") as writer:
            for number in range(20):
                writer.append(b"%d" % number, key=b"%d" % number)
    report = audit(spark, site, ["audit/one"])

    part = audit(spark, site, ["audit/one#1"])

    assert report.findings == []
    assert (report.partitions, report.copies) == (2, 3 * report.entries)
    assert report.bytes_read > 0
    with pytest.raises(NoSuchStreamError, match="no stream 'audit/on'; did you mean"):
        audit(spark, site, ["audit/on"])
    assert part.partitions == 1
    assert 0 < part.entries < report.entries
    with pytest.raises(InvalidArgumentError, match="has no partition 2; its partitions are 0"):
        audit(spark, site, ["audit/one#2"])
