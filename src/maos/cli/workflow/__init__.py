"""`maos workflow`: workflows that survive a crash, as functions and as plan files."""
