"""Runs of many tasks: started from a plan, executed by agents, resumed after anything, and shown as they are."""
