"""The WAN emulator: real connections between the regions of a cluster on one machine."""
