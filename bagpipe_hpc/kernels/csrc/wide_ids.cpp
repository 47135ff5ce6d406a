// Counts integers of 64 bits and texts, and gives them their ids: the fast path of
// data_prep/vocabularies/wide_values.py.
//
// Integers lie in hash tables with open addressing that belong to the caller, as those of value_ids.cpp: a power of two
// of slots, some of them free. Texts lie in an object of their own, which one thread at a time may change and any
// number may ask. Values are taken in small groups: a first loop asks for the memory of their slots, a second one finds
// it in the cache.
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "id_tables.h"
#include "simd.h"

namespace {

// Fibonacci hashing (Knuth, TAOCP 6.4). The upper half is folded in first: of a cross of two values it is one of them.
inline uint64_t home(uint64_t value, int shift) {
  return ((value ^ value >> 32) * uint64_t{0x9E3779B97F4A7C15u}) >> shift;
}

// A value with its count, or with its id; free where that is 0.
struct Slot {
  uint64_t value;
  int64_t number;
};

struct Slots {
  Slot* slots;
  int shift;
  uint64_t last;

  Slots(Slot* slots_, int64_t bits)
      : slots(slots_), shift(static_cast<int>(64 - bits)), last((uint64_t{1} << bits) - 1) {}

  void prefetch(uint64_t value) const { __builtin_prefetch(&slots[home(value, shift)], 1); }
  // The slot of a value, or the free one where it belongs.
  Slot& find(uint64_t value) const {
    uint64_t place = home(value, shift);
    while (slots[place].number != 0 && slots[place].value != value) place = (place + 1) & last;
    return slots[place];
  }
};

template <typename Id, typename Find>
BAGPIPE_INLINE void write_ids(const uint8_t* present, int64_t offset, int64_t rows, int64_t stride, Id* ids,
                              Find&& find) {
  if (present == nullptr) {
    for (int64_t row = 0; row < rows; ++row) ids[row * stride] = static_cast<Id>(find(row));
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t id = find(row);
      ids[row * stride] = static_cast<Id>(is_present(present, offset + row) ? id : 0);
    }
  }
}

// Ids [rows], `stride` apart, of 4 or 8 bytes: what `find` gives for a row, 0 where its value is missing.
template <typename Find>
BAGPIPE_INLINE void write_ids(const uint8_t* present, int64_t offset, int64_t rows, int64_t stride, void* ids,
                              int64_t id_bytes, Find&& find) {
  if (id_bytes == sizeof(int32_t)) {
    write_ids(present, offset, rows, stride, static_cast<int32_t*>(ids), find);
  } else {
    write_ids(present, offset, rows, stride, static_cast<int64_t*>(ids), find);
  }
}

// ---- Texts.

