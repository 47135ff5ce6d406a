// The look-ahead rules for all tables: the parts of `TableWindow` put together, slots, retirement.
//
// Gives the plans of planning/lookahead/rules.py, byte for byte, whatever the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "batch_look_ups.h"
#include "retired_rows.h"
#include "slot_pool.h"
#include "table_window.h"
#include "worker_team.h"

namespace bagpipe {

struct PlannerSettings {
  std::int64_t trainers;
  std::int64_t lookahead;
  std::int64_t shared_capacity;
  std::int64_t private_capacity;
  std::int64_t first_private_slot;
  std::int64_t threads;
};

// A row of a batch does not belong to its column's table.
struct WrongRow : std::runtime_error {
  explicit WrongRow(std::int64_t found) : std::runtime_error("wrong row"), place(found) {}
  std::int64_t place;  // in the batch, [samples, columns]
};

// More slots are needed than there are.
struct SlotsUsedUp : std::runtime_error {
  SlotsUsedUp(std::size_t used_up, std::int64_t wanted)
      : std::runtime_error("slots used up"), pool(static_cast<std::int64_t>(used_up)), needed(wanted) {}
  std::int64_t pool;  // as in Tally
  std::int64_t needed;
};

// The arrays of a plan, in the order of the fields of SharedPlan and TrainerPlan (batch_plan.py), and their lengths.
struct SharedArrays {
  std::int32_t* now_slots;
  std::int32_t* later_slots;
  std::int64_t* fetch_rows;
  std::int32_t* fetch_slots;
  std::int64_t* rows;
  std::int32_t* versions;
};
struct SharedLengths {
  std::int64_t now_slots, later_slots, fetch_rows, fetch_slots, rows, versions;
};
struct TrainerArrays {
  std::int32_t* positions;
  std::int32_t* private_slots;
  std::int64_t* fetch_rows;
  std::int32_t* fetch_slots;
  std::int64_t* write_back_rows;
  std::int32_t* write_back_slots;
  std::int64_t* rows;
  std::int32_t* versions;
};
struct TrainerLengths {
  std::int64_t positions, private_slots, fetch_rows, fetch_slots, write_back_rows, write_back_slots, rows, versions;
};

class LookaheadPlanner {
 public:
  LookaheadPlanner(const PlannerSettings& settings, const std::vector<TableSettings>& tables)
      : settings_(settings),
        trainers_(static_cast<std::size_t>(settings.trainers)),
        batches_(static_cast<std::size_t>(settings.lookahead)),
        total_(trainers_),
        team_(static_cast<std::size_t>(settings.threads)) {
    for (const TableSettings& table : tables) tables_.emplace_back(table, settings.lookahead, trainers_);
    verify_ = tables.front().verify;
    has_column_each_ = tables.front().column != kAllColumns;
    pools_.emplace_back(settings.shared_capacity);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) pools_.emplace_back(settings.private_capacity);
  }

  // What an earlier segment loaded is out of the window.
  void start_segment() { decided_ = loaded_; }

  // Takes the next batch into the window. After a WrongRow the planner is of no use.
  void load(const BatchRows& batch) {
    if (loaded_ == std::numeric_limits<std::uint32_t>::max()) throw std::overflow_error("batches are numbered in 32 bits");
    ++loaded_;
    std::int64_t most_rows = 0;
    for (const TableWindow& table : tables_) {
      most_rows = std::max(most_rows, table.most_rows(batch.samples, batch.columns));
    }
    loaded_batch(loaded_).open(batch, trainers_, most_rows);
    share_out_tables(batch);
    std::vector<std::int64_t> wrong(team_.size());
    team_.run([&](std::size_t worker) { wrong[worker] = load_share(shares_[worker], batch); });
    const std::int64_t first_wrong = *std::min_element(wrong.begin(), wrong.end());
    if (first_wrong != kNoPlace) throw WrongRow(first_wrong);
  }

