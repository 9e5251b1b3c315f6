"""Encryption at rest: how bodies are sealed, which keys seal them, and where the key comes from that wraps those."""
