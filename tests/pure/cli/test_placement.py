"""`geolog placement evaluate`: its input, its output, and the errors."""

import json
from pathlib import Path

import pytest

from geolog.cli.main import run

SCENARIO = {
    "id": "one",
    "policy": "quorum",
    "nodes": [],
    "operation": "write_set",
    "args": {"ensemble_size": 5, "write_quorum": 3, "ack_quorum": 2, "entry_id": 1},
}


def answered(tmp_path: Path, text: str) -> int:
    file = tmp_path / "scenarios.json"
    file.write_text(text, encoding="utf-8")
    return run(["placement", "evaluate", str(file)])


def test_scenarios_are_answered_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = answered(tmp_path, json.dumps([SCENARIO, {**SCENARIO, "id": 2, "operation": "x"}]))

    first, second = json.loads(capsys.readouterr().out)
    assert code == 0
    assert first == {"id": "one", "write_set": [1, 2, 3]}
    assert (second["id"], second["error"]) == (2, "invalid_argument")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"id": 1},\n  {]', "line 2, column 4"),
        ("", "line 1, column 1"),
        ('{"id": 1}', "is not a JSON array of scenarios"),
        ("[NaN]", "NaN is not a JSON value"),
        ("[" * 100_000, "is nested too deeply"),
        ('[{"id": 1e999}]', "number 1e999 is too large"),
        ('[{"id": ' + "9" * 5000 + "}]", "4300 digits"),
    ],
)
def test_anything_but_a_json_array_is_refused_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert answered(tmp_path, text) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_half_a_surrogate_pair_comes_back_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(tmp_path, '[{"id": "\\ud800"}]') == 0
    assert '"id": "\\ud800"' in capsys.readouterr().out


def test_a_missing_file_is_not_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["placement", "evaluate", str(tmp_path / "none.json")]) == 3
    assert "no such file" in capsys.readouterr().err
