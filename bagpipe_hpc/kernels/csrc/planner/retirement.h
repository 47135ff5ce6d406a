// The rows that are dead: written back with their group, whose slots are free when all trainers have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "buffer.h"
#include "plan_arrays.h"
#include "slot_pool.h"

namespace bagpipe {

// The rows that die with a batch: where they lie until their slots are free again, and who writes them back.
struct RetiredRows {
  std::int64_t group = 0;  // group that they leave with
  std::int64_t count = 0;
  Buffer<std::int64_t> rows;  // global rows
  Buffer<std::int32_t> slots;
  Buffer<std::uint16_t> writers;         // trainers
  std::vector<std::int64_t> written_by;  // how many each trainer writes back

  void start(std::int64_t leaves_with, std::int64_t dead) {
    group = leaves_with;
    count = dead;
    rows.make_room(dead);
    slots.make_room(dead);
    writers.make_room(dead);
  }

  void count_writers(std::int64_t trainers) {
    written_by.assign(static_cast<std::size_t>(trainers), 0);
    for (std::int64_t i = 0; i < count; ++i) ++written_by[writers[i]];
  }

  std::size_t bytes() const { return rows.bytes() + slots.bytes() + writers.bytes(); }
};

// Where the rows that a trainer writes back go.
struct WriteBackOutput {
  std::int64_t* rows;
  std::int32_t* slots;
};

class Retirement {
 public:
  Retirement(std::int64_t trainers, std::int64_t first_private_slot)
      : trainers_(static_cast<std::size_t>(trainers)), first_private_slot_(static_cast<std::int32_t>(first_private_slot)) {}

  // Room for so many rows of a batch, which leave with `group`.
  RetiredRows& start(std::int64_t group, std::int64_t dead) {
    RetiredRows& retired = retired_.emplace_back();
    retired.start(group, dead);
    return retired;
  }
  // The rows are there.
  void close(RetiredRows& retired) {
    retired.count_writers(static_cast<std::int64_t>(trainers_));
    bytes_ += retired.bytes();
    most_bytes_ = std::max(most_bytes_, bytes_);
  }

  // Whether slots of groups up to `latest` are not free yet.
  bool has(std::int64_t latest) const { return !retired_.empty() && retired_.front().group <= latest; }
  std::int64_t oldest_group() const { return retired_.front().group; }

  // Takes the slots of groups up to `group` back. Pools: the shared one, then each trainer's.
  void free_slots(std::int64_t group, std::vector<SlotPool>& pools) {
    for (; has(group); retired_.pop_front()) {
      const RetiredRows& retired = retired_.front();
      for (std::int64_t i = 0; i < retired.count; ++i) {
        const std::int32_t slot = retired.slots[i];
        if (slot < first_private_slot_) {
          pools.front().give(slot);
        } else {
          pools[1 + retired.writers[i]].give(slot - first_private_slot_);
        }
      }
      if (written_ > 0) --written_;
      bytes_ -= retired.bytes();
    }
  }

  // How many rows each trainer writes back with groups up to `group`.
  std::vector<std::int64_t> measure(std::int64_t group) {
    std::vector<std::int64_t> counts(trainers_);
    due_ = written_;
    for (; due_ < retired_.size() && retired_[due_].group <= group; ++due_) {
      for (std::size_t trainer = 0; trainer < trainers_; ++trainer) counts[trainer] += retired_[due_].written_by[trainer];
    }
    return counts;
  }

  // Writes those that were measured last.
  void write(const std::vector<WriteBackOutput>& outputs) {
    std::vector<std::int64_t> written(trainers_);
    for (; written_ < due_; ++written_) {
      const RetiredRows& retired = retired_[written_];
      for (std::int64_t i = 0; i < retired.count; ++i) {
        const std::uint16_t writer = retired.writers[i];
        const std::int64_t place = written[writer]++;
        outputs[writer].rows[place] = retired.rows[i];
        outputs[writer].slots[place] = retired.slots[i];
      }
    }
  }

  // A plan that does nothing else.
  void measure_closing_plan(std::int64_t group, std::int64_t* lengths) {
    auto& shared = *reinterpret_cast<SharedLengths*>(lengths);
    auto* const trainers = reinterpret_cast<TrainerLengths*>(&shared + 1);
    const std::vector<std::int64_t> counts = measure(group);
    shared = {};
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      trainers[trainer] = {};
      trainers[trainer].write_back_rows = trainers[trainer].write_back_slots = counts[trainer];
    }
  }
  void write_closing_plan(const void* const* arrays) {
    const auto* const trainers = reinterpret_cast<const TrainerArrays*>(reinterpret_cast<const SharedArrays*>(arrays) + 1);
    std::vector<WriteBackOutput> outputs;
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      outputs.push_back({trainers[trainer].write_back_rows, trainers[trainer].write_back_slots});
    }
    write(outputs);
  }

  std::size_t most_bytes() const { return most_bytes_; }

 private:
  std::size_t trainers_;
  std::int32_t first_private_slot_;
  std::deque<RetiredRows> retired_;  // whose slots are not free yet
  std::size_t written_ = 0;          // so many of them are written back
  std::size_t due_ = 0;              // up to this one they are when the plan is written
  std::size_t bytes_ = 0;
  std::size_t most_bytes_ = 0;
};

}  // namespace bagpipe
