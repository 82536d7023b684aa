"""The demo on real input: writes flights, kills a region, and shows that nothing is lost."""
