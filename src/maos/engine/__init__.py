"""What makes agents run: attempts, who owns them, and how they go on after a crash."""
