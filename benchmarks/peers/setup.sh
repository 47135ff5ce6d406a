#!/usr/bin/env bash
# Make the environment of the peers that `python -m benchmarks peers` measures: PyTorch and TorchRec for CPUs. No root; 1 GB.
#
#   setup.sh [VENV]                 default build/peers-venv
#
# Environment:
#   PYTHON   the Python to use (default python3)
#   TORCH    what pip installs as torch (default torch==2.13.0); more words are pip options, such as --index-url
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${1:-build/peers-venv}
read -ra torch_words <<<"${TORCH:-torch==2.13.0}"
pip=("$venv/bin/python" -m pip --disable-pip-version-check install -q)

"${PYTHON:-python3}" -m venv --clear "$venv"
"${pip[@]}" "${torch_words[@]}"
"${pip[@]}" -r benchmarks/peers/requirements-dependencies.txt
"${pip[@]}" --no-deps -r benchmarks/peers/requirements.txt
"$venv/bin/python" -W ignore -c '
import fbgemm_gpu, torch, torchrec
print(f"torch {torch.__version__}, TorchRec {torchrec.__version__}, FBGEMM {fbgemm_gpu.__version__}")'
