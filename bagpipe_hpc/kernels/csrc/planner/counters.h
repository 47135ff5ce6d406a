// Counts that a thread adds to row after row.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace bagpipe {

// Lines come in pairs from memory.
constexpr std::size_t kLineBytes = 128;

// Gives whole lines of the caches: threads that write to one line in turn wait for it each time.
template <class T>
struct WholeLines {
  using value_type = T;

  WholeLines() = default;
  template <class Other>
  WholeLines(const WholeLines<Other>&) {}

  T* allocate(std::size_t count) {
    const std::size_t lines = (count * sizeof(T) + kLineBytes - 1) / kLineBytes;
    return static_cast<T*>(::operator new(lines * kLineBytes, std::align_val_t{kLineBytes}));
  }
  void deallocate(T* items, std::size_t) { ::operator delete(items, std::align_val_t{kLineBytes}); }

  friend bool operator==(const WholeLines&, const WholeLines&) { return true; }
  friend bool operator!=(const WholeLines&, const WholeLines&) { return false; }
};

// An array of one thread's own counts.
template <class T>
using Counters = std::vector<T, WholeLines<T>>;

}  // namespace bagpipe
