"""Words that users of Kafka, NATS and Pulsar type, and the commands of geolog they mean."""

from collections.abc import Iterable, Mapping

_NOUNS: Mapping[str, str] = {
    "topic": "stream",
    "topics": "stream ls",
    "log": "stream",
    "streams": "stream ls",
    "create": "stream create",
    "list": "stream ls",
    "ls": "stream ls",
    "rm": "stream delete",
    "remove": "stream delete",
    "delete": "stream delete",
    "describe": "stream describe",
    "produce": "append",
    "producer": "append",
    "publish": "append",
    "pub": "append",
    "put": "append",
    "send": "append",
    "write": "append",
    "consume": "read",
    "consumer": "read",
    "subscribe": "read --follow",
    "sub": "read --follow",
    "tail": "read --follow",
    "watch": "read --follow",
    "get": "read",
    "group": "cursor",
    "groups": "cursor ls",
    "consumer-groups": "cursor ls",
    "subscription": "cursor",
    "offset": "cursor",
    "offsets": "cursor",
    "mirror": "relay",
    "mirrors": "relay status",
    "health": "cluster health",
    "status": "cluster health",
    "nodes": "node ls",
    "broker": "node",
    "brokers": "node ls",
    "bookie": "node",
    "bookies": "node ls",
    "regions": "region ls",
    "ledgers": "ledger",
    "benchmark": "bench",
    "perf": "bench",
    "completion": "generate completion",
    "start": "serve",
    "server": "serve",
}
_VERBS: Mapping[str, str] = {
    "list": "ls",
    "rm": "delete",
    "remove": "delete",
    "del": "delete",
    "drop": "delete",
    "show": "describe",
    "info": "describe",
    "inspect": "describe",
    "get": "describe",
    "add": "create",
    "make": "create",
    "new": "create",
    "alter": "update",
    "edit": "update",
    "set": "update",
    "purge": "truncate",
    "trim": "truncate",
    "reset": "seek",
    "reset-offsets": "seek",
    "close": "seal",
}


def meant_elsewhere(word: str, known: Iterable[str]) -> str | None:
    """The command that this word means in a system like geolog; None if it means none of these.

    known: the commands that can stand here; the first word of the answer is one of them.
    """
    names = set(known)
    meanings = (table.get(word.lower()) for table in (_VERBS, _NOUNS))
    return next((one for one in meanings if one is not None and one.split()[0] in names), None)
