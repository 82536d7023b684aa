"""Says in plain words that a worker of Spark lacks geolog.

Spark sends objects to workers by the names of their classes. Without geolog a worker would fail
inside Spark's code, with an error that names a module and no machine. So the function below
travels whole, and looks first.
"""

import pickle
import sys
from collections.abc import Callable

from pyspark.cloudpickle import register_pickle_by_value

Reduced = tuple[Callable[[bytes, str], object], tuple[bytes, str]]
"""A function and its arguments, as `__reduce__` gives them."""


def checked_on_arrival(one: object) -> Reduced:
    """The object as it travels: for `__reduce__`."""
    return unpickled, (pickle.dumps((type(one), one.__dict__)), sys.executable)


def unpickled(pickled: bytes, python: str) -> object:
    """The object again. RuntimeError says which worker cannot have it, and why.

    python: the driver's.
    """
    import pickle  # Nothing of this module is there but this function.
    import platform
    import sys

    try:
        import geolog.spark.data_source  # noqa: F401 - Fails if anything is missing.
    except ImportError as error:
        raise RuntimeError(
            f"a worker of Spark cannot read geolog: {error}. Its Python is {sys.executable} on"
            f" {platform.node()}; the driver's is {python}. Install geolog[spark] there, or set"
            " PYSPARK_PYTHON to a Python that has it"
        ) from None
    kind, state = pickle.loads(pickled)
    found: object = kind.__new__(kind)
    found.__dict__.update(state)
    return found


register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call] # Spark's copy.
