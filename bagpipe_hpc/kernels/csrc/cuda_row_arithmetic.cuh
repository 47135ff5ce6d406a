// What an update does to one weight. The same steps, each rounded by itself, as in bagpipe_hpc/rows/optimizers.
//
// Compiled without fused multiply-add (--fmad=false). Division and sqrtf round to the nearest number by default
// (-prec-div, -prec-sqrt), which is also what a root by way of double gives: 53 bits are more than twice 24 plus two.
#pragma once

#include <cuda_runtime.h>

namespace bagpipe {

struct Sgd {
  static constexpr int kStates = 0;
  float lr;

  __host__ __device__ void operator()(float& weight, float gradient, float*) const {
    weight = weight - gradient * lr;
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  float lr, eps;

  // `states`: the sum of squares.
  __host__ __device__ void operator()(float& weight, float gradient, float* states) const {
    states[0] = states[0] + gradient * gradient;
    weight = weight - gradient / (sqrtf(states[0]) + eps) * lr;
  }
};

struct Adam {
  static constexpr int kStates = 2;
  float beta1, rest1, beta2, rest2;  // rest: 1 - beta, taken in double
  float eps, step_size, root_scale;

  // `states`: the running means of gradients and of their squares.
  __host__ __device__ void operator()(float& weight, float gradient, float* states) const {
    states[0] = states[0] * beta1 + gradient * rest1;
    states[1] = states[1] * beta2 + gradient * gradient * rest2;
    weight = weight - states[0] / (sqrtf(states[1]) * root_scale + eps) * step_size;
  }
};

struct RowwiseAdagrad {
  float lr, eps;

  // The accumulator after a row whose squared gradients sum up to `squares`.
  __host__ __device__ float accumulate(float accumulator, float squares, float width) const {
    return accumulator + squares / width;
  }
  __host__ __device__ float divisor(float accumulator) const { return sqrtf(accumulator) + eps; }
  __host__ __device__ void operator()(float& weight, float gradient, float divisor) const {
    weight = weight - gradient / divisor * lr;
  }
};

}  // namespace bagpipe
