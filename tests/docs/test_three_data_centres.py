"""The commands of docs/THREE_DATA_CENTRES.md work in their order, each on its host."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from tests.docs.console_blocks import Command, commands_of
from tests.docs.hosts import EACH, LOST, Host, open_hosts

PAGE = Path(__file__).parents[2] / "docs" / "THREE_DATA_CENTRES.md"

LIMIT_S = 900
"""It takes a minute or two by itself; other tests share its cores."""


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_three_hosts_go_from_nothing_to_streams_that_survive_one_of_them(
    tmp_path: Path,
) -> None:
    commands = list(commands_of(PAGE.read_text(encoding="utf-8")))

    with open_hosts(tmp_path) as hosts, ThreadPoolExecutor(len(hosts)) as pool:
        named = {host.name: host for host in hosts}
        for command in commands:
            if command.place.endswith(LOST):
                named[command.place.removesuffix(LOST)].lose()
                continue
            on = hosts if command.place == EACH else [named[command.place]]
            for complaint in pool.map(lambda host, what=command: complaint_of(host, what), on):
                if complaint:
                    pytest.fail(complaint, pytrace=False)


def complaint_of(host: Host, command: Command) -> str:
    """How a command differs from the page on a host; empty if it does not."""
    done = host.run(command.text)
    printed = tuple(map(host.translated, command.printed))
    expected = attrs.evolve(command, printed=printed)
    if done.returncode == command.exit_code and expected.agrees_with(done.stdout):
        return ""
    return (
        f"{PAGE.name}:{command.line_number}\n{host.name}$ {command.text}\n"
        f"{done.stdout}exit code {done.returncode}"
    )
