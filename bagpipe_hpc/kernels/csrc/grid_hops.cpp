// Rows over a grid of trainers: where they lie on both hops, and the pass that puts them in order in between. The native
// twin of bagpipe_hpc/plan/grid_hops.py, called by kernels/grid_hops.py.
#include <cstdint>
#include <cstring>
#include <vector>

#include "simd.h"

namespace {

// Puts `count` trainers' numbers one behind the other, and leaves out those of trainer `stays` (-1: of none), but not
// their place.
void lay_out(const std::int64_t* rows, std::int64_t count, std::int64_t width, std::int64_t stays, std::int64_t* counts,
             std::int64_t* starts) {
  std::int64_t start = 0;
  for (std::int64_t trainer = 0; trainer < count; ++trainer) {
    starts[trainer] = start;
    start += rows[trainer] * width;
    counts[trainer] = trainer == stays ? 0 : rows[trainer] * width;
  }
}

}  // namespace

// `to` and `source` [rows x columns], `relayed` [columns, rows]. `layouts` takes four pairs of counts and starts: [2,
// columns] of what is sent and what is taken in on the first hop, [2, rows] likewise of the second one. Returns whether
// the counts are possible: none is negative, and what stays here and what comes for this trainer on the first hop is
// what it expects of its row.
BAGPIPE_EXPORT std::int32_t lay_out_grid_hops(const std::int32_t* to, const std::int32_t* source,
                                              const std::int32_t* relayed, std::int64_t rows, std::int64_t columns,
                                              std::int64_t row, std::int64_t column, std::int64_t width,
                                              std::int64_t* layouts) {
  std::vector<std::int64_t> sums(2 * (rows + columns));
  std::int64_t *const to_columns = sums.data(), *const of_senders = to_columns + columns;
  std::int64_t *const to_rows = of_senders + columns, *const of_rows = to_rows + rows;
  std::int32_t signs = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t trainer = r * columns + c, passed = relayed[c * rows + r];
      signs |= to[trainer] | source[trainer] | relayed[c * rows + r];
      to_columns[c] += to[trainer];
      of_rows[r] += source[trainer];
      of_senders[c] += passed;
      to_rows[r] += r == row ? 0 : passed;
    }
  }
  bool agree = signs >= 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    agree &= relayed[c * rows + row] == (c == column ? 0 : source[row * columns + c]);
  }
  lay_out(to_columns, columns, width, -1, layouts, layouts + columns);
  lay_out(of_senders, columns, width, -1, layouts + 2 * columns, layouts + 3 * columns);
  std::int64_t* const second = layouts + 4 * columns;
  lay_out(to_rows, rows, width, -1, second, second + rows);
  lay_out(of_rows, rows, width, row, second + 2 * rows, second + 3 * rows);
  return agree;
}

// Copies `taken`, one sender's rows of `row_bytes` behind the other's, to `passed`, one receiver's behind the other's,
// and those for this trainer to their places in `into`. Counts are possible, as `lay_out_grid_hops` says. Returns
// whether the arrays have as many rows as that takes; if not, nothing is copied.
BAGPIPE_EXPORT std::int32_t pass_grid_rows(const std::int32_t* source, const std::int32_t* relayed, std::int64_t rows,
                                           std::int64_t columns, std::int64_t row, std::int64_t column,
                                           std::int64_t row_bytes, const char* taken, char* passed, char* into,
                                           std::int64_t taken_rows, std::int64_t passed_rows, std::int64_t into_rows) {
  std::vector<const char*> next(columns);  // of each sender's rows, those that are not copied yet
  for (std::int64_t c = 0; c < columns; ++c) {
    next[c] = taken;
    for (std::int64_t r = 0; r < rows; ++r) {
      taken += relayed[c * rows + r] * row_bytes;
      taken_rows -= relayed[c * rows + r];
      passed_rows -= r == row ? 0 : relayed[c * rows + r];
    }
  }
  for (std::int64_t trainer = 0; trainer < rows * columns; ++trainer) {
    into += trainer < row * columns ? source[trainer] * row_bytes : 0;
    into_rows -= source[trainer];
  }
  if (taken_rows != 0 || passed_rows != 0 || into_rows != 0) return false;
  const auto copy = [&](std::int64_t c, std::int64_t r, char* target) {
    const std::int64_t bytes = relayed[c * rows + r] * row_bytes;
    if (bytes > 0) std::memcpy(target, next[c], bytes);
    next[c] += bytes;
    return target + bytes;
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      if (r != row) {
        passed = copy(c, r, passed);
      } else {
        into = c == column ? into + source[row * columns + c] * row_bytes : copy(c, r, into);
      }
    }
  }
  return true;
}
