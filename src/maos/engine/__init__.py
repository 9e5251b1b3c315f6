"""What makes agents run: attempts, which process owns them, and how they are resumed after a crash."""
