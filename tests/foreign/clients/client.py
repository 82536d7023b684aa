"""A client that knows nothing of geolog but docs/PROXY.md, with asyncio and `websockets`.

    python client.py SUBPROTOCOL STREAM WRITER URL...

It appends numbered records through the proxies until its stdin ends, several at a time, and
prints a line per answer. Then it reads the stream, and prints a report. It goes where a proxy
sends it, and to the next proxy when one is lost.
"""

import asyncio
import json
import sys
from collections import deque
from contextlib import suppress
from urllib.parse import quote, urlsplit

import msgpack
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

SUBPROTOCOL, STREAM, WRITER, *PROXIES = sys.argv[1:]
IS_BINARY = SUBPROTOCOL == "geolog.v1.msgpack"
WINDOW = 8
PAUSE_S = 0.005


def encode(message):
    return msgpack.packb(message) if IS_BINARY else json.dumps(message)


def decode(frame):
    return msgpack.unpackb(frame) if IS_BINARY else json.loads(frame)


def as_text(value):
    return value.decode() if isinstance(value, bytes) else value


class Client:
    def __init__(self):
        self.unanswered = deque()
        self.next = 0
        self.acked = []
        self.read = []
        self.redirects = self.lost = self.duplicates = 0
        self.is_ending = asyncio.Event()

    @property
    def is_done(self):
        return self.is_ending.is_set() and not self.unanswered

    async def append_all(self):
        path = f"/v1/streams/{STREAM}/append?writer={quote(WRITER)}"
        url, turn = PROXIES[0] + path, 0
        while not self.is_done:
            turn += 1
            try:
                async with connect(url, subprotocols=[SUBPROTOCOL]) as socket:
                    location = await self.append(socket)
            except (ConnectionClosed, InvalidHandshake, OSError):
                location = None
            if self.is_done:
                return
            if location is None:
                self.lost += 1
                await asyncio.sleep(0.1)
                lost = urlsplit(url).netloc
                url = f"{PROXIES[turn % len(PROXIES)]}{path}&avoid={lost}"
            else:
                self.redirects += 1
                url = location

    async def append(self, socket: ClientConnection):
        """Append through one proxy; the URL to go to, None if this proxy is lost."""
        first = decode(await socket.recv())
        if first["type"] == "error":
            return self.location_of(first)
        for seq in self.unanswered:  # The log drops those that it has.
            await self.send(socket, seq)
        sending = asyncio.create_task(self.send_more(socket))
        try:
            while not self.is_done:
                message = decode(await socket.recv())
                if message["type"] == "error":
                    return self.location_of(message)
                if message["type"] == "ack":
                    assert message["id"] == self.unanswered.popleft(), "not in order"
                    self.acked.append([message["id"], message["sequence"]])
                    self.duplicates += message["duplicate"]
                    print(f"acked {len(self.acked)}", flush=True)
        finally:
            sending.cancel()
        return None

    def location_of(self, error):
        if not error["retriable"] and error["outcome"] != "unknown":
            raise RuntimeError(error["error"])
        return error.get("location")

    async def send_more(self, socket):
        with suppress(ConnectionClosed):  # The task that receives meets it, too.
            while not self.is_ending.is_set():
                if len(self.unanswered) < WINDOW:
                    self.unanswered.append(self.next)
                    self.next += 1
                    await self.send(socket, self.next - 1)
                await asyncio.sleep(PAUSE_S)
            if not self.unanswered:
                await socket.close()

    async def send(self, socket, seq):
        frame = {"id": seq, "seq": seq, "writer": WRITER, "key": WRITER}
        await socket.send(encode(frame | {"value": f"{WRITER} {seq}"}))

    async def read_all(self):
        url = f"{PROXIES[0]}/v1/streams/{STREAM}/read"
        is_whole = False
        async with connect(url, subprotocols=[SUBPROTOCOL]) as socket:
            async for frame in socket:
                message = decode(frame)
                if message["type"] == "record" and as_text(message["key"]) == WRITER:
                    self.read.append([message["sequence"], as_text(message["value"])])
                is_whole = is_whole or message["type"] == "end"
            assert is_whole, "not read to the end"
            assert socket.close_code == 1000, socket.close_code


async def wait_stdin_ends():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


async def main():
    client = Client()

    async def watch_stdin():
        await wait_stdin_ends()
        client.is_ending.set()

    watching = asyncio.create_task(watch_stdin())
    await client.append_all()
    await watching
    await client.read_all()
    names = ("acked", "read", "redirects", "lost", "duplicates")
    print(json.dumps({name: getattr(client, name) for name in names}))


asyncio.run(main())
