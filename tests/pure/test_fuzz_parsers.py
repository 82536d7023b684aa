"""The parsers that `make fuzz` feeds take good inputs, and those cut or changed anywhere."""

import random

import pytest

from sim.fuzz.parsers import PARSERS, parse, seeds_of

CHANGED_COUNT = 20


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_takes_its_seeds_and_what_is_almost_like_them(name: str) -> None:
    rng = random.Random(name)
    for seed in [b"", *seeds_of(name)]:
        parse(name, seed)
        for _ in range(CHANGED_COUNT):
            cut = bytearray(seed[: rng.randint(0, len(seed))] or b"\0")
            cut[rng.randrange(len(cut))] = rng.randrange(256)
            parse(name, bytes(cut))


def test_an_http_request_whose_client_leaves_while_it_is_answered_is_no_bug() -> None:
    parse("http", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
