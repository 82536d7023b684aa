"""Replicas are asked through one object, `Replicas`, and through no other."""

import ast

from tests.static.checkout import ROOT

DOOR = "geolog/ledger/replicas/replicas.py"

QUESTIONS = {"Read", "Follow", "Probe"}
"""Messages that ask a replica for entries, or for what it has."""

DEFINED_IN = {"geolog/ledger/nodes/node_pool.py", "geolog/protocol/messages.py"}
ANSWERED_BY = {"geolog/protocol/replica.py"}
WIRE = "geolog/wire/"


def files_that(name: str) -> set[str]:
    """Files of the library in which this name is called, imported, or passed on."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "geolog").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.alias) and node.name == name)
    }


def test_only_the_door_waits_for_a_connection() -> None:
    assert files_that("wait_connection") == {DOOR}


def test_only_the_door_asks_a_replica_for_entries() -> None:
    askers = {one for name in QUESTIONS for one in files_that(name) if WIRE not in one}

    assert askers - DEFINED_IN - ANSWERED_BY == {DOOR}


def test_a_process_makes_one_door() -> None:
    made_in = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "geolog").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Replicas", "Replicas.of"}
    }

    assert made_in == {"geolog/client/connect.py"}
