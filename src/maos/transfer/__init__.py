"""A run or a workflow run as one file: written here, and read on another machine, perhaps from a stranger.

`file` is the container: parts with checksums and limits. `contents` says what is in the parts, `membership` which
streams belong to a run, `validation` checks everything that is read, `rebase` replaces the paths and processes of
another machine by those of this one. `exporter` and `bundle_import` are the two directions.
"""
