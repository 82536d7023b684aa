"""What `append_nowait` raises while the window is full: trio's own, under either surface."""

from trio import WouldBlock

__all__ = ["WouldBlock"]
