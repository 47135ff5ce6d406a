// Sums of segments of look-ups, each from left to right, without atomics: the same bits in every run. A segment is what
// has one sum: the look-ups of a row, whose gradients are summed, sorted by row (kernels/rows/cuda.py); or those of an
// output, whose rows are pooled.
//
// Most segments are short: a few threads walk each. Of Zipf-like features a few rows have thousands of look-ups; as the
// order of additions is fixed, only one thread can add up a column. So such a segment gets a block for every 32
// columns: seven warps copy the rows to come into shared memory, several tiles ahead, and one warp does nothing but
// add. These blocks come first in the grid; short segments fill the GPU around them.
//
// What is added is a row of an array, as it is or multiplied by a number of the look-up. A source says which:
//   row(k)    of look-up k of all segments, from 0
//   scale(k)  what that row is multiplied by; asked for only where kScales
#include <cuda_pipeline.h>

#include "cuda_common.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

constexpr int kWarp = 32;
constexpr int kLongSegment = 64;
constexpr int kSegmentsInFlight = 4;  // of a thread, where segments are short
constexpr int kLookUpsInFlight = 4;   // of a segment

constexpr int kTileRows = 64;
constexpr int kTileColumns = kWarp;  // one for each thread of the adding warp
constexpr int kStages = 4;
constexpr int kDealt = 8;  // segments that go to the same block in a row; neighbours are often long together

// Each look-up has a gradient.
struct Sorted {
  static constexpr bool kScales = false;
  const int64_t* order;

  __device__ int32_t row(int64_t k) const { return static_cast<int32_t>(order[k]); }  // M is below 2^31
  __device__ float scale(int64_t) const { return 1.0f; }
};

// Each look-up has a row of a table.
struct LookedUp {
  static constexpr bool kScales = true;
  const int32_t* slots;
  const int32_t* positions;
  const float* scales;  // null for 1

  __device__ int32_t row(int64_t k) const { return slots[positions[k]]; }
  __device__ float scale(int64_t k) const { return scales == nullptr ? 1.0f : scales[k]; }
};

// Each look-up has the gradient of its output.
struct OfOutputs {
  static constexpr bool kScales = true;
  const int64_t* order;
  const int32_t* outputs;
  const float* scales;  // null for 1

  __device__ int32_t row(int64_t k) const { return outputs[order[k]]; }
  __device__ float scale(int64_t k) const { return scales == nullptr ? 1.0f : scales[order[k]]; }
};

// Tiles on their way to the adding warp.
struct Stages {
  alignas(16) float rows[kStages][kTileRows][kTileColumns];
  float scales[kStages][kTileRows];
};

template <int F>
__device__ void add(Unit<F>& total, const Unit<F>& value) {
#pragma unroll
  for (int f = 0; f < F; ++f) total.at[f] = total.at[f] + value.at[f];
}

template <bool kScales, int F>
__device__ Unit<F> scaled(Unit<F> row, float scale) {
  if constexpr (kScales) {
#pragma unroll
    for (int f = 0; f < F; ++f) row.at[f] = row.at[f] * scale;
  }
  return row;
}

// A thread of the copying warps: what it brings of columns [column, column + kTileColumns) of each tile's look-ups.
// It reads which rows these have a tile ahead: a copy that had to wait for its address would hold the next one up.
template <int F, typename Source>
class Copier {
 public:
  __device__ Copier(const Unit<F>* values, int64_t units, Source source, int64_t start, int64_t column)
      : values_(values), units_(units), source_(source), start_(start), column_(column) {}

  // Reads the rows of a tile of so many look-ups, which begins with look-up `first` of the segment; none behind the
  // last.
  __device__ void read(int64_t first, int count) {
    count_ = count;
#pragma unroll
    for (int i = 0; i < kOfAThread; ++i) {
      if (look_up(i) < count) {
        row_[i] = source_.row(start_ + first + look_up(i));
        if constexpr (Source::kScales) {
          if (unit(i) == 0) scale_[i] = source_.scale(start_ + first + look_up(i));
        }
      }
    }
  }

  // Starts to copy the tile that was read last.
  __device__ void copy(float (*rows)[kTileColumns], float* scales) const {
#pragma unroll
    for (int i = 0; i < kOfAThread; ++i) {
      if (look_up(i) >= count_) continue;
      if (const int64_t unit_of_row = column_ / F + unit(i); unit_of_row < units_) {
        const Unit<F>* from = values_ + int64_t{row_[i]} * units_ + unit_of_row;
        __pipeline_memcpy_async(&rows[look_up(i)][unit(i) * F], from, sizeof(Unit<F>));
      }
      if constexpr (Source::kScales) {
        if (unit(i) == 0) scales[look_up(i)] = scale_[i];
      }
    }
  }

