"""The programs of docs/ANY_LANGUAGE.md run, each where its language is there."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import trio

from tests.foreign.foreign_programs import BIN, installed
from tests.foreign.proxy_urls import QUORUMS, ProxyUrls
from tests.static.checkout import ROOT
from tests.system.demo_process import WAIT_S_MAX, DemoProcess

PAGE = ROOT / "docs" / "ANY_LANGUAGE.md"
VALUES = ["paid", "packed", "sent"]
APPENDED = [f"{value} has sequence {at}" for at, value in enumerate(VALUES)]
READ = [f"{at}: {value}" for at, value in enumerate(VALUES)]


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


async def run(*arguments: str, **environment: str) -> str:
    """Run a program that must succeed; what it prints."""
    with trio.fail_after(WAIT_S_MAX):
        done = await trio.run_process(
            arguments,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, **environment},
        )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("language", ["js", "python", "go"])
async def test_a_program_appends_each_record_once_and_reads_them(
    demo: DemoProcess, proxies: dict[str, ProxyUrls], tmp_path: Path, language: str
) -> None:
    (text,) = blocks(language)
    program = tmp_path / f"append.{language if language != 'js' else 'mjs'}"
    program.write_text(text)
    if language == "go":
        go = shutil.which("go")
        if go is None:
            pytest.skip("no Go on this machine")
        command = [str(tmp_path / "append")]
        # The standard library is compiled once, which takes half a minute.
        settings = {"GOCACHE": str(BIN.parent / "go"), "GO111MODULE": "off", "CGO_ENABLED": "0"}
        await run(go, "build", "-o", *command, str(program), **settings)
    else:
        command = [installed("node" if language == "js" else "python"), str(program)]
    stream = f"shop/{language}"
    demo.json("stream", "create", stream, *QUORUMS)

    printed = []
    for at in range(3):  # Each time through another proxy: two of them send it to the owner.
        turn = [*proxies.values()][at:] + [*proxies.values()][:at]
        urls = [one.http if language == "go" else one.websocket for one in turn]
        printed.append((await run(*command, stream, "till-7", *urls)).splitlines())

    assert printed == [APPENDED + READ] * 3


async def test_the_lines_of_curl_append_each_record_once(
    demo: DemoProcess, proxies: dict[str, ProxyUrls]
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    append, read = re.findall(r"^\$ (.*)$", blocks("console")[0], re.MULTILINE)
    demo.json("stream", "create", "shop/curl", *QUORUMS)
    settings = {"STREAM": "shop/curl", "WRITER": "till-7"}

    answers = []
    for proxy in proxies.values():
        told = await run("bash", "-c", append, PROXY=proxy.http, **settings)
        answers.append([json.loads(line) for line in told.splitlines()])
    told = await run("bash", "-c", read, PROXY=proxies["c"].http, **settings)
    *records, end = [json.loads(line) for line in told.splitlines()]

    assert [[one["sequence"] for one in lines] for lines in answers] == [[0, 1]] * 3
    assert [[one["duplicate"] for one in lines] for lines in answers] == [
        [False, False],
        [True, True],
        [True, True],
    ]
    assert [one["value"] for one in records] == ["paid", "sent"]
    assert end == {"type": "end"}
