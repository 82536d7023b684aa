"""The benchmark of hedged reads: what a late replica costs under several policies."""
