"""Checks the types of a caller's arguments, and says what was meant.

Without this check a wrong type fails deep inside, with an error about something else. The types
come from the annotations, so they are written once.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from typing import Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from geolog.client.reading.bounds import (
    EARLIEST,
    LATEST,
    AtDlsn,
    AtSequence,
    Bound,
    at_moment,
    parse_bound,
)
from geolog.protocol.ids import DLSN
from topology.errors import InvalidArgumentError

P = ParamSpec("P")
T = TypeVar("T")

_BOUNDS = frozenset(get_args(Bound))
_A_PLACE = "a position in a stream, e.g. geolog.EARLIEST or geolog.AtSequence(5)"
_STREAM_NAME = "a stream's name, e.g. 'shop/orders'"
_WORDS = {str: "a str", int: "an int", float: "a number", bool: "True or False", bytes: "bytes"}
_SHOWN_LENGTH_MAX = 80


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function raise InvalidArgumentError for an argument of a wrong type."""
    signature = inspect.signature(function)
    hints: dict[str, object] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not hints:
            hints.update(get_type_hints(function))
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in hints and not _fits(value, hints[name]):
                raise wrong_type(name, value, hints[name])
        return function(*args, **kwargs)

    return call


def wrong_type(name: str, value: object, wanted: object) -> InvalidArgumentError:
    """The error with the parameter, its value, the expected type, and the nearest fit."""
    shown = repr(value)
    if len(shown) > _SHOWN_LENGTH_MAX:
        shown = f"{shown[:_SHOWN_LENGTH_MAX]}…"
    nearest = _nearest(name, value, wanted)
    hint = "" if nearest is None else f". Did you mean {name}={nearest}?"
    kind = type(value).__name__
    given = shown if value is None else f"{shown}, of type {kind}"
    return InvalidArgumentError(f"{name} is {given}; it must be {_words(name, wanted)}{hint}")


def _fits(value: object, wanted: object) -> bool:
    choices = _choices(wanted)
    if len(choices) > 1:
        return any(_fits(value, one) for one in choices)
    origin = get_origin(wanted)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(wanted))
    if wanted is types.NoneType:
        return value is None
    if wanted in (int, float):  # In Python a bool is an int; here it is a mistake.
        return isinstance(value, int if wanted is int else (int, float)) and not isinstance(
            value, bool
        )
    if origin is Sequence:
        (item,) = get_args(wanted)
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(_fits(one, item) for one in value)
        )
    if origin is Callable:
        return callable(value)
    kind = origin or wanted
    return not isinstance(kind, type) or isinstance(value, kind)


def _choices(wanted: object) -> tuple[object, ...]:
    """The members of a union, or the type itself."""
    if isinstance(wanted, types.UnionType) or get_origin(wanted) is Union:
        return get_args(wanted)
    return (wanted,)


def _words(name: str, wanted: object) -> str:
    choices = _choices(wanted)
    if name == "name" and str in choices:
        return _STREAM_NAME
    if set(choices) >= _BOUNDS:
        words = [_A_PLACE]
        choices = tuple(one for one in choices if one not in _BOUNDS)
    else:
        words = []
    words += [
        one for choice in choices if choice is not types.NoneType for one in _named(choice)
    ]
    if types.NoneType in choices:
        words.append("None")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _named(wanted: object) -> Iterator[str]:
    """Names of a type for people."""
    if get_origin(wanted) is Literal:
        yield from (repr(one) for one in get_args(wanted))
    elif get_origin(wanted) is Sequence:
        yield "a list"
    elif get_origin(wanted) is Callable:
        yield "a function"
    elif isinstance(wanted, type):
        yield _WORDS.get(wanted, f"a {wanted.__name__}")


def _nearest(name: str, value: object, wanted: object) -> str | None:
    """The value that the caller may have meant, as Python code."""
    choices = _choices(wanted)
    if set(choices) >= _BOUNDS:
        return _nearest_bound(value)
    texts = [one for choice in choices for one in get_args(choice) if isinstance(one, str)]
    if isinstance(value, str) and texts:
        close = get_close_matches(value.lower(), texts, n=1)
        return repr(close[0]) if close else None
    if str in choices and isinstance(value, bytes):
        return repr(value.decode(errors="replace"))
    if str in choices and name != "name" and type(value) in (int, float):
        return repr(str(value))
    if isinstance(value, timedelta) and float in choices:
        return repr(value.total_seconds())
    if isinstance(value, str) and {int, float} & set(choices):
        return _nearest_number(value, is_whole=float not in choices)
    if isinstance(value, float) and int in choices and value.is_integer():
        return repr(int(value))
    if isinstance(value, str) and any(get_origin(one) is Sequence for one in choices):
        return repr([one.strip() for one in value.split(",")])
    return None


def _nearest_number(text: str, *, is_whole: bool) -> str | None:
    try:
        return repr(int(text) if is_whole else float(text))
    except ValueError:
        return None


def _nearest_bound(value: object) -> str | None:
    match value:
        case bool():
            return None
        case int() if value >= 0:
            return _bound_words(AtSequence(value))
        case DLSN():
            return _bound_words(AtDlsn(value))
        case datetime():
            return _bound_words(at_moment(value))
        case str() if value.startswith("time:-"):
            return None  # Depends on the current time.
        case str() if value.isdecimal():
            return _bound_words(AtSequence(int(value)))
        case str():
            try:
                return _bound_words(parse_bound(value.strip().lower(), now_us=lambda: 0))
            except InvalidArgumentError:
                return None
        case _:
            return None


def _bound_words(bound: Bound) -> str:
    if bound == EARLIEST:
        return "geolog.EARLIEST"
    if bound == LATEST:
        return "geolog.LATEST"
    return f"geolog.{bound}".replace(", home_epoch=None", "").replace(
        "dlsn=DLSN", "geolog.DLSN"
    )
