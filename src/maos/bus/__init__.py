"""Messages between agents: saved before they are delivered, and acknowledged by each recipient."""
