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
  // `feature_tables`: the table of each feature; none if all features of any batch have the only table.
  LookaheadPlanner(const PlannerSettings& settings, const std::vector<TableSettings>& tables,
                   std::vector<std::size_t> feature_tables)
      : settings_(settings),
        trainers_(static_cast<std::size_t>(settings.trainers)),
        batches_(static_cast<std::size_t>(settings.lookahead)),
        total_(trainers_),
        feature_tables_(std::move(feature_tables)),
        takes_any_features_(feature_tables_.empty()),
        lists_(static_cast<std::size_t>(settings.threads)),
        team_(static_cast<std::size_t>(settings.threads)) {
    for (const TableSettings& table : tables) tables_.emplace_back(table, settings.lookahead, trainers_);
    verify_ = tables.front().verify;
    give_features_to_tables();
    pools_.emplace_back(settings.shared_capacity);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) pools_.emplace_back(settings.private_capacity);
  }

  // What an earlier segment loaded is out of the window.
  void start_segment() { decided_ = loaded_; }

  // Takes the next batch into the window. After a WrongBatch the planner is of no use.
  void load(const BatchRows& batch) {
    if (loaded_ == std::numeric_limits<std::uint32_t>::max()) throw std::overflow_error("batches are numbered in 32 bits");
    ++loaded_;
    if (takes_any_features_ && feature_tables_.size() != static_cast<std::size_t>(batch.features)) {
      feature_tables_.assign(static_cast<std::size_t>(batch.features), 0);
      give_features_to_tables();
    }
    LoadedBatch& loaded = loaded_batch(loaded_);
    loaded.open(batch, trainers_, look_ups_);
    std::int64_t most_rows = 0;
    for (TableWindow& table : tables_) most_rows = std::max(most_rows, table.expect(look_ups_));
    loaded.make_room(batch, most_rows);
    share_out_tables();
    std::vector<std::uint8_t> is_sound(team_.size());
    team_.run([&](std::size_t worker) {
      is_sound[worker] =
          loaded.is_wide ? load_share<std::uint32_t>(worker, batch) : load_share<std::uint16_t>(worker, batch);
    });
    if (std::find(is_sound.begin(), is_sound.end(), 0) != is_sound.end()) throw WrongBatch();
  }

  // Takes the slots of groups up to `free_group` back, and those of later groups up to `latest_group` as far as slots
  // are lacking; then decides on the oldest batch that is not decided, whose dead rows leave with `retiring_group`.
  // Returns the group whose slots were taken back last, `free_group` at least.
  std::int64_t decide(std::int64_t free_group, std::int64_t latest_group, std::int64_t retiring_group) {
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
    while (!has_enough_slots() && !retired_.empty() && retired_.front().group <= latest_group) {
      free_group = retired_.front().group;
      free_slots(free_group);
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
    return free_group;
  }

  // Lengths of the arrays of the decided batch's plan, which writes back groups up to `write_group`: 0 for none.
  void measure_plan(std::int64_t write_group, SharedLengths& shared, TrainerLengths* trainers) {
    const std::int64_t now = total_.on_list(kNow), later = total_.on_list(kLater), fetched = total_.fetched(kSharedPool);
    const std::int64_t verified = verify_ ? now + later : 0;
    shared = {now, later, fetched, fetched, verified, verified};
    const LoadedBatch& batch = loaded_batch(decided_);
    for (std::size_t trainer = 0; trainer < trainers_; ++trainer) {
      const std::int64_t own = total_.on_list(kFirstPrivate + trainer), own_fetched = total_.fetched(1 + trainer);
      const std::int64_t look_ups = batch.slice_starts[trainer + 1] - batch.slice_starts[trainer];
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

  static constexpr std::int64_t kRowsOfCacheLine = 8;

  LoadedBatch& loaded_batch(std::uint32_t number) { return batches_[number % batches_.size()]; }

  // Whether each pool has slots for what the classified batch fetches.
  bool has_enough_slots() {
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      if (!pools_[pool].has(total_.fetched(pool))) return false;
    }
    return true;
  }

  void give_features_to_tables() {
    for (TableWindow& table : tables_) table.features.clear();
    for (std::size_t feature = 0; feature < feature_tables_.size(); ++feature) {
      tables_[feature_tables_[feature]].features.push_back(static_cast<std::int64_t>(feature));
    }
  }

  // The tables of each worker, so that all have about as much to do. A look-up costs little, a new row much more: it is
  // the one that misses the caches; the batch before says how many there are.
  void share_out_tables() {
    shares_.resize(team_.size());
    for (Share& share : shares_) share.clear();
    std::vector<std::pair<std::int64_t, TableWindow*>> costs;
    for (TableWindow& table : tables_) costs.emplace_back(table.look_ups() + 8 * table.unique_rows(loaded_ - 1), &table);
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

  // Returns whether all rows are those of their tables.
  template <class Index>
  bool load_share(std::size_t worker, const BatchRows& batch) {
    const Share& share = shares_[worker];
    for (TableWindow* table : share) table->begin_load(loaded_, decided_ + 1);
    const bool is_sound =
        batch.is_ragged() ? load_ragged<Index>(share, batch, lists_[worker]) : load_one_hot<Index>(share, batch);
    if (is_sound) {
      for (TableWindow* table : share) table->end_load(decided_ + 1);
    }
    return is_sound;
  }

  // Tables of one feature are loaded side by side, block by block; the others one by one, since the order of their unique
  // rows is that of whole features.

  template <class Index>
  bool load_one_hot(const Share& share, const BatchRows& batch) {
    const LoadedBatch& loaded = loaded_batch(loaded_);
    const auto load_block = [&](TableWindow& table, std::int64_t feature, std::int64_t first) {
      return table.load_column(batch, feature, first, loaded.template indices<Index>(first, feature));
    };
    for (std::int64_t first = 0; first < batch.samples; first += kBlockSamples) {
      prefetch_block(batch, first + kBlockSamples);
      for (TableWindow* table : share) {
        if (table->features.size() == 1 && !load_block(*table, table->features.front(), first)) return false;
      }
    }
    for (TableWindow* table : share) {
      if (table->features.size() == 1) continue;
      for (const std::int64_t feature : table->features) {
        for (std::int64_t first = 0; first < batch.samples; first += kBlockSamples) {
          if (!load_block(*table, feature, first)) return false;
        }
      }
    }
    return true;
  }

  template <class Index>
  bool load_ragged(const Share& share, const BatchRows& batch, ListedLookUps& list) {
    const LoadedBatch& loaded = loaded_batch(loaded_);
    const std::vector<std::int64_t>& blocks = loaded.blocks;
    const auto load_block = [&](TableWindow& table, std::int64_t feature, std::size_t block) {
      return table.load_bags(batch, feature, blocks[block], blocks[block + 1], list, loaded.template indices<Index>());
    };
    for (std::size_t block = 0; block + 1 < blocks.size(); ++block) {
      for (TableWindow* table : share) {
        if (table->features.size() == 1 && !load_block(*table, table->features.front(), block)) return false;
      }
    }
    for (TableWindow* table : share) {
      if (table->features.size() == 1) continue;
      for (const std::int64_t feature : table->features) {
        for (std::size_t block = 0; block + 1 < blocks.size(); ++block) {
          if (!load_block(*table, feature, block)) return false;
        }
      }
    }
    return true;
  }

  static void prefetch_block(const BatchRows& batch, std::int64_t first_sample) {
    const std::int64_t end = std::min(first_sample + kBlockSamples, batch.samples) * batch.features;
    for (std::int64_t i = first_sample * batch.features; i < end; i += kRowsOfCacheLine) __builtin_prefetch(batch.rows + i);
  }

  // Each worker translates every so-manieth block, also where the slices of two trainers meet in it.

  template <class Index>
  void write_positions(std::size_t worker, const TrainerArrays* trainers) {
    if (loaded_batch(decided_).is_ragged) {
      write_ragged_positions<Index>(worker, trainers);
    } else {
      write_one_hot_positions<Index>(worker, trainers);
    }
  }

  template <class Index>
  void write_one_hot_positions(std::size_t worker, const TrainerArrays* trainers) {
    const LoadedBatch& batch = loaded_batch(decided_);
    const auto step = static_cast<std::int64_t>(team_.size()) * kBlockSamples;
    std::size_t trainer = 0;
    for (std::int64_t block = static_cast<std::int64_t>(worker) * kBlockSamples; block < batch.samples; block += step) {
      const std::int64_t end = std::min(block + kBlockSamples, batch.samples);
      for (std::int64_t first = block; first < end;) {
        while (batch.slices[trainer + 1] <= first) ++trainer;
        const std::int64_t last = std::min(end, batch.slices[trainer + 1]);
        std::int32_t* positions = trainers[trainer].positions + (first - batch.slices[trainer]) * batch.features;
        for (const TableWindow& table : tables_) {
          for (const std::int64_t feature : table.features) {
            const Index* indices = batch.template indices<Index>(block, feature) + (first - block);
            table.translate(indices, last - first, positions + feature, batch.features);
          }
        }
        first = last;
      }
    }
  }

  template <class Index>
  void write_ragged_positions(std::size_t worker, const TrainerArrays* trainers) {
    const LoadedBatch& batch = loaded_batch(decided_);
    const Index* const indices = batch.template indices<Index>();
    std::vector<const std::int32_t*> of_features;
    for (const std::size_t table : feature_tables_) of_features.push_back(tables_[table].positions());
    std::size_t trainer = 0;
    for (std::size_t block = worker; block + 1 < batch.blocks.size(); block += team_.size()) {
      std::int64_t bag = batch.blocks[block] * batch.features;
      std::int64_t place = bag == 0 ? 0 : batch.bag_ends()[bag - 1];
      for (std::int64_t sample = batch.blocks[block]; sample < batch.blocks[block + 1]; ++sample) {
        while (batch.slices[trainer + 1] <= sample) ++trainer;
        std::int32_t* const positions = trainers[trainer].positions;
        const std::int64_t slice_start = batch.slice_starts[trainer];
        for (const std::int32_t* const of_rows : of_features) {
          const std::int64_t end = batch.bag_ends()[bag++];
          for (; place < end; ++place) positions[place - slice_start] = of_rows[indices[place]];
        }
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
  std::vector<std::size_t> feature_tables_;  // the table of each feature
  bool takes_any_features_;                  // all of which have the only table
  std::vector<std::int64_t> look_ups_;       // of each feature in the batch that was loaded last
  std::vector<Share> shares_;                // each worker's tables
  std::vector<ListedLookUps> lists_;         // each worker's memory
  WorkerTeam team_;
};

}  // namespace bagpipe
