// The rows that are dead: written back with their group, whose slots are free when all trainers have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "buffer.h"
#include "counters.h"
#include "plan_arrays.h"
#include "slot_pool.h"
#include "tally.h"
#include "worker_team.h"

namespace bagpipe {

// How many rows of each part of a batch are each trainer's, or each pool's.
class PartCounts {
 public:
  void start(std::size_t parts, std::size_t each) {
    counts_.resize(parts);
    for (Counters<std::int64_t>& counts : counts_) counts.assign(each, 0);
  }
  std::int64_t* of(std::size_t part) { return counts_[part].data(); }
  // Adds those of a part to places, or to counts.
  template <class Places>
  void add(std::size_t part, Places& places) const {
    for (std::size_t i = 0; i < counts_[part].size(); ++i) places[i] += counts_[part][i];
  }

 private:
  std::vector<Counters<std::int64_t>> counts_;
};

// The rows that die with a batch: where they lie until their slots are free again, and who writes them back.
struct RetiredRows {
  std::int64_t group = 0;  // group that they leave with
  std::int64_t count = 0;
  Buffer<std::int64_t> rows;  // global rows
  Buffer<std::int32_t> slots;
  Buffer<std::uint16_t> writers;  // trainers
  std::size_t parts = 0;          // which threads count and write
  PartCounts written_by;          // how many rows each trainer writes back
  PartCounts slots_of;            // how many slots are the shared pool's, then each trainer's

  void start(std::int64_t leaves_with, std::int64_t dead, std::size_t into, std::size_t trainers) {
    group = leaves_with;
    count = dead;
    parts = into;
    rows.make_room(dead);
    slots.make_room(dead);
    writers.make_room(dead);
    written_by.start(parts, trainers);
    slots_of.start(parts, 1 + trainers);
  }

  std::int64_t first(std::size_t part) const { return share_start(count, part, parts); }

  // The pool of a row's slot.
  std::size_t pool(std::int64_t row, std::int32_t first_private_slot) const {
    return slots[row] < first_private_slot ? kSharedPool : std::size_t{1} + writers[row];
  }

  void count_owners(std::size_t part, std::int32_t first_private_slot) {
    std::int64_t *const by_writer = written_by.of(part), *const by_pool = slots_of.of(part);
    std::int64_t shared = 0;
    for (std::int64_t i = first(part); i < first(part + 1); ++i) {
      const bool is_shared = slots[i] < first_private_slot;
      shared += is_shared;
      ++by_writer[writers[i]];
      by_pool[1 + writers[i]] += !is_shared;
    }
    by_pool[kSharedPool] = shared;
  }

  std::size_t bytes() const { return rows.bytes() + slots.bytes() + writers.bytes(); }
};

// Where the rows that a trainer writes back go.
struct WriteBackOutput {
  std::int64_t* rows;
  std::int32_t* slots;
};

// Rows that a plan writes back, of one batch after the other.
using DueRows = std::vector<std::shared_ptr<const RetiredRows>>;

class Retirement {
 public:
  // `parts`: into so many the rows of a batch are divided.
  Retirement(std::int64_t trainers, std::int64_t first_private_slot, std::size_t parts)
      : trainers_(static_cast<std::size_t>(trainers)),
        parts_(parts),
        first_private_slot_(static_cast<std::int32_t>(first_private_slot)) {}

  // Room for so many rows of a batch, which leave with `group`.
  RetiredRows& start(std::int64_t group, std::int64_t dead) {
    RetiredRows& retired = *retired_.emplace_back(std::make_shared<RetiredRows>());
    retired.start(group, dead, parts_, trainers_);
    return retired;
  }
  // The rows are there: counts those of a part.
  void count_owners(RetiredRows& retired, std::size_t part) const { retired.count_owners(part, first_private_slot_); }
  // All parts are counted.
  void close(const RetiredRows& retired) {
    bytes_ += retired.bytes();
    most_bytes_ = std::max(most_bytes_, bytes_);
  }

  // Whether slots of groups up to `latest` are not free yet.
  bool has(std::int64_t latest) const { return !retired_.empty() && retired_.front()->group <= latest; }
  std::int64_t oldest_group() const { return retired_.front()->group; }

