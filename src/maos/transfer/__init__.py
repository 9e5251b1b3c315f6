"""A run or a workflow as one file: written here, and read on another machine, perhaps from a stranger.

`file` is the container: parts with checksums and limits. `contents` says what is in the parts, `belonging` which
streams are whose, `checking` believes nothing that is read, `fitting` puts the paths and processes of this machine in
the place of another's. `exporting` and `importing` are the two ways; `maos.runs.consent` makes the worktrees.
"""
