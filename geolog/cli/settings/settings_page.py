"""Writes docs/SETTINGS.md from the classes that hold the settings, so that neither can drift.

`python -P -m geolog.cli.settings.settings_page > docs/SETTINGS.md` writes it. Each setting is
described by the sentence below its field in the class, read from the source.
"""

import ast
import inspect
import sys
import textwrap
from itertools import pairwise

from geolog.cli.settings.sources import ROLES, Role, Setting, ValueKind, settings_of

_HEAD = """\
# Settings

<!-- Made by `python -P -m geolog.cli.settings.settings_page`; a test compares. -->

A flag wins over the environment, that over the profile chosen with `--profile`, that over the
file (`--config`, else `$GEOLOG_CONFIG`, else `./geolog.toml`), that over the default.
`geolog config show --origin` tells which place decided each setting, `geolog config lint` what
is wrong. An unknown key is an error that names the nearest known one.

Times, sizes and rates carry a unit: `80ms`, `30s`, `7d`; `64MiB`, `1GB`; `20MB/s`.

```toml
zookeeper = "127.0.0.1:2181"
timeout = "10s"

[profile.test]
zookeeper = "127.0.0.1:12181"

[serve.storage]
journal_file_bytes = "64MiB"
```
"""


def settings_page() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(role) for role in ROLES)


def _section(role: Role) -> str:
    title = f"`[{role.table}]`" if role.table else "All commands"
    meanings = _meanings(role.settings_class())
    what = inspect.getdoc(role.settings_class()) or ""
    rows = "".join(_row(setting, meanings) for setting in settings_of(role))
    return (
        f"\n## {title}\n\n{what}\n\n"
        f"| key | default | environment | what it means |\n|---|---|---|---|\n{rows}"
    )


def _row(setting: Setting, meanings: dict[str, str]) -> str:
    default = setting.show(setting.default)
    key = setting.key.rpartition(".")[2]
    meaning = meanings[setting.field].replace("|", "\\|")
    kind = (
        ""
        if setting.kind in (ValueKind.TEXT, ValueKind.CHOICE)
        else f" *({setting.kind.value})*"
    )
    shown = f"`{default}`" if default else "–"
    return f"| `{key}` | {shown} | `{setting.environment_name}` | {meaning}{kind} |\n"


def _meanings(settings_class: type) -> dict[str, str]:
    """The sentence below each field of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(settings_class)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


if __name__ == "__main__":
    sys.stdout.write(settings_page())
