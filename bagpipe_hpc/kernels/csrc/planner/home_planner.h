// The look-ahead rules for rows that have one home each: spans of `HomeTable` put together, slots, retirement.
//
// Gives the plans of planning/lookahead/home_rules.py, byte for byte, whatever the number of threads.
//
// A batch is decided on, and then its plan is written: by another thread, where there are any for it, while later
// batches are decided on. What that needs to know of a batch is in its Draft and in its tables' lists.
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
        drafts_(settings.drafts(), Draft(trainers_, window_.workers())),
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

  Decided decide(std::int64_t free_group, std::int64_t latest_group, std::int64_t retiring_group,
                 std::int64_t write_group) override {
    free_slots(free_group);
    window_.decide_next();
    const std::uint32_t number = window_.decided();
    Draft& draft = this->draft(number);
    draft.spans = cut(number);
    const bool knows_next = window_.loaded() > number && settings_.lookahead > 1;
    for (HomeTable& table : window_.tables()) table.begin(number, knows_next);
    each_span(draft.spans, [&](std::size_t, Span& span) {
      span.table->find(number, span);
      if (trainers_ >= kPopularUsers) span.table->find_popular(number, span);
    });
    choose_popular_homes(draft);
    choose_homes(draft);
    while (!has_enough_slots(draft) && retirement_.has(latest_group)) {
      free_group = retirement_.oldest_group();
      free_slots(free_group);
    }
    const std::vector<Grant> grants = take_slots(draft);
    std::vector<std::int64_t> dead(draft.spans.size());
    std::int64_t all_dead = 0;
    for (std::size_t worker = 0; worker < draft.spans.size(); ++worker) {
      dead[worker] = all_dead;
      for (const Span& span : draft.spans[worker]) all_dead += span.dead;
    }
    RetiredRows& retired = retirement_.start(retiring_group, all_dead);
    const auto first_private_slot = static_cast<std::int32_t>(settings_.first_private_slot);
    window_.run([&](std::size_t worker) {
      Counters<std::int64_t> taken;  // of each home
      for (const HomeCounts& home : draft.counts[worker].homes) taken.push_back(home.fetched);
      std::int64_t place = dead[worker];
      for (const Span& span : draft.spans[worker]) {
        span.table->assign(number, span, grants, first_private_slot, taken, retired, place);
        place += span.dead;
      }
    });
    window_.run([&](std::size_t worker) { retirement_.count_owners(retired, worker); });
    retirement_.close(retired);
    if (write_group != kNotWritten) prepare(draft, write_group, is_training_ && knows_next);
    return {number, free_group};
  }

  void free_slots(std::int64_t group) override {
    retirement_.free_slots(group, pools_, [&](const auto& work) { window_.run(work); });
  }

  void measure_plan(std::uint32_t number, std::int64_t* lengths) override {
    Draft& draft = this->draft(number);
    WorkerTeam& team = window_.writing_team(number);
    team.each(trainers_, [&](std::size_t user) { draft.total.sum_following(user, draft.counts); });
    auto& shared = *reinterpret_cast<SharedLengths*>(lengths);
    auto* const trainers = reinterpret_cast<HomeLengths*>(&shared + 1);
    shared = {};
    const LoadedBatch& batch = window_.batch(number);
    const std::vector<std::int64_t> written = retirement_.measure(draft.due);
    const ExchangePlan plan = exchange_plan(draft, grid_);
    team.each(trainers_, [&](std::size_t trainer) {
      TrainerLengths own{};
      const std::int64_t look_ups = batch.slice_starts[trainer + 1] - batch.slice_starts[trainer];
      own.positions = PositionsOutput::length(look_ups, plan.rows(trainer, draft.copies[trainer]));
      own.write_back_rows = own.write_back_slots = written[trainer];
      trainers[trainer] = plan.lengths(trainer, own, verify_);
    });
  }

  void write_plan(std::uint32_t number, const void* const* arrays) override {
    const auto* const trainers =
        reinterpret_cast<const HomeArrays*>(reinterpret_cast<const SharedArrays*>(arrays) + 1);
    Draft& draft = this->draft(number);
    WorkerTeam& team = window_.writing_team(number);
    const ExchangePlan plan = exchange_plan(draft, grid_);
    std::vector<HomeOutput> outputs;
    std::vector<PositionsOutput> positions;
    std::vector<WriteBackOutput> write_backs;
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const HomeArrays& to = trainers[trainer];
      const std::int64_t copies = draft.copies[trainer], lent = plan.lent(trainer, kNow) + plan.lent(trainer, kLater);
      outputs.push_back({to, static_cast<std::int32_t>(copies), static_cast<std::int32_t>(copies + lent),
                         static_cast<std::int32_t>(plan.summed(trainer, kNow))});
      positions.push_back({to.own.positions, PositionsOutput::are_narrow(plan.rows(trainer, draft.copies[trainer]))});
      write_backs.push_back({to.own.write_back_rows, to.own.write_back_slots});
    }
    team.each(trainers_, [&](std::size_t trainer) {
      plan.write_counts(trainer, trainers[trainer].exchange);
      draft.starts.start_user(plan, trainer);
      draft.starts.start_home(plan, trainer);
    });
    std::vector<HomeTable>& tables = window_.tables();
    if (verify_) team.each(tables.size(), [&](std::size_t table) { tables[table].find_versions(number); });
    const std::size_t parts = window_.workers();  // into which it was divided when it was decided
    team.each(parts, [&](std::size_t part) {
      BatchCounts& counts = draft.counts[part];
      for (const Span& span : draft.spans[part]) {
        span.table->write(number, span, draft.is_training, draft.starts, counts, outputs);
      }
      if (draft.following.empty()) return;
      for (const Span& span : draft.following[part]) {
        span.table->write_following(number, span, draft.starts, counts, outputs);
      }
    });
    team.run([&](std::size_t worker) {
      for (HomeTable& table : tables) table.find_positions(number, worker, team.size());
    });
    team.run([&](std::size_t worker) {
      window_.write_positions(number, worker, team.size(), positions);
      for (std::size_t part = worker; part < parts; part += team.size()) {
        retirement_.write(part, draft.due, write_backs);
      }
    });
    draft.due.clear();
  }

  void measure_closing_plan(std::int64_t write_group, std::int64_t* lengths) override {
    retirement_.measure_closing_plan(write_group, lengths);
  }
  void write_closing_plan(const void* const* arrays) override { retirement_.write_closing_plan(arrays); }

  void count_update(std::uint32_t number, std::int64_t step) override {
    if (!verify_) return;
    for (HomeTable& table : window_.tables()) table.rows.count_update(number, static_cast<std::int32_t>(step));
  }

  std::int64_t unique_rows(std::uint32_t number) override {
    std::int64_t rows = 0;
    for (const HomeTable& table : window_.tables()) rows += table.rows.unique_rows(number);
    return rows;
  }
  std::int64_t fetched_rows(std::uint32_t number) override { return draft(number).total.fetched(); }
  std::int64_t shared_peak() const override { return kAreas * most_copies_; }
  std::int64_t private_peak() const override { return largest_private_peak(pools_); }
  std::size_t state_bytes() const override { return window_.state_bytes(); }
  std::size_t window_bytes() const override {
    std::size_t bytes = window_.window_bytes() + retirement_.most_bytes();
    for (const SlotPool& pool : pools_) bytes += pool.bytes();
    for (const Draft& draft : drafts_) bytes += draft.bytes();
    return bytes;
  }
  TeamTimes times() const override { return window_.times(); }
  TeamTimes loading_times() const override { return window_.loading_times(); }

 private:
  using Spans = std::vector<std::vector<Span>>;  // of each worker that decides, in the order of the rows

  // Copies of a batch arrive while the batch before it is computed, so the two have areas of their own.
  static constexpr std::int64_t kAreas = 2;

  // A batch that is decided, until its plan is written.
  struct Draft {
    Draft(std::size_t trainers, std::size_t workers)
        : total(trainers), counts(workers, BatchCounts(trainers)), starts(trainers), copies(trainers) {}

    Spans spans;      // its rows
    Spans following;  // those of the next batch
    BatchCounts total;
    std::vector<BatchCounts> counts;   // by each worker
    BatchStarts starts;                // where the lists of its plan begin
    std::vector<std::int64_t> copies;  // of each trainer
    DueRows due;                       // which its plan writes back
    bool is_training = true;
    std::int64_t first_copy = 0;  // slots
    std::int64_t first_next_copy = 0;

    std::size_t bytes() const { return (1 + counts.size()) * total.bytes() + starts.bytes(); }
  };

  Draft& draft(std::uint32_t number) { return drafts_[number % drafts_.size()]; }

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
  void choose_popular_homes(const Draft& draft) {
    std::vector<std::int64_t> load(trainers_);
    for (const std::vector<Span>& own : draft.spans) {
      for (const Span& span : own) span.table->choose_popular_homes(window_.decided(), span, load);
    }
  }

  void choose_homes(Draft& draft) {
    const std::uint32_t number = window_.decided();
    std::vector<std::int64_t> in_turn(draft.spans.size());
    for (std::size_t worker = 1; worker < draft.spans.size(); ++worker) {
      in_turn[worker] = in_turn[worker - 1];
      for (const Span& span : draft.spans[worker - 1]) in_turn[worker] += span.in_turn();
    }
    window_.run([&](std::size_t worker) {
      draft.counts[worker].clear();
      std::int64_t first = in_turn[worker];
      for (Span& span : draft.spans[worker]) {
        span.table->choose_homes(number, span, first, is_training_, draft.counts[worker]);
        first += span.in_turn();
      }
    });
    window_.each(trainers_, [&](std::size_t trainer) {
      draft.total.sum(trainer, draft.counts);
      draft.copies[trainer] = draft.total.copies(trainer);
    });
  }

  // Whether each home has slots for what it fetches; copies cannot wait for theirs.
  bool has_enough_slots(const Draft& draft) const {
    for (std::size_t home = 0; home < trainers_; ++home) {
      if (!pools_[1 + home].has(draft.total.homes[home].fetched)) return false;
    }
    return true;
  }

  // Slots for what each home fetches. Sees that there are enough, for copies, too.
  std::vector<Grant> take_slots(const Draft& draft) {
    std::vector<Grant> grants;
    for (std::size_t home = 0; home < trainers_; ++home) {
      SlotPool& pool = pools_[1 + home];
      const std::int64_t count = draft.total.homes[home].fetched;
      if (!pool.has(count)) throw SlotsUsedUp(1 + home, pool.peak_with(count));
      grants.push_back(pool.take(count));
    }
    most_copies_ = std::max(most_copies_, *std::max_element(draft.copies.begin(), draft.copies.end()));
    if (most_copies_ > area_) throw SlotsUsedUp(0, kAreas * most_copies_);
    return grants;
  }

  // What the plan needs to know of what changes when the next batch is decided: rows that it writes back, whose slots
  // may be free then; and, with `has_following`, copies of the next batch's rows that leave when this one has updated
  // them.
  void prepare(Draft& draft, std::int64_t write_group, bool has_following) {
    const std::uint32_t number = window_.decided();
    const std::int64_t in_segment = number - segment_start_ - 1;
    draft.is_training = is_training_;
    draft.first_copy = in_segment % kAreas * area_;
    draft.first_next_copy = (in_segment + 1) % kAreas * area_;
    draft.due = retirement_.take_due(write_group);
    draft.following = has_following ? cut(number + 1) : Spans{};
    each_span(draft.following, [&](std::size_t worker, Span& span) {
      span.table->count_following(number, span, draft.counts[worker]);
    });
  }

  static ExchangePlan exchange_plan(const Draft& draft, TrainerGrid grid) {
    return {draft.total, grid, draft.is_training, draft.first_copy, draft.first_next_copy};
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
  std::vector<Draft> drafts_;    // each decided batch's at its number modulo their number
  std::vector<SlotPool> pools_;  // the first is of no use: copies have areas
  Retirement retirement_;
};

}  // namespace bagpipe