inline uint64_t load64(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline uint64_t load32(const char* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Of a table in memory alone: it need not be the same on other machines.
inline uint64_t hash_text(const char* text, uint64_t length) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t hash = length * kOdd;
  const char* end = text + length;
  for (; end - text > 8; text += 8) hash = mix(hash ^ load64(text)) + kOdd;
  const uint64_t left = static_cast<uint64_t>(end - text);
  uint64_t rest = 0;
  if (left >= 4) {
    rest = load32(text) | load32(end - 4) << 32;
  } else if (left > 0) {
    rest = static_cast<uint8_t>(text[0]) | static_cast<uint64_t>(static_cast<uint8_t>(text[left / 2])) << 8 |
           static_cast<uint64_t>(static_cast<uint8_t>(end[-1])) << 16;
  }
  return mix(hash ^ rest);
}

struct TextColumn {
  const char* characters;
  const int32_t* offsets;
  const uint8_t* present;
  int64_t offset;

  const char* text(int64_t row) const { return characters + offsets[offset + row]; }
  uint64_t length(int64_t row) const {
    return static_cast<uint64_t>(offsets[offset + row + 1] - offsets[offset + row]);
  }
};

// Distinct texts, numbered as they came, with their counts.
class Texts {
 public:
  Texts() : slots_(kFirstSlots, 0) {}

  void add(const TextColumn& column, int64_t rows) {
    uint64_t hashes[kGroup];
    for (int64_t first = 0; first < rows; first += kGroup) {
      const int64_t last = first + kGroup < rows ? first + kGroup : rows;
      if (2 * (counts_.size() + kGroup) > slots_.size()) grow();
      for (int64_t row = first; row < last; ++row) {
        hashes[row - first] = hash_text(column.text(row), column.length(row));
        __builtin_prefetch(&slots_[hashes[row - first] & (slots_.size() - 1)], 1);
      }
      for (int64_t row = first; row < last; ++row) {
        if (!is_present(column.present, column.offset + row)) continue;
        const uint64_t hash = hashes[row - first];
        uint64_t& slot = slots_[place(column.text(row), column.length(row), hash)];
        if (slot == 0) {
          characters_.insert(characters_.end(), column.text(row), column.text(row) + column.length(row));
          ends_.push_back(static_cast<int64_t>(characters_.size()));
          counts_.push_back(0);
          slot = (hash & ~kNumbers) | counts_.size();
        }
        ++counts_[(slot & kNumbers) - 1];
      }
    }
  }

  // One more than the number of a text; 0 where it is not there.
  int64_t find(const char* text, uint64_t length) const {
    return static_cast<int64_t>(slots_[place(text, length, hash_text(text, length))] & kNumbers);
  }

  const std::vector<char>& characters() const { return characters_; }
  const std::vector<int64_t>& ends() const { return ends_; }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  static constexpr size_t kFirstSlots = 1 << 10;
  static constexpr uint64_t kNumbers = (uint64_t{1} << 40) - 1;  // the other bits of a slot are those of the hash

  uint64_t place(const char* text, uint64_t length, uint64_t hash) const {
    const uint64_t last = slots_.size() - 1;
    for (uint64_t at = hash & last;; at = (at + 1) & last) {
      const uint64_t slot = slots_[at];
      if (slot == 0) return at;
      if (((slot ^ hash) & ~kNumbers) != 0) continue;
      const uint64_t number = (slot & kNumbers) - 1;
      const int64_t begin = number == 0 ? 0 : ends_[number - 1];
      if (static_cast<uint64_t>(ends_[number] - begin) == length &&
          (length == 0 || std::memcmp(characters_.data() + begin, text, length) == 0)) {
        return at;
      }
    }
  }

  void grow() {
    std::vector<uint64_t> old(slots_.size() * 2, 0);
    old.swap(slots_);
    const uint64_t last = slots_.size() - 1;
    for (const uint64_t slot : old) {
      if (slot == 0) continue;
      const uint64_t number = (slot & kNumbers) - 1;
      const int64_t begin = number == 0 ? 0 : ends_[number - 1];
      uint64_t at = hash_text(characters_.data() + begin, static_cast<uint64_t>(ends_[number] - begin)) & last;
      while (slots_[at] != 0) at = (at + 1) & last;
      slots_[at] = slot;
    }
  }

  std::vector<uint64_t> slots_;
  std::vector<char> characters_;
  std::vector<int64_t> ends_;
  std::vector<int64_t> counts_;
};

}  // namespace

// Counts integers in slots. Stops before a group of values when `used` slots exceed `most_used`, so that the caller
// makes the table larger. Returns how many of the `rows` values it has seen, from `offset` on; `used` is brought up to
// date.
BAGPIPE_EXPORT int64_t count_integers(Slot* slots, int64_t bits, const uint64_t* values, const uint8_t* present,
                                      int64_t offset, int64_t rows, int64_t most_used, int64_t* used) {
  const Slots table(slots, bits);
  int64_t at = 0, filled = *used;
  while (at < rows && filled <= most_used) {
    const int64_t end = at + kGroup < rows ? at + kGroup : rows;
    for (int64_t row = at; row < end; ++row) table.prefetch(values[offset + row]);
    for (int64_t row = at; row < end; ++row) {
      if (!is_present(present, offset + row)) continue;
      Slot& slot = table.find(values[offset + row]);
      filled += slot.number == 0;
      slot.value = values[offset + row];
      ++slot.number;
    }
    at = end;
  }
  *used = filled;
  return at;
}

// Moves the slots of a table to an empty larger one.
BAGPIPE_EXPORT void move_integers(const Slot* old, int64_t old_slots, Slot* slots, int64_t bits) {
  const Slots table(slots, bits);
  for (int64_t number = 0; number < old_slots; ++number) {
    if (old[number].number != 0) table.find(old[number].value) = old[number];
  }
}