  // Takes the slots of groups up to `group` back. Pools: the shared one, then each trainer's. run(work) calls
  // work(part) for all parts.
  template <class Run>
  void free_slots(std::int64_t group, std::vector<SlotPool>& pools, const Run& run) {
    if (!has(group)) return;
    std::vector<std::int64_t> counts(pools.size());
    std::size_t freed = 0;  // batches
    for (; freed < retired_.size() && retired_[freed]->group <= group; ++freed) {
      for (std::size_t part = 0; part < parts_; ++part) retired_[freed]->slots_of.add(part, counts);
    }
    Counters<std::int32_t*> starts;
    for (std::size_t pool = 0; pool < pools.size(); ++pool) starts.push_back(pools[pool].take_back(counts[pool]));
    run([&](std::size_t part) {
      Counters<std::int32_t*> to = starts;
      for (std::size_t number = 0; number < freed; ++number) {
        const RetiredRows& retired = *retired_[number];
        for (std::size_t before = 0; before < part; ++before) retired.slots_of.add(before, to);
        for (std::int64_t i = retired.first(part); i < retired.first(part + 1); ++i) {
          const std::size_t pool = retired.pool(i, first_private_slot_);
          *to[pool]++ = retired.slots[i] - (pool == kSharedPool ? 0 : first_private_slot_);
        }
        for (std::size_t behind = part + 1; behind < parts_; ++behind) retired.slots_of.add(behind, to);
      }
    });
    for (; freed > 0; --freed) {
      if (written_ > 0) --written_;
      bytes_ -= retired_.front()->bytes();
      retired_.pop_front();
    }
  }

  // Those of groups up to `group` that no plan has written back: the next one does. They are kept until it is written,
  // also where `free_slots` has dropped them before.
  DueRows take_due(std::int64_t group) {
    DueRows due;
    for (; written_ < retired_.size() && retired_[written_]->group <= group; ++written_) {
      due.push_back(retired_[written_]);
    }
    return due;
  }

  // How many of them each trainer writes back.
  std::vector<std::int64_t> measure(const DueRows& due) const {
    std::vector<std::int64_t> counts(trainers_);
    for (const auto& retired : due) {
      for (std::size_t part = 0; part < parts_; ++part) retired->written_by.add(part, counts);
    }
    return counts;
  }

  // Writes a part of each batch's.
  void write(std::size_t part, const DueRows& due, const std::vector<WriteBackOutput>& outputs) const {
    Counters<std::int64_t> written(trainers_);
    for (const auto& retired : due) {
      for (std::size_t before = 0; before < part; ++before) retired->written_by.add(before, written);
      for (std::int64_t i = retired->first(part); i < retired->first(part + 1); ++i) {
        const std::uint16_t writer = retired->writers[i];
        const std::int64_t place = written[writer]++;
        outputs[writer].rows[place] = retired->rows[i];
        outputs[writer].slots[place] = retired->slots[i];
      }
      for (std::size_t behind = part + 1; behind < parts_; ++behind) retired->written_by.add(behind, written);
    }
  }

  // A plan that does nothing else.
  void measure_closing_plan(std::int64_t group, std::int64_t* lengths) {
    auto& shared = *reinterpret_cast<SharedLengths*>(lengths);
    auto* const trainers = reinterpret_cast<TrainerLengths*>(&shared + 1);
    last_due_ = take_due(group);
    const std::vector<std::int64_t> counts = measure(last_due_);
    shared = {};
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      trainers[trainer] = {};
      trainers[trainer].write_back_rows = trainers[trainer].write_back_slots = counts[trainer];
    }
  }
  void write_closing_plan(const void* const* arrays) {
    const auto& shared = *reinterpret_cast<const SharedArrays*>(arrays);
    const auto* const trainers = reinterpret_cast<const TrainerArrays*>(&shared + 1);
    std::vector<WriteBackOutput> outputs;
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      outputs.push_back({trainers[trainer].write_back_rows, trainers[trainer].write_back_slots});
    }
    for (std::size_t part = 0; part < parts_; ++part) write(part, last_due_, outputs);
    last_due_.clear();
  }

  std::size_t most_bytes() const { return most_bytes_; }

 private:
  std::size_t trainers_;
  std::size_t parts_;
  std::int32_t first_private_slot_;
  std::deque<std::shared_ptr<RetiredRows>> retired_;  // whose slots are not free yet
  std::size_t written_ = 0;                           // so many of them a plan writes back
  DueRows last_due_;                                  // which the closing plan does
  std::size_t bytes_ = 0;
  std::size_t most_bytes_ = 0;
};

}  // namespace bagpipe
