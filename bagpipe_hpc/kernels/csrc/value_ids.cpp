// Counts the 32-bit values of a column, and gives values their ids: the fast path of
// data_prep/vocabularies/vocabulary.py.
//
// Both use hash tables with open addressing whose slots are 64-bit numbers, so that a probe is one memory access; a
// slot of 0 is free. Values are taken in small groups: a first loop asks for the memory of their slots, a second one
// finds it in the cache. Tables belong to the caller and have a power of two of slots, some of them free.
#include <cstdint>

#include "id_tables.h"
#include "simd.h"

namespace {

constexpr int kTileRows = 512;  // whose ids of all tables (up to 208 bytes a row) stay in the nearest caches
constexpr uint64_t kValue = 0xFFFFFFFFu;
constexpr uint64_t kOne = uint64_t{1} << 32;

// Fibonacci hashing (Knuth, TAOCP 6.4): the upper bits of a product with 2^64 / golden ratio.
inline uint64_t home(uint32_t value, int shift) { return (value * uint64_t{0x9E3779B97F4A7C15u}) >> shift; }

// The values of a group that are there, without gaps; their number.
inline int gather(const uint32_t* values, const uint8_t* present, int64_t at, int count, uint32_t* found) {
  int number = 0;
  for (int index = 0; index < count; ++index) {
    found[number] = values[at + index];
    number += is_present(present, at + index);  // No branch: which values are missing cannot be foreseen.
  }
  return number;
}

// One categorical column of the rows: values and validity bits (null: all are there), from bit `offset` on.
struct Column {
  const uint32_t* values;
  const uint8_t* present;
  int64_t offset;
};

// The id that a vocabulary of slots (value << 32 | id) gives a value; 0 if it has none.
struct Vocabulary {
  const uint64_t* slots;
  int shift;
  uint64_t last;

  void prefetch(uint32_t value) const { __builtin_prefetch(&slots[home(value, shift)]); }
  uint64_t id(uint32_t value) const {
    uint64_t place = home(value, shift);
    while (slots[place] != 0 && slots[place] >> 32 != value) place = (place + 1) & last;
    return slots[place] & kValue;
  }
};

struct Hash {
  uint64_t ids;  // 1 .. ids

  void prefetch(uint32_t) const {}
  uint64_t id(uint32_t value) const { return 1 + mix(value) % ids; }
};

template <typename Map, typename Id>
inline void map_column(const Map& map, const Column& column, int64_t first, int64_t last, int64_t stride, Id* ids) {
  const uint32_t* values = column.values + column.offset;
  for (int64_t at = first; at < last; at += kGroup) {
    const int64_t end = at + kGroup < last ? at + kGroup : last;
    for (int64_t row = at; row < end; ++row) map.prefetch(values[row]);
    for (int64_t row = at; row < end; ++row) {
      const uint64_t id = map.id(values[row]);
      ids[row * stride] = static_cast<Id>(is_present(column.present, column.offset + row) ? id : 0);
    }
  }
}

template <typename Id>
void map_rows(const uint32_t* const* values, const uint8_t* const* present, const int64_t* offsets,
              const uint64_t* const* slots, const int64_t* bits, int64_t hashed_ids, int64_t rows, int64_t tables,
              const int64_t* places, int64_t stride, Id* ids) {
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t last = first + kTileRows < rows ? first + kTileRows : rows;
    for (int64_t table = 0; table < tables; ++table) {
      const Column column{values[table], present[table], offsets[table]};
      if (slots[table] == nullptr) {
        map_column(Hash{static_cast<uint64_t>(hashed_ids)}, column, first, last, stride, ids + places[table]);
      } else {
        const Vocabulary vocabulary{slots[table], static_cast<int>(64 - bits[table]),
                                    (uint64_t{1} << bits[table]) - 1};
        map_column(vocabulary, column, first, last, stride, ids + places[table]);
      }
    }
  }
}

}  // namespace

