"""`python -m maos.mcp`: what an agent's program starts."""

from maos.mcp.server import main

if __name__ == "__main__":
    raise SystemExit(main())
