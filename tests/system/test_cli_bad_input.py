"""Bad input: a clear message with the value and the next step, and the right exit code."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.system.addresses import free_addresses
from tests.system.demo_process import (
    GEOLOG,
    WAIT_S_MAX,
    DemoProcess,
    geolog,
    plain_environment,
    read_rest,
    read_some,
    started,
    wait_until,
)


def test_bad_arguments_end_the_command_with_their_message_and_code(tmp_path: Path) -> None:
    done = geolog("sream", "ls", cwd=tmp_path)

    assert done.returncode == 2
    assert b"did you mean 'stream'?" in done.stderr
    assert done.stdout == b""


@pytest.fixture(scope="module")
def hundred(demo: DemoProcess) -> str:
    """Return a stream of 100 records, the first 10 of them trimmed."""
    stream = "bad/hundred"
    demo.run("stream", "create", stream, "--ensemble", "3", "--min-regions", "2")
    demo.run("append", stream, given=b"".join(b"%d\n" % number for number in range(100)))
    demo.run("stream", "truncate", stream, "--before", "sequence:10", "--yes")
    return stream


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "sequence:50", "--to", "sequence:40"], "cannot end at sequence:40"),
        (["--from", "last:5", "--to", "sequence:40"], "cannot end at sequence:40"),
        (["--from", "time:-1m", "--to", "time:-1h"], "which is before it"),
        (
            ["--from", "sequence:500"],
            "beyond the end: the next sequence of bad/hundred#0 is 100",
        ),
        (["--to", "sequence:500"], "beyond the end: the next sequence of bad/hundred#0 is 100"),
        (["--from", "99-0-0"], "99-0-0 is beyond the end"),
    ],
)
def test_an_impossible_read_prints_nothing_and_says_why(
    demo: DemoProcess, hundred: str, options: list[str], message: str
) -> None:
    done = demo.run("read", hundred, *options)

    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert done.stdout == b""


def test_a_read_of_trimmed_records_reports_the_gap(demo: DemoProcess, hundred: str) -> None:
    done = demo.run("read", hundred, "--from", "sequence:2", "--to", "sequence:5", "-o", "json")

    assert done.returncode == 0
    assert [(gap["from"], gap["to"]) for gap in json.loads(done.stdout)] == [(2, 5)]


def test_an_existing_stream_with_other_settings_is_refused_with_both(
    demo: DemoProcess, hundred: str
) -> None:
    done = demo.run(
        *("stream", "create", hundred, "--ensemble", "3", "--min-regions", "2"),
        *("--retention", "7d", "--if-not-exists"),
    )

    assert done.returncode == 1
    assert b"retention is without limit, not 604800 s." in done.stderr
    assert b"geolog stream update" in done.stderr


def test_lint_finds_a_wrong_value_in_an_unused_profile(tmp_path: Path) -> None:
    (tmp_path / "geolog.toml").write_text('[profile.test]\ntimeout = "30"\n')

    lint = geolog("config", "lint", cwd=tmp_path)

    assert lint.returncode == 10
    assert b"geolog.toml:2 [profile.test]: timeout: '30' has no unit" in lint.stdout


def test_the_error_for_an_unknown_key_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "geolog.toml").write_text('cluster = "a"\nzookeper = "h:1"\n')

    done = geolog("stream", "ls", cwd=tmp_path)
    lint = geolog("config", "lint", "-o", "json", cwd=tmp_path)

    assert done.returncode == 2
    assert b"geolog.toml:2: unknown key 'zookeper'; did you mean 'zookeeper'?" in (done.stderr)
    assert lint.returncode == 10


def test_lint_finds_an_invalid_zookeeper_address(tmp_path: Path) -> None:
    (tmp_path / "geolog.toml").write_text("zookeeper = 5\n")

    lint = geolog("config", "lint", cwd=tmp_path)

    assert lint.returncode == 10
    assert b"'5' in '5' is not a ZooKeeper server" in lint.stdout


def test_settings_name_their_sources(tmp_path: Path) -> None:
    (tmp_path / "geolog.toml").write_text('cluster = "a"\n')

    done = geolog("config", "show", "--origin", "-o", "json", "--region", "x", cwd=tmp_path)

    origins = {row["key"]: row["origin"] for row in json.loads(done.stdout)}
    assert origins["cluster"] == "geolog.toml:1"
    assert origins["region"] == "flag --region"
    assert origins["timeout"] == "default"


def test_an_unreachable_zookeeper_is_named(tmp_path: Path) -> None:
    done = geolog("stream", "ls", "--zookeeper", "127.0.0.1:1", "--timeout", "1s", cwd=tmp_path)

    assert done.returncode == 5
    assert b"127.0.0.1:1" in done.stderr


def test_impossible_quorums_are_refused_with_the_smallest_possible(
    demo: DemoProcess,
) -> None:
    done = demo.run("stream", "create", "bad/quorum", "--ensemble", "3", "--ack-quorum", "4")

    assert done.returncode == 2
    assert b"4" in done.stderr


def test_a_record_over_the_limit_is_refused_and_earlier_ones_are_safe(
    demo: DemoProcess,
) -> None:
    demo.run("stream", "create", "bad/large", "--ensemble", "3", "--min-regions", "2")

    done = demo.run("append", "bad/large", given=b"small\n" + b"x" * (2 << 20) + b"\n")

    assert done.returncode == 1
    assert b"geolog: line 2: the record has 2097152 bytes; the limit is 1048576" in done.stderr
    assert b"1 record was acknowledged" in done.stderr
    assert demo.run("read", "bad/large").stdout == b"small\n"


def test_a_wrong_record_in_a_file_is_named_with_the_file_and_the_line(
    demo: DemoProcess, tmp_path: Path
) -> None:
    demo.run("stream", "create", "bad/files", "--ensemble", "3", "--min-regions", "2")
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_bytes(b"a\nb")
    two.write_bytes(b"c\n" + b"x" * (2 << 20) + b"\n")

    done = demo.run("append", "bad/files", str(one), str(two))

    assert done.returncode == 1
    assert f"geolog: {two}:2: the record has 2097152 bytes".encode() in done.stderr
    assert b"3 records were acknowledged" in done.stderr
    assert demo.run("read", "bad/files").stdout == b"a\nb\nc\n"


def test_the_error_for_an_unknown_cluster_or_region_lists_the_known_ones(
    demo: DemoProcess, hundred: str
) -> None:
    for words in (["stream", "ls"], ["read", hundred], ["cluster", "health"]):
        done = demo.run(*words, "--cluster", "nope")
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"has no cluster 'nope'" in done.stderr
        assert b"it has only demo" in done.stderr
    for verb in ("read", "append"):
        done = demo.run(verb, hundred, "--region", "mars", given=b"lost\n")
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"has no region 'mars', only a, b, c" in done.stderr
    listed = demo.run("stream", "ls", "--region", "mars")
    assert (listed.returncode, listed.stdout) == (3, b"")


def test_an_unknown_stream_is_not_found(demo: DemoProcess) -> None:
    for verb in ("read", "append", "verify"):
        done = demo.run(verb, "no/such")

        assert done.returncode == 3, done.stderr
        assert b"no/such" in done.stderr


def test_a_line_of_invalid_json_is_named_and_earlier_ones_are_safe(
    demo: DemoProcess,
) -> None:
    demo.run("stream", "create", "bad/json", "--ensemble", "3", "--min-regions", "2")

    done = demo.run(
        "append", "bad/json", "--format", "jsonl", "-o", "jsonl", given=b'{"value":"a"}\n{]\n'
    )

    assert done.returncode == 2
    assert b"line 2 is not valid JSON" in done.stderr
    assert b"1 record was acknowledged" in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_append_answers_what_it_read_and_says_so(
    demo: DemoProcess,
) -> None:
    demo.run("stream", "create", "bad/broken-off", "--ensemble", "3", "--min-regions", "2")

    with started(
        "append", "bad/broken-off", "-o", "jsonl", config=demo.config, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.flush()
        answers = read_some(process.stdout, b'"sequence": 0')
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S_MAX)
        answers += read_rest(process.stdout)
        message = read_rest(process.stderr)

    assert process.returncode == 130
    assert (
        message == b"interrupted: 3 records were acknowledged, up to sequence 2; no others were"
        b" appended\n"
    )
    assert len(answers.splitlines()) == 3


def test_an_append_whose_answers_nobody_reads_ends_with_an_error(demo: DemoProcess) -> None:
    demo.run("stream", "create", "bad/untold", "--ensemble", "3", "--min-regions", "2")

    with started(
        "append", "bad/untold", "-o", "jsonl", config=demo.config, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(b"a\n")
        process.stdin.flush()
        process.wait(WAIT_S_MAX)
        message = read_rest(process.stderr)

    assert process.returncode == 1
    assert b"cannot write answers to stdout: Broken pipe (1 record was acknowledged" in message


@pytest.mark.parametrize("stdout", ["/dev/full", None])
def test_a_full_or_closed_stdout_is_not_reported_as_a_bug(stdout: str | None) -> None:
    target = ">&-" if stdout is None else f">{stdout}"
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {target}', "sh", *GEOLOG, "config", "show"],
        capture_output=True,
        env=plain_environment(),
        check=False,
    )

    assert done.returncode == (0 if stdout is None else 1)
    assert b"Traceback" not in done.stderr
    message = "cannot write to stdout: No space left on device; the last output is lost"
    assert done.stderr.decode() == ("" if stdout is None else f"geolog: {message}\n")


def test_a_zookeeper_server_without_a_majority_is_reported_as_no_quorum(
    tmp_path: Path,
) -> None:
    """One of three voters is up: it accepts connections but serves nobody."""
    addresses = [str(one) for one in free_addresses(7)]
    client, ports = addresses[0], [one.rpartition(":")[2] for one in addresses[1:]]
    peers = ",".join(
        f"{number}=127.0.0.1:{ports[2 * number - 2]}:{ports[2 * number - 1]}"
        for number in (1, 2, 3)
    )

    def said() -> str:
        asked = ("--zookeeper", client, "--timeout", "3s", "stream", "ls")
        done = geolog(*asked)
        assert done.returncode == 5
        return done.stderr.decode()

    with started(
        *("serve", "zookeeper", "--data-dir", str(tmp_path), "--listen", client),
        *("--id", "1", "--peers", peers),
    ):
        wait_until(lambda: f"ZooKeeper has no quorum: {client} answers" in said())


def serve(demo: DemoProcess, data_dir: Path, *options: str) -> tuple[int, str]:
    """Try to start another storage node in the demo's cluster; it must refuse."""
    done = demo.run("serve", "storage", "--data-dir", str(data_dir), *options)
    assert done.stdout == b""
    assert "Traceback" not in done.stderr.decode()
    return done.returncode, done.stderr.decode()