 private:
  static constexpr int kUnits = kTileColumns / F;  // of a row of the tile
  static constexpr int kCopying = kThreads - kWarp;
  static constexpr int kOfAThread = (kTileRows * kUnits + kCopying - 1) / kCopying;

  __device__ int place(int i) const { return threadIdx.x - kWarp + i * kCopying; }
  __device__ int look_up(int i) const { return place(i) / kUnits; }
  __device__ int unit(int i) const { return place(i) % kUnits; }

  const Unit<F>* values_;
  int64_t units_;
  Source source_;
  int64_t start_;
  int64_t column_;
  int count_ = 0;
  int32_t row_[kOfAThread] = {};
  float scale_[kOfAThread] = {};
};

// The whole block: one segment, columns [column, column + kTileColumns).
template <int F, typename Source>
__device__ void sum_long_segment(const Unit<F>* values, int64_t units, Source source, int64_t start, int length,
                                 int64_t column, float* sum, Stages& stages) {
  const bool copies = threadIdx.x >= kWarp;
  const int tiles = (length + kTileRows - 1) / kTileRows;
  const auto rows_of = [&](int tile) { return max(0, min(kTileRows, length - tile * kTileRows)); };
  Copier<F, Source> copier(values, units, source, start, column);
  if (copies) copier.read(0, rows_of(0));
  const auto start_copying = [&](int tile) {
    if (copies) {
      copier.copy(stages.rows[tile % kStages], stages.scales[tile % kStages]);
      copier.read(int64_t{tile + 1} * kTileRows, rows_of(tile + 1));
    }
    __pipeline_commit();  // also without copies, so that the number of commits tells which tiles are there
  };
  for (int tile = 0; tile < kStages - 1; ++tile) start_copying(tile);
  float total = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
    __pipeline_wait_prior(kStages - 2);  // this thread's copies of this tile are there,
    __syncthreads();                     // and so are the others'; the stage of the last tile has been read
    start_copying(tile + kStages - 1);
    if (!copies) {
      const float(*rows)[kTileColumns] = stages.rows[tile % kStages];
      const float* scales = stages.scales[tile % kStages];
      const int count = rows_of(tile);
#pragma unroll 16
      for (int row = 0; row < count; ++row) {
        const float value = rows[row][threadIdx.x];
        if constexpr (Source::kScales) {
          total = total + value * scales[row];
        } else {
          total = total + value;
        }
      }
    }
  }
  __syncthreads();  // every stage has been read before the next segment's copies come
  if (!copies && column + threadIdx.x < units * F) sum[column + threadIdx.x] = total;
}

// The whole block: all long segments of one of the strips, columns [column, column + kTileColumns).
template <int F, typename Source>
__device__ void sum_long_segments(const Unit<F>* values, int64_t units, Source source, const int32_t* starts,
                                  int64_t segments, int64_t strip, int64_t strips, int64_t column, float* sums,
                                  Stages& stages) {
  __shared__ unsigned int found[kThreads / kWarp];  // a bit for each thread that looks at a long segment
  const int64_t runs = (segments + kDealt - 1) / kDealt;
  const auto segment_of = [&](int64_t round, int thread) {
    return (((round * (kThreads / kDealt) + thread / kDealt) * strips) + strip) * kDealt + thread % kDealt;
  };
  for (int64_t round = 0; round * (kThreads / kDealt) * strips + strip < runs; ++round) {
    const int64_t mine = segment_of(round, threadIdx.x);
    const bool is_long = mine < segments && starts[mine + 1] - starts[mine] >= kLongSegment;
    const unsigned int of_warp = __ballot_sync(0xffffffffu, is_long);
    if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = of_warp;
    __syncthreads();
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      for (unsigned int left = found[warp]; left != 0; left &= left - 1) {
        const int64_t segment = segment_of(round, warp * kWarp + __ffs(left) - 1);
        const int32_t start = starts[segment];
        sum_long_segment(values, units, source, start, starts[segment + 1] - start, column, sums + segment * units * F,
                         stages);
      }
    }
    __syncthreads();  // `found` has been read
  }
}

// Threads that share the units of a row; a block has room for `groups` rows side by side.
struct RowGroups {
  int threads, groups;

  __host__ __device__ explicit RowGroups(int64_t units)
      : threads(units < kThreads ? static_cast<int>(units) : kThreads), groups(kThreads / threads) {}
  __host__ __device__ int64_t segments_of_a_block() const { return int64_t{kSegmentsInFlight} * groups; }
};

