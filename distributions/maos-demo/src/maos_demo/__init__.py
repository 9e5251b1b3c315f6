"""The demonstration: three scripted agents, an engine that is killed while they work, and a proof that nothing is lost.

It uses the commands that everyone uses: a plan file, `maos run`, `maos answer`, `maos resume` and
`maos merge`. The proof compares what maos recorded with notes that the agents wrote themselves.
"""
