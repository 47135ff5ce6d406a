// How many rows of a batch are on which list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include "counters.h"

namespace bagpipe {

// The lists of a batch's rows: needed by the next batch, not needed by it, and each trainer's private rows.
constexpr std::uint16_t kNow = 0;
constexpr std::uint16_t kLater = 1;
constexpr std::uint16_t kFirstPrivate = 2;

// The pools that fetched rows get their slots from: the shared one, and each trainer's private one.
constexpr std::size_t kSharedPool = 0;
inline std::size_t pool_of(std::uint16_t list) { return list < kFirstPrivate ? kSharedPool : list - kFirstPrivate + 1; }

class Tally {
 public:
  explicit Tally(std::size_t trainers) : on_list_(kFirstPrivate + trainers), fetched_(1 + trainers) {}

  std::int64_t& on_list(std::size_t list) { return on_list_[list]; }
  std::int64_t& fetched(std::size_t pool) { return fetched_[pool]; }
  std::int64_t& dead() { return dead_; }
  const Counters<std::int64_t>& all_on_list() const { return on_list_; }
  const Counters<std::int64_t>& all_fetched() const { return fetched_; }

  void clear() {
    std::fill(on_list_.begin(), on_list_.end(), 0);
    std::fill(fetched_.begin(), fetched_.end(), 0);
    dead_ = 0;
  }
  void add(const Tally& other) {
    for (std::size_t list = 0; list < on_list_.size(); ++list) on_list_[list] += other.on_list_[list];
    for (std::size_t pool = 0; pool < fetched_.size(); ++pool) fetched_[pool] += other.fetched_[pool];
    dead_ += other.dead_;
  }

 private:
  Counters<std::int64_t> on_list_;
  Counters<std::int64_t> fetched_;
  std::int64_t dead_ = 0;
};

}  // namespace bagpipe
