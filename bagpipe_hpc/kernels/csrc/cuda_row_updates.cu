// Optimizers that treat every weight by itself: SGD with and without momentum, Adagrad, Adam, FTRL.
#include "cuda_common.cuh"
#include "cuda_row_arithmetic.cuh"
#include "cuda_row_operations.h"

namespace bagpipe {
namespace {

template <typename Rule>
constexpr int kRowsInFlight = Rule::kStates > 0 ? 2 : 4;  // of a thread; about as many bytes either way

template <int F, int kStates>
struct States {
  Unit<F>* table[kStates > 0 ? kStates : 1];
};

// All loads of a tile come before its first store, so that they hide each other's latency.
template <int F, typename Rule>
__global__ void __launch_bounds__(kThreads)
    update_rows(Unit<F>* weights, States<F, Rule::kStates> states, int64_t units, const int32_t* slots,
                const Unit<F>* gradients, int64_t rows, Rule rule) {
  constexpr int kStates = Rule::kStates;
  constexpr int kRows = kRowsInFlight<Rule>;
  const int64_t tile = int64_t{kRows} * blockDim.y;
  for (int64_t unit = threadIdx.x; unit < units; unit += blockDim.x) {
    for (int64_t first = blockIdx.x * tile + threadIdx.y; first < rows; first += gridDim.x * tile) {
      int64_t place[kRows];
      Unit<F> gradient[kRows], weight[kRows], state[kRows][kStates + 1];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int64_t row = min(first + i * int64_t{blockDim.y}, rows - 1);
        place[i] = slots[row] * units + unit;
        gradient[i] = gradients[row * units + unit];
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        weight[i] = weights[place[i]];
#pragma unroll
        for (int s = 0; s < kStates; ++s) state[i][s] = states.table[s][place[i]];
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int f = 0; f < F; ++f) {
          float numbers[kStates + 1];
#pragma unroll
          for (int s = 0; s < kStates; ++s) numbers[s] = state[i][s].at[f];
          rule(weight[i].at[f], gradient[i].at[f], numbers);
#pragma unroll
          for (int s = 0; s < kStates; ++s) state[i][s].at[f] = numbers[s];
        }
        if (first + i * int64_t{blockDim.y} < rows) {
          weights[place[i]] = weight[i];
#pragma unroll
          for (int s = 0; s < kStates; ++s) states.table[s][place[i]] = state[i][s];
        }
      }
    }
  }
}

template <typename Rule>
int update(int device, cudaStream_t stream, float* weights, std::initializer_list<float*> states, int32_t width,
           const int32_t* slots, const float* gradients, int64_t rows, Rule rule) {
  bool wide = takes_wide_units({weights, gradients}, width);
  for (const float* state : states) wide = wide && takes_wide_units({state}, width);
  return with_units(wide, [&](auto floats) {
    constexpr int F = floats;
    States<F, Rule::kStates> typed = {};
    std::transform(states.begin(), states.end(), typed.table, [](float* s) { return reinterpret_cast<Unit<F>*>(s); });
    const int64_t units = width / F;
    const dim3 block = block_of_rows(units);
    return launch(device, stream, blocks_for(device, rows, kRowsInFlight<Rule> * block.y), block, update_rows<F, Rule>,
                  reinterpret_cast<Unit<F>*>(weights), typed, units, slots,
                  reinterpret_cast<const Unit<F>*>(gradients), rows, rule);
  });
}

}  // namespace
}  // namespace bagpipe

int bagpipe_apply_sgd(int device, cudaStream_t stream, float* weights, int32_t width, const int32_t* slots,
                      const float* gradients, int64_t rows, float lr) {
  return bagpipe::update(device, stream, weights, {}, width, slots, gradients, rows, bagpipe::Sgd{lr});
}

int bagpipe_apply_momentum(int device, cudaStream_t stream, float* weights, float* velocity, int32_t width,
                           const int32_t* slots, const float* gradients, int64_t rows, float momentum, float lr) {
  return bagpipe::update(device, stream, weights, {velocity}, width, slots, gradients, rows,
                         bagpipe::Momentum{momentum, lr});
}

int bagpipe_apply_nesterov(int device, cudaStream_t stream, float* weights, float* velocity, int32_t width,
                           const int32_t* slots, const float* gradients, int64_t rows, float momentum, float lr) {
  return bagpipe::update(device, stream, weights, {velocity}, width, slots, gradients, rows,
                         bagpipe::Nesterov{momentum, lr});
}

int bagpipe_apply_ftrl(int device, cudaStream_t stream, float* weights, float* squares, float* z, int32_t width,
                       const int32_t* slots, const float* gradients, int64_t rows, float lr, float beta,
                       float threshold, float least) {
  return bagpipe::update(device, stream, weights, {squares, z}, width, slots, gradients, rows,
                         bagpipe::Ftrl{lr, beta, threshold, least});
}

int bagpipe_apply_adagrad(int device, cudaStream_t stream, float* weights, float* accumulator, int32_t width,
                          const int32_t* slots, const float* gradients, int64_t rows, float lr, float eps) {
  return bagpipe::update(device, stream, weights, {accumulator}, width, slots, gradients, rows,
                         bagpipe::Adagrad{lr, eps});
}

int bagpipe_apply_adam(int device, cudaStream_t stream, float* weights, float* first, float* second, int32_t width,
                       const int32_t* slots, const float* gradients, int64_t rows, float beta1, float rest1,
                       float beta2, float rest2, float eps, float step_size, float root_scale) {
  return bagpipe::update(device, stream, weights, {first, second}, width, slots, gradients, rows,
                         bagpipe::Adam{beta1, rest1, beta2, rest2, eps, step_size, root_scale});
}
