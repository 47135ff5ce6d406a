// Operations on embedding rows in main memory: the native twin of bagpipe_hpc/kernels/rows/reference.py and of
// the formulas in bagpipe_hpc/rows/optimizers, called by native.py.
//
// Tables, records and gradients are float32, slots and positions int32, all contiguous. The caller has checked that
// slots lie in their tables and positions in their range (`largest_index`), and sees to it that the slots of one call
// differ, but for `add_records`. Every result is the same for any number of threads and for each instruction set.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "parallel.h"
#include "simd.h"
#include "streaming.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

namespace {

// A table whose rows are numbers `offset` to `offset + width` of a record.
struct Column {
    float *table;
    int64_t width;
    int64_t offset;
};

// Rows or look-ups of one part; `end` is where prefetching stops.
struct Range {
    int64_t first, last, end;
};

// The positions of one part of a sum. They are spread by a hash, since neighbours may be used much more than others.
struct Share {
    uint32_t part, parts;
    ALWAYS_INLINE bool holds(int32_t position) const {
        const uint32_t hash = (static_cast<uint32_t>(position) * 0x9E3779B1u) >> 16;
        return (hash * parts) >> 16 == part;
    }
};

// Those of look-ups: each its own, or that of its output, times its scale where there are any.
struct Gradients {
    const float *values;
    const int32_t *outputs;
    const float *scales;
};

// Rows of a table that are added up: those of look-ups `starts[o]` to `starts[o + 1]` to output o.
struct PooledLookUps {
    const float *table;
    int64_t width;
    const int32_t *slots;
    const int32_t *positions;
    const int32_t *starts;
    const float *scales;
};

struct Sgd {
    float *weights;
    float lr;
};

struct Momentum {
    float *weights;
    float *velocity;
    float momentum, lr;
};

struct Nesterov {
    float *weights;
    float *velocity;
    float momentum, lr;
};

struct RowwiseAdagrad {
    float *weights;
    float *sums;
    float lr, eps;
};

struct Adagrad {
    float *weights;
    float *sums;
    float lr, eps;
};

struct Adam {
    float *weights;
    float *first;
    float *second;
    float beta1, rest1, beta2, rest2, eps, step_size, root_scale;
};

struct RowwiseAdam {
    float *weights;
    float *first;
    float *second;
    float beta1, rest1, beta2, rest2, eps, step_size, root_scale;
};

struct Ftrl {
    float *weights;
    float *squares;
    float *z;
    float lr, beta, threshold, least;
};

template <class Optimizer>
using Update = void (*)(const Optimizer &, const int32_t *slots, const float *gradients, Range rows, int64_t width);

struct Kernels {
    void (*gather)(const Column &, const int32_t *slots, const int32_t *positions, Range rows, float *records,
                   int64_t record_width, bool stream);
    void (*scatter)(const Column &, const int32_t *slots, Range rows, const float *records, int64_t record_width,
                    bool stream);
    void (*add)(const Column &, const int32_t *slots, Range rows, const float *records);
    void (*sum)(const Gradients &gradients, const int32_t *positions, int64_t look_ups, int64_t width, float *sums,
                uint8_t *is_begun, Share share);
    void (*pool)(const PooledLookUps &look_ups, Range outputs, float *pooled);
    Update<Sgd> sgd;
    Update<Momentum> momentum;
    Update<Nesterov> nesterov;
    Update<RowwiseAdagrad> rowwise_adagrad;
    Update<Adagrad> adagrad;
    Update<Adam> adam;
    Update<RowwiseAdam> rowwise_adam;
    Update<Ftrl> ftrl;
};

}  // namespace

#define BAGPIPE_KERNELS "row_kernels.inc"
#include "instruction_sets.inc"

namespace {

template <class Optimizer>
void update(Update<Optimizer> kernel, const Optimizer &optimizer, const int32_t *slots, const float *gradients,
            int64_t rows, int64_t width, int threads) {
    for_pieces(rows, worth_threads(rows * width * 12, threads), [&](int64_t first, int64_t last) {
        kernel(optimizer, slots, gradients, Range{first, last, last}, width);
    });
}

// What is copied at once where there are several columns: a record's line is then still in the first cache for its next
// one.
constexpr int64_t PIECE_ROWS = 64;

struct Record {
    std::vector<Column> columns;
    int64_t width = 0;

    Record(float *const *tables, const int64_t *widths, int64_t count) {
        for (int64_t i = 0; i < count; width += widths[i++]) columns.push_back({tables[i], widths[i], width});
    }

