"""Package list of bagpipe_hpc; everything else about the package is in pyproject.toml."""

from setuptools import find_packages, setup

setup(packages=find_packages(include=["bagpipe_hpc", "bagpipe_hpc.*", "data_prep", "data_prep.*"]))
