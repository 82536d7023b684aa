"""Translate our operations into kazoo's calls, and kazoo's errors into ours."""

from typing import assert_never

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, TransactionRequest

from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
)
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NotPermittedError,
    UnavailableError,
)

CONNECTION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    RuntimeError,  # Kazoo raises it for an answer to another request.
)
"""Kazoo's exceptions when no server answered."""

_NOT_DONE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)

_ANY_VERSION = -1


def transaction(client: KazooClient, operations: list[Operation]) -> TransactionRequest:
    """All operations as one kazoo request, not sent yet."""
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case Create(path, data, is_ephemeral, is_sequential):
                transaction.create(path, data, ephemeral=is_ephemeral, sequence=is_sequential)
            case Put(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, _ANY_VERSION if version is None else version)
            case Check(path, version):
                transaction.check(path, _ANY_VERSION if version is None else version)
            case _:
                assert_never(operation)
    return transaction


def transaction_on_nothing(client: KazooClient, path: str) -> TransactionRequest:
    """A write that changes nothing, but takes its place in the order of all writes.

    ZooKeeper proposes every transaction to its quorum, even one that it refuses. So neither the
    answer nor `path` matters.
    """
    nothing = client.transaction()
    nothing.check(path, _ANY_VERSION)
    return nothing


def unless_refused(operations: list[Operation], answers: list[object]) -> list[object]:
    """The answers, or the refusal of the first operation that failed."""
    for operation, answer in zip(operations, answers, strict=True):
        # The operations around the failed one say only that they were not done.
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_DONE):
            raise refusal_of(answer, operation.path) from answer
    return answers


def refusal_of(error: Exception, path: str) -> GeologError:
    """Our error for a server's refusal: nothing was done."""
    match error:
        case kazoo_errors.NoNodeError():
            return NoNodeError(f"{path}, or its parent, does not exist")
        case kazoo_errors.NodeExistsError():
            return NodeExistsError(f"{path} already exists")
        case kazoo_errors.BadVersionError():
            return BadVersionError(f"{path} has changed meanwhile: it has another version")
        case kazoo_errors.NotEmptyError():
            return NotEmptyError(f"{path} has children")
        case kazoo_errors.NoChildrenForEphemeralsError():
            return InvalidArgumentError(
                f"the parent of {path} is ephemeral: it cannot have children"
            )
        case kazoo_errors.NoAuthError() | kazoo_errors.AuthFailedError():
            return NotPermittedError(f"ZooKeeper does not permit this on {path}")
        case _:
            return UnavailableError(f"ZooKeeper refused a request on {path}: {error!r}")
