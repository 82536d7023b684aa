"""A proxy's description: `/openapi.json` and `/asyncapi.json` for programs, `/` for people.

`openapi.json` describes HTTP, `asyncapi.json` WebSockets; both have the same schemas. Tests
compare the documents with the routes, with the queries that they take and with the messages of
sessions. The page is made of the first one, and loads nothing from anywhere else.
"""

import html
import json
from collections.abc import Iterator
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from geolog.wire.session.json_records import Json, JsonValue

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
code {{ font-size: 95% }} h2 {{ font-size: 110%; margin-top: 2em }}
table {{ border-collapse: collapse }}
td {{ border-top: 1px solid #ccc; padding: .2em 1em .2em 0; vertical-align: top }}
</style>
<h1>{title}</h1>
<p>{description} The whole description is <a href="/openapi.json">openapi.json</a>, that of
WebSockets <a href="/asyncapi.json">asyncapi.json</a>.</p>
{operations}
</html>
"""


class Description:
    """The three endpoints."""

    def __init__(self) -> None:
        self._http = _text_of("openapi.json")
        self._page = page_of(json.loads(self._http))
        self._sockets = _text_of("asyncapi.json")

    async def openapi(self, _request: Request) -> Response:
        """Answer with the document about HTTP."""
        return Response(self._http, media_type="application/json")

    async def asyncapi(self, _request: Request) -> Response:
        """Answer with the document about WebSockets."""
        return Response(self._sockets, media_type="application/json")

    async def page(self, _request: Request) -> Response:
        """Answer with the page."""
        return HTMLResponse(self._page)


def _text_of(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def page_of(document: Json) -> str:
    """The page for a document."""
    info = _object(document["info"])
    operations = [
        _operation(document, method, path, _object(operation))
        for path, methods in _object(document["paths"]).items()
        for method, operation in _object(methods).items()
    ]
    return _PAGE.format(
        title=_text(info["title"]),
        description=_text(info["description"]),
        operations="\n".join(operations),
    )


def _operation(document: Json, method: str, path: str, operation: Json) -> str:
    found = operation.get("parameters", [])
    assert isinstance(found, list)
    parameters = [_resolved(document, one) for one in found]
    answers = [
        (code, _resolved(document, answer)["description"])
        for code, answer in _object(operation["responses"]).items()
    ]
    body = _object(operation.get("requestBody", {}))
    sent = f"<p>Body: {_text(body['description'])}</p>" if body else ""
    return (
        f"<h2><code>{method.upper()} {_text(path)}</code></h2>\n"
        f"<p>{_text(operation['summary'])}.</p>\n{sent}"
        f"{_table((one['name'], one['description']) for one in parameters)}"
        f"{_table(answers)}"
    )


def _table(rows: Iterator[tuple[JsonValue, JsonValue]] | list[tuple[str, JsonValue]]) -> str:
    cells = "".join(
        f"<tr><td><code>{_text(name)}</code></td><td>{_text(words)}</td></tr>\n"
        for name, words in rows
    )
    return f"<table>\n{cells}</table>\n" if cells else ""


def _resolved(document: Json, found: JsonValue) -> Json:
    """The object, or the one that its `$ref` names."""
    one = _object(found)
    reference = one.get("$ref")
    if not isinstance(reference, str):
        return one
    place: JsonValue = document
    for step in reference.removeprefix("#/").split("/"):
        place = _object(place)[step]
    return _object(place)


def _object(found: JsonValue) -> Json:
    assert isinstance(found, dict)
    return found


def _text(found: JsonValue) -> str:
    return html.escape(str(found))