    // Calls work(column, piece) for all columns of all rows, in threads.
    template <class Work>
    void over_rows(int64_t rows, int threads, const Work &work) const {
        for_pieces(rows, worth_threads(rows * width * 8, threads), [&](int64_t first, int64_t last) {
            const int64_t step = columns.size() == 1 ? last - first : PIECE_ROWS;
            for (int64_t row = first; row < last; row += step) {
                for (const Column &column : columns) work(column, Range{row, std::min(row + step, last), last});
            }
            finish_streaming();
        });
    }
};

void gather(const Record &record, const int32_t *slots, const int32_t *positions, int64_t rows, float *records,
            int threads) {
    const int64_t bytes = rows * record.width * 4;
    const bool stream = bytes > stream_bytes && is_at_line(records) && record.columns.size() == 1;
    record.over_rows(rows, threads, [&](const Column &column, Range piece) {
        kernels->gather(column, slots, positions, piece, records, record.width, stream);
    });
}

void scatter(const Record &record, const int32_t *slots, int64_t rows, const float *records, int threads) {
    const int64_t bytes = rows * record.width * 4;
    record.over_rows(rows, threads, [&](const Column &column, Range piece) {
        const bool stream = bytes > stream_bytes && is_at_line(column.table);
        kernels->scatter(column, slots, piece, records, record.width, stream);
    });
}

// `sums [count, width]` is written in full: positions without a look-up get 0.
void sum(const Gradients &gradients, const int32_t *positions, int64_t look_ups, int64_t width, float *sums,
         int64_t count, int threads) {
    const int64_t parts = worth_threads(look_ups * width * 8, threads);
    std::vector<uint8_t> all_begun(parts * count);  // of each part its own, since neighbouring bytes share a line
    const auto sum_share = [&](int64_t part) {
        const Share share = {static_cast<uint32_t>(part), static_cast<uint32_t>(parts)};
        uint8_t *is_begun = all_begun.data() + part * count;
        kernels->sum(gradients, positions, look_ups, width, sums, is_begun, share);
        for (int64_t position = 0; position < count; ++position) {
            if (!is_begun[position] && share.holds(static_cast<int32_t>(position))) {
                std::memset(sums + position * width, 0, width * sizeof(float));
            }
        }
    };
    for_pieces(parts, parts, [&](int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) sum_share(part);
    });
}

// The first of `outputs` in front of which there are `work` outputs and look-ups.
int64_t output_after(const int32_t *starts, int64_t outputs, int64_t work) {
    int64_t first = 0;
    while (first < outputs) {
        const int64_t middle = (first + outputs) / 2;
        if (middle + starts[middle] < work) {
            first = middle + 1;
        } else {
            outputs = middle;
        }
    }
    return first;
}

}  // namespace

// The largest of `count` numbers, where a negative one counts as more than any other.
BAGPIPE_CLONES static uint32_t largest_of(const int32_t *numbers, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint32_t>(numbers[i]));
    return largest;
}

BAGPIPE_EXPORT int64_t largest_index(const int32_t *numbers, int64_t count) { return largest_of(numbers, count); }

BAGPIPE_EXPORT void gather_look_ups(float *table, int64_t width, const int32_t *slots, const int32_t *positions,
                                    int64_t look_ups, float *found, int32_t threads) {
    gather(Record(&table, &width, 1), slots, positions, look_ups, found, threads);
}

BAGPIPE_EXPORT void gather_records(float *const *tables, const int64_t *widths, int64_t count, const int32_t *slots,
                                   int64_t rows, float *records, int32_t threads) {
    gather(Record(tables, widths, count), slots, nullptr, rows, records, threads);
}

BAGPIPE_EXPORT void scatter_records(float *const *tables, const int64_t *widths, int64_t count, const int32_t *slots,
                                    int64_t rows, const float *records, int32_t threads) {
    scatter(Record(tables, widths, count), slots, rows, records, threads);
}

// Slots may repeat: each record is added, in their order, by one thread.
BAGPIPE_EXPORT void add_records(float *table, int64_t width, const int32_t *slots, int64_t rows, const float *records) {
    kernels->add(Column{table, width, 0}, slots, Range{0, rows, rows}, records);
}

BAGPIPE_EXPORT void sum_by_position(const float *gradients, const int32_t *positions, int64_t look_ups, int64_t width,
                                    float *sums, int64_t count, int32_t threads) {
    sum(Gradients{gradients, nullptr, nullptr}, positions, look_ups, width, sums, count, threads);
}

// Of each look-up the gradient of its output, times its scale; `scales` may be null.
BAGPIPE_EXPORT void sum_pooled(const float *gradients, const int32_t *outputs, const float *scales,
                               const int32_t *positions, int64_t look_ups, int64_t width, float *sums, int64_t count,
                               int32_t threads) {
    sum(Gradients{gradients, outputs, scales}, positions, look_ups, width, sums, count, threads);
}

