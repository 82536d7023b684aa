"""Writes and jobs connect from the region of the machine, and say where it is named."""

import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from geolog.client.standing import NoSuchRegionError
from geolog.spark import connecting
from geolog.spark.connecting import connect_here
from geolog.spark.sink_options import SinkOptions


@pytest.mark.parametrize(("region", "is_told"), [(None, True), ("mars", False)])
async def test_an_unknown_region_of_the_machine_is_told_with_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, *, region: str | None, is_told: bool
) -> None:
    @asynccontextmanager
    async def refuse(**options: str | None) -> AsyncIterator[None]:
        if options:
            raise NoSuchRegionError(f"there is no region {options['region']!r}")
        yield

    monkeypatch.setattr(connecting, "connect", refuse)
    monkeypatch.setenv("GEOLOG_REGION", "pluto")
    with pytest.raises(NoSuchRegionError) as refused:
        async with connect_here(SinkOptions(zookeeper="127.0.0.1:2181", region=region)):
            pass

    assert ("Correct GEOLOG_REGION" in str(refused.value)) == is_told
    assert (platform.node() in str(refused.value)) == is_told
    assert ("'pluto'" in str(refused.value)) == is_told
