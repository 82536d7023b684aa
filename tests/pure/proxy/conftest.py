"""Sessions in both encodings: a test that asks for `open_session` runs once in each."""

from functools import partial

import pytest

from geolog.wire.session.frames import FRAME_CODECS
from tests.pure.proxy import proxies
from tests.pure.proxy.proxies import OpenSession


@pytest.fixture(params=sorted(FRAME_CODECS))
def open_session(request: pytest.FixtureRequest) -> OpenSession:
    """Opens sessions with one of the subprotocols."""
    return partial(proxies.open_session, subprotocols=(request.param,))
