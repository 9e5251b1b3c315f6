"""Workflows as files: YAML that becomes a plan, carried out as any other run."""
