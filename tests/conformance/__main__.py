"""Check whether a proxy keeps to what docs/PROXY.md says: `python -m tests.conformance URL…`.

    geolog stream create conformance/vectors
    python -m tests.conformance ws://HOST:PORT http://HOST:PORT

With `--other ws://HOST:PORT`, another proxy of the cluster, it also plays redirects, and with
`--drain COMMAND` what a proxy says that ends.

It plays the vectors in tests/conformance/vectors against the proxy, any that claims to speak
this protocol, and prints a table. Exit code 1 if one failed, 2 if it was called wrongly. Nobody
else may append to the stream meanwhile.
"""

import argparse
import secrets  # noqa: TID251 - names that no earlier run has used.
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import attrs
import trio

from tests.conformance.notation import NotationError
from tests.conformance.player import Outcome, Target, play_all
from tests.conformance.vector_files import HTTP, Vector, vectors_in

STREAM = "conformance/vectors"


def main(arguments: Sequence[str]) -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Play the conformance vectors against a live proxy.",
    )
    parser.add_argument(
        "urls",
        nargs="+",
        metavar="URL",
        help="Address of the proxy's WebSockets, e.g. ws://127.0.0.1:7070, of its HTTP port,"
        " e.g. http://127.0.0.1:7080, or both. Vectors without a URL are not played.",
    )
    parser.add_argument(
        "--stream",
        default=STREAM,
        help="Existing stream of one partition to append to (default: %(default)s).",
    )
    parser.add_argument(
        "--only", default="", metavar="NAME", help="Play the vectors whose name has this text."
    )
    parser.add_argument(
        "--other", metavar="URL", help="WebSockets of another proxy of the same cluster."
    )
    parser.add_argument(
        "--drain",
        metavar="COMMAND",
        help="Shell command that makes the proxy end in good order, as SIGTERM does; run last.",
    )
    given = parser.parse_args(arguments)
    try:
        target = attrs.evolve(
            target_of(given.urls, given.stream),
            other=None if given.other is None else target_of([given.other], "").websocket,
            drain=given.drain,
        )
        vectors = [one for one in vectors_in() if given.only in one.name]
    except (ValueError, NotationError) as error:
        parser.error(str(error))
    outcomes = trio.run(play_all, vectors, target, f"run-{secrets.token_hex(4)}")
    sys.stdout.write(table_of(vectors, outcomes, target))
    return int(not outcomes or any(one.failure is not None for one in outcomes))


def target_of(urls: Sequence[str], stream: str) -> Target:
    """The proxy that these URLs name. ValueError."""
    by_scheme: dict[str, str] = {}
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "http") or not parts.netloc:
            raise ValueError(f"{url!r} is neither ws://HOST:PORT nor http://HOST:PORT")
        if parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} has a path: give ws://HOST:PORT or http://HOST:PORT")
        if parts.scheme in by_scheme:
            raise ValueError(f"{url!r} is the second {parts.scheme} URL: give one of each kind")
        by_scheme[parts.scheme] = f"{parts.scheme}://{parts.netloc}"
    return Target(websocket=by_scheme.get("ws"), http=by_scheme.get("http"), stream=stream)


def table_of(vectors: Sequence[Vector], outcomes: Sequence[Outcome], target: Target) -> str:
    """The rows of all vectors, what failed, and the count."""
    width = max((len(one.title) for one in vectors), default=0)
    rows = [
        f"{one.vector.title:<{width}}  {one.case:<17}  {'FAILED' if one.failure else 'ok'}"
        for one in outcomes
    ]
    failures = [one for one in outcomes if one.failure is not None]
    told = [f"{one.vector.name}, {one.case}: {one.failure}" for one in failures]
    cases = sorted({case for one in vectors for case in one.cases if not target.takes(case)})
    left_out = [
        f"not played: {case} (no {'http' if case == HTTP else 'ws'}:// URL)" for case in cases
    ]
    needs = sorted({one.needs for one in vectors if one.needs and not target.has(one.needs)})
    left_out += [f"not played: what needs {one}" for one in needs]
    count = f"{len(outcomes) - len(failures)} of {len(outcomes)} passed"
    parts = [rows, told, [*left_out, count]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
