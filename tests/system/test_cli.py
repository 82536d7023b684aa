"""The command from end to end, on a small cluster of real processes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.demo_process import (
    WAIT_S_MAX,
    DemoProcess,
    geolog,
    read_rest,
    read_some,
    started,
    wait_until,
)

QUORUMS = ["--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2"]


def stream_of(demo: DemoProcess, name: str, *options: str) -> str:
    """Create a stream with three copies in three regions and an ack quorum of two."""
    done = demo.run("stream", "create", name, *QUORUMS, *options)
    assert done.returncode == 0, done.stderr.decode()
    return name


def test_lines_are_read_back_unchanged(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/lines")
    lines = b"".join(b"line %d \xc3\xa9\n" % number for number in range(5000))

    appended = demo.run("append", stream, given=lines)
    read = demo.run("read", stream)

    assert appended.returncode == 0, appended.stderr
    assert appended.stdout == b""
    assert read.stdout == lines


def test_a_repeated_run_of_a_writer_appends_nothing_twice(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/again")
    lines = [b"line %d\n" % number for number in range(3000)]

    first = demo.run("append", stream, "--writer", "till-7", given=b"".join(lines[:1000]))
    again = demo.run(
        "append", stream, "--writer", "till-7", "-o", "jsonl", given=b"".join(lines)
    )
    read = demo.run("read", stream)
    other = demo.run("append", stream, "--writer", "till-7", given=b"another first line\n")

    assert first.returncode == again.returncode == 0, again.stderr
    answers = [json.loads(line) for line in again.stdout.splitlines()]
    assert [one["duplicate"] for one in answers] == [True] * 1000 + [False] * 2000
    assert read.stdout == b"".join(lines)
    assert other.returncode == 1
    assert b"was appended before with different bytes" in other.stderr


def test_a_position_needs_the_partition_if_there_are_several(demo: DemoProcess) -> None:
    demo.run("stream", "create", "test/many", *QUORUMS, "--partitions", "3")
    appended = demo.run("append", "test/many", "--key-separator", "=", given=b"a=1\nb=2\nc=3\n")
    whole = demo.run("read", "test/many", "--from", "sequence:0")
    part = demo.run("read", "test/many#1", "--from", "sequence:0", "-o", "jsonl")

    assert appended.returncode == 0, appended.stderr
    assert whole.returncode == 2
    assert "test/many#0" in whole.stderr.decode()
    assert part.returncode == 0
    assert all(json.loads(line)["partition"] == 1 for line in part.stdout.splitlines())


def test_appends_are_answered_in_order_with_their_positions(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/answers")

    done = demo.run("append", stream, "-o", "jsonl", given=b"a\nb\nc")

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["sequence"] for answer in answers] == [0, 1, 2]
    assert all(answer["partition"] == 0 and not answer["duplicate"] for answer in answers)
    assert answers[0]["dlsn"] == "1-0-0"


def test_append_accepts_the_json_lines_that_read_prints(demo: DemoProcess) -> None:
    first, second = stream_of(demo, "test/first"), stream_of(demo, "test/second")
    given = (
        b'{"value":"plain","key":"k"}\n'
        b'{"value_base64":"/w==","headers":{"h":"1"},"transaction_id":7}\n'
    )
    demo.run("append", first, "--format", "jsonl", given=given)

    printed = demo.run("read", first, "-o", "jsonl").stdout
    assert demo.run("append", second, "--format", "jsonl", given=printed).returncode == 0
    again = demo.run("read", second, "-o", "jsonl").stdout

    assert contents(again) == contents(printed)
    assert contents(printed)[1]["value_base64"] == "/w=="


def contents(lines: bytes) -> list[dict[str, object]]:
    """Return records without the fields that depend on where and when they were appended."""
    kept = {"key", "value", "value_base64", "headers", "transaction_id", "sequence"}
    records = [json.loads(line) for line in lines.splitlines()]
    return [{key: record[key] for key in record.keys() & kept} for record in records]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "sequence:7"], [7, 8, 9]),
        (["--from", "last:2"], [8, 9]),
        (["--from", "latest"], []),
        (["--from", "sequence:3", "--to", "sequence:5"], [3, 4]),
        (["--count", "2"], [0, 1]),
        (["--count", "0"], []),
    ],
)
def test_a_read_starts_and_stops_at_the_given_positions(
    demo: DemoProcess, options: list[str], expected: list[int]
) -> None:
    stream = "test/bounds"
    if demo.run("stream", "describe", stream).returncode == 3:
        stream_of(demo, stream)
        demo.run("append", stream, given=b"".join(b"%d\n" % number for number in range(10)))

    done = demo.run("read", stream, *options)

    assert [int(line) for line in done.stdout.split()] == expected


@pytest.mark.usefixtures("interruptible")
def test_a_follower_prints_new_records_and_ends_at_ctrl_c(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/follow")
    with started("--config", str(demo.config), "read", stream, "--follow") as process:
        demo.run("append", stream, given=b"hello\n")
        seen = read_some(process.stdout, b"hello\n")
        process.send_signal(signal.SIGINT)
        code = process.wait(WAIT_S_MAX)
        said = read_rest(process.stderr)

    assert seen == b"hello\n"
    assert code == 130
    assert said == b""


def test_a_closed_pipe_ends_a_read_quietly(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/pipe")
    demo.run("append", stream, given=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    with started("--config", str(demo.config), "read", stream) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        code = process.wait(WAIT_S_MAX)
        said = read_rest(process.stderr)

    assert code == 0, said
    assert said == b""


def test_a_follower_ends_when_its_pipe_closes_even_without_new_records(
    demo: DemoProcess,
) -> None:
    stream = stream_of(demo, "test/leave")
    demo.run("append", stream, given=b"hello\n")
    with started("--config", str(demo.config), "read", stream, "--follow") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        code = process.wait(WAIT_S_MAX)
        said = read_rest(process.stderr)

    assert (code, said) == (0, b"")


def test_every_copy_is_verified(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/verify")
    demo.run("append", stream, given=b"a\nb\n")

    report = demo.json("verify", stream)

    assert isinstance(report, dict)
    assert report["records"] == 2
    assert report["damaged"] == report["gaps"] == report["without_ack_set"] == 0


def test_streams_segments_and_nodes_are_listed_with_stable_keys(demo: DemoProcess) -> None:
    stream = stream_of(demo, "listed/one")
    demo.run("append", stream, given=b"a\n")

    streams = demo.json("stream", "ls", "listed")
    segments = demo.json("segment", "ls", stream)
    nodes = demo.json("node", "ls")

    (long,) = json.loads(
        demo.run("stream", "ls", "listed", "--sort", "size", "-o", "json").stdout
    )
    table = demo.run("stream", "ls", "listed", "--long")
    assert streams == [{"name": "listed/one"}]
    assert (long["partitions"], long["survive"]) == (1, None)
    assert long["size_bytes"] > 0
    assert b"listed/one" in table.stdout
    assert b"forever" in table.stdout
    assert isinstance(segments, list)
    assert [segment["first_sequence"] for segment in segments] == [0]
    assert isinstance(nodes, list)
    assert sorted(node["node_id"] for node in nodes) == [f"{r}-storage-1" for r in "abc"]
    assert {"node_id", "address", "location", "region", "rack", "state"} <= nodes[0].keys()


def test_creating_a_stream_that_does_not_survive_a_region_warns(
    demo: DemoProcess,
) -> None:
    done = demo.run("stream", "create", "test/frail", "--ack-quorum", "3", "-o", "json")

    made = json.loads(done.stdout)
    assert done.returncode == 0
    assert made["survives_region"] is False
    assert "no ack set is left" in made["survives_region_why_not"]
    assert b"test/frail does NOT survive losing a region: without region a" in done.stderr


def test_an_existing_stream_is_an_error_without_if_not_exists(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/twice")

    assert demo.run("stream", "create", stream, *QUORUMS).returncode == 1
    assert demo.run("stream", "create", stream, *QUORUMS, "--if-not-exists").returncode == 0


def test_a_deleted_stream_is_gone(demo: DemoProcess) -> None:
    stream = stream_of(demo, "test/deleted")

    assert demo.run("stream", "delete", stream).returncode == 2  # No terminal to confirm on.
    assert demo.run("stream", "delete", stream, "--yes").returncode == 0
    done = demo.run("read", stream)

    assert done.returncode == 3
    assert b"test/deleted" in done.stderr


def test_the_cluster_is_unhealthy_while_a_node_is_away(
    demo: DemoProcess,
) -> None:
    try:
        assert demo.run("demo", "stop", "b-storage-1").returncode == 0
        unwell = demo.run("cluster", "health")
    finally:
        assert demo.run("demo", "restart", "b/storage-1").returncode == 0
    well = demo.run("cluster", "health", "--wait", "--timeout", "60s")

    assert unwell.returncode == 10
    assert b"node b-storage-1 (/b/rack-1) is down" in unwell.stdout
    assert b"geolog: the cluster is " in unwell.stderr
    assert b" reasons, listed above" in unwell.stderr
    assert well.returncode == 0, well.stderr


def test_a_paused_server_is_listed_as_paused_and_resumes(demo: DemoProcess) -> None:
    assert demo.run("demo", "pause", "c-storage-1").returncode == 0
    states = demo.json("demo", "ls")
    assert demo.run("demo", "resume", "c-storage-1").returncode == 0

    assert isinstance(states, list)
    assert [s["state"] for s in states if s["name"] == "c-storage-1"] == ["paused"]
    wait_until(lambda: demo.run("cluster", "health").returncode == 0)


def test_the_error_for_an_unknown_target_lists_the_known_ones(demo: DemoProcess) -> None:
    done = demo.run("demo", "kill", "d")

    assert done.returncode == 3
    assert b"unknown target 'd'" in done.stderr
    assert b"a, b, c" in done.stderr


LIGHT_NOUNS = (
    *("append", "bench", "cluster", "cursor", "ledger", "node", "placement", "read", "region"),
    *("relay", "segment", "sink", "stream", "verify"),
)

PROBE = """
import contextlib, io, sys
from geolog.cli.main import root, run
from geolog.cli.invocation import COMPLETE_VARIABLE, Invocation
from click.shell_completion import BashComplete
for words in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(words.split()) == 0, words
    told = BashComplete(root, {"obj": Invocation()}, "geolog", COMPLETE_VARIABLE)
    assert told.get_completions(words.split()[:-1], "--"), words
print([one for one in ("trio", "rich", "kazoo", "geolog.client.log") if one in sys.modules])
"""


def test_help_and_completion_import_only_the_command_itself() -> None:
    calls = [f"{noun} --help" for noun in LIGHT_NOUNS]
    calls += [
        "stream create --help",
        "bench hedge --help",
        "relay failover --help",
        "relay divergence ls --help",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, "--help", *calls],
        capture_output=True,
        check=False,
        timeout=WAIT_S_MAX,
    )

    assert done.stdout == b"[]\n", done.stderr.decode()


def test_python_without_assertions_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-P", "-m", "geolog", "--help"],
        capture_output=True,
        check=False,
        timeout=WAIT_S_MAX,
    )

    assert done.returncode == 1
    assert b"python -O" in done.stderr


@pytest.mark.long
def test_every_command_has_help(tmp_path: Path) -> None:
    done = geolog("--help", cwd=tmp_path)
    commands = done.stdout.decode().partition("Commands:\n")[2].partition("\n\n")[0]

    for line in commands.splitlines():
        noun = line.split()[0]
        assert geolog(noun, "--help", cwd=tmp_path).returncode == 0, noun
