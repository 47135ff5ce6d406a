// Makes the gradient of a linear layer's outputs ready for the products of the backward pass, in one pass over it: masked
// where the layer's ReLU gave zero, summed over the samples, and transposed for those products that want that. An output
// of NaN masks nothing, as in torch.
//
// Sums start with 0 and run over the samples in order, so the results are those of the torch twin in output_gradient.py,
// bit for bit, whatever the instruction set and however columns are shared out over threads.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "parallel.h"
#include "simd.h"

namespace {

struct Matrices {
    int64_t samples, width;
    const float *gradient;  // [B, O]
    const float *outputs;   // [B, O]; null without ReLU
    float *masked;          // [B, O]; null without ReLU
    float *transposed;      // [O, B]; null where it is not wanted
    float *sums;            // [O]
};

struct Kernels {
    void (*columns)(const Matrices &matrices, int64_t first, int64_t last);
};

}  // namespace

#define BAGPIPE_KERNELS "output_gradient_kernels.inc"
#include "instruction_sets.inc"

namespace {

constexpr int64_t LINE = 16;  // floats of a line of the cache, which no two threads write

}  // namespace

BAGPIPE_EXPORT void output_gradient(int64_t samples, int64_t width, const float *gradient, const float *outputs,
                                    float *masked, float *transposed, float *sums, int64_t threads) {
    const Matrices matrices{samples, width, gradient, outputs, masked, transposed, sums};
    for_pieces((width + LINE - 1) / LINE, threads, [=](int64_t first, int64_t last) {
        kernels->columns(matrices, first * LINE, std::min(last * LINE, width));
    });
}
