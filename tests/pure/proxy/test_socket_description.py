"""The description of the WebSocket sessions agrees with what they take and send."""

import json
from collections.abc import Iterator
from typing import get_args

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.wire.session.documents import FromClient, FromProxy, message_of
from geolog.wire.session.json_records import Json, JsonValue
from geolog.wire.session.messages import (
    Ack,
    AppendRequest,
    Credit,
    CursorCommit,
    CursorCommitted,
    CursorLeave,
    ErrorAnswer,
    Goaway,
    ReadEnd,
    SessionHello,
)
from geolog.wire.session.paths import APPEND_QUERY, READ_QUERY
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import Frame, OpenSession, open_proxy
from tests.pure.whole.clusters import STREAM, open_world

APPEND = f"/v1/streams/{STREAM}/append"
READ = f"/v1/streams/{STREAM}/read"

FROM_CLIENT = {
    "append": AppendRequest,
    "credit": Credit,
    "commit": CursorCommit,
    "leave": CursorLeave,
}
FROM_PROXY = {
    "hello": SessionHello,
    "ack": Ack,
    "error": ErrorAnswer,
    "goaway": Goaway,
    "end": ReadEnd,
    "committed": CursorCommitted,
}
READ_LINES = {"record", "gap"}


@attrs.frozen
class Documents:
    """The two descriptions that a proxy serves; one refers to the other."""

    sockets: Json
    http: Json

    def resolved(self, found: JsonValue, *, is_http: bool = False) -> Json:
        """The object, or the one that its `$ref` names."""
        assert isinstance(found, dict)
        reference = found.get("$ref")
        if reference is None:
            return found
        file, _, steps = str(reference).partition("#/")
        assert file in ("", "openapi.json"), f"{reference}: no such file"
        is_http = is_http or file == "openapi.json"
        place: JsonValue = self.http if is_http else self.sockets
        for step in steps.split("/"):
            assert isinstance(place, dict), reference
            assert step in place, f"{reference} leads nowhere"
            place = place[step]
        return self.resolved(place, is_http=is_http)

    def keys_of(self, schema: JsonValue, *, is_http: bool = False) -> set[str]:
        """The properties of a schema and of those that it is made of."""
        is_http = is_http or (
            isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("openapi.json")
        )
        found = self.resolved(schema, is_http=is_http)
        properties, parts = found.get("properties", {}), found.get("allOf", [])
        assert isinstance(properties, dict)
        assert isinstance(parts, list)
        return set(properties).union(*(self.keys_of(one, is_http=is_http) for one in parts))

    def message_keys(self, name: str) -> set[str]:
        """The keys of a message."""
        return self.keys_of(_at(self.sockets, "components", "messages", name)["payload"])


def _at(document: JsonValue, *steps: str) -> Json:
    for step in steps:
        assert isinstance(document, dict)
        document = document[step]
    assert isinstance(document, dict)
    return document


def references_in(document: JsonValue) -> Iterator[Json]:
    """Every object that refers to another."""
    if isinstance(document, dict):
        if "$ref" in document:
            yield document
        for one in document.values():
            yield from references_in(one)
    elif isinstance(document, list):
        for one in document:
            yield from references_in(one)


def examples_of(documents: Documents, name: str) -> list[Json]:
    found = _at(documents.sockets, "components", "messages", name)["examples"]
    assert isinstance(found, list)
    return [_at(one, "payload") for one in found]


@pytest.fixture(scope="module")
def documents() -> Documents:
    """Both documents, as a proxy serves them."""
    return trio.run(served_documents, clock=MockClock(autojump_threshold=0))


async def served_documents() -> Documents:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        return Documents(
            (await client.ask("GET", "/asyncapi.json")).document,
            (await client.ask("GET", "/openapi.json")).document,
        )


def test_it_has_each_path_with_the_parameters_that_it_takes(documents: Documents) -> None:
    channels = _at(documents.sockets, "channels")
    asked = {
        str(_at(channels, name)["address"]): set(
            _at(channels, name, "bindings", "ws", "query", "properties")
        )
        for name in channels
    }

    assert documents.sockets["asyncapi"] == "3.0.0"
    assert asked == {
        "/v1/streams/{namespace}/{name}/append": APPEND_QUERY,
        "/v1/streams/{namespace}/{name}/read": READ_QUERY,
    }


def test_it_has_each_message_and_no_other(documents: Documents) -> None:
    messages = _at(documents.sockets, "components", "messages")

    assert set(FROM_CLIENT.values()) == set(get_args(FromClient))
    assert set(FROM_PROXY.values()) == set(get_args(FromProxy))
    assert set(messages) == FROM_CLIENT.keys() | FROM_PROXY.keys() | READ_LINES


def test_every_reference_leads_somewhere(documents: Documents) -> None:
    references = list(references_in(documents.sockets))

    assert len(references) > 40
    assert all(documents.resolved(one) for one in references)


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_an_example_of_a_client_is_taken_as_that_message(
    documents: Documents, name: str
) -> None:
    for example in examples_of(documents, name):
        assert type(message_of(example)) is FROM_CLIENT[name]
        assert example.keys() <= documents.message_keys(name)


@pytest.mark.parametrize("name", sorted(FROM_PROXY.keys() | READ_LINES))
def test_an_example_of_the_proxy_has_the_keys_of_its_message(
    documents: Documents, name: str
) -> None:
    for example in examples_of(documents, name):
        assert example["type"] == name
        assert example.keys() <= documents.message_keys(name)


async def test_a_session_sends_only_keys_that_the_description_names(
    autojump_clock: MockClock, documents: Documents, open_session: OpenSession
) -> None:
    sent: list[Frame] = []
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        async with open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client:
            sent.append(await client.receive())
            sent.append(await client.ask(id=1, value="a", ack="received"))
            sent.append(await client.ask(id=2, records=[{"value": "b"}, {"value": "c"}]))
            sent.append(await client.ask(id=3, value="d", expect_sequence=9))
        async with open_session(world.cluster, proxy, f"{READ}?cursor=books") as client:
            sent += [await client.receive() for _ in range(5)]
            await client.send(type="commit", id=7, sequence=2)
            sent += await client.receive_all()

    types = [str(frame["type"]) for frame in sent]
    assert types == [
        *("hello", "ack", "ack", "error"),
        *("hello", "record", "record", "record", "end", "committed"),
    ]
    strange = [
        (name, key)
        for name, frame in zip(types, sent, strict=True)
        for key in frame.keys() - documents.message_keys(name)
    ]
    assert strange == []


def test_both_descriptions_say_the_same_of_a_query(documents: Documents) -> None:
    sockets = _at(
        documents.sockets, "channels", "read", "bindings", "ws", "query", "properties"
    )
    path = "/v1/streams/{namespace}/{name}/read"
    parameters = _at(documents.http, "paths", path, "get")["parameters"]
    assert isinstance(parameters, list)
    for parameter in parameters:
        found = documents.resolved(parameter, is_http=True)
        if found["in"] == "query" and found["name"] != "partition":
            told = dict(_at(found, "schema"), description=found["description"])
            assert json.dumps(sockets[str(found["name"])], sort_keys=True) == json.dumps(
                told, sort_keys=True
            )
