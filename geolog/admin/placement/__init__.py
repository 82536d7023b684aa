"""Where a stream's copies lie: shown, judged, repaired; regions forbidden and allowed."""
