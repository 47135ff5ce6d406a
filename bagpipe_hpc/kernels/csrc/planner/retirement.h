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
#include "worker_team.h"

namespace bagpipe {

// The rows that die with a batch: where they lie until their slots are free again, and who writes them back.
struct RetiredRows {
  std::int64_t group = 0;  // group that they leave with
  std::int64_t count = 0;
  Buffer<std::int64_t> rows;  // global rows
  Buffer<std::int32_t> slots;
  Buffer<std::uint16_t> writers;  // trainers
  std::size_t parts = 0;          // which threads count and write
  std::vector<std::int64_t> written_by;  // how many rows of each part each trainer writes back, [parts, trainers]

  void start(std::int64_t leaves_with, std::int64_t dead, std::size_t into, std::size_t trainers) {
    group = leaves_with;
    count = dead;
    parts = into;
    rows.make_room(dead);
    slots.make_room(dead);
    writers.make_room(dead);
    written_by.assign(parts * trainers, 0);
  }

  std::int64_t first(std::size_t part) const { return share_start(count, part, parts); }

  void count_writers(std::size_t part) {
    std::int64_t* const counts = written_by.data() + written_by.size() / parts * part;
    for (std::int64_t i = first(part); i < first(part + 1); ++i) ++counts[writers[i]];
  }

  // Adds the rows of a part to those that each trainer writes back.
  void add_part(std::size_t part, std::vector<std::int64_t>& counts) const {
    for (std::size_t trainer = 0; trainer < counts.size(); ++trainer) {
      counts[trainer] += written_by[part * counts.size() + trainer];
    }
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
  // `parts`: into so many the rows of a batch are divided.
  Retirement(std::int64_t trainers, std::int64_t first_private_slot, std::size_t parts)
      : trainers_(static_cast<std::size_t>(trainers)),
        parts_(parts),
        first_private_slot_(static_cast<std::int32_t>(first_private_slot)) {}

  // Room for so many rows of a batch, which leave with `group`.
  RetiredRows& start(std::int64_t group, std::int64_t dead) {
    RetiredRows& retired = retired_.emplace_back();
    retired.start(group, dead, parts_, trainers_);
    return retired;
  }
  // The rows are there, and each part's writers are counted.
  void close(const RetiredRows& retired) {
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
      for (std::size_t part = 0; part < parts_; ++part) retired_[due_].add_part(part, counts);
    }
    return counts;
  }

  // Writes those that were measured last, of each batch's rows those of a part.
  void write(std::size_t part, const std::vector<WriteBackOutput>& outputs) const {
    std::vector<std::int64_t> written(trainers_);
    for (std::size_t number = written_; number < due_; ++number) {
      const RetiredRows& retired = retired_[number];
      for (std::size_t before = 0; before < part; ++before) retired.add_part(before, written);
      for (std::int64_t i = retired.first(part); i < retired.first(part + 1); ++i) {
        const std::uint16_t writer = retired.writers[i];
        const std::int64_t place = written[writer]++;
        outputs[writer].rows[place] = retired.rows[i];
        outputs[writer].slots[place] = retired.slots[i];
      }
      for (std::size_t behind = part + 1; behind < parts_; ++behind) retired.add_part(behind, written);
    }
  }
  // All parts are written.
  void close_write() { written_ = due_; }

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
    for (std::size_t part = 0; part < parts_; ++part) write(part, outputs);
    close_write();
  }

  std::size_t most_bytes() const { return most_bytes_; }

 private:
  std::size_t trainers_;
  std::size_t parts_;
  std::int32_t first_private_slot_;
  std::deque<RetiredRows> retired_;  // whose slots are not free yet
  std::size_t written_ = 0;          // so many of them are written back
  std::size_t due_ = 0;              // up to this one they are when the plan is written
  std::size_t bytes_ = 0;
  std::size_t most_bytes_ = 0;
};

}  // namespace bagpipe
