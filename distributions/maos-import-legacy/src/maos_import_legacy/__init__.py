"""Imports orchestrations from the `maos.db` of maos-cli, the predecessor of maos, into the journal.

`file` reads the database and trusts nothing in it, `parser` finds the orchestrations in its rows, `builder` makes
events of them, and `importer` appends these. No other package knows about maos-cli.
"""
