// Rows of one or several tables to one contiguous array, and back.
#include "cuda_common.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

constexpr int kRowsInFlight = 4;  // loads that a thread starts before it needs the first: they hide each other's latency

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

struct Direct {
  const int32_t* slots;
  __device__ int64_t operator()(int64_t row) const { return slots[row]; }
};

struct ThroughPositions {
  const int32_t* slots;
  const int32_t* positions;
  __device__ int64_t operator()(int64_t look_up) const { return slots[positions[look_up]]; }
};

// Rows past the end repeat the last one, so that loads need no condition; only the stores have one.
template <int F, typename Slots>
__global__ void __launch_bounds__(kThreads)
    gather_rows(Columns<F> columns, Slots slots, int64_t rows, Unit<F>* records) {
  const int64_t tile = int64_t{kRowsInFlight} * blockDim.y;
  for (int64_t unit = threadIdx.x; unit < columns.record_width; unit += blockDim.x) {
    int64_t stride = 0;
    const Unit<F>* table = columns.find(unit, &stride);
    for (int64_t first = blockIdx.x * tile + threadIdx.y; first < rows; first += gridDim.x * tile) {
      int64_t slot[kRowsInFlight];
      Unit<F> value[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) slot[i] = slots(min(first + i * int64_t{blockDim.y}, rows - 1));
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) value[i] = table[slot[i] * stride];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const int64_t row = first + i * int64_t{blockDim.y};
        if (row < rows) records[row * columns.record_width + unit] = value[i];
      }
    }
  }
}

template <int F>
__global__ void __launch_bounds__(kThreads)
    scatter_rows(Columns<F> columns, Direct slots, int64_t rows, const Unit<F>* records) {
  const int64_t tile = int64_t{kRowsInFlight} * blockDim.y;
  for (int64_t unit = threadIdx.x; unit < columns.record_width; unit += blockDim.x) {
    int64_t stride = 0;
    Unit<F>* table = columns.find(unit, &stride);
    for (int64_t first = blockIdx.x * tile + threadIdx.y; first < rows; first += gridDim.x * tile) {
      int64_t slot[kRowsInFlight];
      Unit<F> value[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const int64_t row = min(first + i * int64_t{blockDim.y}, rows - 1);
        slot[i] = slots(row);
        value[i] = records[row * columns.record_width + unit];
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        if (first + i * int64_t{blockDim.y} < rows) table[slot[i] * stride] = value[i];
      }
    }
  }
}

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

template <typename Slots>
int gather(int device, cudaStream_t stream, const float* const* tables, const int32_t* widths, int32_t parts,
           Slots slots, int64_t rows, float* records) {
  return with_columns(const_cast<float* const*>(tables), widths, parts, records, [&](auto columns, auto floats) {
    constexpr int F = floats;
    const dim3 block = block_of_rows(columns.record_width);
    return launch(device, stream, blocks_for(device, rows, kRowsInFlight * block.y), block, gather_rows<F, Slots>, columns,
                  slots, rows, reinterpret_cast<Unit<F>*>(records));
  });
}

}  // namespace
}  // namespace bagpipe

int bagpipe_gather_records(int device, cudaStream_t stream, const float* const* columns, const int32_t* widths,
                           int32_t parts, const int32_t* slots, int64_t rows, float* records) {
  return bagpipe::gather(device, stream, columns, widths, parts, bagpipe::Direct{slots}, rows, records);
}

int bagpipe_gather_look_ups(int device, cudaStream_t stream, const float* table, int32_t width, const int32_t* slots,
                            const int32_t* positions, int64_t look_ups, float* rows) {
  return bagpipe::gather(device, stream, &table, &width, 1, bagpipe::ThroughPositions{slots, positions}, look_ups,
                         rows);
}

int bagpipe_scatter_records(int device, cudaStream_t stream, float* const* columns, const int32_t* widths,
                            int32_t parts, const int32_t* slots, int64_t rows, const float* records) {
  using namespace bagpipe;
  return with_columns(columns, widths, parts, records, [&](auto tables, auto floats) {
    constexpr int F = floats;
    const dim3 block = block_of_rows(tables.record_width);
    return launch(device, stream, blocks_for(device, rows, kRowsInFlight * block.y), block, scatter_rows<F>, tables,
                  Direct{slots}, rows, reinterpret_cast<const Unit<F>*>(records));
  });
}

const char* bagpipe_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
