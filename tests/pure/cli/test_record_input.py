"""Inputs of an append: files in their order, and stdin."""

import os
from pathlib import Path

import pytest

from geolog.cli.terminal.record_input import open_inputs
from topology.errors import InvalidArgumentError, NotFoundError


async def test_files_are_read_in_their_order_and_the_share_is_of_all(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a" * 30)
    (tmp_path / "two").write_bytes(b"b" * 70)
    with open_inputs([str(tmp_path / "two"), str(tmp_path / "one")]) as inputs:
        two, one = inputs.inputs
        assert inputs.share_taken == 0.0

        assert await two.read() == b"b" * 70
        assert inputs.share_taken == 0.7
        assert await two.read() == b""
        assert await one.read() == b"a" * 30
        assert inputs.share_taken == 1.0


def test_the_share_is_unknown_with_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a")
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with open_inputs([str(tmp_path / "one"), str(tmp_path / "pipe")]) as inputs:
            assert inputs.share_taken is None
    finally:
        os.close(writer)


def test_a_name_that_is_wrong_is_told_before_any_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a")
    for wrong, kind, words in (
        ("gone", NotFoundError, f"no such file: {tmp_path}/gone"),
        (".", InvalidArgumentError, "is a directory: name files"),
        ("one/two", InvalidArgumentError, "cannot open .*/one/two: Not a directory"),
    ):
        names = [str(tmp_path / "one"), f"{tmp_path}/{wrong}"]
        with pytest.raises(kind, match=words), open_inputs(names):
            pass
