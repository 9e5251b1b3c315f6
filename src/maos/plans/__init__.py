"""Plans as files: YAML, TOML or JSON text becomes a validated plan, and what is wrong is named by line and column."""
