// Rows of one or several tables to one contiguous array, and back.
#include "cuda_columns.cuh"
#include "cuda_common.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

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

template <typename Slots>
int gather(int device, cudaStream_t stream, const float* const* tables, const int32_t* widths, int32_t parts,
           Slots slots, int64_t rows, float* records) {
  return with_columns(const_cast<float* const*>(tables), widths, parts, records, [&](auto columns, auto floats) {
    constexpr int F = floats;
    const dim3 block = block_of_rows(columns.record_width);
    return launch(device, stream, blocks_for(device, rows, kRowsInFlight * block.y), block, gather_rows<F, Slots>,
                  columns, slots, rows, reinterpret_cast<Unit<F>*>(records));
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
