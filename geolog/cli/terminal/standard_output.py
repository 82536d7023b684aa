"""Wraps stdout so that its errors name it: the disk behind it may be full."""

import io
from typing import ClassVar, TextIO


class StandardOutput(io.FileIO):
    """File behind stdout. By itself, an error of a write names no file."""

    SHOWN: ClassVar[str] = "stdout"

    def __init__(self, before: io.TextIOWrapper) -> None:
        super().__init__(before.fileno(), "wb", closefd=False)
        self._before = before  # Keeps it alive: collecting it would close the descriptor.

    def write(self, data: "bytes | bytearray | memoryview", /) -> int | None:  # type: ignore[override]
        """Write some of the bytes."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.SHOWN
            raise


def named_stdout(stdout: TextIO) -> TextIO:
    """Wrap stdout so that its errors name it; return anything but a real file unchanged."""
    if not isinstance(stdout, io.TextIOWrapper):
        return stdout
    stdout.flush()
    file = StandardOutput(stdout)
    return io.TextIOWrapper(
        io.BufferedWriter(file),  # type: ignore[type-var]  # It accepts what any file accepts.
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
