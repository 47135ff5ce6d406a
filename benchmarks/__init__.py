"""Measures the parts and the whole, each beside what the machine or a peer reaches in the same run.

`python -m benchmarks NAME`, in a checkout. A benchmark is a module with one function, `run(arguments) -> Report`;
`command` lists them and their arguments.
"""