def test_a_data_directory_in_use_is_refused(demo: DemoProcess) -> None:
    code, message = serve(
        demo,
        demo.directory / "a" / "storage-1",
        *("--location", "/a/rack-1", "--listen", "127.0.0.1:0", "--node-id", "a-storage-1"),
    )

    assert code == 1
    assert "a/storage-1" in message


def test_an_empty_disk_of_a_known_node_is_refused_with_the_next_step(
    demo: DemoProcess, tmp_path: Path
) -> None:
    code, message = serve(
        demo,
        tmp_path / "empty",
        *("--location", "/a/rack-1", "--listen", "127.0.0.1:0", "--node-id", "a-storage-1"),
    )

    assert code == 1
    assert "geolog node replace a-storage-1" in message


def test_a_port_in_use_is_refused_with_its_number(demo: DemoProcess, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, message = serve(
            demo,
            tmp_path / "new",
            *("--location", "/a/rack-9", "--listen", f"127.0.0.1:{port}"),
        )

    assert code == 5
    assert str(port) in message


def test_an_invalid_location_is_refused(demo: DemoProcess, tmp_path: Path) -> None:
    code, message = serve(
        demo, tmp_path / "new", *("--location", "nowhere", "--listen", "127.0.0.1:0")
    )

    assert code == 2
    assert "'nowhere'" in message


def test_garbage_on_a_nodes_port_closes_only_that_connection(demo: DemoProcess) -> None:
    nodes = demo.json("node", "ls")
    assert isinstance(nodes, list)
    host, _, port = nodes[0]["address"].rpartition(":")

    for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 64, b"\x7f\xff\xff\xff" + b"x" * 64):
        with socket.create_connection((host, int(port)), timeout=WAIT_S_MAX) as stranger:
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass

    assert demo.run("cluster", "health", "--wait", "--timeout", "60s").returncode == 0
