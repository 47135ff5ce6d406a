#!/usr/bin/env bash
# Print the files that CRITEO of `make train` names, in time order, each ended by a NUL; with --key, a number for them:
#
#   scripts/criteo_files.sh [--key] 'day_0 day_1'        day_*        '"my clicks.tsv" more.tsv'
#
# The argument is a path or a pattern, which may hold blanks. If there is no such file, it is taken for several of them,
# with blanks between them and quotes as in a shell. The files of a pattern are sorted with numbers by value. The number
# of --key depends on the paths, sizes, times of change and order of the files.
set -euo pipefail
shopt -s nullglob

fail() {
  echo "CRITEO='$named': $1" >&2
  exit 1
}

# Adds the regular files that a path or a pattern stands for; fails if there is none.
add_files() {
  local IFS= found
  if [ -f "$1" ]; then
    files+=("$1")
    return
  fi
  [ ! -d "$1" ] || fail "$1 is a folder; name its files, such as $1/day_*"
  [ ! -e "$1" ] || fail "$1 is no regular file; write its rows to one"
  # shellcheck disable=SC2206  # patterns must be expanded; without IFS, blanks do not split them
  found=($1)
  for at in "${!found[@]}"; do
    [ -f "${found[at]}" ] || unset "found[at]"
  done
  [ ${#found[@]} -gt 0 ] || return 1
  mapfile -t -d '' -O ${#files[@]} files < <(printf '%s\0' "${found[@]}" | sort -z -V)
}

key=
[ "${1-}" != --key ] || { key=1; shift; }
named=${1:?name the files}
files=()

if ! add_files "$named"; then
  words=$(xargs printf '%s\n' <<<"$named" 2>/dev/null) || fail "a quote is not closed"
  mapfile -t words <<<"$words"
  for word in "${words[@]}"; do
    add_files "$word" || fail "no such file: $word; check the path, and put one that holds blanks in quotes of its own"
  done
fi

if [ -n "$key" ]; then
  for file in "${files[@]}"; do
    stat -L -c '%s %.9Y' -- "$file"
    realpath -- "$file"
  done | cksum | cut -d' ' -f1
else
  printf '%s\0' "${files[@]}"
fi
