// The look-ahead rules for rows that have one home each: spans of `HomeTable` put together, slots, retirement.
//
// Gives the plans of planning/lookahead/home_rules.py, byte for byte, whatever the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "counters.h"
#include "home_exchange.h"
#include "home_table.h"
#include "loaded_window.h"
#include "plan_arrays.h"
#include "planner.h"
#include "retirement.h"
#include "slot_pool.h"

namespace bagpipe {

class HomePlanner final : public Planner {
 public:
  // Arguments as for LookaheadPlanner; `grid_columns` of the trainers' grid. The shared slots are two areas for copies;
  // rows are in the private ones.
  HomePlanner(const PlannerSettings& settings, const std::vector<TableSettings>& tables,
              std::vector<std::size_t> feature_tables, std::size_t grid_columns)
      : settings_(settings),
        trainers_(static_cast<std::size_t>(settings.trainers)),
        grid_{trainers_ / grid_columns, grid_columns},
        verify_(tables.front().verify),
        area_(settings.first_private_slot / kAreas),
        window_(settings, tables, std::move(feature_tables)),
        total_(trainers_),
        counts_(window_.workers(), BatchCounts(trainers_)),
        starts_(trainers_),
        copies_(trainers_),
        retirement_(settings.trainers, settings.first_private_slot, window_.workers()) {
    pools_.emplace_back(0);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) pools_.emplace_back(settings.private_capacity);
  }

  void start_segment(bool is_training) override {
    window_.start_segment();
    segment_start_ = window_.loaded();
    is_training_ = is_training;
  }

  void load(const BatchRows& batch) override { window_.load(batch, in_place); }

  std::int64_t decide(std::int64_t free_group, std::int64_t latest_group, std::int64_t retiring_group) override {
    free_slots(free_group);
    window_.decide_next();
    const std::uint32_t number = window_.decided();
    spans_ = cut(number);
    for (HomeTable& table : window_.tables()) table.begin(number);
    each_span(spans_, [&](std::size_t, Span& span) {
      span.table->find(number, span);
      if (trainers_ >= kPopularUsers) span.table->find_popular(number, span);
    });
    choose_popular_homes();
    choose_homes();
    while (!has_enough_slots() && retirement_.has(latest_group)) {
      free_group = retirement_.oldest_group();
      free_slots(free_group);
    }
    const std::vector<Grant> grants = take_slots();
    std::vector<std::int64_t> dead(spans_.size());
    std::int64_t all_dead = 0;
    for (std::size_t worker = 0; worker < spans_.size(); ++worker) {
      dead[worker] = all_dead;
      for (const Span& span : spans_[worker]) all_dead += span.dead;
    }
    RetiredRows& retired = retirement_.start(retiring_group, all_dead);
    const auto first_private_slot = static_cast<std::int32_t>(settings_.first_private_slot);
    window_.run([&](std::size_t worker) {
      Counters<std::int64_t> taken;  // of each home
      for (const HomeCounts& home : counts_[worker].homes) taken.push_back(home.fetched);
      std::int64_t place = dead[worker];
      for (const Span& span : spans_[worker]) {
        span.table->assign(number, span, grants, first_private_slot, taken, retired, place);
        place += span.dead;
      }
    });
    window_.run([&](std::size_t worker) { retirement_.count_owners(retired, worker); });
    retirement_.close(retired);
    return free_group;
  }

  void free_slots(std::int64_t group) override {
    retirement_.free_slots(group, pools_, [&](const auto& work) { window_.run(work); });
  }

  void measure_plan(std::int64_t write_group, std::int64_t* lengths) override {
    count_following();
    auto& shared = *reinterpret_cast<SharedLengths*>(lengths);
    auto* const trainers = reinterpret_cast<HomeLengths*>(&shared + 1);
    shared = {};
    const LoadedBatch& batch = window_.decided_batch();
    const std::vector<std::int64_t> written = retirement_.measure(write_group);
    const ExchangePlan plan = exchange_plan();
    window_.each(trainers_, [&](std::size_t trainer) {
      TrainerLengths own{};
      const std::int64_t look_ups = batch.slice_starts[trainer + 1] - batch.slice_starts[trainer];
      own.positions = PositionsOutput::length(look_ups, plan.rows(trainer, copies_[trainer]));
      own.write_back_rows = own.write_back_slots = written[trainer];
      trainers[trainer] = plan.lengths(trainer, own, verify_);
    });
  }

