"""Processor time of processes, by the kernel's clocks: in nanoseconds, all threads included."""

import time

_PROCESS_CLOCK = 2
"""The part of a clock's number that selects the time for which a whole process ran."""


def processor_s(pid: int) -> float:
    """Processor time of a running process so far.

    Linux numbers the clock of another process as clock_getcpuclockid(3) does, which Python does
    not offer. /proc gives the same time in hundredths of a second only.
    """
    return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
