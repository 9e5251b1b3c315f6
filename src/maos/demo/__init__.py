"""The demonstration: three scripted agents, an engine that is killed in the middle, and a proof that nothing is lost.

It goes the ways that everybody goes: a plan file, `maos run`, `maos answer`, `maos resume`, `maos orchestration
merge`. What the agents did is compared with what they wrote down themselves, in files that maos knows nothing of.
"""
