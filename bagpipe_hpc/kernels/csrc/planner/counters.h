// Counts that a thread adds to row after row.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace bagpipe {

// Lines come in pairs from memory.
constexpr std::size_t kLineBytes = 128;

// Leaves a line free before and behind: threads that write to one line in turn wait for it each time. (glibc keeps no
// aligned memory at hand for a thread.)
template <class T>
struct WholeLines {
  using value_type = T;

  WholeLines() = default;
  template <class Other>
  WholeLines(const WholeLines<Other>&) {}

  T* allocate(std::size_t count) {
    return reinterpret_cast<T*>(static_cast<char*>(::operator new(count * sizeof(T) + 2 * kLineBytes)) + kLineBytes);
  }
  void deallocate(T* items, std::size_t) { ::operator delete(reinterpret_cast<char*>(items) - kLineBytes); }

  friend bool operator==(const WholeLines&, const WholeLines&) { return true; }
  friend bool operator!=(const WholeLines&, const WholeLines&) { return false; }
};

// An array of one thread's own counts.
template <class T>
using Counters = std::vector<T, WholeLines<T>>;

}  // namespace bagpipe
