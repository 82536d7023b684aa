"""Operating a cluster: nodes, replacement, inspecting ledgers, repair, health."""
