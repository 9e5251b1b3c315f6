"""Messages between agents: saved before anything is delivered, acknowledged by each who gets them."""
