"""The lowest floor: locations, quorums, placement; pure. The root of all errors is here too."""
