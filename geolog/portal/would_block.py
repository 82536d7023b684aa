"""The error of `append_nowait` while the window is full: trio's own, on every surface."""

from trio import WouldBlock

__all__ = ["WouldBlock"]
