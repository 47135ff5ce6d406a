// Results that are written past the caches, with the stores of an instruction set that do so (`stream` of
// output_gradient_kernels.inc, `copy_row` of row_moves.inc): the line is not read before, and what others use stays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "simd.h"

// Bytes of the last cache that a core has its share of, as Linux says (sysfs-devices-system-cpu); 0 where it does not.
// The C library may name what all cores of an AMD processor have together, ten times as much.
inline int64_t last_cache_bytes() {
    int64_t kilobytes = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kilobytes;  // "32768K"
    return kilobytes > 0 ? kilobytes << 10 : 0;
}

// Results that do not fit in half of the last cache would be gone before they are read.
inline int64_t usual_stream_bytes() { return std::max<int64_t>(last_cache_bytes(), 16 << 20) / 2; }

static int64_t stream_bytes = usual_stream_bytes();

inline bool is_at_line(const void *pointer) {
    constexpr int64_t CACHE_LINE = 64;
    return reinterpret_cast<uintptr_t>(pointer) % CACHE_LINE == 0;
}

// Such stores are not ordered with the later ones that tell another thread of them.
inline void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

// Lets tests write results past the caches: from another size on, 0 the usual one. Returns the size.
BAGPIPE_EXPORT int64_t stream_from(int64_t bytes) { return stream_bytes = bytes > 0 ? bytes : usual_stream_bytes(); }
