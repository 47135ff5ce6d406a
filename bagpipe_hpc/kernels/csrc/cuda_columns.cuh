// Tables whose rows lie side by side in one record.
#pragma once

#include "cuda_common.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {

// Loads that a thread starts before it needs the first: they hide each other's latency.
constexpr int kRowsInFlight = 4;

// Tables whose rows make up a record, widths in units.
template <int F>
struct Columns {
  using U = Unit<F>;

  U* table[kMostParts] = {};
  int64_t width[kMostParts] = {};
  int64_t record_width = 0;

  // Where unit `unit` of a record lies: add `slot * stride`.
  __device__ U* find(int64_t unit, int64_t* stride) const {
    U* found = nullptr;
    int64_t first = 0;
#pragma unroll
    for (int i = 0; i < kMostParts; ++i) {
      if (unit >= first && unit < first + width[i]) {
        found = table[i] + (unit - first);
        *stride = width[i];
      }
      first += width[i];
    }
    return found;
  }
};

// Calls function(tables in units, floats of a unit), with the widest units that fit all arrays.
template <typename Function>
int with_columns(float* const* tables, const int32_t* widths, int32_t parts, const float* records, Function function) {
  if (parts < 1 || parts > kMostParts) return cudaErrorInvalidValue;
  bool wide = takes_wide_units({records}, 0);
  for (int i = 0; i < parts; ++i) wide = wide && takes_wide_units({tables[i]}, widths[i]);
  return with_units(wide, [&](auto floats) {
    constexpr int F = floats;
    Columns<F> columns;
    for (int i = 0; i < parts; ++i) {
      columns.table[i] = reinterpret_cast<Unit<F>*>(tables[i]);
      columns.width[i] = widths[i] / F;
      columns.record_width += columns.width[i];
    }
    return function(columns, floats);
  });
}

}  // namespace bagpipe
