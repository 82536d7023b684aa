"""The files of `geolog/blocking` that are generated match their sources in `geolog/aio`."""

import re

import pytest

from sim.twins import COMMAND, ROOT, WORDS, outdated, sources


def test_every_twin_is_what_its_source_gives() -> None:
    found = [str(path.relative_to(ROOT)) for path in outdated()]

    if found:
        pytest.fail(f"{', '.join(found)}: outdated; run {COMMAND}", pytrace=False)


def test_every_word_of_the_table_occurs_in_a_source() -> None:
    text = "".join(sources().values())

    for word, replacement in WORDS.items():
        text, count = re.subn(word, replacement, text)
        assert count > 0, f"no source has {word!r}: remove it from the table"
