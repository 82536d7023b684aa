"""Reading values out of JSON: each is checked, and an error says where, what and why."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

import attrs

from topology.errors import InvalidArgumentError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_T = TypeVar("_T")

_WHOLE_MAX = 2**63 - 1


@attrs.frozen
class Fields:
    """The members of one JSON object; `error` is raised for what is wrong with them."""

    where: str
    values: Mapping[str, Json]
    error: type[InvalidArgumentError] = InvalidArgumentError

    def check_names(self, known: Iterable[str]) -> None:
        """Refuse a name that means nothing, and name the nearest that does."""
        names = sorted(known)
        for name in self.values:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1, 0.0)
                raise self.error(f"{self.where} has no {name!r}; the nearest is {near[0]!r}")

    def has(self, name: str) -> bool:
        """Whether it is given, and not null."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        """A string that must be given."""
        return self._typed(name, self._given(name), str, "a string")

    def text_or(self, name: str, default: str) -> str:
        """A string, or the default if it is absent or null."""
        return self.text(name) if self.has(name) else default

    def flag_or(self, name: str, default: bool) -> bool:  # noqa: FBT001 - A value, no switch.
        """A truth value, or the default."""
        if not self.has(name):
            return default
        return self._typed(name, self.values[name], bool, "true or false")

    def count(self, name: str) -> int:
        """A whole number that must be given."""
        return self._whole(name, self._given(name))

    def count_or(self, name: str, default: int) -> int:
        """A whole number, or the default if it is absent or null."""
        return self.count(name) if self.has(name) else default

    def number_or(self, name: str, default: float) -> float:
        """A number, or the default."""
        if not self.has(name):
            return default
        value = self.values[name]
        if isinstance(value, int):
            value = float(self._whole(name, value))
        if not isinstance(value, float) or not math.isfinite(value):
            raise self._wrong(name, value, "a number")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty if it is absent or null."""
        return [
            self._typed(f"{name}[{at}]", item, str, "a string")
            for at, item in enumerate(self._list(name))
        ]

    def counts(self, name: str) -> list[int]:
        """A list of whole numbers; empty if it is absent or null."""
        return [self._whole(f"{name}[{at}]", item) for at, item in enumerate(self._list(name))]

    def text_map(self, name: str) -> dict[str, str]:
        """An object of strings; empty if it is absent or null."""
        return {
            key: self._typed(f"{name}.{key}", item, str, "a string")
            for key, item in self._object(name).items()
        }

    def count_map(self, name: str) -> dict[str, int]:
        """An object of whole numbers; empty if it is absent or null."""
        return {
            key: self._whole(f"{name}.{key}", item) for key, item in self._object(name).items()
        }

    def plain_map(self, name: str) -> dict[str, Json]:
        """An object of anything; empty if it is absent or null."""
        return self._object(name)

    def objects(self, name: str) -> list["Fields"]:
        """A list of objects; empty if it is absent or null."""
        found = []
        for at, item in enumerate(self._list(name)):
            where = f"{self.where}.{name}[{at}]"
            if not isinstance(item, dict):
                raise self.error(f"{where} is {item!r}; it must be an object")
            found.append(Fields(where, item, self.error))
        return found

    def object(self, name: str, error: type[InvalidArgumentError]) -> "Fields":
        """An object; empty if it is absent or null."""
        return Fields(f"{self.where}.{name}", self._object(name), error)

    def _given(self, name: str) -> Json:
        if not self.has(name):
            raise self.error(f"{self.where}.{name} is missing")
        return self.values[name]

    def _list(self, name: str) -> list[Json]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def _object(self, name: str) -> dict[str, Json]:
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return value

    def _whole(self, name: str, value: Json) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, "a whole number")
        if abs(value) > _WHOLE_MAX:
            raise self.error(
                f"{self.where}.{name} has {len(str(abs(value)))} digits; the largest whole"
                f" number is {_WHOLE_MAX}"
            )
        return value

    def _typed(self, name: str, value: Json, kind: type[_T], told: str) -> _T:
        if not isinstance(value, kind):
            raise self._wrong(name, value, told)
        return value

    def _wrong(self, name: str, value: Json, told: str) -> InvalidArgumentError:
        return self.error(f"{self.where}.{name} is {value!r}; it must be {told}")
