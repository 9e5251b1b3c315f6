"""The small process that owns an agent's pipes and outlives the engine.

Everything in this folder runs in the holder, which is one process per agent and must stay small: at most 12 MB of
memory, started in at most three times the time of a bare interpreter. So it imports next to nothing: no asyncio,
subprocess, json, re, typing, and not even `socket` or `signal`, whose enumerations cost more than the whole holder.
"""
