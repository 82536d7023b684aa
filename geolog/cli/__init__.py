"""The command `geolog NOUN VERB`: one file per noun, each imported only when it is used."""