// Several segments for each group of threads. Most have one look-up: the first ones are loaded together.
template <int F, typename Source>
__device__ void sum_short_segments(const Unit<F>* values, int64_t units, Source source, const int32_t* starts,
                                   int64_t segments, int64_t block, Unit<F>* sums) {
  const RowGroups row(units);
  const int group = threadIdx.x / row.threads;
  if (group >= row.groups) return;
  const int64_t first = block * row.segments_of_a_block() + group;
  int32_t start[kSegmentsInFlight], length[kSegmentsInFlight];
#pragma unroll
  for (int s = 0; s < kSegmentsInFlight; ++s) {
    const int64_t known = min(first + s * row.groups, segments - 1);
    start[s] = starts[known];
    length[s] = starts[known + 1] - start[s];
  }
  const auto value_of = [&](int64_t look_up, int64_t unit) {
    const Unit<F> value = values[int64_t{source.row(look_up)} * units + unit];
    return scaled<Source::kScales>(value, Source::kScales ? source.scale(look_up) : 1.0f);
  };
  for (int64_t unit = threadIdx.x % row.threads; unit < units; unit += row.threads) {
    Unit<F> total[kSegmentsInFlight] = {};
#pragma unroll
    for (int s = 0; s < kSegmentsInFlight; ++s) {
      if (length[s] > 0) total[s] = value_of(start[s], unit);
    }
#pragma unroll
    for (int s = 0; s < kSegmentsInFlight; ++s) {
      const int64_t segment = first + s * row.groups;
      if (segment >= segments || length[s] >= kLongSegment) continue;
      add(total[s], Unit<F>{});  // every sum starts with 0, which shows in the sum of -0 alone: it is +0
      for (int next = 1; next < length[s]; next += kLookUpsInFlight) {
        Unit<F> value[kLookUpsInFlight];
#pragma unroll
        for (int i = 0; i < kLookUpsInFlight; ++i) {
          if (next + i < length[s]) value[i] = value_of(int64_t{start[s]} + next + i, unit);
        }
#pragma unroll
        for (int i = 0; i < kLookUpsInFlight; ++i) {
          if (next + i < length[s]) add(total[s], value[i]);
        }
      }
      sums[segment * units + unit] = total[s];
    }
  }
}

template <int F, typename Source>
__global__ void __launch_bounds__(kThreads, 3)
    sum_segments(const Unit<F>* values, int64_t units, Source source, const int32_t* starts, int64_t segments,
                 unsigned int strips, unsigned int column_tiles, Unit<F>* sums) {
  __shared__ Stages stages;
  const unsigned int long_blocks = strips * column_tiles;
  if (blockIdx.x < long_blocks) {
    sum_long_segments<F>(values, units, source, starts, segments, blockIdx.x % strips, strips,
                         int64_t{blockIdx.x / strips} * kTileColumns, reinterpret_cast<float*>(sums), stages);
  } else {
    sum_short_segments(values, units, source, starts, segments, blockIdx.x - long_blocks, sums);
  }
}

// Segment i is look-ups starts[i] up to starts[i + 1], of rows of `values` as `source` says.
template <typename Source>
int launch_sums(int device, cudaStream_t stream, const float* values, int32_t width, Source source,
                const int32_t* starts, int64_t segments, float* sums) {
  return with_units(takes_wide_units({values, sums}, width), [&](auto floats) {
    constexpr int F = floats;
    const int64_t units = width / F;
    const unsigned int strips = 2 * multiprocessors(device);
    const unsigned int column_tiles = (width + kTileColumns - 1) / kTileColumns;
    const int64_t of_a_block = RowGroups(units).segments_of_a_block();
    const unsigned int short_blocks = static_cast<unsigned int>((segments + of_a_block - 1) / of_a_block);
    return launch(device, stream, strips * column_tiles + short_blocks, kThreads, sum_segments<F, Source>,
                  reinterpret_cast<const Unit<F>*>(values), units, source, starts, segments, strips, column_tiles,
                  reinterpret_cast<Unit<F>*>(sums));
  });
}

}  // namespace
}  // namespace bagpipe

int bagpipe_sum_segments(int device, cudaStream_t stream, const float* gradients, int32_t width, const int64_t* order,
                         const int32_t* starts, int64_t segments, float* sums) {
  return bagpipe::launch_sums(device, stream, gradients, width, bagpipe::Sorted{order}, starts, segments, sums);
}

int bagpipe_pool(int device, cudaStream_t stream, const float* table, int32_t width, const int32_t* slots,
                 const int32_t* positions, const float* scales, const int32_t* starts, int64_t outputs,
                 float* pooled) {
  const bagpipe::LookedUp rows{slots, positions, scales};
  return bagpipe::launch_sums(device, stream, table, width, rows, starts, outputs, pooled);
}

int bagpipe_sum_pooled(int device, cudaStream_t stream, const float* gradients, int32_t width, const int64_t* order,
                       const int32_t* outputs, const float* scales, const int32_t* starts, int64_t segments,
                       float* sums) {
  const bagpipe::OfOutputs rows{order, outputs, scales};
  return bagpipe::launch_sums(device, stream, gradients, width, rows, starts, segments, sums);
}
