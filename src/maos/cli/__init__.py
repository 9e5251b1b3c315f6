"""The command line. It asks and shows; what is done is done by the layers below.

Nothing here imports asyncio, a database driver or Rich until a command needs it: `maos --help` answers at once.
"""
