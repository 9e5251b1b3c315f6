"""A run or a workflow run as one file: written here, and read on another machine, perhaps from a stranger.

`bundle` is the file: parts with checksums and limits, and what is in them. `validation` says which streams belong to a
run and checks everything that is read. `bundle_import` brings it here, with the paths and processes of this machine in
the place of another's. `service` exports, and is what programs call; `importers` are those of other programs' runs.
"""
