// Dot products of every pair of a sample's vectors: the interaction of DLRM, forward and backward.
//
// A sample has V = F + 1 vectors of D floats: the bottom MLP's output, then F embedding rows. Pair (i, j), j < i, is number
// i (i - 1) / 2 + j. Every sum starts with 0 and runs from left to right, each product rounded before it is added
// (CXX_FLAGS in setup.py), so the results are those of the torch twin in interaction.py, bit for bit, whatever the
// instruction set and however samples are shared out over threads.
#include <cstdint>
#include <cstring>
#include <vector>

#include "parallel.h"
#include "simd.h"

namespace {

constexpr int64_t LANES = 16;
// One register of AVX-512, two of AVX2, four of SSE2; `aligned` allows loads and stores at any float.
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }
inline int64_t first_pair(int64_t i) { return i * (i - 1) / 2; }
inline const Lanes &lanes(const float *from) { return *reinterpret_cast<const Lanes *>(from); }
inline Lanes &lanes(float *to) { return *reinterpret_cast<Lanes *>(to); }

struct Shape {
    int64_t features, width;
    int64_t vectors() const { return features + 1; }
    int64_t pairs() const { return first_pair(vectors()); }
};

// Rows i .. i + ROWS - 1 of the products of all vectors, `[V, V]`, up to the diagonal; `columns` is `[D, V]`.
template <int ROWS>
inline __attribute__((always_inline)) void multiply_rows(const float *columns, int64_t width, int64_t stride, int64_t i,
                                                         float *products) {
    for (int64_t j = 0; j < i + ROWS - 1; j += LANES) {
        Lanes sums[ROWS] = {};
        for (int64_t d = 0; d < width; ++d) {
            const float *column = columns + d * stride;
            const Lanes others = lanes(column + j);
            for (int row = 0; row < ROWS; ++row) sums[row] += others * column[i + row];
        }
        for (int row = 0; row < ROWS; ++row) lanes(products + (i + row) * stride + j) = sums[row];
    }
}

// Outputs `[samples, D + pairs]`: the bottom MLP's output, then the pairs.
BAGPIPE_CLONES void forward(Shape shape, int64_t samples, const float *bottom, const float *embeddings, float *outputs) {
    const int64_t width = shape.width, vectors = shape.vectors(), stride = padded(vectors + 3);
    std::vector<float> columns(width * stride);     // [D, V]: a register holds one column of many vectors
    std::vector<float> products(stride * stride);   // [V, V]
    std::vector<float> pairs(shape.pairs() + LANES);  // whole registers are stored: each overruns into the next row
    for (int64_t sample = 0; sample < samples; ++sample, bottom += width, embeddings += shape.features * width) {
        for (int64_t d = 0; d < width; ++d) columns[d * stride] = bottom[d];
        for (int64_t v = 1; v < vectors; ++v)
            for (int64_t d = 0; d < width; ++d) columns[d * stride + v] = embeddings[(v - 1) * width + d];
        for (int64_t i = 1; i < vectors; i += 4) multiply_rows<4>(columns.data(), width, stride, i, products.data());
        for (int64_t i = 1; i < vectors; ++i)
            for (int64_t j = 0; j < i; j += LANES)
                lanes(pairs.data() + first_pair(i) + j) = lanes(products.data() + i * stride + j);
        std::memcpy(outputs, bottom, width * sizeof(float));
        std::memcpy(outputs + width, pairs.data(), shape.pairs() * sizeof(float));
        outputs += width + shape.pairs();
    }
}

// Gradients of LANES columns of vectors i .. i + ROWS - 1: sums over all other vectors j of the pair's gradient times
// vector j. `values` and `sums` are `[V, D]` with padded rows.
template <int ROWS>
inline __attribute__((always_inline)) void sum_rows(const float *values, const float *pairs, int64_t vectors,
                                                    int64_t stride, int64_t i, float *sums) {
    Lanes totals[ROWS] = {};
    const float *value = values;
    for (int64_t j = 0; j < i; ++j, value += stride)
        for (int row = 0; row < ROWS; ++row) totals[row] += lanes(value) * pairs[first_pair(i + row) + j];
    for (int64_t j = i; j < i + ROWS; ++j, value += stride)
        for (int row = 0; row < ROWS; ++row)
            if (i + row > j) {
                totals[row] += lanes(value) * pairs[first_pair(i + row) + j];
            } else if (i + row < j) {
                totals[row] += lanes(value) * pairs[first_pair(j) + i + row];
            }
    for (int64_t j = i + ROWS; j < vectors; ++j, value += stride)
        for (int row = 0; row < ROWS; ++row) totals[row] += lanes(value) * pairs[first_pair(j) + i + row];
    for (int row = 0; row < ROWS; ++row) lanes(sums + (i + row) * stride) = totals[row];
}

// `gradients [samples, D + pairs]`; the bottom MLP's output has one of its own, to which the sum over its pairs is added.
BAGPIPE_CLONES void backward(Shape shape, int64_t samples, const float *gradients, const float *bottom,
                             const float *embeddings, float *bottom_gradients, float *embedding_gradients) {
    const int64_t width = shape.width, features = shape.features, vectors = shape.vectors(), stride = padded(width);
    std::vector<float> values(vectors * stride), sums(vectors * stride);
    for (int64_t sample = 0; sample < samples; ++sample) {
        std::memcpy(values.data(), bottom + sample * width, width * sizeof(float));
        for (int64_t v = 0; v < features; ++v)
            std::memcpy(values.data() + (v + 1) * stride, embeddings + (sample * features + v) * width, width * sizeof(float));
        const float *direct = gradients + sample * (width + shape.pairs()), *pairs = direct + width;
        for (int64_t block = 0; block < width; block += LANES) {
            const float *from = values.data() + block;
            float *to = sums.data() + block;
            int64_t i = 0;
            for (; i + 4 <= vectors; i += 4) sum_rows<4>(from, pairs, vectors, stride, i, to);
            for (; i < vectors; ++i) sum_rows<1>(from, pairs, vectors, stride, i, to);
        }
        for (int64_t d = 0; d < width; ++d) bottom_gradients[sample * width + d] = direct[d] + sums[d];
        for (int64_t v = 0; v < features; ++v)
            std::memcpy(embedding_gradients + (sample * features + v) * width, sums.data() + (v + 1) * stride, width * sizeof(float));
    }
}

}  // namespace

BAGPIPE_EXPORT void interaction_forward(int64_t samples, int64_t features, int64_t width, const float *bottom,
                                        const float *embeddings, float *outputs, int64_t threads) {
    const Shape shape{features, width};
    for_pieces(samples, threads, [=](int64_t first, int64_t last) {
        forward(shape, last - first, bottom + first * width, embeddings + first * features * width,
                outputs + first * (width + shape.pairs()));
    });
}

BAGPIPE_EXPORT void interaction_backward(int64_t samples, int64_t features, int64_t width, const float *gradients,
                                         const float *bottom, const float *embeddings, float *bottom_gradients,
                                         float *embedding_gradients, int64_t threads) {
    const Shape shape{features, width};
    for_pieces(samples, threads, [=](int64_t first, int64_t last) {
        backward(shape, last - first, gradients + first * (width + shape.pairs()), bottom + first * width,
                 embeddings + first * features * width, bottom_gradients + first * width,
                 embedding_gradients + first * features * width);
    });
}
