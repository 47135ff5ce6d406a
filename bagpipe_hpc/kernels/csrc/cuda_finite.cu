// Looks for NaN and infinity, and notes on the GPU the first step that had one, and where.
#include <cfloat>

#include "cuda_columns.cuh"
#include "cuda_common.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

constexpr int kMostTensors = 64;  // of one launch: their addresses are arguments of the kernel
constexpr int kNumbersOfAThread = 8;
constexpr unsigned long long kNowhere = ~0ull;

// Four int64, as `CudaNotes` makes them.
struct Note {
  int64_t step, which;        // the first step, from 1, and what was not finite; 0 and 0 if all was
  unsigned long long place;   // the first one in that step
  unsigned long long blocks;  // of the present launch that have ended
};

__device__ bool is_finite(float value) { return fabsf(value) <= FLT_MAX; }

template <int F>
__device__ bool are_finite(const Unit<F>& unit) {
  bool all = true;
#pragma unroll
  for (int f = 0; f < F; ++f) all = all && is_finite(unit.at[f]);
  return all;
}

// Called by all threads of a block behind their `atomicMin`: the last block to come writes the note, of the last launch
// for these places. Others may read it at any time.
template <typename Which>
__device__ void end_block(Note* note, int64_t step, bool is_last_launch, Which which) {
  __threadfence();  // the places that this thread has found come before the count of its block
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  if (atomicAdd(&note->blocks, 1ull) != gridDim.x - 1) return;
  __threadfence();
  const unsigned long long place = atomicMin(&note->place, kNowhere);  // reads it
  note->blocks = 0;
  if (!is_last_launch || place == kNowhere || note->step != 0) return;
  note->which = which(static_cast<int64_t>(place));
  __threadfence();
  note->step = step;
}

template <int F>
__global__ void __launch_bounds__(kThreads)
    note_rows(Columns<F> columns, const int32_t* slots, int64_t rows, const int64_t* numbers, bool is_last_launch,
              int64_t step, Note* note) {
  const int64_t tile = int64_t{kRowsInFlight} * blockDim.y;
  for (int64_t unit = threadIdx.x; unit < columns.record_width; unit += blockDim.x) {
    int64_t stride = 0;
    const Unit<F>* table = columns.find(unit, &stride);
    for (int64_t first = blockIdx.x * tile + threadIdx.y; first < rows; first += gridDim.x * tile) {
      Unit<F> value[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        value[i] = table[slots[min(first + i * int64_t{blockDim.y}, rows - 1)] * stride];
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const int64_t row = min(first + i * int64_t{blockDim.y}, rows - 1);
        if (!are_finite(value[i])) atomicMin(&note->place, static_cast<unsigned long long>(row));
      }
    }
  }
  end_block(note, step, is_last_launch, [=](int64_t place) {
    const int64_t slot = slots[place];
    return numbers != nullptr ? numbers[slot] : slot;
  });
}

struct Tensors {
  const float* at[kMostTensors];
  int64_t numbers[kMostTensors];
};

__global__ void __launch_bounds__(kThreads)
    note_tensors(Tensors tensors, int count, int64_t first, int64_t step, Note* note) {
  for (int tensor = 0; tensor < count; ++tensor) {
    bool all = true;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tensors.numbers[tensor];
         i += int64_t{gridDim.x} * blockDim.x) {
      all = all && is_finite(tensors.at[tensor][i]);
    }
    if (!all) atomicMin(&note->place, static_cast<unsigned long long>(first + tensor));
  }
  end_block(note, step, true, [](int64_t place) { return place; });  // those of earlier launches have lower places
}

}  // namespace
}  // namespace bagpipe

int bagpipe_note_rows(int device, cudaStream_t stream, const float* const* columns, const int32_t* widths,
                      int32_t parts, const int32_t* slots, int64_t rows, const int64_t* numbers, int32_t is_last,
                      int64_t step, void* note) {
  using namespace bagpipe;
  return with_columns(const_cast<float* const*>(columns), widths, parts, nullptr, [&](auto tables, auto floats) {
    constexpr int F = floats;
    const dim3 block = block_of_rows(tables.record_width);
    return launch(device, stream, blocks_for(device, rows, kRowsInFlight * block.y), block, note_rows<F>, tables, slots,
                  rows, numbers, is_last != 0, step, static_cast<Note*>(note));
  });
}

int bagpipe_note_tensors(int device, cudaStream_t stream, const float* const* tensors, const int64_t* numbers,
                         int32_t count, int64_t step, void* note) {
  using namespace bagpipe;
  for (int32_t first = 0; first < count; first += kMostTensors) {
    Tensors some = {};
    const int those = std::min(count - first, kMostTensors);
    int64_t longest = 0;
    for (int i = 0; i < those; ++i) {
      some.at[i] = tensors[first + i];
      some.numbers[i] = numbers[first + i];
      longest = std::max(longest, some.numbers[i]);
    }
    if (longest == 0) continue;
    const unsigned int blocks = blocks_for(device, longest, int64_t{kNumbersOfAThread} * kThreads);
    const int code = launch(device, stream, blocks, kThreads, note_tensors, some, those, int64_t{first}, step,
                            static_cast<Note*>(note));
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
