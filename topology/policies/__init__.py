"""The placement policies: default, local node, rack-aware, region-aware, zone-aware."""
