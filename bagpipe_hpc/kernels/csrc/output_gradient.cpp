// Makes the gradient of a linear layer's outputs ready for the products of the backward pass: masked where the layer's
// ReLU gave zero, summed over the samples, and transposed for those products that want that. An output of NaN masks
// nothing, as in torch.
//
// Or multiplied with the layer's inputs, where these are few and want no gradient of their own: that is the gradient of
// the weight, and all that a first layer needs.
//
// Sums start with 0 and run over the samples of a block in order, then over the blocks of a part, then over the parts.
// How many there are depends on the number of samples alone, so the results are those of the torch twin in
// output_gradient.py, bit for bit, whatever the instruction set and however parts are shared out over threads.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "parallel.h"
#include "simd.h"
#include "streaming.h"

namespace {

constexpr int64_t BLOCK = 64;  // samples
constexpr int64_t MOST_PARTS = 16;
constexpr int64_t FACTORS = 8;       // of a sample that a kernel takes at once
constexpr int64_t WIDEST_TILE = 32;  // outputs, of those kernels
constexpr int64_t MOST_INPUTS = 32;
constexpr int64_t WIDEST = 16;  // floats of the widest register, which is a line

struct Matrices {
    int64_t samples, width;
    const float *gradient;  // [B, O]
    const float *outputs;   // [B, O]; null without ReLU
    float *masked;          // [B, O], perhaps `gradient` itself; null without ReLU
    float *transposed;      // [O, B]; null where it is not wanted
    bool streams;           // the transpose goes past the caches; its rows begin with a line
};

// A product of few inputs with the masked gradient. Behind the inputs of a sample comes a 1, whose product is the
// bias's.
struct FewInputs {
    int64_t width, count;
    const float *gradient;  // [B, O]
    const float *outputs;   // [B, O]; null without ReLU
    const float *inputs;    // [B, I]

    int64_t padded_width() const { return (width + WIDEST_TILE - 1) / WIDEST_TILE * WIDEST_TILE; }
};

constexpr int64_t padded_factors(int64_t inputs) { return (inputs + FACTORS) / FACTORS * FACTORS; }

// Both take samples `first .. last - 1`, a part.
struct Kernels {
    // `sums [O]`; `of_block [O]` to work in.
    void (*prepare)(const Matrices &matrices, int64_t first, int64_t last, float *sums, float *of_block);
    // `totals [padded_factors(I), padded O]`; `values [BLOCK, padded O]` to work in.
    void (*multiply)(const FewInputs &product, int64_t first, int64_t last, float *totals, float *values);
};

// Shares out samples in parts over threads. `work(first, last, sums, room)` leaves `size` numbers of a part in `sums`,
// and works in a room of `room_size`. The totals of the first `wanted` over the parts go to `totals`.
template <class Work>
void sum_parts(int64_t samples, int64_t threads, int64_t size, int64_t room_size, int64_t wanted, float *totals,
               const Work &work) {
    const int64_t blocks = (samples + BLOCK - 1) / BLOCK;
    const int64_t of_part = std::max<int64_t>(1, (blocks + MOST_PARTS - 1) / MOST_PARTS) * BLOCK;
    const int64_t parts = (samples + of_part - 1) / of_part;
    const std::unique_ptr<float[]> memory(new float[parts * size]);
    float *const sums = memory.get();
    for_pieces(parts, threads, [=, &work](int64_t first, int64_t last) {
        const std::unique_ptr<float[]> room(new float[room_size]);
        for (int64_t part = first; part < last; ++part)
            work(part * of_part, std::min((part + 1) * of_part, samples), sums + part * size, room.get());
    });
    std::memset(totals, 0, wanted * sizeof(float));
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t i = 0; i < wanted; ++i) totals[i] += sums[part * size + i];
}

}  // namespace

#define BAGPIPE_KERNELS "output_gradient_kernels.inc"
#include "instruction_sets.inc"

// Masked, transposed, and its sums `[O]`.
BAGPIPE_EXPORT void output_gradient(int64_t samples, int64_t width, const float *gradient, const float *outputs,
                                    float *masked, float *transposed, float *sums, int64_t threads) {
    const bool is_large = samples * width * static_cast<int64_t>(sizeof(float)) > stream_bytes;
    const bool has_lines = is_at_line(transposed) && samples % WIDEST == 0;
    const Matrices matrices{samples, width, gradient, outputs, masked, transposed, is_large && has_lines};
    const auto prepare = [=](int64_t first, int64_t last, float *sums, float *room) {
        kernels->prepare(matrices, first, last, sums, room);
    };
    sum_parts(samples, threads, width, width, width, sums, prepare);
}

BAGPIPE_EXPORT int64_t most_inputs() { return MOST_INPUTS; }

// The gradients of a weight `[O, I]` and a bias `[O]`; I is `most_inputs` at most.
BAGPIPE_EXPORT void weight_gradient(int64_t samples, int64_t width, int64_t inputs, const float *gradient,
                                    const float *outputs, const float *values, float *for_weight, float *for_bias,
                                    int64_t threads) {
    const FewInputs product{width, inputs, gradient, outputs, values};
    const int64_t padded = product.padded_width(), wanted = (inputs + 1) * padded;
    const int64_t all = padded_factors(inputs) * padded;
    const std::unique_ptr<float[]> totals(new float[wanted]);
    const auto multiply = [=](int64_t first, int64_t last, float *sums, float *room) {
        kernels->multiply(product, first, last, sums, room);
    };
    sum_parts(samples, threads, all, BLOCK * padded, wanted, totals.get(), multiply);
    for (int64_t o = 0; o < width; ++o)
        for (int64_t input = 0; input < inputs; ++input) for_weight[o * inputs + input] = totals[input * padded + o];
    std::memcpy(for_bias, totals.get() + inputs * padded, width * sizeof(float));
}
