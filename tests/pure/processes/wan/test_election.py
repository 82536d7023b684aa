"""The address in the first message of a ZooKeeper server that holds an election."""

import struct

import pytest

from sim.processes.wan.election import rewritten

BACK = "127.0.0.1:39999"


def hello(address: bytes, rest: bytes = b"") -> bytes:
    return struct.pack(">qqi", -65535, 3, len(address)) + address + rest


def test_the_address_leads_back_through_the_emulator() -> None:
    assert rewritten(hello(b"10.0.0.7:3888"), BACK) == hello(BACK.encode())


def test_bytes_after_the_message_stay() -> None:
    assert rewritten(hello(b"10.0.0.7:3888", b"rest"), BACK) == hello(BACK.encode(), b"rest")


@pytest.mark.parametrize("length", range(len(hello(b"10.0.0.7:3888"))))
def test_an_incomplete_message_is_not_rewritten_yet(length: int) -> None:
    assert rewritten(hello(b"10.0.0.7:3888")[:length], BACK) is None


def test_the_older_form_has_no_address_and_stays() -> None:
    assert rewritten(struct.pack(">q", 3), BACK) == struct.pack(">q", 3)


@pytest.mark.parametrize("length", [-1, 513, 2**31 - 1])
def test_an_invalid_message_is_left_to_the_receiver(length: int) -> None:
    strange = struct.pack(">qqi", -65535, 3, length)

    assert rewritten(strange, BACK) == strange
