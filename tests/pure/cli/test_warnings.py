"""The command prints logged warnings; the library leaves that to the program that uses it."""

import logging

import pytest

import geolog
from geolog.cli.main import show_warnings


@pytest.fixture
def root_logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Root logger of a program that never set up logging."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    return root


@pytest.mark.usefixtures("root_logger")
def test_the_library_prints_nothing_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger(f"{geolog.__name__}.client").warning("a ledger is soft")

    assert capsys.readouterr().err == ""


def test_a_program_that_handles_logs_gets_the_warnings(
    root_logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    root_logger.addHandler(caplog.handler)
    logging.getLogger("geolog.client").warning("a ledger is soft")

    assert caplog.messages == ["a ledger is soft"]


@pytest.mark.usefixtures("root_logger")
def test_the_command_prints_warnings_once_and_in_geologs_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_warnings()
    logging.getLogger("geolog.client").warning("a ledger is soft")
    logging.getLogger("regions.storage").error("a file is damaged")
    logging.getLogger("geolog.client").info("a ledger is made")
    logging.getLogger("kazoo.client").warning("Connection dropped: outstanding heartbeat")

    assert capsys.readouterr().err == "a ledger is soft\na file is damaged\n"
