// Row-wise Adagrad and Adam: one number a row, so the squares of a row's gradients are summed before its weights
// change.
#include "cuda_common.cuh"
#include "cuda_row_arithmetic.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

constexpr int kWarp = 32;
constexpr int kWidestRow = 8192;      // numbers in 32 KB of shared memory
constexpr int kUsualNumbers = 1024;   // enough for rows up to 128 wide; less of it lets more blocks run at once

// Folds the right half of a row onto the left until one number is left, in the order of rows/optimizers/exact.py, with
// the `lanes` threads of the row's group. All threads of a warp come here with the same width.
__device__ float fold(float* values, int width, int lane, int lanes) {
  __syncwarp();
  while (width > 1) {
    const int half = (width + 1) / 2;
    for (int i = lane; i < width - half; i += lanes) values[i] = values[i] + values[half + i];
    __syncwarp();
    width = half;
  }
  const float sum = values[0];
  __syncwarp();  // every thread has read it before the next row's numbers come
  return sum;
}

// A group of `lanes` threads (a power of two, at most a warp) for each row. Groups past the end take the last row again
// and store nothing.
template <int F, int kNumbers, typename Rule>
__global__ void __launch_bounds__(kThreads)
    update_rowwise(Unit<F>* weights, Unit<F>* states, float* accumulator, int width, int lanes, const int32_t* slots,
                   const Unit<F>* gradients, int64_t rows, Rule rule) {
  alignas(16) __shared__ float shared[kNumbers];
  const int units = width / F;
  const int group = threadIdx.x / lanes, groups = blockDim.x / lanes, lane = threadIdx.x % lanes;
  float* squares = shared + group * width;
  const auto keep_squares = [&](int unit, Unit<F> gradient) {
#pragma unroll
    for (int f = 0; f < F; ++f) gradient.at[f] = gradient.at[f] * gradient.at[f];
    reinterpret_cast<Unit<F>*>(squares)[unit] = gradient;
  };
  for (int64_t first = int64_t{blockIdx.x} * groups; first < rows; first += int64_t{gridDim.x} * groups) {
    const bool is_own = first + group < rows;
    const int64_t row = is_own ? first + group : rows - 1;
    const int64_t slot = slots[row];
    const Unit<F>* row_gradients = gradients + row * units;
    Unit<F>* row_weights = weights + slot * units;
    Unit<F>* row_states = Rule::kStates > 0 ? states + slot * units : nullptr;
    const float before = accumulator[slot];
    // The first unit of each thread, the only one of rows up to 128 wide, stays in registers.
    Unit<F> gradient = {}, weight = {}, state = {};
    if (lane < units) {
      gradient = row_gradients[lane];
      weight = row_weights[lane];
      if (Rule::kStates > 0) state = row_states[lane];
      keep_squares(lane, gradient);
    }
    for (int unit = lane + lanes; unit < units; unit += lanes) keep_squares(unit, row_gradients[unit]);
    const float after = rule.accumulate(before, fold(squares, width, lane, lanes) / static_cast<float>(width));
    const float divisor = rule.divisor(after);
    if (!is_own) continue;
    if (lane == 0) accumulator[slot] = after;
    const auto update = [&](int unit, Unit<F> old, Unit<F> old_state, Unit<F> by) {
#pragma unroll
      for (int f = 0; f < F; ++f) rule(old.at[f], by.at[f], divisor, old_state.at[f]);
      row_weights[unit] = old;
      if (Rule::kStates > 0) row_states[unit] = old_state;
    };
    if (lane < units) update(lane, weight, state, gradient);
    for (int unit = lane + lanes; unit < units; unit += lanes) {
      update(unit, row_weights[unit], Rule::kStates > 0 ? row_states[unit] : Unit<F>{}, row_gradients[unit]);
    }
  }
}

template <typename Rule>
int update(int device, cudaStream_t stream, float* weights, float* states, float* accumulator, int32_t width,
           const int32_t* slots, const float* gradients, int64_t rows, Rule rule) {
  if (width > kWidestRow) return cudaErrorInvalidValue;
  return with_units(takes_wide_units({weights, states, gradients}, width), [&](auto floats) {
    constexpr int F = floats;
    int lanes = 1;
    while (lanes < kWarp && lanes * F < width) lanes *= 2;
    const int warps = std::min(kThreads / kWarp, std::max(1, kWidestRow / (kWarp / lanes * width)));
    const int groups = warps * (kWarp / lanes);
    const auto kernel =
        groups * width <= kUsualNumbers ? update_rowwise<F, kUsualNumbers, Rule> : update_rowwise<F, kWidestRow, Rule>;
    return launch(device, stream, blocks_for(device, rows, groups), warps * kWarp, kernel,
                  reinterpret_cast<Unit<F>*>(weights), reinterpret_cast<Unit<F>*>(states), accumulator, width, lanes,
                  slots, reinterpret_cast<const Unit<F>*>(gradients), rows, rule);
  });
}

}  // namespace
}  // namespace bagpipe

int bagpipe_apply_rowwise_adagrad(int device, cudaStream_t stream, float* weights, float* accumulator, int32_t width,
                                  const int32_t* slots, const float* gradients, int64_t rows, float lr, float eps) {
  return bagpipe::update(device, stream, weights, nullptr, accumulator, width, slots, gradients, rows,
                         bagpipe::RowwiseAdagrad{lr, eps});
}

int bagpipe_apply_rowwise_adam(int device, cudaStream_t stream, float* weights, float* first, float* second,
                               int32_t width, const int32_t* slots, const float* gradients, int64_t rows, float beta1,
                               float rest1, float beta2, float rest2, float eps, float step_size, float root_scale) {
  return bagpipe::update(device, stream, weights, first, second, width, slots, gradients, rows,
                         bagpipe::RowwiseAdam{beta1, rest1, beta2, rest2, eps, step_size, root_scale});
}
