// Ids of a block of samples become global rows of a batch.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "simd.h"

namespace {

constexpr std::int64_t kAhead = 8;  // samples between asking for memory and using it
constexpr std::size_t kLineBytes = 64;

// Returns whether all ids are those of their tables.
template <class Id>
inline __attribute__((always_inline)) bool place(const Id* __restrict ids, const std::int64_t* __restrict samples,
                                                 std::int64_t count, std::int64_t features,
                                                 const std::int64_t* __restrict table_rows,
                                                 const std::int64_t* __restrict first_rows,
                                                 std::int64_t* __restrict rows) {
  std::uint64_t signs = 0;  // the highest bit is set by an id that is below 0, or not below the rows of its table
  for (std::int64_t number = 0; number < count; ++number) {
    const auto* const coming =
        reinterpret_cast<const char*>(ids + samples[std::min(number + kAhead, count - 1)] * features);
    for (std::size_t byte = 0; byte < static_cast<std::size_t>(features) * sizeof(Id); byte += kLineBytes) {
      __builtin_prefetch(coming + byte);
    }
    const Id* const from = ids + samples[number] * features;
    std::int64_t* const to = rows + number * features;
    for (std::int64_t feature = 0; feature < features; ++feature) {
      const auto id = static_cast<std::uint64_t>(static_cast<std::int64_t>(from[feature]));
      signs |= id | (static_cast<std::uint64_t>(table_rows[feature]) - 1 - id);
      to[feature] = static_cast<std::int64_t>(id + static_cast<std::uint64_t>(first_rows[feature]));
    }
  }
  return signs >> 63 == 0;
}

}  // namespace

// `ids` [any, features] of 4 or 8 bytes, `samples` [count], `table_rows` and `first_rows` [features], `rows` [count,
// features].
BAGPIPE_EXPORT BAGPIPE_CLONES std::int64_t place_look_ups(const void* ids, std::int64_t width,
                                                          const std::int64_t* samples, std::int64_t count,
                                                          std::int64_t features, const std::int64_t* table_rows,
                                                          const std::int64_t* first_rows, std::int64_t* rows) {
  return width == 4
             ? place(static_cast<const std::int32_t*>(ids), samples, count, features, table_rows, first_rows, rows)
             : place(static_cast<const std::int64_t*>(ids), samples, count, features, table_rows, first_rows, rows);
}
