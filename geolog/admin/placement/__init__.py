"""Placement of streams: show, judge and repair it; forbid and allow regions."""
