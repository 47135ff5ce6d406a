// Runs loops of csrc/parallel.h over threads of their own, and ends with 0 if each place of a loop was visited once and
// the least of values is kept. With an argument no thread can be started: there is no address space for its stack.
#include <sys/resource.h>

#include <cstdio>
#include <utility>

#include "parallel.h"

namespace {

bool all_once(const std::vector<std::atomic<int>> &visits) {
    return std::all_of(visits.begin(), visits.end(), [](const std::atomic<int> &visited) { return visited == 1; });
}

bool loop_visits_all(int64_t count, int64_t threads, int64_t grain) {
    std::vector<std::atomic<int>> visits(count);
    std::atomic<bool> begin_right{true};
    for_pieces(count, threads, [&](int64_t first, int64_t last) {
        if (first % grain != 0) begin_right = false;
        for (int64_t i = first; i < last; ++i) ++visits[i];
    }, grain);
    return begin_right && all_once(visits);
}

// More threads than shares, which all take from each other's.
bool shares_are_taken_once(int64_t pieces, int64_t shares_of, int64_t threads) {
    std::vector<std::atomic<int>> visits(pieces);
    Shares shares(pieces, shares_of);
    std::vector<std::thread> takers;
    for (int64_t thread = 0; thread < threads; ++thread)
        takers.emplace_back([&, thread] { shares.take(thread, [&](int64_t piece) { ++visits[piece]; }); });
    for (std::thread &taker : takers) taker.join();
    return all_once(visits);
}

// A number that another thread sets between the look and the exchange.
struct Overtaken {
    int64_t value, by_another;
    bool is_overtaken = false;

    operator int64_t() const { return value; }

    bool compare_exchange_weak(int64_t &expected, int64_t desired) {
        if (!is_overtaken) value = by_another;
        is_overtaken = true;
        if (value == expected) return value = desired, true;
        return expected = value, false;
    }
};

int64_t lowered(int64_t from, int64_t by_another, int64_t to) {
    Overtaken number{from, by_another};
    lower_to(number, to);
    return number.value;
}

bool the_least_is_kept() {
    std::atomic<int64_t> number{9};
    for (const auto &[value, least] : {std::pair{7, 7}, {8, 7}, {3, 3}}) {
        lower_to(number, value);
        if (number != least) return false;
    }
    return lowered(5, 1, 2) == 1 && lowered(5, 4, 2) == 2 && lowered(5, 5, 2) == 2;
}

}  // namespace

int main(int arguments, char **) {
    if (!the_least_is_kept()) return std::puts("the least of values"), 1;
    if (arguments > 1) {
        const rlimit none{0, 0};
        loop_visits_all(1000, 1, 1);  // leaves memory that the loops below need
        setrlimit(RLIMIT_AS, &none);
    } else {
        for (int loop = 0; loop < 20; ++loop)
            if (!shares_are_taken_once(200000, 3, 5)) return std::puts("a share"), 1;
    }
    for (const int64_t grain : {1, 16})
        for (const int64_t count : {0, 1, 2, 15, 16, 17, 33, 1000})
            for (const int64_t threads : {1, 2, 3, 20})
                if (!loop_visits_all(count, threads, grain))
                    return std::printf("count %ld, threads %ld, grain %ld\n", count, threads, grain), 1;
    return 0;
}
