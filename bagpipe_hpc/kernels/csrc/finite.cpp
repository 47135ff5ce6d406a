// Looks for NaN and infinity: in rows that have just been updated, and in whole arrays such as the weights of a layer.
//
// A number is one of them where all bits of its exponent are set. Whole rows and blocks are read without a branch.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "parallel.h"
#include "simd.h"

namespace {

constexpr uint32_t EXPONENT = 0x7f800000u;
constexpr int64_t BLOCK = 4096;   // numbers between two looks at what was found
constexpr int64_t ROWS_AHEAD = 8;

inline __attribute__((always_inline)) bool all_finite(const float *numbers, int64_t count) {
    uint32_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, numbers + i, sizeof bits);
        found |= (bits & EXPONENT) == EXPONENT ? 1u : 0u;
    }
    return found == 0;
}

BAGPIPE_CLONES bool array_is_finite(const float *numbers, int64_t count) {
    for (int64_t first = 0; first < count; first += BLOCK)
        if (!all_finite(numbers + first, std::min(BLOCK, count - first))) return false;
    return true;
}

// The first of rows first .. last - 1 that is not finite, or `none`.
BAGPIPE_CLONES int64_t first_row(const float *table, int64_t width, const int32_t *slots, int64_t first, int64_t last,
                                 int64_t none) {
    for (int64_t i = first; i < last; ++i) {
        if (i + ROWS_AHEAD < last) __builtin_prefetch(table + slots[i + ROWS_AHEAD] * width);
        if (!all_finite(table + slots[i] * width, width)) return i;
    }
    return none;
}

}  // namespace

// The first of `count` slots whose row in any of some tables holds NaN or infinity; `count` if none does.
BAGPIPE_EXPORT int64_t first_row_not_finite(const float *const *tables, const int64_t *widths, int64_t parts,
                                            const int32_t *slots, int64_t count, int64_t threads) {
    int64_t bytes = 0;
    for (int64_t part = 0; part < parts; ++part) bytes += count * widths[part] * 4;
    std::atomic<int64_t> found{count};
    for_pieces(count, worth_threads(bytes, threads), [&](int64_t first, int64_t last) {
        for (int64_t part = 0; part < parts; ++part)
            lower_to(found, first_row(tables[part], widths[part], slots, first, last, count));
    });
    return found;
}

// The first of some arrays that holds NaN or infinity; `arrays` if none does.
BAGPIPE_EXPORT int64_t first_array_not_finite(const float *const *numbers, const int64_t *counts, int64_t arrays) {
    for (int64_t array = 0; array < arrays; ++array)
        if (!array_is_finite(numbers[array], counts[array])) return array;
    return arrays;
}