// Counts values in slots of (count << 32 | value). A count stays at its largest when it gets there.
//
// Stops before a group of values when `used` slots exceed `most_used`, so that the caller makes the table larger.
// Returns how many of the `rows` values it has seen, from `offset` on; `used` is brought up to date.
BAGPIPE_EXPORT int64_t count_values(uint64_t* slots, int64_t bits, const uint32_t* values, const uint8_t* present,
                                    int64_t offset, int64_t rows, int64_t most_used, int64_t* used) {
  const int shift = static_cast<int>(64 - bits);
  const uint64_t last = (uint64_t{1} << bits) - 1;
  int64_t at = 0, filled = *used;
  while (at < rows && filled <= most_used) {
    uint32_t group[kGroup];
    uint64_t places[kGroup];
    const int length = static_cast<int>(rows - at < kGroup ? rows - at : kGroup);
    const int number = gather(values, present, offset + at, length, group);
    for (int index = 0; index < number; ++index) {
      places[index] = home(group[index], shift);
      __builtin_prefetch(&slots[places[index]], 1);
    }
    for (int index = 0; index < number; ++index) {
      const uint32_t value = group[index];
      uint64_t place = places[index];
      while (slots[place] != 0 && (slots[place] & kValue) != value) place = (place + 1) & last;
      const uint64_t found = slots[place];
      filled += found == 0;
      slots[place] = found == 0 ? kOne | value : found + (found < ~kValue ? kOne : 0);
    }
    at += length;
  }
  *used = filled;
  return at;
}

// Moves the slots of a counting table to an empty larger one.
BAGPIPE_EXPORT void move_counts(const uint64_t* old, int64_t old_slots, uint64_t* slots, int64_t bits) {
  const int shift = static_cast<int>(64 - bits);
  const uint64_t last = (uint64_t{1} << bits) - 1;
  for (int64_t number = 0; number < old_slots; ++number) {
    if (old[number] == 0) continue;
    uint64_t place = home(static_cast<uint32_t>(old[number]), shift);
    while (slots[place] != 0) place = (place + 1) & last;
    slots[place] = old[number];
  }
}

// Fills an empty vocabulary: distinct values get the ids 1, 2, ... in their order.
BAGPIPE_EXPORT void fill_vocabulary(const uint32_t* values, int64_t count, uint64_t* slots, int64_t bits) {
  const int shift = static_cast<int>(64 - bits);
  const uint64_t last = (uint64_t{1} << bits) - 1;
  for (int64_t first = 0; first < count; first += kGroup) {
    const int64_t end = first + kGroup < count ? first + kGroup : count;
    for (int64_t number = first; number < end; ++number) __builtin_prefetch(&slots[home(values[number], shift)], 1);
    for (int64_t number = first; number < end; ++number) {
      uint64_t place = home(values[number], shift);
      while (slots[place] != 0) place = (place + 1) & last;
      slots[place] = static_cast<uint64_t>(values[number]) << 32 | static_cast<uint64_t>(number + 1);
    }
  }
}

// Ids of the values of some tables, each at its place in the `stride` ids of a row; missing ones have id 0. An id is
// that of the table's vocabulary, or 1 + hash mod hashed_ids where the table has no slots.
BAGPIPE_EXPORT void map_rows_to_int32(const uint32_t* const* values, const uint8_t* const* present,
                                      const int64_t* offsets, const uint64_t* const* slots, const int64_t* bits,
                                      int64_t hashed_ids, int64_t rows, int64_t tables, const int64_t* places,
                                      int64_t stride, int32_t* ids) {
  map_rows(values, present, offsets, slots, bits, hashed_ids, rows, tables, places, stride, ids);
}

BAGPIPE_EXPORT void map_rows_to_int64(const uint32_t* const* values, const uint8_t* const* present,
                                      const int64_t* offsets, const uint64_t* const* slots, const int64_t* bits,
                                      int64_t hashed_ids, int64_t rows, int64_t tables, const int64_t* places,
                                      int64_t stride, int64_t* ids) {
  map_rows(values, present, offsets, slots, bits, hashed_ids, rows, tables, places, stride, ids);
}
