// Shares out a loop over threads in contiguous pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

// How many threads are worth their start, some 20 us, where `bytes` are to be moved.
inline int64_t worth_threads(int64_t bytes, int64_t threads) {
    constexpr int64_t BYTES_A_THREAD = 1 << 20;
    return std::max<int64_t>(1, std::min(threads, bytes / BYTES_A_THREAD));
}

// Calls body(first, last) for pieces of [0, count), one a thread; the calling thread takes the first one.
template <class Body>
void for_pieces(int64_t count, int64_t threads, const Body &body) {
    threads = std::max<int64_t>(1, std::min(threads, count));
    std::vector<std::thread> others;
    for (int64_t piece = 1; piece < threads; ++piece)
        others.emplace_back([=, &body] { body(count * piece / threads, count * (piece + 1) / threads); });
    body(0, count / threads);
    for (std::thread &other : others) other.join();
}
