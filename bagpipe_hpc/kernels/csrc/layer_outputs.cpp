// What follows a linear layer's matrix product: the bias and the ReLU, in one pass.
//
// A number is added and compared, so the results are those of the torch twin in layer_outputs.py, bit for bit, whatever
// the instruction set and however samples are shared out over threads.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.h"
#include "simd.h"

namespace {

struct Kernels {
    // Adds `bias [O]` to samples `first .. last - 1` of `outputs [B, O]`.
    void (*finish)(int64_t width, const float *bias, bool has_relu, int64_t first, int64_t last, float *outputs);
};

}  // namespace

#define BAGPIPE_KERNELS "layer_outputs_kernels.inc"
#include "instruction_sets.inc"

// In place: `outputs [B, O]`, `bias [O]`.
BAGPIPE_EXPORT void finish_outputs(int64_t samples, int64_t width, const float *bias, int32_t has_relu, float *outputs,
                                   int64_t threads) {
    threads = worth_threads(samples * width * static_cast<int64_t>(sizeof(float)), threads);
    for_pieces(samples, threads, [=](int64_t first, int64_t last) {
        kernels->finish(width, bias, has_relu != 0, first, last, outputs);
    });
}
