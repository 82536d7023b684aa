"""Settings that all tests share: Hypothesis profiles, the place of demos, and Ctrl-C."""

import gc
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Derandomized: the same commit gives the same verdict on every machine. Use the profile
# `thorough` for a wider search. No deadline: a busy machine is not a failure.
_REPEATABLE = settings(
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", _REPEATABLE, max_examples=25)
settings.register_profile("default", _REPEATABLE, max_examples=100)
settings.register_profile("thorough", _REPEATABLE, max_examples=5000)
settings.load_profile("default")


_YOUNG_OBJECTS_MAX = 10_000


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and never look at what is there before the first test.

    Modules and collected tests are a million objects: looking at all of them again and again
    took a tenth of the time of small tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS_MAX)


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests, and their processes, away from a demo that runs on this machine."""
    directory = str(tmp_path_factory.mktemp("tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed SIGINT, here and in the processes that the test starts, as in the foreground.

    A script starts background processes with SIGINT ignored, and their children inherit that:
    no test of Ctrl-C would end.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
