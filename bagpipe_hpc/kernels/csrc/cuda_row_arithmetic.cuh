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

struct Momentum {
  static constexpr int kStates = 1;
  float momentum, lr;

  // `states`: the velocity.
  __host__ __device__ void operator()(float& weight, float gradient, float* states) const {
    states[0] = states[0] * momentum + gradient;
    weight = weight - states[0] * lr;
  }
};

struct Nesterov {
  static constexpr int kStates = 1;
  float momentum, lr;

  // `states`: the velocity.
  __host__ __device__ void operator()(float& weight, float gradient, float* states) const {
    states[0] = states[0] * momentum + gradient;
    weight = weight - (states[0] * momentum + gradient) * lr;
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

struct Ftrl {
  static constexpr int kStates = 2;
  float lr, beta, threshold, least;  // all but the first are the bounds of rows/optimizers/ftrl.py

  // `states`: the sum of squares, and z.
  __host__ __device__ void operator()(float& weight, float gradient, float* states) const {
    const float old_squares = states[0], old_z = old_squares == 0.0f ? weight * -beta : states[1];
    const float squares = old_squares + gradient * gradient, root = sqrtf(squares);
    const float z = old_z + (gradient * lr - (root - sqrtf(old_squares)) * weight);
    const float free = ((z > 0.0f ? threshold : -threshold) - z) / (root + least);
    states[0] = squares;
    states[1] = z;
    const float found = fabsf(z) > threshold ? free : 0.0f;
    weight = squares != 0.0f ? found : weight;
  }
};

// Rules with one number a row, which the mean of its squared gradients changes, and a divisor of that number.
struct RowwiseAdagrad {
  static constexpr int kStates = 0;  // tables with a number for each weight
  float lr, eps;

  __host__ __device__ float accumulate(float accumulator, float mean) const { return accumulator + mean; }
  __host__ __device__ float divisor(float accumulator) const { return sqrtf(accumulator) + eps; }
  __host__ __device__ void operator()(float& weight, float gradient, float divisor, float&) const {
    weight = weight - gradient / divisor * lr;
  }
};

struct RowwiseAdam {
  static constexpr int kStates = 1;
  float beta1, rest1, beta2, rest2, eps, step_size, root_scale;  // as of `Adam`

  __host__ __device__ float accumulate(float second, float mean) const { return second * beta2 + mean * rest2; }
  __host__ __device__ float divisor(float second) const { return sqrtf(second) * root_scale + eps; }

  // `first`: the running mean of gradients.
  __host__ __device__ void operator()(float& weight, float gradient, float divisor, float& first) const {
    first = first * beta1 + gradient * rest1;
    weight = weight - first / divisor * step_size;
  }
};

}  // namespace bagpipe
