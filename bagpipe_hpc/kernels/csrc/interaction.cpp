// Dot products of every pair of a sample's vectors: the interaction of DLRM, forward and backward.
//
// A sample has V = F + 1 vectors of D floats: the bottom MLP's output, then F embedding rows. Pair (i, j), j < i, is
// number i (i - 1) / 2 + j. Every sum starts with 0 and runs from left to right, each product rounded before it is
// added (CXX_FLAGS in setup.py), so the results are those of the torch twin in interaction.py, bit for bit, whatever
// the instruction set and however samples are shared out over threads.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "parallel.h"
#include "simd.h"

namespace {

constexpr int64_t WIDEST = 16;  // floats of the widest register

// Of arrays that whole registers are read from and written to.
inline int64_t padded(int64_t count) { return (count + WIDEST - 1) / WIDEST * WIDEST; }

inline int64_t first_pair(int64_t i) { return i * (i - 1) / 2; }

// Memory that begins at a line of the cache: no register that is read from it lies in two.
class Room {
public:
    explicit Room(int64_t count) : _memory(new float[count + LINE]) {
        const auto address = reinterpret_cast<uintptr_t>(_memory.get());
        _first = _memory.get() + (LINE - address / sizeof(float) % LINE) % LINE;
    }
    operator float *() { return _first; }

private:
    static constexpr int64_t LINE = 16;
    std::unique_ptr<float[]> _memory;
    float *_first;
};

struct Shape {
    int64_t features, width;
    int64_t vectors() const { return features + 1; }
    int64_t pairs() const { return first_pair(vectors()); }
    int64_t padded_width() const { return padded(width); }
};

// What a kernel works in, large enough for any: a register holds WIDEST samples, vectors are taken four at once.
struct Products {
    float *columns;   // of all vectors: [V, columns, samples]
    float *sums;      // of pairs: [.., samples]
    int64_t *places;  // of the pairs among the sums
};

struct Kernels {
    // Outputs `[samples, D + pairs]`: the bottom MLP's output, then the pairs.
    void (*forward)(const Shape &shape, int64_t samples, const float *bottom, const float *embeddings, float *outputs,
                    const Products &room);
    // `gradients [samples, D + pairs]`, whose rows begin `stride` numbers apart; the bottom MLP's output has one of its
    // own, to which the sum over its pairs is added. `values` and `sums`, to work in, are `[V, D]` with padded rows.
    void (*backward)(const Shape &shape, int64_t samples, const float *gradients, int64_t stride, const float *bottom,
                     const float *embeddings, float *bottom_gradients, float *embedding_gradients, float *values,
                     float *sums);
};

}  // namespace

#define BAGPIPE_KERNELS "interaction_kernels.inc"
#include "instruction_sets.inc"

BAGPIPE_EXPORT void interaction_forward(int64_t samples, int64_t features, int64_t width, const float *bottom,
                                        const float *embeddings, float *outputs, int64_t threads) {
    const Shape shape{features, width};
    const auto multiply = [=](int64_t first, int64_t last) {
        const int64_t vectors = shape.vectors() + 4;
        Room columns(vectors * WIDEST * WIDEST), sums(vectors * (vectors + 4) / 2 * WIDEST);
        std::vector<int64_t> places(shape.pairs());
        kernels->forward(shape, last - first, bottom + first * width, embeddings + first * features * width,
                         outputs + first * (width + shape.pairs()), {columns, sums, places.data()});
    };
    for_pieces(samples, threads, multiply, WIDEST);  // registers of samples are full
}

BAGPIPE_EXPORT void interaction_backward(int64_t samples, int64_t features, int64_t width, const float *gradients,
                                         int64_t stride, const float *bottom, const float *embeddings,
                                         float *bottom_gradients, float *embedding_gradients, int64_t threads) {
    const Shape shape{features, width};
    for_pieces(samples, threads, [=](int64_t first, int64_t last) {
        const int64_t size = shape.vectors() * shape.padded_width();
        Room values(size), sums(size);
        kernels->backward(shape, last - first, gradients + first * stride, stride, bottom + first * width,
                          embeddings + first * features * width, bottom_gradients + first * width,
                          embedding_gradients + first * features * width, values, sums);
    });
}
