"""`python -m ropeway` is the `ropeway` command."""

from ropeway.cli import main

main()
