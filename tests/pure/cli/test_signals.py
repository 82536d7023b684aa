"""A command ends at the signals that it was not started to ignore."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest
import trio

from geolog.cli.signals import ending_a_question, ending_at_signals, run_to_a_signal


@contextmanager
def started_with(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, handler)
    yield
    signal.signal(number, before)


async def be_sent(number: signal.Signals) -> str:
    os.kill(os.getpid(), number)
    await trio.sleep(0.05)  # A signal would end it at the first checkpoint.
    return "goes on"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_background_job_that_ignores_a_signal_continues(number: signal.Signals) -> None:
    with started_with(number, signal.SIG_IGN):
        assert await ending_at_signals(be_sent, number) == "goes on"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
async def test_a_foreground_command_ends_at_each_signal(number: signal.Signals) -> None:
    with started_with(number, signal.SIG_DFL):
        assert await ending_at_signals(be_sent, number) is None


def test_a_command_whose_work_is_not_done_ends_as_interrupted() -> None:
    with started_with(signal.SIGTERM, signal.SIG_DFL), pytest.raises(click.Abort):
        run_to_a_signal(be_sent, signal.SIGTERM)


def test_a_command_that_returns_nothing_is_not_taken_for_interrupted() -> None:
    async def returns_nothing(_argument: int) -> None:
        await trio.lowlevel.checkpoint()

    run_to_a_signal(returns_nothing, 1)  # Raises nothing.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_a_question_that_blocks_the_loop(number: signal.Signals) -> None:
    async def ask() -> None:
        with trio.open_signal_receiver(number), ending_a_question():
            signal.raise_signal(number)
            raise AssertionError("the question went on")

    with started_with(number, signal.SIG_DFL), pytest.raises(KeyboardInterrupt):
        trio.run(ask)


def test_a_question_leaves_an_ignored_signal_ignored() -> None:
    with started_with(signal.SIGHUP, signal.SIG_IGN), ending_a_question():
        signal.raise_signal(signal.SIGHUP)
