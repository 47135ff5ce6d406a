"""Runs `python -m MODULE ARGUMENT...`, as it is given, in this process: a launcher in front of it is that of a fork."""

import runpy
import sys

if __name__ == "__main__":
    _, option, module, *arguments = sys.argv[1:]
    assert option == "-m", sys.argv
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
