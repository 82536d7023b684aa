"""The demo: writes real flights, kills a region, and checks that nothing is lost."""
