"""A region's relay group: members, coordinator, standby."""