// Fills an empty vocabulary: distinct values get the ids 1, 2, ... in their order.
BAGPIPE_EXPORT void fill_integers(const uint64_t* values, int64_t count, Slot* slots, int64_t bits) {
  const Slots table(slots, bits);
  for (int64_t number = 0; number < count; ++number) table.find(values[number]) = {values[number], number + 1};
}

// Ids [rows] of integers, `stride` apart, of 4 or 8 bytes; those that are missing or not in the vocabulary have id 0.
BAGPIPE_EXPORT void find_integers(Slot* slots, int64_t bits, const uint64_t* values, const uint8_t* present,
                                  int64_t offset, int64_t rows, int64_t stride, void* ids, int64_t id_bytes) {
  const Slots table(slots, bits);
  values += offset;
  write_ids(present, offset, rows, stride, ids, id_bytes, [&](int64_t row) {
    if (row % kGroup == 0) {
      for (int64_t next = row; next < rows && next < row + kGroup; ++next) table.prefetch(values[next]);
    }
    return table.find(values[row]).number;
  });
}

// The same of integers that lie close to each other: `table` has the ids of those from `first` on, and a 0 at its end.
BAGPIPE_EXPORT void find_near_integers(const uint32_t* table, int64_t last, uint64_t first, const uint64_t* values,
                                       const uint8_t* present, int64_t offset, int64_t rows, int64_t stride, void* ids,
                                       int64_t id_bytes) {
  values += offset;
  write_ids(present, offset, rows, stride, ids, id_bytes, [&](int64_t row) {
    // Differences are taken modulo 2^64, so that every integer outside the span is beyond its end.
    const uint64_t distance = values[row] - first;
    return static_cast<int64_t>(table[distance < static_cast<uint64_t>(last) ? distance : static_cast<uint64_t>(last)]);
  });
}

// The same by hashing, 1 .. hashed_ids.
BAGPIPE_EXPORT void hash_integers(int64_t hashed_ids, const uint64_t* values, const uint8_t* present, int64_t offset,
                                  int64_t rows, int64_t stride, void* ids, int64_t id_bytes) {
  write_ids(present, offset, rows, stride, ids, id_bytes, [&](int64_t row) {
    return static_cast<int64_t>(1 + mix(values[offset + row]) % static_cast<uint64_t>(hashed_ids));
  });
}

// Null where memory does not suffice.
BAGPIPE_EXPORT Texts* create_texts() {
  try {
    return new Texts;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

BAGPIPE_EXPORT void destroy_texts(Texts* texts) { delete texts; }

// Counts texts; 0 where memory does not suffice, and then the table can only be destroyed.
BAGPIPE_EXPORT int64_t count_texts(Texts* texts, const char* characters, const int32_t* offsets, const uint8_t* present,
                                   int64_t offset, int64_t rows) {
  try {
    texts->add({characters, offsets, present, offset}, rows);
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// `sizes` [2]: distinct texts, and their characters.
BAGPIPE_EXPORT void size_of_texts(const Texts* texts, int64_t* sizes) {
  sizes[0] = static_cast<int64_t>(texts->counts().size());
  sizes[1] = static_cast<int64_t>(texts->characters().size());
}

// All texts as they came: where each ends, and its count, both [texts].
BAGPIPE_EXPORT void copy_texts(const Texts* texts, char* characters, int64_t* ends, int64_t* counts) {
  const size_t bytes = texts->counts().size() * sizeof(int64_t);
  if (bytes == 0) return;
  if (!texts->characters().empty()) std::memcpy(characters, texts->characters().data(), texts->characters().size());
  std::memcpy(ends, texts->ends().data(), bytes);
  std::memcpy(counts, texts->counts().data(), bytes);
}

// As find_integers: the id of a text is one more than its number.
BAGPIPE_EXPORT void find_texts(const Texts* texts, const char* characters, const int32_t* offsets,
                               const uint8_t* present, int64_t offset, int64_t rows, int64_t stride, void* ids,
                               int64_t id_bytes) {
  const TextColumn column{characters, offsets, present, offset};
  write_ids(present, offset, rows, stride, ids, id_bytes,
            [&](int64_t row) { return texts->find(column.text(row), column.length(row)); });
}
