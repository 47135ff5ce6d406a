"""Packages and native code of bagpipe_hpc; everything else about the package is in pyproject.toml.

The native code is plain shared libraries with a C interface, one a file of `bagpipe_hpc/kernels/csrc`, loaded by
`bagpipe_hpc.kernels.shared_library`. `BAGPIPE_BUILD_CUDA` is `auto` (the .cu files too where nvcc is found), `1` (they
must build) or `0` (they are left out). `BAGPIPE_CXX_FLAGS` adds flags to those of the C++ files, such as a sanitizer's.
"""

import os
import shutil
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CSRC = Path("bagpipe_hpc/kernels/csrc")
# No fused multiply-add: results must not depend on how code was vectorised (bagpipe_hpc/kernels/rows/reference.py).
CXX_FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
CXX_FLAGS += ["-fno-math-errno"]  # a root is one instruction
# CPython adds -fwrapv for code of its own: signed numbers wrap around. That slows loops and hides overflow from UBSan.
CXX_FLAGS += ["-fno-wrapv"]
ADDED_FLAGS = os.environ.get("BAGPIPE_CXX_FLAGS", "").split()
NVCC_FLAGS = ["-std=c++17", "-O3", "--fmad=false", "-shared", "--threads=0", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
NVCC_FLAGS += [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in (80, 90)]
NVCC_FLAGS += ["-gencode=arch=compute_90,code=compute_90"]  # PTX, for GPUs that come later


class BuildLibraries(build_ext):
    """Builds each extension as a library without an ABI tag in its name; `.cu` files with nvcc."""

    def get_ext_filename(self, fullname: str) -> str:
        """Where the library goes, such as `bagpipe_hpc/kernels/_planner.so`."""
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        """Compile one library if a source or header is newer."""
        if not ext.sources[0].endswith(".cu"):
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        inputs = [Path(path) for path in (*ext.sources, *ext.depends)]
        if self.force or not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in inputs):
            self.spawn(["nvcc", *NVCC_FLAGS, "-o", str(target), *ext.sources])


class AnyPython(bdist_wheel):
    """Gives a wheel the name of one for all versions of Python: the libraries know nothing of it."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


def wants_cuda() -> bool:
    """Whether the .cu files are built; see the module's docstring."""
    switch = os.environ.get("BAGPIPE_BUILD_CUDA", "auto")
    if switch not in ("auto", "0", "1"):
        raise SystemExit(f"BAGPIPE_BUILD_CUDA={switch}: use auto, 0 or 1")
    if switch == "1" and not shutil.which("nvcc"):
        raise SystemExit("BAGPIPE_BUILD_CUDA=1, but no nvcc is on PATH: load the CUDA toolkit, or use auto or 0")
    return switch != "0" and shutil.which("nvcc") is not None


def libraries() -> list[Extension]:
    """One library a C++ file, and one of all CUDA files."""
    headers = [str(path) for pattern in ("*.h", "*.inc", "*.cuh") for path in sorted(CSRC.rglob(pattern))]
    found = [
        Extension(
            f"bagpipe_hpc.kernels._{path.stem}",
            [str(path)],
            depends=headers,
            language="c++",
            extra_compile_args=[*CXX_FLAGS, *ADDED_FLAGS],
            extra_link_args=["-pthread", "-ldl", *ADDED_FLAGS],
        )
        for path in sorted(CSRC.glob("*.cpp"))
    ]
    cuda = [str(path) for path in sorted(CSRC.glob("*.cu"))]
    if cuda and wants_cuda():
        found.append(Extension("bagpipe_hpc.kernels._cuda", cuda, depends=headers))
    return found


setup(
    packages=find_packages(include=["bagpipe_hpc", "bagpipe_hpc.*", "data_prep", "data_prep.*"]),
    ext_modules=libraries(),
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": AnyPython},
)
