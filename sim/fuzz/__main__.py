"""`python -P -m sim.fuzz NAME --duration 10m`: one parser under atheris, or one input again.

`make fuzz` installs atheris, from requirements-fuzz.lock, apart from all else. An input that
meets a bug is written to `fuzz-NAME-…` in the working directory; give it as `--input`.
"""

import argparse
import importlib
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

from geolog.settings.quantities import parse_seconds

_INSTRUMENTED = ["geolog", "relay", "regions", "topology", "h11", "hypercorn"]


class _Atheris(Protocol):
    """The parts of atheris that are used; it publishes no types."""

    def instrument_imports(self, include: list[str]) -> AbstractContextManager[None]: ...

    def Setup(self, argv: list[str], test_one: object) -> None: ...  # noqa: N802

    def Fuzz(self) -> None: ...  # noqa: N802


class _Parsers(Protocol):
    """`sim.fuzz.parsers`, which is imported only when it can be instrumented."""

    PARSERS: dict[str, object]

    def parse(self, name: str, data: bytes) -> None: ...

    def seeds_of(self, name: str) -> list[bytes]: ...


def main() -> int:
    """Fuzz until the time is over or a bug is met; atheris ends the process."""
    asked = _arguments().parse_args()
    if asked.input is not None:
        _parsers_with(asked.name).parse(asked.name, asked.input.read_bytes())
        sys.stdout.write(f"{asked.name}: {asked.input} meets no bug\n")
        return 0
    try:
        atheris = cast("_Atheris", importlib.import_module("atheris"))
    except ModuleNotFoundError:
        sys.stderr.write("sim.fuzz: atheris is not installed: use `make fuzz`\n")
        return 2
    with atheris.instrument_imports(include=_INSTRUMENTED):
        parsers = _parsers_with(asked.name)
    asked.corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parsers.seeds_of(asked.name)):
        (asked.corpus / f"seed-{number}").write_bytes(seed)
    seconds = max(1, int(parse_seconds(asked.duration)))
    options = [f"-max_total_time={seconds}", f"-artifact_prefix=fuzz-{asked.name}-"]
    options += ["-max_len=4096", "-print_final_stats=1", str(asked.corpus)]
    atheris.Setup([sys.argv[0], *options], lambda data: parsers.parse(asked.name, data))
    atheris.Fuzz()
    return 0


def _parsers_with(name: str) -> _Parsers:
    parsers = cast("_Parsers", importlib.import_module("sim.fuzz.parsers"))
    if name not in parsers.PARSERS:
        sys.exit(f"sim.fuzz: no parser {name!r}: give {', '.join(parsers.PARSERS)}")
    return parsers


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -P -m sim.fuzz", description=__doc__)
    parser.add_argument("name", help="the parser, e.g. json; any other word lists them")
    parser.add_argument("--duration", default="10m", help="how long, e.g. 10m (default)")
    parser.add_argument("--input", type=Path, help="a file to parse once, in place of fuzzing")
    parser.add_argument(
        "--corpus", type=Path, default=Path("fuzz-corpus"), help="where inputs are kept"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
