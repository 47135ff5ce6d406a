// Makes the gradient of a linear layer's outputs ready for the products of the backward pass, in one pass over it: masked
// where the layer's ReLU gave zero, summed over the samples, and transposed for those products that want that. An output
// of NaN masks nothing, as in torch.
//
// Sums start with 0 and run over the samples in order, so the results are those of the torch twin in output_gradient.py,
// bit for bit, whatever the instruction set and however columns are shared out over threads.
#include <cstdint>
#include <cstring>

#include "parallel.h"
#include "simd.h"

namespace {

constexpr int64_t LANES = 16;
// One register of AVX-512, two of AVX2, four of SSE2; `aligned` allows loads and stores at any float.
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t Bits __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

inline const Lanes &lanes(const float *from) { return *reinterpret_cast<const Lanes *>(from); }
inline Lanes &lanes(float *to) { return *reinterpret_cast<Lanes *>(to); }

// Transposes 16 rows of 16 in registers: each round interleaves the rows of both halves, four rounds make the transpose.
inline __attribute__((always_inline)) void transpose(Lanes rows[LANES]) {
    constexpr Bits LOW = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    constexpr Bits HIGH = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
        Lanes mixed[LANES];
#pragma GCC unroll 8
        for (int row = 0; row < LANES / 2; ++row) {
            mixed[2 * row] = __builtin_shuffle(rows[row], rows[row + LANES / 2], LOW);
            mixed[2 * row + 1] = __builtin_shuffle(rows[row], rows[row + LANES / 2], HIGH);
        }
#pragma GCC unroll 16
        for (int row = 0; row < LANES; ++row) rows[row] = mixed[row];
    }
}

struct Matrices {
    int64_t samples, width;
    const float *gradient;  // [B, O]
    const float *outputs;   // [B, O]; null without ReLU
    float *masked;          // [B, O]; null without ReLU
    float *transposed;      // [O, B]; null where it is not wanted
    float *sums;            // [O]
};

// One column, or the samples that are left of a block of columns.
inline void column(const Matrices &m, int64_t o, int64_t first_sample) {
    for (int64_t b = first_sample; b < m.samples; ++b) {
        float value = m.gradient[b * m.width + o];
        if (m.outputs) m.masked[b * m.width + o] = value = m.outputs[b * m.width + o] <= 0.0f ? 0.0f : value;
        if (m.transposed) m.transposed[o * m.samples + b] = value;
        m.sums[o] += value;
    }
}

BAGPIPE_CLONES void columns(Matrices m, int64_t first, int64_t last) {
    std::memset(m.sums + first, 0, (last - first) * sizeof(float));
    const int64_t whole_columns = first + (last - first) / LANES * LANES, whole_samples = m.transposed ? m.samples / LANES * LANES : 0;
    for (int64_t b = 0; b < whole_samples; b += LANES) {
        for (int64_t o = first; o < whole_columns; o += LANES) {
            Lanes block[LANES], sum = lanes(m.sums + o);
#pragma GCC unroll 16
            for (int64_t row = 0; row < LANES; ++row) {
                const int64_t at = (b + row) * m.width + o;
                block[row] = lanes(m.gradient + at);
                if (m.outputs) {
                    block[row] = reinterpret_cast<Lanes>(reinterpret_cast<Bits>(block[row]) & ~(lanes(m.outputs + at) <= 0.0f));
                    lanes(m.masked + at) = block[row];
                }
                sum += block[row];
            }
            lanes(m.sums + o) = sum;
            transpose(block);
#pragma GCC unroll 16
            for (int64_t row = 0; row < LANES; ++row) lanes(m.transposed + (o + row) * m.samples + b) = block[row];
        }
    }
    if (!m.transposed)  // row after row: without a transpose no block need stay in registers
        for (int64_t b = 0; b < m.samples; ++b)
            for (int64_t o = first; o < whole_columns; o += LANES) {
                Lanes values = lanes(m.gradient + b * m.width + o);
                if (m.outputs) {
                    const Lanes outputs = lanes(m.outputs + b * m.width + o);
                    values = reinterpret_cast<Lanes>(reinterpret_cast<Bits>(values) & ~(outputs <= 0.0f));
                    lanes(m.masked + b * m.width + o) = values;
                }
                lanes(m.sums + o) += values;
            }
    else
        for (int64_t o = first; o < whole_columns; ++o) column(m, o, whole_samples);
    for (int64_t o = whole_columns; o < last; ++o) column(m, o, 0);
}

}  // namespace

BAGPIPE_EXPORT void output_gradient(int64_t samples, int64_t width, const float *gradient, const float *outputs,
                                    float *masked, float *transposed, float *sums, int64_t threads) {
    const Matrices matrices{samples, width, gradient, outputs, masked, transposed, sums};
    const int64_t blocks = (width + LANES - 1) / LANES;
    for_pieces(blocks, threads, [=](int64_t first, int64_t last) {
        columns(matrices, first * LANES, std::min(last * LANES, width));
    });
}
