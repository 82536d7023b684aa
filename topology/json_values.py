"""Values from JSON, by cattrs: nothing is coerced; an error gives place, problem and reason."""

import enum
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs
import cattrs
from cattrs.cols import is_mapping, is_sequence, list_structure_factory
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory

from topology.errors import InvalidArgumentError
from topology.location import Location
from topology.nearest import suggestion

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_T = TypeVar("_T")
_Enum = TypeVar("_Enum", bound=enum.Enum)
_Hook = Callable[[Json, type], object]

_WHOLE_MAX = 2**63 - 1

_converter = cattrs.Converter()


class _UnfitError(InvalidArgumentError):
    """The problem with a value. The place of the value is prefixed to it."""


def structured(
    value: Json,
    kind: type[_T],
    where: str,
    error: type[InvalidArgumentError] = InvalidArgumentError,
) -> _T:
    """Read the value at `where` as an attrs class; null means absent. `error` if unfit."""
    try:
        return _converter.structure(value, kind)
    except (_UnfitError, cattrs.BaseValidationError) as wrong:
        raise error(where + _told(wrong)) from None


def at_least(least: int) -> Callable[[object, "attrs.Attribute[_T]", _T], None]:
    """Make a validator for an optional number, or for each number in an object."""

    def check(_: object, attribute: "attrs.Attribute[_T]", value: _T) -> None:
        numbers = value.items() if isinstance(value, dict) else [(None, value)]
        for name, number in numbers:
            if isinstance(number, int | float) and number < least:
                place = attribute.name if name is None else f"{attribute.name}.{name}"
                raise _UnfitError(f".{place} must be >= {least}, got {number}")

    return check


def above_zero(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    """Validate a number that must be positive but has no smallest value."""
    if value <= 0:
        raise _UnfitError(f".{attribute.name} must be positive, got {value}")


def _told(wrong: BaseException) -> str:
    """Message for the first error: its place below the value read, and the reason."""
    place = ""
    for note in getattr(wrong, "__notes__", ()):
        if isinstance(note, cattrs.AttributeValidationNote):
            place = f".{note.name}"
        elif isinstance(note, cattrs.IterableValidationNote):
            place = f"[{note.index}]" if isinstance(note.index, int) else f".{note.index}"
    match wrong:
        case cattrs.BaseValidationError():
            return place + _told(wrong.exceptions[0])
        case KeyError():
            return f"{place} is missing"
        case _UnfitError():
            return f"{place}{wrong}"
        case _:
            return f"{place}: {wrong}"


def _of(shape: type[_T], told: str, structure: Callable[[_T, type], object]) -> _Hook:
    """Accept a value of this shape only."""

    def hook(value: Json, kind: type) -> object:
        if not isinstance(value, shape):
            raise _UnfitError(f" must be {told}, got {value!r}")
        return structure(value, kind)

    return hook


def _whole(value: Json, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _UnfitError(f" must be a whole number, got {value!r}")
    if abs(value) > _WHOLE_MAX:
        digits = len(str(abs(value)))
        raise _UnfitError(f" has {digits} digits; the largest whole number is {_WHOLE_MAX}")
    return value


def _number(value: Json, kind: type) -> float:
    if isinstance(value, int):
        value = float(_whole(value, kind))
    if not isinstance(value, float) or not math.isfinite(value):
        raise _UnfitError(f" must be a number, got {value!r}")
    return value


def _member(value: Json, kind: type[_Enum]) -> _Enum:
    known = {one.value: one for one in kind}
    if value not in known:
        raise _UnfitError(f" is {value!r}; it must be one of {', '.join(known)}")
    return known[value]


def _attributes(kind: type["attrs.AttrsInstance"], converter: cattrs.Converter) -> _Hook:
    structure = make_dict_structure_fn(kind, converter)
    known = sorted(attrs.fields_dict(kind))

    def hook(members: dict[str, Json], kind: type) -> object:
        for name in members:
            if name not in known:
                raise _UnfitError(f" has an unknown key {name!r}{suggestion(name, known)}")
        return structure({name: one for name, one in members.items() if one is not None}, kind)

    return _of(dict, "an object", hook)


def _list(kind: type, converter: cattrs.Converter) -> _Hook:
    return _of(list, "a list", list_structure_factory(kind, converter))


def _mapping(kind: type[Mapping[str, object]], converter: cattrs.Converter) -> _Hook:
    return _of(dict, "an object", mapping_structure_factory(kind, converter))


_converter.register_structure_hook_factory(attrs.has, _attributes)
_converter.register_structure_hook_factory(is_sequence, _list)
_converter.register_structure_hook_factory(is_mapping, _mapping)
_converter.register_structure_hook_func(lambda kind: kind == Json, lambda value, _: value)
_converter.register_structure_hook(str, _of(str, "a string", lambda value, _: value))
_converter.register_structure_hook(bool, _of(bool, "true or false", lambda value, _: value))
_converter.register_structure_hook(int, _whole)
_converter.register_structure_hook(float, _number)
_converter.register_structure_hook(enum.Enum, _of(str, "a string", _member))
_converter.register_structure_hook(
    Location, _of(str, "a string", lambda value, _: Location.parse(value))
)
