"""Refuse to run if a foreign module has the name of one of our top-level packages.

`topology`, `relay`, `regions` and `sim` are common words. A file of that name in the directory
that a program is started from comes first on the import path and would shadow our package, with
a misleading error. So the first import of `geolog` checks where each sibling would come from,
without running its code.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

SIBLINGS = ("regions", "relay", "sim", "topology")


def check_siblings(home: Path) -> None:
    """Raise ImportError unless every sibling package is in `home`, next to geolog itself.

    It is an ImportError and not a GeologError because the root of those is in a sibling.
    """
    for name in SIBLINGS:
        ours = home / name / "__init__.py"
        found = _file_of(name)
        if found is None or found.resolve() != ours.resolve():
            raise ImportError(
                f"geolog's package {name!r} is {ours}, but 'import {name}' finds "
                f"{found or 'nothing'}. Rename that file, or keep its directory off the import "
                f"path: run 'python -P -m geolog', or start from another directory.",
                name=name,
                path=str(found),
            )


def _file_of(name: str) -> Path | None:
    """The file that `import name` gives or would give; None when there is no such module."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return Path(loaded.__file__) if loaded.__file__ else None
    spec = find_spec(name)
    return Path(spec.origin) if spec is not None and spec.origin else None
