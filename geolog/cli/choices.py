"""Words that options take, apart from the code that acts on them."""

from typing import Literal, get_args

AckChoice = Literal["none", "received", "durable"]
ACK_CHOICES: tuple[AckChoice, ...] = get_args(AckChoice)

Format = Literal["lines", "jsonl", "length-prefixed"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Formats of records in a file or pipe."""

SortKey = Literal["name", "partitions", "size", "created"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
"""Orders of streams."""
