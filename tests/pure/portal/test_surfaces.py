"""Both surfaces have the names of the log, with the same parameters."""

import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

import geolog
from geolog import aio, blocking

OF_TRIO_ALONE = {
    # For operators, who use trio, and for the block that opened the object.
    "Log": {
        "access",
        "partition_opener",
        "scan_of",  # For the bridges between regions.
        "links",  # For standbys.
        "recovery_progress",
        "spans_between",  # For the Spark source.
        "check_writable",  # For the Spark sinks.
        "extents_from",
        "check_open",
        "close",
    },
    # Called by other code in trio.
    "Writer": {
        "append_fields_nowait",
        "append_plain_nowait",
        "close",
        "failure",
        "has_spool",
    },
    # For queues, proxies.
    "Reader": {"close", "runs_ahead", "on_taken", "commit_through", "wait_stored"},
    "Pending": {"wait_done"},
}
PAIRS = [
    pytest.param(surface, name, id=f"{surface.__name__}.{name}")
    for surface in (aio, blocking)
    for name in OF_TRIO_ALONE
]


def public(kind: type) -> Iterator[tuple[str, object]]:
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_"):
            yield name, member


@pytest.mark.parametrize(("surface", "name"), PAIRS)
def test_each_public_method_is_there_with_its_parameters(
    surface: ModuleType, name: str
) -> None:
    ours = dict(public(getattr(surface, name)))

    for member, theirs in public(getattr(geolog, name)):
        if member in OF_TRIO_ALONE[name]:
            continue
        assert member in ours, f"{surface.__name__}.{name}.{member} is missing"
        if callable(theirs):
            assert parameters_of(ours[member]) == parameters_of(theirs), member


@pytest.mark.parametrize("surface", [aio, blocking], ids=lambda one: str(one.__name__))
def test_connect_has_the_same_parameters(surface: ModuleType) -> None:
    assert parameters_of(surface.connect) == parameters_of(geolog.connect)


def parameters_of(function: object) -> list[tuple[str, object, object]]:
    assert callable(function)
    return [
        (one.name, one.kind, one.default)
        for one in inspect.signature(function).parameters.values()
    ]
