"""The HTTP port's description agrees with what the port does."""

import pytest
from trio.testing import MockClock

from geolog.wire.session.json_records import Json, JsonValue
from geolog.wire.session.paths import APPEND_QUERY, CURSOR_QUERY, OWNER_QUERY, READ_QUERY
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import STREAM, open_world

APPEND = f"/v1/streams/{STREAM}/append"
READ = f"/v1/streams/{STREAM}/read"


def at(document: JsonValue, *steps: str) -> Json:
    """An object in the document."""
    for step in steps:
        assert isinstance(document, dict)
        document = document[step]
    assert isinstance(document, dict)
    return document


def query_of(document: Json, path: str, method: str) -> set[str]:
    """The query parameters that the document has for a path."""
    parameters = at(document, "paths", path, method)["parameters"]
    assert isinstance(parameters, list)
    found = [
        at(document, *str(one["$ref"]).split("/")[1:]) if "$ref" in one else one
        for one in parameters
        if isinstance(one, dict)
    ]
    return {str(one["name"]) for one in found if one["in"] == "query"}


async def test_the_description_has_each_path_with_the_parameters_that_it_takes(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        document = (await client.ask("GET", "/openapi.json")).document
        assert proxy.http is not None
        paths = set(proxy.http.paths)

    assert document["openapi"] == "3.1.0"
    assert set(at(document, "paths")) == paths - {"/", "/openapi.json", "/asyncapi.json"}
    stream = "/v1/streams/{namespace}/{name}"
    assert query_of(document, f"{stream}/append", "post") == APPEND_QUERY
    # Credits and cursors are for WebSockets.
    of_reads = READ_QUERY - {"credit"} - CURSOR_QUERY
    assert query_of(document, f"{stream}/read", "get") == of_reads
    assert query_of(document, "/v1/owner/{namespace}/{name}", "get") == OWNER_QUERY


@pytest.mark.parametrize(
    ("method", "target", "body", "schema"),
    [
        ("GET", "/livez", b"", "Live"),
        ("GET", "/readyz", b"", "Ready"),
        ("GET", f"/v1/owner/{STREAM}", b"", "Owners"),
        ("GET", "/v1/latency", b"", "Latency"),
        ("POST", APPEND, b'{"id":1,"records":[{"value":"a"}]}', "Ack"),
        ("POST", APPEND, b"no JSON", "Error"),
        ("GET", f"{READ}?count=1", b"", "Record"),
    ],
)
async def test_an_answer_has_only_keys_that_the_description_names(
    autojump_clock: MockClock, method: str, target: str, body: bytes, schema: str
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        document = (await client.ask("GET", "/openapi.json")).document
        await client.ask("POST", APPEND, b'{"value":"one"}')
        answer = (await client.ask(method, target, body)).lines[0]

    schemas = at(document, "components", "schemas")
    known = set(at(schemas, schema, "properties"))
    if schema == "Ack":
        known |= set(at(schemas, "Position", "properties"))
    assert answer.keys() <= known


async def test_the_page_shows_every_path_and_loads_nothing_from_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        page = (await client.ask("GET", "/")).body.decode()
        assert proxy.http is not None
        paths = proxy.http.paths

    assert [path for path in paths if path != "/" and path.lstrip("/") not in page] == []
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
