"""`maos orchestrate` and `maos resume`: many agents at one piece of work, whatever becomes of us."""
