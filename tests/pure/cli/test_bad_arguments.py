"""Bad arguments: a clear message with the value and the next step, and the right exit code."""

import os
from pathlib import Path

import pytest

from geolog.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sream", "ls"], 2, "did you mean 'stream'?"),
        (["stream", "lst"], 2, "did you mean 'ls'?"),
        (["topic", "list"], 2, "did you mean 'stream'?"),
        (["produce", "shop/orders"], 2, "did you mean 'append'?"),
        (["subscribe", "shop/orders"], 2, "did you mean 'read --follow'?"),
        (["stream", "rm", "shop/orders"], 2, "did you mean 'delete'?"),
        (["frobnicate"], 2, "unknown command 'frobnicate' for 'geolog' (commands: demo,"),
        (["stream", "ls", "--zookeper", "x"], 2, "--zookeeper"),
        (["stream", "ls"], 2, "no ZooKeeper servers: give --zookeeper"),
        (["stream", "ls", "--zookeeper", "nonsense"], 2, "'nonsense'"),
        (["stream", "ls", "--timeout", "30"], 2, "'30' has no unit"),
        (["stream", "ls", "--config", "none.toml"], 3, "no such settings file: none.toml"),
        (["stream", "create", "Shop/Orders"], 2, "did you mean 'shop'"),
        (["stream", "create", "orders"], 2, "is not named NAMESPACE/NAME"),
        (
            ["stream", "create", "a/b", "--segment-size", "64"],
            2,
            "'--segment-size': '64' has no unit",
        ),
        (["stream", "create", "a/b", "--survive", "two"], 2, "'1 region and 1 node'"),
        (["read", "a/b", "--from", "yesterday"], 2, "'yesterday'"),
        (["read", "a/b", "--follow", "--to", "latest"], 2, "--follow or --to"),
        (["read", "a/b", "--format", "jsonl", "-o", "jsonl"], 2, "give either --format jsonl"),
        (["read", "a/b", "--key-separator", "=", "-o", "json"], 2, "drop -o json"),
        (["bench", "read", "--record-size", "0B"], 2, "0B is out of range: give 1B"),
        (["append", "a/b", "gone.txt"], 3, "no such file: gone.txt"),
        (["append", "a/b", "--keyless-ok"], 2, "give --key-separator"),
        (["read", "a/b", "--hedge", "atuo"], 2, "did you mean 'auto'"),
        (["read", "a/b", "--hedge", "25"], 2, "no unit: use 25ms"),
        (["read", "a/b", "--hedge", "sla:1h"], 2, "has the unit 'h'"),
        (["read", "a/b", "--hedge", "0.1ms"], 2, "out of range, 1ms to 10s: use 1ms"),
        (["stream", "create", "a/b#1"], 2, "names one partition"),
        (["append", "a/b#x"], 2, "'x' is not a partition number"),
        (["append", "a/b", "--first-seq", "5"], 2, "--first-seq needs --writer"),
        (
            ["append", "a/b", "--ack", "none", "--writer", "w"],
            2,
            "--ack none gives no answers",
        ),
        (["append", "a/b", "--ack", "some"], 2, "'some'"),
        (["stream", "create", "a/b", "--retention", "7"], 2, "has no unit"),
        (
            ["stream", "truncate", "a/b", "--before", "middle"],
            2,
            "is not a position in a stream",
        ),
        (["stream", "truncate", "a/b", "--before", "latest"], 2, "Pass --yes to confirm"),
        (["stream", "seal", "a/b"], 2, "Pass --yes to confirm"),
        (["append", "a/b", "--key-separator", ""], 2, "--key-separator must not be empty"),
        (["stream", "update", "a/b"], 2, "nothing to change: give"),
        (["stream", "update", "a/b", "--retention", "9"], 2, "'9' has no unit"),
        (["generate", "completion", "tcsh"], 2, "'tcsh' is not one of"),
        (["demo", "ls", "--data-dir", "."], 3, "no demo runs in"),
        (["bench", "append", "--record-size", "2MiB"], 2, "--record-size 2MiB"),
        (["bench", "append", "--record-size", "0B"], 2, "--record-size 0B"),
        (["bench", "append", "--ledgers", "0"], 2, "--ledgers"),
        (["bench", "read", "--interleaved", "1"], 2, "--interleaved"),
        (["bench", "read", "--record-size", "2MiB"], 2, "--record-size 2MiB"),
        (["bench", "read", "--readers", "0"], 2, "--readers"),
        (["bench", "tail", "--rate", "0"], 2, "--rate"),
        (["bench", "tail", "--readers", "1001"], 2, "--readers"),
        (["bench", "relay", "--backlog", "1KiB"], 2, "--backlog 1KiB is too small"),
        (["bench", "relay", "--backlog", "1GiB", "--plot", "x.svg"], 2, "leave out --backlog"),
        (["bench", "hedge", "--rate", "1001"], 2, "--rate"),
        (["bench", "hedge", "--only", "cut"], 2, "stalls"),
        (["bench", "hedge", "--zookeeper", "127.0.0.1:1"], 2, "needs a cluster of its own"),
        (
            ["drill", "run", "kill-all", "--kills", "3"],
            2,
            "--kills applies to kill-random, not to",
        ),
        (
            ["drill", "run", "relay-kill", "--fault", "flapping"],
            2,
            "--fault flapping is not a fault of relay-kill: give kill, drain, pause",
        ),
        (
            ["drill", "run", "proxy-kill", "--fault", "kill", "--fault", "drain"],
            2,
            "proxy-kill causes one kind of fault",
        ),
        (["demo", "kill"], 2, "Missing argument 'TARGET'"),
        (["demo", "--base-port", "65530"], 2, "the highest base port is"),
        (["demo", "--regions", "a,b,A_!"], 2, "/A_!/rack-1"),
        (["demo", "--data-dir", "/proc/none"], 1, "/proc/none: No such file"),
        (["demo", "--wan", "none.toml"], 2, "cannot read --wan none.toml"),
        (["wan", "show", "--data-dir", "."], 3, "no demo with an emulated WAN runs in"),
        (["wan", "set", "a", "b"], 2, "nothing to change: give --rtt"),
        (["wan", "set", "a", "b", "--rtt", "80"], 2, "'80' has no unit"),
        (["wan", "set", "a", "b", "--rtt", "-80ms"], 2, "'-80ms' is negative"),
        (["wan", "set", "a", "b", "--bandwidth", "20MB"], 2, "unknown unit 'MB'"),
        (["wan", "set", "a", "b", "--stall-rate", "0.01"], 2, "'0.01' has no unit"),
        (["stream", "ls", "--zookeeper", "h:1", "--gateway", "h:2"], 2, "needs your region"),
        (["stream", "ls", "--zookeeper", "h:1", "--gateway", "h"], 2, "'h' is not an address"),
        (["serve", "wan", "--setup", "none.json"], 2, "cannot read none.json"),
        (["serve", "storage", "--data-dir", "d"], 2, "--location"),
        (["serve", "storage", "--data-dir", "d", "--data-dir", "./d"], 2, "d is given twice"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GEOLOG_")]:
        monkeypatch.delenv(name)

    ended = run(arguments)

    printed = capfd.readouterr()
    assert ended == code, printed.err
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
