// Makes the gradient of a linear layer's outputs ready for the products of the backward pass, in one pass over it: masked
// where the layer's ReLU gave zero, summed over the samples, and transposed for those products that want that. An output
// of NaN masks nothing, as in torch.
//
// Or multiplied with the layer's inputs, where these are few and want no gradient of their own: that is the gradient of
// the weight, and all that a first layer needs.
//
// Sums start with 0 and run over the samples in order, those of a product over blocks of samples and then over the
// blocks, so the results are those of the torch twin in output_gradient.py, bit for bit, whatever the instruction set and
// however columns are shared out over threads.
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

// A product of few inputs with the masked gradient. Behind the inputs of a sample comes a 1, whose product is the bias's.
struct FewInputs {
    int64_t samples, width, count;
    const float *gradient;  // [B, O]
    const float *outputs;   // [B, O]; null without ReLU
    const float *inputs;    // [B, I]
    float *totals;          // [padded_factors(I), O], to work in
    float *for_weight;      // [O, I]
    float *for_bias;        // [O]
};

constexpr int64_t FACTORS = 8;         // of a sample that a kernel takes at once
constexpr int64_t PRODUCT_BLOCK = 64;  // samples that are summed up before their sum is added to that of the ones before
constexpr int64_t MOST_INPUTS = 32;

constexpr int64_t padded_factors(int64_t inputs) { return (inputs + FACTORS) / FACTORS * FACTORS; }

struct Kernels {
    void (*columns)(const Matrices &matrices, int64_t first, int64_t last);
    void (*multiply)(const FewInputs &product, int64_t first, int64_t last);
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

// Rows of `width` numbers that `weight_gradient` works in; 0 for more inputs than it takes.
BAGPIPE_EXPORT int64_t weight_gradient_room(int64_t inputs) {
    return inputs <= MOST_INPUTS ? padded_factors(inputs) : 0;
}

// The gradients of a weight and a bias.
BAGPIPE_EXPORT void weight_gradient(int64_t samples, int64_t width, int64_t inputs, const float *gradient,
                                    const float *outputs, const float *values, float *totals, float *for_weight,
                                    float *for_bias, int64_t threads) {
    const FewInputs product{samples, width, inputs, gradient, outputs, values, totals, for_weight, for_bias};
    for_pieces((width + LINE - 1) / LINE, threads, [=](int64_t first, int64_t last) {
        kernels->multiply(product, first * LINE, std::min(last * LINE, width));
    });
}
