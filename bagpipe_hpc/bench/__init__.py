"""`bagpipe bench`: measures the parts and the whole, each beside what the machine or a peer reaches in the same run.

A benchmark is a module with one function, `run(arguments) -> Report`; `command` lists them and their arguments.
"""
