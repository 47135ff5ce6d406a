#!/usr/bin/env bash
# Build a Horovod wheel (PyTorch and MPI only) in the active virtual environment.
#
#   build_horovod.sh OUTPUT_FOLDER LOG_FILE
#
# The environment holds torch, the MPI compiler wrapper mpicxx (or one is on PATH), numpy, cffi, packaging, setuptools and
# wheel. HOROVOD_GPU_OPERATIONS=NCCL in the environment builds the NCCL operations as well.
set -euo pipefail

version=0.28.1
output=${1:?usage: build_horovod.sh OUTPUT_FOLDER LOG_FILE}
log=${2:?usage: build_horovod.sh OUTPUT_FOLDER LOG_FILE}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A compiler that reads torch's headers takes up to 2 GiB, so memory limits the jobs as well as cores do.
jobs=$(nproc)
if [ -r /proc/meminfo ]; then
  by_memory=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo)
  if [ "$by_memory" -lt "$jobs" ]; then jobs=$by_memory; fi
fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
# Replaces what an outer make left there, such as its job server.
export MAKEFLAGS="-j$jobs"
unset MAKELEVEL MFLAGS

build() {
  python -m pip download --no-deps --no-build-isolation --no-binary horovod -d "$work" "horovod==$version"
  tar xf "$work/horovod-$version.tar.gz" -C "$work"
  # The headers of torch >= 2.1 need C++17, and the archive asks for C++14 in two files.
  sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' \
    "$work/horovod-$version/CMakeLists.txt" "$work/horovod-$version/horovod/torch/CMakeLists.txt"
  # Without NCCL it is built as for a torch without CUDA: else it asks for a whole CUDA toolkit wherever there is an nvcc,
  # and gains nothing, since this project brings gradients to main memory itself.
  if [ "${HOROVOD_GPU_OPERATIONS:-}" != NCCL ]; then
    sed -i 's/(torch.version.cuda is not None)/False/' "$work/horovod-$version/cmake/Modules/FindPytorch.cmake"
  elif [ -n "${HOROVOD_CUDA_HOME:-}" ]; then
    export CUDA_HOME=$HOROVOD_CUDA_HOME # where torch's own search, which Horovod's build asks too, looks first
  fi
  # GCC from 14 on: standard headers bring in no others that Horovod leaves out, and templates that nobody uses are checked.
  sed -i 's/const size_type count_;/size_type count_;/' \
    "$work/horovod-$version/third_party/flatbuffers/include/flatbuffers/stl_emulation.h"
  CXXFLAGS="${CXXFLAGS:-} -include stdexcept -include string" \
    HOROVOD_WITH_MPI=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_CPU_OPERATIONS=MPI \
    HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_NVTX=1 \
    python -m pip wheel -v --no-build-isolation --no-deps --no-cache-dir -w "$output" "$work/horovod-$version"
}

# `set -e` does not act inside a function whose status is tested, so the build is a process of its own.
export -f build
export work version output
if ! bash -euo pipefail -c build >"$log" 2>&1; then
  echo "Horovod did not build. The end of $log, and the compiler's first errors:" >&2
  tail -60 "$log" >&2
  grep -E -m 5 -A 3 '(error|Error):' "$log" >&2 || true
  exit 1
fi