  void write_plan(const void* const* arrays) override {
    const auto* const trainers =
        reinterpret_cast<const HomeArrays*>(reinterpret_cast<const SharedArrays*>(arrays) + 1);
    const ExchangePlan plan = exchange_plan();
    std::vector<HomeOutput> outputs;
    std::vector<PositionsOutput> positions;
    std::vector<WriteBackOutput> write_backs;
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const HomeArrays& to = trainers[trainer];
      const std::int64_t copies = copies_[trainer], lent = plan.lent(trainer, kNow) + plan.lent(trainer, kLater);
      outputs.push_back({to, static_cast<std::int32_t>(copies), static_cast<std::int32_t>(copies + lent),
                         static_cast<std::int32_t>(plan.summed(trainer, kNow))});
      positions.push_back({to.own.positions, PositionsOutput::are_narrow(plan.rows(trainer, copies_[trainer]))});
      write_backs.push_back({to.own.write_back_rows, to.own.write_back_slots});
    }
    const std::uint32_t number = window_.decided();
    window_.each(trainers_, [&](std::size_t trainer) {
      plan.write_counts(trainer, trainers[trainer].exchange);
      starts_.start_user(plan, trainer);
      starts_.start_home(plan, trainer);
    });
    if (verify_) window_.each_table([&](HomeTable& table) { table.find_versions(number); });
    window_.run([&](std::size_t worker) {
      BatchCounts& counts = counts_[worker];
      for (const Span& span : spans_[worker]) span.table->write(number, span, is_training_, starts_, counts, outputs);
      if (following_.empty()) return;
      for (const Span& span : following_[worker]) span.table->write_following(number + 1, span, starts_, counts, outputs);
    });
    window_.run([&](std::size_t worker) {
      for (HomeTable& table : window_.tables()) table.find_positions(number, worker, window_.workers());
    });
    window_.run([&](std::size_t worker) {
      window_.write_positions(worker, positions);
      retirement_.write(worker, write_backs);
    });
    retirement_.close_write();
  }

  void measure_closing_plan(std::int64_t write_group, std::int64_t* lengths) override {
    retirement_.measure_closing_plan(write_group, lengths);
  }
  void write_closing_plan(const void* const* arrays) override { retirement_.write_closing_plan(arrays); }

  void count_update(std::int64_t step) override {
    if (!verify_) return;
    for (HomeTable& table : window_.tables()) table.rows.count_update(window_.decided(), static_cast<std::int32_t>(step));
  }

  std::int64_t unique_rows() override {
    std::int64_t rows = 0;
    for (const HomeTable& table : window_.tables()) rows += table.rows.unique_rows(window_.decided());
    return rows;
  }
  std::int64_t fetched_rows() override { return total_.fetched(); }
  std::int64_t shared_peak() const override { return kAreas * most_copies_; }
  std::int64_t private_peak() const override { return largest_private_peak(pools_); }
  std::size_t state_bytes() const override { return window_.state_bytes(); }
  std::size_t window_bytes() const override {
    std::size_t bytes = window_.window_bytes() + retirement_.most_bytes();
    for (const SlotPool& pool : pools_) bytes += pool.bytes();
    return bytes;
  }
  const TeamTimes& times() const override { return window_.times(); }
  TeamTimes loading_times() const override { return window_.loading_times(); }

 private:
  using Spans = std::vector<std::vector<Span>>;  // of each worker, in the order of the rows

  // Copies of a batch arrive while the batch before it is computed, so the two have areas of their own.
  static constexpr std::int64_t kAreas = 2;

  // The rows of a batch, shared out so that all workers have about as much to do.
  Spans cut(std::uint32_t number) {
    Spans spans(window_.workers());
    std::int64_t work = 0;
    for (HomeTable& table : window_.tables()) work += table.work(number, 0, table.rows.unique_rows(number));
    const std::int64_t share = work / static_cast<std::int64_t>(spans.size()) + 1;
    std::size_t worker = 0;
    std::int64_t room = share;
    for (HomeTable& table : window_.tables()) {
      const std::int64_t rows = table.rows.unique_rows(number);
      for (std::int64_t first = 0; first < rows;) {
        const bool is_last = worker + 1 == spans.size();
        const std::int64_t end = is_last ? rows : table.cut(number, first, room);
        if (end > first) spans[worker].push_back({&table, first, end});
        room -= table.work(number, first, end);
        first = end;
        if (first < rows) {
          ++worker;
          room = share;
        }
      }
    }
    return spans;
  }

  // Runs work(worker, span) for all spans, those of each worker in their order.
  template <class Work>
  void each_span(Spans& spans, const Work& work) {
    if (spans.empty()) return;
    window_.run([&](std::size_t worker) {
      for (Span& span : spans[worker]) work(worker, span);
    });
  }

  // One row after the other, in their order: which home the next one has depends on those before it.
  void choose_popular_homes() {
    std::vector<std::int64_t> load(trainers_);
    for (const std::vector<Span>& own : spans_) {
      for (const Span& span : own) span.table->choose_popular_homes(window_.decided(), span, load);
    }
  }

  void choose_homes() {
    const std::uint32_t number = window_.decided();
    std::vector<std::int64_t> in_turn(spans_.size());
    for (std::size_t worker = 1; worker < spans_.size(); ++worker) {
      in_turn[worker] = in_turn[worker - 1];
      for (const Span& span : spans_[worker - 1]) in_turn[worker] += span.in_turn();
    }
    window_.run([&](std::size_t worker) {
      counts_[worker].clear();
      std::int64_t first = in_turn[worker];
      for (Span& span : spans_[worker]) {
        span.table->choose_homes(number, span, first, is_training_, counts_[worker]);
        first += span.in_turn();
      }
    });
    window_.each(trainers_, [&](std::size_t trainer) {
      total_.sum(trainer, counts_);
      copies_[trainer] = total_.copies(trainer);
    });
  }

  // Whether each home has slots for what it fetches; copies cannot wait for theirs.
  bool has_enough_slots() const {
    for (std::size_t home = 0; home < trainers_; ++home) {
      if (!pools_[1 + home].has(total_.homes[home].fetched)) return false;
    }
    return true;
  }

  // Slots for what each home fetches. Sees that there are enough, for copies, too.
  std::vector<Grant> take_slots() {
    std::vector<Grant> grants;
    for (std::size_t home = 0; home < trainers_; ++home) {
      SlotPool& pool = pools_[1 + home];
      const std::int64_t count = total_.homes[home].fetched;
      if (!pool.has(count)) throw SlotsUsedUp(1 + home, pool.peak_with(count));
      grants.push_back(pool.take(count));
    }
    most_copies_ = std::max(most_copies_, *std::max_element(copies_.begin(), copies_.end()));
    if (most_copies_ > area_) throw SlotsUsedUp(0, kAreas * most_copies_);
    return grants;
  }

  // Copies that leave for the next batch when this one has updated them.
  void count_following() {
    const std::uint32_t number = window_.decided();
    const bool is_known = is_training_ && window_.loaded() > number && settings_.lookahead > 1;
    following_ = is_known ? cut(number + 1) : Spans{};
    for (HomeTable& table : window_.tables()) {
      if (is_known) table.begin_following(number + 1);
    }
    each_span(following_, [&](std::size_t worker, Span& span) {
      span.table->count_following(number + 1, span, counts_[worker]);
    });
    window_.each(trainers_, [&](std::size_t user) { total_.sum_following(user, counts_); });
  }

  ExchangePlan exchange_plan() const {
    const std::int64_t in_segment = window_.decided() - segment_start_ - 1;
    return {total_, grid_, is_training_, in_segment % kAreas * area_, (in_segment + 1) % kAreas * area_};
  }

  PlannerSettings settings_;
  std::size_t trainers_;
  TrainerGrid grid_;
  bool verify_;
  bool is_training_ = true;
  std::uint32_t segment_start_ = 0;  // number of the last batch before the segment
  std::int64_t area_;                // slots for the copies of a batch
  std::int64_t most_copies_ = 0;     // of a batch and trainer
  LoadedWindow<HomeTable> window_;
  // Of the decided batch: its rows, those of the next one, what was counted of them, in all and by each worker, and where
  // the lists of its plan begin.
  Spans spans_;
  Spans following_;
  BatchCounts total_;
  std::vector<BatchCounts> counts_;
  BatchStarts starts_;
  std::vector<std::int64_t> copies_;  // of each trainer
  std::vector<SlotPool> pools_;  // the first is of no use: copies have areas
  Retirement retirement_;
};

}  // namespace bagpipe
