// Shares out a loop over threads in contiguous pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

// How many threads are worth their start, some 20 us, where `bytes` are to be moved.
inline int64_t worth_threads(int64_t bytes, int64_t threads) {
    constexpr int64_t BYTES_A_THREAD = 1 << 20;
    return std::max<int64_t>(1, std::min(threads, bytes / BYTES_A_THREAD));
}

// Calls body(first, last) for pieces of [0, count), one a thread; the calling thread takes the first one, and those whose
// threads the system does not start.
template <class Body>
void for_pieces(int64_t count, int64_t threads, const Body &body) {
    threads = std::max<int64_t>(1, std::min(threads, count));
    const auto work = [=, &body](int64_t piece) { body(count * piece / threads, count * (piece + 1) / threads); };
    std::vector<std::thread> others;
    int64_t started = 1;
    try {
        others.reserve(threads - 1);
        for (; started < threads; ++started) others.emplace_back(work, started);
    } catch (const std::exception &) {
    }
    work(0);
    for (int64_t piece = started; piece < threads; ++piece) work(piece);
    for (std::thread &other : others) other.join();
}
