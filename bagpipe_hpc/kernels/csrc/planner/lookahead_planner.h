// The look-ahead rules for rows that are replicated: the parts of `TableWindow` put together, slots, retirement.
//
// Gives the plans of planning/lookahead/rules.py, byte for byte, whatever the number of threads. A batch is decided on
// when the plan before it is written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "loaded_window.h"
#include "plan_arrays.h"
#include "planner.h"
#include "retirement.h"
#include "slot_pool.h"
#include "table_window.h"

namespace bagpipe {

class LookaheadPlanner final : public Planner {
 public:
  // `feature_tables`: the table of each feature; none if all features of any batch have the only table.
  LookaheadPlanner(const PlannerSettings& settings, const std::vector<TableSettings>& tables,
                   std::vector<std::size_t> feature_tables)
      : settings_(settings),
        trainers_(static_cast<std::size_t>(settings.trainers)),
        verify_(tables.front().verify),
        window_(settings, tables, std::move(feature_tables)),
        total_(trainers_),
        retirement_(settings.trainers, settings.first_private_slot, window_.workers()) {
    pools_.emplace_back(settings.shared_capacity);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) pools_.emplace_back(settings.private_capacity);
  }

  void start_segment(bool) override { window_.start_segment(); }

  void load(const BatchRows& batch) override { window_.load(batch, in_place); }

  Decided decide(std::int64_t free_group, std::int64_t latest_group, std::int64_t retiring_group,
                 std::int64_t write_group) override {
    free_slots(free_group);
    window_.decide_next();
    const std::uint32_t number = window_.decided();
    window_.each_table([&](TableWindow& table) { table.classify(number); });
    total_.clear();
    for (TableWindow& table : window_.tables()) {
      table.before = total_;
      total_.add(table.tally);
    }
    while (!has_enough_slots() && retirement_.has(latest_group)) {
      free_group = retirement_.oldest_group();
      free_slots(free_group);
    }
    std::vector<Grant> grants;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      const std::int64_t count = total_.fetched(pool);
      if (!pools_[pool].has(count)) throw SlotsUsedUp(pool, pools_[pool].peak_with(count));
      grants.push_back(pools_[pool].take(count));
    }
    RetiredRows& retired = retirement_.start(retiring_group, total_.dead());
    const auto first_private_slot = static_cast<std::int32_t>(settings_.first_private_slot);
    window_.each_table([&](TableWindow& table) { table.assign(number, grants, first_private_slot, retired); });
    window_.run([&](std::size_t worker) { retirement_.count_owners(retired, worker); });
    retirement_.close(retired);
    due_ = retirement_.take_due(write_group);
    return {number, free_group};
  }

  void measure_plan(std::uint32_t number, std::int64_t* lengths) override {
    auto& shared = *reinterpret_cast<SharedLengths*>(lengths);
    auto* const trainers = reinterpret_cast<TrainerLengths*>(&shared + 1);
    const std::int64_t now = total_.on_list(kNow), later = total_.on_list(kLater);
    const std::int64_t fetched = total_.fetched(kSharedPool);
    const std::int64_t verified = verify_ ? now + later : 0;
    shared = {now, later, fetched, fetched, verified, verified};
    const LoadedBatch& batch = window_.batch(number);
    const std::vector<std::int64_t> written = retirement_.measure(due_);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const std::int64_t own = total_.on_list(kFirstPrivate + trainer), own_fetched = total_.fetched(1 + trainer);
      const std::int64_t look_ups = batch.slice_starts[trainer + 1] - batch.slice_starts[trainer];
      const std::int64_t own_verified = verify_ ? own : 0, own_written = written[trainer];
      const std::int64_t positions = PositionsOutput::length(look_ups, now + later + own);
      trainers[trainer] = {positions,   own,         own_fetched,  own_fetched,
                           own_written, own_written, own_verified, own_verified};
    }
  }

  void write_plan(std::uint32_t number, const void* const* arrays) override {
    const auto& shared = *reinterpret_cast<const SharedArrays*>(arrays);
    const auto* const trainers = reinterpret_cast<const TrainerArrays*>(&shared + 1);
    const std::int64_t now = total_.on_list(kNow), shared_rows = now + total_.on_list(kLater);
    std::vector<ListOutput> lists = {{shared.now_slots, shared.rows, shared.versions},
                                     {shared.later_slots, shared.rows + now, shared.versions + now}};
    std::vector<FetchOutput> fetches = {{shared.fetch_rows, shared.fetch_slots}};
    std::vector<std::int64_t> starts = {0, now};
    std::vector<PositionsOutput> positions;
    std::vector<WriteBackOutput> write_backs;
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const TrainerArrays& own = trainers[trainer];
      lists.push_back({own.private_slots, own.rows, own.versions});
      fetches.push_back({own.fetch_rows, own.fetch_slots});
      starts.push_back(shared_rows);
      const std::int64_t own_rows = total_.on_list(kFirstPrivate + trainer);
      positions.push_back({own.positions, PositionsOutput::are_narrow(shared_rows + own_rows)});
      write_backs.push_back({own.write_back_rows, own.write_back_slots});
    }
    window_.each_table([&](TableWindow& table) { table.write_lists(number, lists, fetches, starts); });
    window_.run([&](std::size_t worker) {
      window_.write_positions(number, worker, window_.workers(), positions);
      retirement_.write(worker, due_, write_backs);
    });
  }

  void measure_closing_plan(std::int64_t write_group, std::int64_t* lengths) override {
    retirement_.measure_closing_plan(write_group, lengths);
  }
  void write_closing_plan(const void* const* arrays) override { retirement_.write_closing_plan(arrays); }

  void count_update(std::uint32_t number, std::int64_t step) override {
    if (!verify_) return;
    for (TableWindow& table : window_.tables()) table.rows.count_update(number, static_cast<std::int32_t>(step));
  }

  void free_slots(std::int64_t group) override {
    retirement_.free_slots(group, pools_, [&](const auto& work) { window_.run(work); });
  }

  std::int64_t unique_rows(std::uint32_t) override {
    std::int64_t rows = 0;
    for (std::size_t list = 0; list < kFirstPrivate + trainers_; ++list) rows += total_.on_list(list);
    return rows;
  }
  std::int64_t fetched_rows(std::uint32_t) override {
    std::int64_t rows = 0;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) rows += total_.fetched(pool);
    return rows;
  }
  std::int64_t shared_peak() const override { return pools_[kSharedPool].peak(); }
  std::int64_t private_peak() const override { return largest_private_peak(pools_); }
  std::size_t state_bytes() const override { return window_.state_bytes(); }
  std::size_t window_bytes() const override {
    std::size_t bytes = window_.window_bytes() + retirement_.most_bytes();
    for (const SlotPool& pool : pools_) bytes += pool.bytes();
    return bytes;
  }
  TeamTimes times() const override { return window_.times(); }
  TeamTimes loading_times() const override { return window_.loading_times(); }

 private:
  // Whether each pool has slots for what the classified batch fetches.
  bool has_enough_slots() {
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      if (!pools_[pool].has(total_.fetched(pool))) return false;
    }
    return true;
  }

  PlannerSettings settings_;
  std::size_t trainers_;
  bool verify_;
  LoadedWindow<TableWindow> window_;
  Tally total_;                  // of the decided batch
  std::vector<SlotPool> pools_;  // as in Tally
  Retirement retirement_;
  DueRows due_;  // which the plan of the decided batch writes back
};

}  // namespace bagpipe
