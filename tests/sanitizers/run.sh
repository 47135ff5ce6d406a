#!/usr/bin/env bash
# Build the native code with g++'s sanitizers into build/sanitizers, and run its tests with it: make test-sanitizers.
#
#   run.sh [address|thread]...      default: both, side by side once they are built
#
# address: AddressSanitizer and UndefinedBehaviorSanitizer, all libraries. thread: ThreadSanitizer, those with threads.
# The first report ends the process. In an activated environment.
set -euo pipefail
unset CDPATH # in which `cd` would look for the folder
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# A library that none of these tests loads fails the run: tests/sanitizers/instrumented.py.
kernels=tests/unit/kernels
threaded=(tests/unit/planning/lookahead/test_native.py
  "$kernels"/{rows/test_native_rows,dense/test_interaction,dense/test_layer_outputs,dense/test_output_gradient,dense/test_finite,test_request_watch,test_hard_numbers}.py
  tests/unit/rows/disk/test_store_stress.py::test_rows_are_those_of_an_array_on_a_true_disk)
others=("$kernels"/{rows/test_row_operations,rows/test_pooling,rows/test_row_copies,test_grid_hops,test_lzf,text/test_text_lines}.py
  tests/unit/data_prep/{formats/test_native_criteo,formats/test_native_delimited,vocabularies/test_native_ids,vocabularies/test_native_wide_ids}.py
  tests/unit/storage/shards/test_{look_up_batches,raw_chunks}.py)

# Where g++ keeps a library; it prints the bare name of one that it does not have.
library() {
  local path
  path=$(g++ -print-file-name="$1")
  [ -e "$path" ] || { echo "test-sanitizers: g++ has no $1; install its sanitizers (Debian, Ubuntu: libgcc-NN-dev)" >&2; return 1; }
  printf '%s' "$path"
}

# -O1: row_operations.cpp takes minutes otherwise. The assertions check the indices of std::vector.
build() {
  local folder=$1 flags="-fsanitize=$2 -fno-sanitize-recover=all -O1 -g -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS" key
  key=$(printf '%s\n' "$PWD $flags" | cat - setup.py <(g++ --version) | cksum)
  if [ "$(cat "$folder/key" 2>/dev/null)" != "$key" ]; then rm -rf "$folder"; fi
  mkdir -p "$folder"
  BAGPIPE_BUILD_CUDA=0 BAGPIPE_CXX_FLAGS=$flags \
    python setup.py -q build_ext -j 2 --build-lib "$folder" --build-temp "$folder/objects"
  # shellcheck disable=SC2086 # several words
  g++ -std=c++17 -pthread -fPIC -shared $flags tests/sanitizers/planted_errors.cpp -o "$folder/planted_errors.so"
  printf '%s\n' "$key" >"$folder/key"
}

# PYTHONMALLOC: every object of Python's comes from malloc, so that a byte beyond one is noticed. detect_leaks: Python
# keeps memory until it ends. libstdc++ must be there when AddressSanitizer looks for the functions that throw.
# ignore_noninstrumented_modules: torch's OpenMP threads wait for each other in ways that ThreadSanitizer does not see.
# UCX_MEM_MMAP_HOOK_MODE: the UCX of MPICH puts hooks of its own before madvise, which a thread calls when it has ended and
# ThreadSanitizer has forgotten it: a segmentation fault in the lock of that hook.
# --capture=sys: a report goes to the terminal.
# EXAMPLES_DIVIDED_BY: sanitized code takes several times as long, and a mistake shows in many examples.
run() {
  local kind=$1 runtime=$2
  shift 2
  printf '\n==== %s sanitizer\n' "$kind"
  env LD_PRELOAD="$(library "$runtime") $(library libstdc++.so)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1" \
    BAGPIPE_SANITIZER="$kind" UCX_MEM_MMAP_HOOK_MODE=none EXAMPLES_DIVIDED_BY="${EXAMPLES_DIVIDED_BY:-3}" \
    python -m pytest -q --capture=sys -p no:cacheprovider -p tests.sanitizers.instrumented tests/sanitizers "$@"
}

[ $# -gt 0 ] || set -- address thread
declare -A runs
trap 'jobs -p | xargs -r kill' EXIT # where a build fails beside a run
for kind; do
  log=build/sanitizers/$kind.log
  case $kind in
    address)
      build "build/sanitizers/$kind" address,undefined
      run "$kind" libasan.so "${threaded[@]}" "${others[@]}" >"$log" 2>&1 &
      ;;
    thread)
      build "build/sanitizers/$kind" thread
      run "$kind" libtsan.so "${threaded[@]}" >"$log" 2>&1 &
      ;;
    *)
      echo "run.sh: $kind: address or thread" >&2
      exit 2
      ;;
  esac
  runs[$kind]=$!
done
status=0
for kind; do
  wait "${runs[$kind]}" || status=$?
  cat "build/sanitizers/$kind.log"
done
exit $status
