"""The pure part: plans, events, folds, failures, questions. No I/O, no clock, no chance."""
