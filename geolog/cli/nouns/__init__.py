"""One file for each noun of the command, imported only when it is used."""
