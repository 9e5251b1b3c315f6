"""The systems maos is measured against, one small adapter each: documented defaults, full durability."""
