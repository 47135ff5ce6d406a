// Shares out a loop over threads in contiguous pieces.
#pragma once

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// The threads that torch computes with, where it is loaded: those of the OpenMP runtime in this process, found by the
// names that GCC's calls and LLVM's and Intel's have as well. They spin for milliseconds behind each of torch's
// operations, so other threads beside them would wait for a core.
struct OpenMP {
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags) = nullptr;
    int (*thread)() = nullptr;
    int (*threads)() = nullptr;
    int (*most_threads)() = nullptr;

    static OpenMP find() {
        OpenMP found;
#if !defined(__SANITIZE_THREAD__)  // which does not see how OpenMP's threads wait for each other
        found.parallel = reinterpret_cast<decltype(parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
        found.thread = reinterpret_cast<decltype(thread)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
        found.threads = reinterpret_cast<decltype(threads)>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
        found.most_threads = reinterpret_cast<decltype(most_threads)>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
#endif
        return found;
    }

    // Of the main thread, which computes, if it has so many threads; any other one would get a team of its own, that
    // spins beside the first.
    static const OpenMP *team(int64_t threads) {
        static const OpenMP found = find();
        if (!found.parallel || !found.thread || !found.threads || !found.most_threads) return nullptr;
        const bool is_main = syscall(SYS_gettid) == getpid();
        return is_main && found.most_threads() >= threads ? &found : nullptr;
    }
};

// Calls body(first, last) for pieces of [0, count), one a thread; the calling thread takes the first one. Threads are
// those of torch where the main thread calls and they are enough, else new ones; where the system starts fewer, these
// take more pieces.
template <class Body>
void for_pieces(int64_t count, int64_t threads, const Body &body) {
    threads = std::max<int64_t>(1, std::min(threads, count));
    const auto work = [=, &body](int64_t piece) { body(count * piece / threads, count * (piece + 1) / threads); };
    if (threads == 1) return work(0);
    if (const OpenMP *openmp = OpenMP::team(threads)) {
        auto take = [&] {
            for (int64_t piece = openmp->thread(); piece < threads; piece += openmp->threads()) work(piece);
        };
        using Take = decltype(take);
        const auto call = [](void *data) { (*static_cast<Take *>(data))(); };
        // Always the whole team: threads that a smaller one leaves out end, and are started again for the next.
        return openmp->parallel(call, &take, 0, 0);
    }
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
