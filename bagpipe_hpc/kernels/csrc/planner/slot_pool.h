// Slots of the row caches: which are free, and how many were ever in use at once. As planning/slots.py, slot by slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bagpipe {

// Slots that were handed out together, in their order. Good until the pool takes slots back.
class Grant {
 public:
  Grant() = default;
  Grant(const std::int32_t* end_of_free, std::int64_t reused, std::int64_t first_fresh)
      : end_of_free_(end_of_free), reused_(reused), first_fresh_(first_fresh) {}

  std::int32_t operator[](std::int64_t index) const {
    return index < reused_ ? end_of_free_[-1 - index] : static_cast<std::int32_t>(first_fresh_ + (index - reused_));
  }

 private:
  const std::int32_t* end_of_free_ = nullptr;
  std::int64_t reused_ = 0;
  std::int64_t first_fresh_ = 0;
};

class SlotPool {
 public:
  explicit SlotPool(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t peak() const { return peak_; }
  // What the peak is once `count` slots more are in use.
  std::int64_t peak_with(std::int64_t count) const { return peak_ + std::max(count - free_count_, std::int64_t{0}); }
  bool has(std::int64_t count) const { return peak_with(count) <= capacity_; }

  // Hands out slots, of which there must be enough: first those that were given back, the latest first.
  Grant take(std::int64_t count) {
    const std::int64_t reused = std::min(count, free_count_);
    const Grant grant(free_.data() + free_count_, reused, peak_);
    peak_ = peak_with(count);
    free_count_ -= reused;
    return grant;
  }

  // Takes `count` slots back. Returns where they are to be written, in their order.
  std::int32_t* take_back(std::int64_t count) {
    const auto needed = static_cast<std::size_t>(free_count_ + count);
    if (needed > free_.size()) free_.resize(std::max({needed, 2 * free_.size(), std::size_t{64}}));
    std::int32_t* const first = free_.data() + free_count_;
    free_count_ += count;
    return first;
  }

  std::size_t bytes() const { return free_.size() * sizeof(std::int32_t); }

 private:
  std::int64_t capacity_;
  std::int64_t peak_ = 0;
  std::vector<std::int32_t> free_;  // the first free_count_ of them
  std::int64_t free_count_ = 0;
};

// The most slots that were in use at once in a trainer's own pool; the first pool is the shared one.
inline std::int64_t largest_private_peak(const std::vector<SlotPool>& pools) {
  std::int64_t peak = 0;
  for (std::size_t pool = 1; pool < pools.size(); ++pool) peak = std::max(peak, pools[pool].peak());
  return peak;
}

}  // namespace bagpipe
