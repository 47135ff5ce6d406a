// A value for each row of a table, zero at first: an array over all rows, or a hash table of those that are in use.
// Both have the same members, so that the code which uses them is the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "zero_pages.h"

namespace bagpipe {

template <class Value>
class DenseRows {
 public:
  explicit DenseRows(std::int64_t rows) : values_(static_cast<std::size_t>(rows)) {}

  // Whether the values are likely to be in the nearest cache anyway.
  bool is_small() const { return values_.bytes() <= kSmallBytes; }
  void prefetch(std::int64_t row) const { __builtin_prefetch(values_.data() + row, 1); }
  Value& operator[](std::int64_t row) { return values_[static_cast<std::size_t>(row)]; }
  // Makes room for further rows.
  void reserve(std::int64_t) {}
  // Forgets a row that has a value; all rows.
  void erase(std::int64_t) {}
  void clear() {}
  std::size_t bytes() const { return values_.bytes(); }

 private:
  static constexpr std::size_t kSmallBytes = std::size_t{16} << 10;

  ZeroPages<Value> values_;
};

// Open addressing with linear probing. Erasing moves later entries of a run back instead of leaving marks, so look-ups
// stay short however long it lives, and its size follows the largest number of rows that were in it together.
template <class Value>
class HashedRows {
 public:
  explicit HashedRows(std::int64_t) : entries_(std::size_t{1} << kFirstBits) {}

  bool is_small() const { return false; }
  void prefetch(std::int64_t row) const { __builtin_prefetch(entries_.data() + home(key_of(row)), 1); }

  // Takes the row in if it is not there, which needs room for it.
  Value& operator[](std::int64_t row) {
    const std::uint64_t key = key_of(row);
    std::size_t place = home(key);
    while (entries_[place].key != key) {
      if (entries_[place].key == kEmpty) {
        entries_[place].key = key;
        ++count_;
        break;
      }
      place = next(place);
    }
    return entries_[place].value;
  }

  void reserve(std::int64_t rows) {
    int bits = bits_;
    while ((count_ + static_cast<std::size_t>(rows)) * 10 > (std::size_t{1} << bits) * kMostTenths) ++bits;
    if (bits != bits_) grow(bits);
  }

  void erase(std::int64_t row) {
    const std::uint64_t key = key_of(row);
    std::size_t hole = home(key);
    while (entries_[hole].key != key) hole = next(hole);
    for (std::size_t place = next(hole); entries_[place].key != kEmpty; place = next(place)) {
      if (distance(home(entries_[place].key), place) >= distance(hole, place)) {  // its run began at or before the hole
        entries_[hole] = entries_[place];
        hole = place;
      }
    }
    entries_[hole] = Entry{};
    --count_;
  }

  void clear() {
    if (count_ > 0) std::fill_n(entries_.data(), entries_.size(), Entry{});
    count_ = 0;
  }

  std::size_t bytes() const { return entries_.bytes(); }

 private:
  struct Entry {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  static constexpr std::uint64_t kEmpty = 0;
  static constexpr int kFirstBits = 6;
  static constexpr std::size_t kMostTenths = 7;

  static std::uint64_t key_of(std::int64_t row) { return static_cast<std::uint64_t>(row) + 1; }

  // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4): neighbours are spread evenly.
  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ull >> (64 - bits_));
  }
  std::size_t next(std::size_t place) const { return (place + 1) & (entries_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const { return (to - from) & (entries_.size() - 1); }

  void grow(int bits) {
    ZeroPages<Entry> old(std::size_t{1} << bits);
    std::swap(old, entries_);
    bits_ = bits;
    for (std::size_t from = 0; from < old.size(); ++from) {
      if (old[from].key == kEmpty) continue;
      std::size_t place = home(old[from].key);
      while (entries_[place].key != kEmpty) place = next(place);
      entries_[place] = old[from];
    }
  }

  ZeroPages<Entry> entries_;
  int bits_ = kFirstBits;
  std::size_t count_ = 0;
};

}  // namespace bagpipe