  // Takes the slots of groups up to `free_group` back, then decides on the oldest batch that is not decided; its dead
  // rows leave with `retiring_group`.
  void decide(std::int64_t free_group, std::int64_t retiring_group) {
    free_slots(free_group);
    ++decided_;
    team_.run([&](std::size_t worker) {
      for (TableWindow* table : shares_[worker]) table->classify(decided_);
    });
    total_.clear();
    for (TableWindow& table : tables_) {
      table.before = total_;
      total_.add(table.tally);
    }
    std::vector<Grant> grants;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      const std::int64_t count = total_.fetched(pool);
      if (!pools_[pool].has(count)) throw SlotsUsedUp(pool, pools_[pool].peak_with(count));
      grants.push_back(pools_[pool].take(count));
    }
    RetiredRows& retired = retired_.emplace_back();
    retired.start(retiring_group, total_.dead());
    team_.run([&](std::size_t worker) {
      for (TableWindow* table : shares_[worker]) {
        table->assign(decided_, grants, static_cast<std::int32_t>(settings_.first_private_slot), retired);
      }
    });
    retired.count_writers(settings_.trainers);
    retired_bytes_ += retired.bytes();
    most_retired_bytes_ = std::max(most_retired_bytes_, retired_bytes_);
  }

  // Lengths of the arrays of the decided batch's plan, which writes back groups up to `write_group`: 0 for none.
  void measure_plan(std::int64_t write_group, SharedLengths& shared, TrainerLengths* trainers) {
    const std::int64_t now = total_.on_list(kNow), later = total_.on_list(kLater), fetched = total_.fetched(kSharedPool);
    const std::int64_t verified = verify_ ? now + later : 0;
    shared = {now, later, fetched, fetched, verified, verified};
    const LoadedBatch& batch = loaded_batch(decided_);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const std::int64_t own = total_.on_list(kFirstPrivate + trainer), own_fetched = total_.fetched(1 + trainer);
      const std::int64_t look_ups = (batch.slices[trainer + 1] - batch.slices[trainer]) * batch.columns;
      const std::int64_t own_verified = verify_ ? own : 0;
      trainers[trainer] = {look_ups, own, own_fetched, own_fetched, 0, 0, own_verified, own_verified};
    }
    measure_write_backs(write_group, trainers);
  }

  // The same for a plan that only writes back.
  void measure_closing_plan(std::int64_t write_group, SharedLengths& shared, TrainerLengths* trainers) {
    shared = {};
    std::fill_n(trainers, trainers_, TrainerLengths{});
    measure_write_backs(write_group, trainers);
  }

  void write_plan(const SharedArrays& shared, const TrainerArrays* trainers) {
    const std::int64_t now = total_.on_list(kNow), shared_rows = now + total_.on_list(kLater);
    std::vector<ListOutput> lists = {{shared.now_slots, shared.rows, shared.versions},
                                     {shared.later_slots, shared.rows + now, shared.versions + now}};
    std::vector<FetchOutput> fetches = {{shared.fetch_rows, shared.fetch_slots}};
    std::vector<std::int64_t> starts = {0, now};
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const TrainerArrays& own = trainers[trainer];
      lists.push_back({own.private_slots, own.rows, own.versions});
      fetches.push_back({own.fetch_rows, own.fetch_slots});
      starts.push_back(shared_rows);
    }
    team_.run([&](std::size_t worker) {
      for (TableWindow* table : shares_[worker]) table->write_lists(decided_, lists, fetches, starts);
    });
    const bool is_wide = loaded_batch(decided_).is_wide;
    team_.run([&](std::size_t worker) {
      is_wide ? write_positions<std::uint32_t>(worker, trainers) : write_positions<std::uint16_t>(worker, trainers);
    });
    write_write_backs(trainers);
  }

  void write_closing_plan(const TrainerArrays* trainers) { write_write_backs(trainers); }

  // Notes that training step `step` updates the rows of the decided batch.
  void count_update(std::int64_t step) {
    if (!verify_) return;
    for (TableWindow& table : tables_) table.count_update(decided_, static_cast<std::int32_t>(step));
  }

  // Takes the slots of groups up to `group` back.
  void free_slots(std::int64_t group) {
    const auto first_private_slot = static_cast<std::int32_t>(settings_.first_private_slot);
    for (; !retired_.empty() && retired_.front().group <= group; retired_.pop_front()) {
      const RetiredRows& retired = retired_.front();
      for (std::int64_t i = 0; i < retired.count; ++i) {
        const std::int32_t slot = retired.slots[i];
        if (slot < first_private_slot) {
          pools_[kSharedPool].give(slot);
        } else {
          pools_[1 + retired.writers[i]].give(slot - first_private_slot);
        }
      }
      if (written_ > 0) --written_;
      retired_bytes_ -= retired.bytes();
    }
  }

  std::int64_t unique_rows() {
    std::int64_t rows = 0;
    for (std::size_t list = 0; list < kFirstPrivate + trainers_; ++list) rows += total_.on_list(list);
    return rows;
  }
  std::int64_t fetched_rows() {
    std::int64_t rows = 0;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) rows += total_.fetched(pool);
    return rows;
  }
  std::int64_t peak(std::size_t pool) const { return pools_[pool].peak(); }
  std::size_t state_bytes() const {
    std::size_t bytes = 0;
    for (const TableWindow& table : tables_) bytes += table.state_bytes();
    return bytes;
  }
  // The most that ever grew with the window: its batches, the retired rows whose slots are not free yet, free slots.
  std::size_t window_bytes() const {
    std::size_t bytes = most_retired_bytes_;
    for (const TableWindow& table : tables_) bytes += table.window_bytes();
    for (const LoadedBatch& batch : batches_) bytes += batch.bytes();
    for (const SlotPool& pool : pools_) bytes += pool.bytes();
    return bytes;
  }

 private:
  using Share = std::vector<TableWindow*>;

  static constexpr std::int64_t kNoPlace = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kRowsOfCacheLine = 8;

  LoadedBatch& loaded_batch(std::uint32_t number) { return batches_[number % batches_.size()]; }

  // The tables of each worker, so that all have about as much to do. A look-up costs little, a new row much more: it is
  // the one that misses the caches; the batch before says how many there are.
  void share_out_tables(const BatchRows& batch) {
    shares_.resize(team_.size());
    for (Share& share : shares_) share.clear();
    std::vector<std::pair<std::int64_t, TableWindow*>> costs;
    for (TableWindow& table : tables_) costs.emplace_back(batch.samples + 8 * table.unique_rows(loaded_ - 1), &table);
    if (team_.size() > 1) {
      std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    }
    std::vector<std::int64_t> loads(team_.size());
    for (const auto& [cost, table] : costs) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += cost;
      shares_[static_cast<std::size_t>(least - loads.begin())].push_back(table);
    }
  }

  std::int64_t load_share(const Share& share, const BatchRows& batch) {
    return loaded_batch(loaded_).is_wide ? load_share<std::uint32_t>(share, batch) : load_share<std::uint16_t>(share, batch);
  }

  template <class Index>
  std::int64_t load_share(const Share& share, const BatchRows& batch) {
    const LoadedBatch& loaded = loaded_batch(loaded_);
    std::int64_t first_wrong = kNoPlace;
    const auto load_block = [&](TableWindow& table, std::int64_t column, std::int64_t first) {
      const std::int64_t wrong = table.load(batch, column, first, loaded.template indices<Index>(first, column));
      if (wrong >= 0) first_wrong = std::min(first_wrong, wrong * batch.columns + column);
    };
    for (TableWindow* table : share) {
      table->begin_load(loaded_, decided_ + 1, table->most_rows(batch.samples, batch.columns));
    }
    if (has_column_each_) {
      for (std::int64_t first = 0; first < batch.samples && first_wrong == kNoPlace; first += kBlockSamples) {
        prefetch_block(batch, first + kBlockSamples);
        for (TableWindow* table : share) load_block(*table, table->first_column(), first);
      }
    } else {  // the order of unique rows is that of whole columns
      for (std::int64_t column = 0; column < batch.columns && !share.empty(); ++column) {
        for (std::int64_t first = 0; first < batch.samples && first_wrong == kNoPlace; first += kBlockSamples) {
          load_block(*share.front(), column, first);
        }
      }
    }
    if (first_wrong == kNoPlace) {
      for (TableWindow* table : share) table->end_load(decided_ + 1);
    }
    return first_wrong;
  }

  static void prefetch_block(const BatchRows& batch, std::int64_t first_sample) {
    const std::int64_t end = std::min(first_sample + kBlockSamples, batch.samples) * batch.columns;
    for (std::int64_t i = first_sample * batch.columns; i < end; i += kRowsOfCacheLine) __builtin_prefetch(batch.rows + i);
  }

  // Each worker translates every so-manieth block, also where the slices of two trainers meet in it.
  template <class Index>
  void write_positions(std::size_t worker, const TrainerArrays* trainers) {
    const LoadedBatch& batch = loaded_batch(decided_);
    const auto step = static_cast<std::int64_t>(team_.size()) * kBlockSamples;
    std::size_t trainer = 0;
    for (std::int64_t block = static_cast<std::int64_t>(worker) * kBlockSamples; block < batch.samples; block += step) {
      const std::int64_t end = std::min(block + kBlockSamples, batch.samples);
      for (std::int64_t first = block; first < end;) {
        while (batch.slices[trainer + 1] <= first) ++trainer;
        const std::int64_t last = std::min(end, batch.slices[trainer + 1]);
        std::int32_t* positions = trainers[trainer].positions + (first - batch.slices[trainer]) * batch.columns;
        for (const TableWindow& table : tables_) {
          for (std::int64_t column = table.first_column(); column < table.end_column(batch.columns); ++column) {
            const Index* indices = batch.template indices<Index>(block, column) + (first - block);
            table.translate(indices, last - first, positions + column, batch.columns);
          }
        }
        first = last;
      }
    }
  }

  void measure_write_backs(std::int64_t write_group, TrainerLengths* trainers) {
    due_ = written_;
    for (; due_ < retired_.size() && retired_[due_].group <= write_group; ++due_) {
      for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
        trainers[trainer].write_back_rows += retired_[due_].written_by[trainer];
        trainers[trainer].write_back_slots += retired_[due_].written_by[trainer];
      }
    }
  }

  void write_write_backs(const TrainerArrays* trainers) {
    std::vector<std::int64_t> written(trainers_);
    for (; written_ < due_; ++written_) {
      const RetiredRows& retired = retired_[written_];
      for (std::int64_t i = 0; i < retired.count; ++i) {
        const std::uint16_t writer = retired.writers[i];
        const std::int64_t place = written[writer]++;
        trainers[writer].write_back_rows[place] = retired.rows[i];
        trainers[writer].write_back_slots[place] = retired.slots[i];
      }
    }
  }

  PlannerSettings settings_;
  std::size_t trainers_;
  bool verify_ = false;
  bool has_column_each_ = false;
  std::vector<TableWindow> tables_;
  std::vector<SlotPool> pools_;  // as in Tally
  std::uint32_t loaded_ = 0;     // number of the newest loaded batch; batches are numbered from 1
  std::uint32_t decided_ = 0;    // number of the newest decided batch
  std::vector<LoadedBatch> batches_;  // the newest, each at its number modulo the look-ahead
  Tally total_;                       // of the decided batch
  std::deque<RetiredRows> retired_;  // whose slots are not free yet
  std::size_t written_ = 0;          // so many of them are written back
  std::size_t due_ = 0;              // up to this one they are when the plan is written
  std::size_t retired_bytes_ = 0;
  std::size_t most_retired_bytes_ = 0;
  std::vector<Share> shares_;        // each worker's tables
  WorkerTeam team_;
};

}  // namespace bagpipe