// `pooled [outputs, width]` is written in full: outputs without a look-up get 0. `scales` may be null.
BAGPIPE_EXPORT void pool(const float *table, int64_t width, const int32_t *slots, const int32_t *positions,
                         const int32_t *starts, const float *scales, int64_t outputs, float *pooled, int32_t threads) {
    const PooledLookUps look_ups = {table, width, slots, positions, starts, scales};
    const int64_t work = outputs + starts[outputs];  // bags differ in size: threads share this out, not the outputs
    for_pieces(work, worth_threads(work * width * 4, threads), [&](int64_t first, int64_t last) {
        const int64_t end = output_after(starts, outputs, last);
        kernels->pool(look_ups, Range{output_after(starts, outputs, first), end, end}, pooled);
    });
}

// Whether `starts [outputs + 1]` lead from 0 to the number of look-ups without a step back.
BAGPIPE_EXPORT int32_t are_starts(const int32_t *starts, int64_t outputs, int64_t look_ups) {
    bool ascends = starts[0] == 0 && starts[outputs] == look_ups;
    for (int64_t o = 0; o < outputs; ++o) ascends &= starts[o] <= starts[o + 1];
    return ascends;
}

BAGPIPE_EXPORT void apply_sgd(float *weights, int64_t width, const int32_t *slots, const float *gradients, int64_t rows,
                              float lr, int32_t threads) {
    update(kernels->sgd, Sgd{weights, lr}, slots, gradients, rows, width, threads);
}

BAGPIPE_EXPORT void apply_momentum(float *weights, float *velocity, int64_t width, const int32_t *slots,
                                   const float *gradients, int64_t rows, float momentum, float lr, int32_t threads) {
    update(kernels->momentum, Momentum{weights, velocity, momentum, lr}, slots, gradients, rows, width, threads);
}

BAGPIPE_EXPORT void apply_nesterov(float *weights, float *velocity, int64_t width, const int32_t *slots,
                                   const float *gradients, int64_t rows, float momentum, float lr, int32_t threads) {
    update(kernels->nesterov, Nesterov{weights, velocity, momentum, lr}, slots, gradients, rows, width, threads);
}

BAGPIPE_EXPORT void apply_rowwise_adagrad(float *weights, float *sums, int64_t width, const int32_t *slots,
                                          const float *gradients, int64_t rows, float lr, float eps, int32_t threads) {
    update(kernels->rowwise_adagrad, RowwiseAdagrad{weights, sums, lr, eps}, slots, gradients, rows, width, threads);
}

BAGPIPE_EXPORT void apply_adagrad(float *weights, float *sums, int64_t width, const int32_t *slots,
                                  const float *gradients, int64_t rows, float lr, float eps, int32_t threads) {
    update(kernels->adagrad, Adagrad{weights, sums, lr, eps}, slots, gradients, rows, width, threads);
}

// `rest1` and `rest2` are 1 - beta1 and 1 - beta2; `step_size` and `root_scale` are the factors of
// rows/optimizers/adam.py.
BAGPIPE_EXPORT void apply_adam(float *weights, float *first, float *second, int64_t width, const int32_t *slots,
                               const float *gradients, int64_t rows, float beta1, float rest1, float beta2, float rest2,
                               float eps, float step_size, float root_scale, int32_t threads) {
    const Adam adam = {weights, first, second, beta1, rest1, beta2, rest2, eps, step_size, root_scale};
    update(kernels->adam, adam, slots, gradients, rows, width, threads);
}

BAGPIPE_EXPORT void apply_rowwise_adam(float *weights, float *first, float *second, int64_t width, const int32_t *slots,
                                       const float *gradients, int64_t rows, float beta1, float rest1, float beta2,
                                       float rest2, float eps, float step_size, float root_scale, int32_t threads) {
    const RowwiseAdam adam = {weights, first, second, beta1, rest1, beta2, rest2, eps, step_size, root_scale};
    update(kernels->rowwise_adam, adam, slots, gradients, rows, width, threads);
}

// `beta`, `threshold` and `least` are the bounds of rows/optimizers/ftrl.py.
BAGPIPE_EXPORT void apply_ftrl(float *weights, float *squares, float *z, int64_t width, const int32_t *slots,
                               const float *gradients, int64_t rows, float lr, float beta, float threshold,
                               float least, int32_t threads) {
    const Ftrl ftrl = {weights, squares, z, lr, beta, threshold, least};
    update(kernels->ftrl, ftrl, slots, gradients, rows, width, threads);
}
