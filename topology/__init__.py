"""The lowest floor: locations, quorums, placement, and the root of all errors; pure."""
