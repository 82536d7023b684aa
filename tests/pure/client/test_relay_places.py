"""Where the relays of a region are: the coordinator first, and what is new is seen."""

from geolog.client.relays.relay_places import RelayPlaces
from geolog.metadata.relays import RelayGroups, RelayMemberRecord, RelayViewRecord
from geolog.transport.seam import Address
from sim.fakes.memory_metadata import open_memory_store


def record(name: str) -> RelayMemberRecord:
    return RelayMemberRecord(relay_id=name, region="us-east", address=Address(name, 1))


async def test_the_coordinator_comes_first_and_others_as_they_joined() -> None:
    async with open_memory_store() as store, store.open_session(10) as metadata:
        groups = RelayGroups(metadata, "default")
        places = RelayPlaces(groups)
        assert await places.find("us-east") == ()
        numbers = [await groups.join(record(name)) for name in ("one", "two", "three")]
        assert [str(one) for one in await places.find("us-east")] == [
            "one:1",
            "two:1",
            "three:1",
        ]
        view = RelayViewRecord(
            epoch=1, number=numbers[1], relay_id="two", address=Address("two", 1)
        )
        assert await groups.claim("us-east", view, seen_version=-1)
        assert [one.host for one in await places.find("us-east")] == ["two", "one", "three"]

        await groups.leave("us-east", numbers[1])
        assert [one.host for one in await places.find("us-east")] == ["one", "three"]
        assert await places.find("eu-west") == ()


async def test_a_claim_that_was_decided_on_an_older_view_is_refused() -> None:
    async with open_memory_store() as store, store.open_session(10) as metadata:
        groups = RelayGroups(metadata, "default")
        numbers = [await groups.join(record(name)) for name in ("one", "two", "three")]

        def view(place: int, epoch: int) -> RelayViewRecord:
            return RelayViewRecord(
                epoch=epoch,
                number=numbers[place],
                relay_id=f"relay-{place}",
                address=Address("relay", place),
            )

        assert await groups.claim("us-east", view(0, 1), seen_version=-1)
        assert await groups.claim("us-east", view(1, 2), seen_version=0)
        assert not await groups.claim("us-east", view(2, 2), seen_version=1)
        assert await groups.claim("us-east", view(2, 3), seen_version=1)
        seen = await groups.look("us-east")

    assert (seen.view_version, seen.view) == (2, view(2, 3))
