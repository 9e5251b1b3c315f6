"""The holder, a small process that owns an agent's pipes and outlives the engine; and the engine's side of it.

The engine's side is `client`, `agent_process`, `records` and `identity`. The other modules run in the
holder, which is one process per agent and must stay small: at most 12 MB of memory, started in at most three times the
time of a bare interpreter. So they import next to nothing: no asyncio, subprocess, json, re or typing, and not even
`socket` or `signal`, whose enumerations cost more than the whole holder.
"""
