"""The exit code of each error."""

import pytest

from geolog.cli.exits import CheckFailedError, Exit, exit_of
from topology.errors import (
    ConflictError,
    GeologError,
    InvalidArgumentError,
    InvalidConfigError,
    NoSuchStreamError,
    NotEnoughNodesError,
    NotPermittedError,
    OutcomeUnknownError,
    OverCapacityError,
    UnavailableError,
)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InvalidArgumentError, 2),
        (InvalidConfigError, 2),
        (NoSuchStreamError, 3),
        (NotPermittedError, 4),
        (OverCapacityError, 5),
        (UnavailableError, 5),
        (OutcomeUnknownError, 5),
        (NotEnoughNodesError, 5),
        (ConflictError, 1),
        (GeologError, 1),
        (CheckFailedError, 10),
    ],
)
def test_the_exit_code_follows_from_the_error_code(
    error: type[GeologError], exit_code: int
) -> None:
    assert exit_of(error("x")) == Exit(exit_code)
