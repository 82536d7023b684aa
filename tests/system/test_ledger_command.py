"""`geolog ledger`, on a small cluster of real processes."""

import json
import subprocess

import pytest

from tests.system.demo_process import DemoProcess, read_some, started

QUORUMS = ["--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2"]


@pytest.fixture(scope="module")
def ledger(demo: DemoProcess) -> str:
    """Return the id of a closed ledger with three records."""
    demo.run("stream", "create", "ledgers/one", *QUORUMS)
    assert demo.run("append", "ledgers/one", given=b"a\nb\nc\n").returncode == 0
    segments = demo.json("segment", "ls", "ledgers/one")
    assert isinstance(segments, list)
    return str(segments[0]["ledger"])


def test_a_ledger_is_described_with_the_copies_of_its_members(
    demo: DemoProcess, ledger: str
) -> None:
    details = demo.json("ledger", "describe", ledger)
    table = demo.run("ledger", "describe", ledger)

    assert isinstance(details, dict)
    assert (details["state"], details["stream"]) == ("closed", "ledgers/one#0")
    assert [one["state"] for one in details["members"]] == ["up"] * 3
    assert all(one["copies"] == one["copies_expected"] for one in details["members"])
    copies = details["members"][0]["copies"]
    assert table.stdout.count(f"{copies} of {copies}".encode()) == 3


def test_entries_are_read_with_their_positions_and_values(
    demo: DemoProcess, ledger: str
) -> None:
    headers = demo.run("ledger", "read", ledger, "-o", "jsonl").stdout.splitlines()
    entries = demo.json("ledger", "read", ledger, "--values")
    table = demo.run("ledger", "read", ledger, "--values")

    assert sum(json.loads(line)["records"] for line in headers) == 3
    assert isinstance(entries, list)
    values = [value for entry in entries for value in entry["values"]]
    assert [(value["sequence"], value["value"]) for value in values] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]
    assert table.stdout.split()[-3:] == [values[-1]["dlsn"].encode(), b"2", b"c"]


def test_repair_and_recovery_leave_an_intact_closed_ledger_unchanged(
    demo: DemoProcess, ledger: str
) -> None:
    repaired = demo.json("ledger", "repair", ledger, "--deep")
    recovered = demo.json("ledger", "recover", ledger)
    queue = demo.json("ledger", "repair", "--queue")

    assert isinstance(repaired, dict)
    assert [(one["is_complete"], one["damaged"]) for one in repaired["ledgers"]] == [(True, 0)]
    assert isinstance(recovered, dict)
    assert (recovered["state"], recovered["epoch"]) == ("closed", 1)
    assert isinstance(queue, dict)
    assert all(one["is_complete"] and not one["is_in_queue"] for one in queue["ledgers"])
    assert queue["doubts"] == []
    assert demo.json("ledger", "repair", "--queue") == {"ledgers": [], "doubts": []}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["ledger", "describe", "one"], 2, b"'one' is not a ledger id"),
        (["ledger", "describe", "999999"], 3, b"the nearest is"),
        (["ledger", "repair", "999999"], 3, b"ledger 999999 does not exist"),
        (["ledger", "recover", "999999"], 3, b"ledger 999999 does not exist"),
        (["ledger", "repair"], 2, b"give either ledger ids or --queue"),
        (["ledger", "repair", "1", "--queue"], 2, b"give either ledger ids or --queue"),
        (["ledger", "repair", "1", "--rate", "5"], 2, b"20MB/s"),
        (["ledger", "repair", "1", "--rate", "0MB/s"], 2, b"must be positive"),
        (["node", "describe", "a-storag-1"], 3, b"did you mean 'a-storage-1'"),
        (["node", "preflight", "x"], 3, b"no node of this cluster has id 'x'"),
        (["node", "replace", "a-storag-1"], 3, b"did you mean 'a-storage-1'"),
        (["node", "replace", "a-storage-1"], 1, b"is up at"),
        (
            ["node", "replace", "a-storage-1", "--with", "a-storage-1"],
            2,
            b"cannot replace itself",
        ),
    ],
)
def test_errors_say_what_cannot_be_done_and_why(
    demo: DemoProcess, ledger: str, arguments: list[str], code: int, text: bytes
) -> None:
    done = demo.run(*arguments)

    assert done.returncode == code, done.stderr
    assert text in done.stderr


def test_the_error_for_an_entry_beyond_the_end_names_the_end(
    demo: DemoProcess, ledger: str
) -> None:
    done = demo.run("ledger", "read", ledger, "--from", "1000")

    assert done.returncode == 2
    assert b"has no entry 1000: it has entries 0 to" in done.stderr


def test_an_open_ledger_is_closed_only_with_confirmation(demo: DemoProcess) -> None:
    demo.run("stream", "create", "ledgers/open", *QUORUMS)
    append = ["--config", str(demo.config), "append", "ledgers/open", "-o", "jsonl"]
    with started(*append, stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"a line\n")
        writer.stdin.flush()
        read_some(writer.stdout, b'"sequence": 0')
        segments = demo.json("segment", "ls", "ledgers/open")
        assert isinstance(segments, list)
        ledger = str(segments[0]["ledger"])

        unasked = demo.run("ledger", "recover", ledger)
        confirmed = demo.run("ledger", "recover", ledger, "--yes", "-o", "json")

    assert unasked.returncode == 2
    assert b"is open at epoch 1. Fence its writer and close it?" in unasked.stderr
    assert b"Pass --yes" in unasked.stderr
    ended = json.loads(confirmed.stdout)
    assert (ended["state"], ended["epoch"], ended["last_entry"]) == ("closed", 2, 0)


def test_a_node_is_described_with_its_own_status(demo: DemoProcess) -> None:
    details = demo.json("node", "describe", "a-storage-1")
    table = demo.run("node", "describe", "a-storage-1")

    assert isinstance(details, dict)
    assert (details["state"], details["region"]) == ("writable", "a")
    assert isinstance(details["status"], dict)
    assert details["status"]["instance"] == details["instance"]
    assert b"ledgers count" in table.stdout


def test_preflight_says_that_a_node_is_safe_to_stop(demo: DemoProcess, ledger: str) -> None:
    done = demo.run("node", "preflight", "a-storage-1")

    assert (done.returncode, done.stdout) == (0, b"")
    assert b"safe to stop a-storage-1: " in done.stderr
