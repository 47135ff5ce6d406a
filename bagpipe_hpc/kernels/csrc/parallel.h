// Shares out a loop over threads in contiguous pieces.
#pragma once

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
    int (*most_threads)() = nullptr;

    static OpenMP find() {
        OpenMP found;
#if !defined(__SANITIZE_THREAD__)  // which does not see how OpenMP's threads wait for each other
        found.parallel = reinterpret_cast<decltype(parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
        found.thread = reinterpret_cast<decltype(thread)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
        found.most_threads = reinterpret_cast<decltype(most_threads)>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
#endif
        return found;
    }

    // Of the main thread, which computes, if it has so many threads; any other one would get a team of its own, that
    // spins beside the first.
    static const OpenMP *team(int64_t threads) {
        static const OpenMP found = find();
        if (!found.parallel || !found.thread || !found.most_threads) return nullptr;
        const bool is_main = syscall(SYS_gettid) == getpid();
        return is_main && found.most_threads() >= threads ? &found : nullptr;
    }
};

// Lowers what several threads lower to the least of their values; `Atomic` is a std::atomic of whole numbers.
template <class Atomic>
void lower_to(Atomic &least, int64_t value) {
    int64_t before = least;
    while (value < before && !least.compare_exchange_weak(before, value)) {
    }
}

// Which thread takes which piece of a loop. Each has a share of its own and takes that first: in one loop after the
// other over the same data a core meets lines that are in its cache. Then it takes what is left of others' shares: none
// waits long for a thread that began late, or whose core another process took.
class Shares {
public:
    Shares(int64_t pieces, int64_t threads) : _shares(threads) {
        for (int64_t share = 0; share < threads; ++share) {
            _shares[share].next = pieces * share / threads;
            _shares[share].end = pieces * (share + 1) / threads;
        }
    }

    // Calls work(piece) until all pieces have been taken; by any number of threads, which are numbered from 0.
    template <class Work>
    void take(int64_t thread, const Work &work) {
        const int64_t threads = _shares.size();
        for (int64_t turn = 0; turn < threads; ++turn) {
            Share &share = _shares[(thread + turn) % threads];
            while (true) {
                const int64_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
                if (piece >= share.end) break;
                work(piece);
            }
        }
    }

private:
    struct alignas(64) Share {  // a line of the cache each: threads write to their own
        std::atomic<int64_t> next;
        int64_t end;
    };
    std::vector<Share> _shares;
};

// Calls body(first, last) for pieces of [0, count) that begin at multiples of `grain`, several a thread. Threads are
// those of torch where the main thread calls and they are enough, else new ones; where the system starts fewer, these
// take more pieces. The body must not throw: in another thread that ends the process.
template <class Body>
void for_pieces(int64_t count, int64_t threads, const Body &body, int64_t grain = 1) {
    constexpr int64_t PIECES_A_THREAD = 8;
    const int64_t grains = (count + grain - 1) / grain;
    threads = std::max<int64_t>(1, std::min(threads, grains));
    if (threads == 1) return body(0, count);
    const int64_t pieces = std::min(threads * PIECES_A_THREAD, grains);
    const auto work = [=, &body](int64_t piece) {
        body(grains * piece / pieces * grain, std::min(grains * (piece + 1) / pieces * grain, count));
    };
    Shares shares(pieces, threads);
    if (const OpenMP *openmp = OpenMP::team(threads)) {
        auto take = [&] { shares.take(openmp->thread(), work); };
        using Take = decltype(take);
        const auto call = [](void *data) { (*static_cast<Take *>(data))(); };
        // Always the whole team: threads that a smaller one leaves out end, and are started again for the next.
        return openmp->parallel(call, &take, 0, 0);
    }
    std::vector<std::thread> others;
    try {
        others.reserve(threads - 1);
        for (int64_t thread = 1; thread < threads; ++thread)
            others.emplace_back([&shares, &work, thread] { shares.take(thread, work); });
    } catch (const std::exception &) {
    }
    shares.take(0, work);
    for (std::thread &other : others) other.join();
}
