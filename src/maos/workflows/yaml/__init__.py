"""Workflows as files: YAML that becomes a plan, executed as any other run."""
