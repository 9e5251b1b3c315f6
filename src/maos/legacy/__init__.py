"""Runs from the `maos.db` of the original of this idea (the package maos-cli), brought into the journal.

`file` reads the database and believes nothing in it, `understanding` finds the orchestrations in its rows, `importing`
makes runs of them. Nothing else in maos knows of the original.
"""
