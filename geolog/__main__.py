"""`python -P -m geolog`: the command, also as each server's process."""

from geolog.cli.main import main

if __name__ == "__main__":
    main()
