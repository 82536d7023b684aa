"""Scale models: placement at sizes that no test cluster has."""
