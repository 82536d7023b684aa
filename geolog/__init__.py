"""A log that spans regions: what is acknowledged outlives the loss of a whole region."""

from pathlib import Path

from geolog.siblings import check_siblings

check_siblings(Path(__file__).parent.parent)
