"""Talks to a write proxy by hand: sends each line of stdin, and prints each answer.

    echo '{"value":"hi"}' | python -m sim.processes.demo.talk ws://HOST:PORT/v1/streams/…/append

It knows nothing of geolog; any other WebSocket client does as well.
"""

import sys

import trio
import trio_websocket


async def talk(url: str) -> int:
    """Talk until stdin ends, or the proxy closes; return an exit code."""
    try:
        async with trio_websocket.open_websocket_url(url) as socket:
            tell(await socket.get_message())
            while line := await read_line():
                await socket.send_message(line.rstrip("\n"))
                tell(await socket.get_message())
    except trio_websocket.ConnectionClosed as error:
        tell(f"closed: {error.reason}")
        return 1
    return 0


def tell(answer: str | bytes) -> None:
    """Print an answer at once."""
    text = answer.decode() if isinstance(answer, bytes) else answer
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def read_line() -> str:
    """The next line of stdin; empty at its end."""
    return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


if __name__ == "__main__":
    sys.exit(trio.run(talk, sys.argv[1]))
