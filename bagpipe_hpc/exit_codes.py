"""Exit codes of commands and ranks (docs/faults.md)."""

EXIT_OK = 0
EXIT_DIFFERENT = 1
"""What was asked for is not so: checkpoints differ, files are damaged, a rank is stale, a set-up is broken."""
EXIT_FAILED = 1
"""A rank failed; the job was aborted."""
EXIT_ERROR = 2
"""An error that the user can cure, said on stderr; argparse uses the same code for usage errors."""
EXIT_INTERRUPTED = 130
"""Ctrl-C, as a shell reports it: 128 + SIGINT."""
