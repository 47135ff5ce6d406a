// The batches of the window: loads them into their tables, table by table in several threads, and translates their
// look-ups.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "batch_look_ups.h"
#include "planner.h"
#include "table_rows.h"
#include "worker_team.h"

namespace bagpipe {

// A `Table` has TableRows `rows`, and the positions of the decided batch's indices, `positions()`.
template <class Table>
class LoadedWindow {
 public:
  // `feature_tables`: the table of each feature; none if all features of any batch have the only table.
  LoadedWindow(const PlannerSettings& settings, const std::vector<TableSettings>& tables,
               std::vector<std::size_t> feature_tables)
      : trainers_(static_cast<std::size_t>(settings.trainers)),
        batches_(static_cast<std::size_t>(settings.lookahead)),
        feature_tables_(std::move(feature_tables)),
        takes_any_features_(feature_tables_.empty()),
        lists_(static_cast<std::size_t>(settings.threads)),
        team_(static_cast<std::size_t>(settings.threads)) {
    for (const TableSettings& table : tables) tables_.emplace_back(table, settings.lookahead, trainers_);
    give_features_to_tables();
  }

  std::vector<Table>& tables() { return tables_; }
  std::size_t workers() const { return team_.size(); }
  const TeamTimes& times() const { return team_.times(); }
  // Runs work(worker) in every worker.
  template <class Work>
  void run(const Work& work) {
    team_.run(work);
  }
  // Runs work(i) for each i below `count`; a worker takes those that lie side by side.
  template <class Work>
  void each(std::size_t count, const Work& work) {
    team_.run([&](std::size_t worker) {
      const std::size_t end = share_start(count, worker + 1, team_.size());
      for (std::size_t i = share_start(count, worker, team_.size()); i < end; ++i) work(i);
    });
  }
  // Runs work(table) for all tables, each in the worker that loaded it last.
  template <class Work>
  void each_table(const Work& work) {
    team_.run([&](std::size_t worker) { each_table_of(worker, work); });
  }
  template <class Work>
  void each_table_of(std::size_t worker, const Work& work) {
    for (Table* table : shares_[worker]) work(*table);
  }

  // Batches are numbered from 1.
  std::uint32_t loaded() const { return loaded_; }
  std::uint32_t decided() const { return decided_; }
  void start_segment() { decided_ = loaded_; }
  void decide_next() { ++decided_; }

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
    for (Table& table : tables_) most_rows = std::max(most_rows, table.rows.expect(look_ups_));
    loaded.make_room(batch, most_rows);
    share_out_tables();
    std::vector<std::uint8_t> is_sound(team_.size());
    team_.run([&](std::size_t worker) {
      is_sound[worker] =
          loaded.is_wide ? load_share<std::uint32_t>(worker, batch) : load_share<std::uint16_t>(worker, batch);
    });
    if (std::find(is_sound.begin(), is_sound.end(), 0) != is_sound.end()) throw WrongBatch();
    team_.run([&](std::size_t worker) {
      for (Table& table : tables_) table.rows.link(decided_ + 1, worker, team_.size());
    });
  }

  const LoadedBatch& decided_batch() { return loaded_batch(decided_); }

  // Writes a worker's share of the positions of the decided batch's look-ups, of each trainer's slice to where it wants
  // them.
  void write_positions(std::size_t worker, const std::vector<std::int32_t*>& positions) {
    decided_batch().is_wide ? write_share<std::uint32_t>(worker, positions) : write_share<std::uint16_t>(worker, positions);
  }

  std::size_t state_bytes() const {
    std::size_t bytes = 0;
    for (const Table& table : tables_) bytes += table.rows.state_bytes();
    return bytes;
  }
  std::size_t window_bytes() const {
    std::size_t bytes = 0;
    for (const Table& table : tables_) bytes += table.window_bytes();
    for (const LoadedBatch& batch : batches_) bytes += batch.bytes();
    return bytes;
  }

 private:
  using Share = std::vector<Table*>;

  static constexpr std::int64_t kRowsOfCacheLine = 8;

  LoadedBatch& loaded_batch(std::uint32_t number) { return batches_[number % batches_.size()]; }

  void give_features_to_tables() {
    for (Table& table : tables_) table.rows.features.clear();
    for (std::size_t feature = 0; feature < feature_tables_.size(); ++feature) {
      tables_[feature_tables_[feature]].rows.features.push_back(static_cast<std::int64_t>(feature));
    }
  }

  // The tables of each worker, so that all have about as much to do. A look-up costs little, a new row much more: it is
  // the one that misses the caches; the batch before says how many there are.
  void share_out_tables() {
    shares_.resize(team_.size());
    for (Share& share : shares_) share.clear();
    std::vector<std::pair<std::int64_t, Table*>> costs;
    for (Table& table : tables_) costs.emplace_back(table.rows.look_ups() + 8 * table.rows.unique_rows(loaded_ - 1), &table);
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
    for (Table* table : share) table->rows.begin_load(loaded_, decided_ + 1);
    const bool is_sound =
        batch.is_ragged() ? load_ragged<Index>(share, batch, lists_[worker]) : load_one_hot<Index>(share, batch);
    if (is_sound) {
      for (Table* table : share) table->rows.end_load();
    }
    return is_sound;
  }

  // Tables of one feature are loaded side by side, block by block; the others one by one, since the order of their unique
  // rows is that of whole features.

  template <class Index>
  bool load_one_hot(const Share& share, const BatchRows& batch) {
    const LoadedBatch& loaded = loaded_batch(loaded_);
    const auto load_block = [&](Table& table, std::int64_t feature, std::int64_t first) {
      return table.rows.load_column(batch, feature, first, loaded.template indices<Index>(first, feature));
    };
    for (std::int64_t first = 0; first < batch.samples; first += kBlockSamples) {
      prefetch_block(batch, first + kBlockSamples);
      for (Table* table : share) {
        if (table->rows.features.size() == 1 && !load_block(*table, table->rows.features.front(), first)) return false;
      }
    }
    for (Table* table : share) {
      if (table->rows.features.size() == 1) continue;
      for (const std::int64_t feature : table->rows.features) {
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
    const auto load_block = [&](Table& table, std::int64_t feature, std::size_t block) {
      return table.rows.load_bags(batch, feature, blocks[block], blocks[block + 1], list, loaded.template indices<Index>());
    };
    for (std::size_t block = 0; block + 1 < blocks.size(); ++block) {
      for (Table* table : share) {
        if (table->rows.features.size() == 1 && !load_block(*table, table->rows.features.front(), block)) return false;
      }
    }
    for (Table* table : share) {
      if (table->rows.features.size() == 1) continue;
      for (const std::int64_t feature : table->rows.features) {
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
  void write_share(std::size_t worker, const std::vector<std::int32_t*>& positions) {
    if (loaded_batch(decided_).is_ragged) {
      write_ragged_positions<Index>(worker, positions);
    } else {
      write_one_hot_positions<Index>(worker, positions);
    }
  }

  template <class Index>
  void write_one_hot_positions(std::size_t worker, const std::vector<std::int32_t*>& positions) {
    const LoadedBatch& batch = loaded_batch(decided_);
    const auto step = static_cast<std::int64_t>(team_.size()) * kBlockSamples;
    std::size_t trainer = 0;
    for (std::int64_t block = static_cast<std::int64_t>(worker) * kBlockSamples; block < batch.samples; block += step) {
      const std::int64_t end = std::min(block + kBlockSamples, batch.samples);
      for (std::int64_t first = block; first < end;) {
        while (batch.slices[trainer + 1] <= first) ++trainer;
        const std::int64_t last = std::min(end, batch.slices[trainer + 1]);
        std::int32_t* const to = positions[trainer] + (first - batch.slices[trainer]) * batch.features;
        for (const Table& table : tables_) {
          for (const std::int64_t feature : table.rows.features) {
            const Index* indices = batch.template indices<Index>(block, feature) + (first - block);
            translate(indices, last - first, table.positions(), to + feature, batch.features);
          }
        }
        first = last;
      }
    }
  }

  // `stride` lies between two positions.
  template <class Index>
  static void translate(const Index* indices, std::int64_t count, const std::int32_t* of_indices, std::int32_t* to,
                        std::int64_t stride) {
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = of_indices[indices[i]];
  }

  template <class Index>
  void write_ragged_positions(std::size_t worker, const std::vector<std::int32_t*>& positions) {
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
        std::int32_t* const to = positions[trainer];
        const std::int64_t slice_start = batch.slice_starts[trainer];
        for (const std::int32_t* const of_indices : of_features) {
          const std::int64_t end = batch.bag_ends()[bag++];
          for (; place < end; ++place) to[place - slice_start] = of_indices[indices[place]];
        }
      }
    }
  }

  std::size_t trainers_;
  std::vector<Table> tables_;
  std::uint32_t loaded_ = 0;          // number of the newest loaded batch
  std::uint32_t decided_ = 0;         // number of the newest decided batch
  std::vector<LoadedBatch> batches_;  // the newest, each at its number modulo the look-ahead
  std::vector<std::size_t> feature_tables_;  // the table of each feature
  bool takes_any_features_;                  // all of which have the only table
  std::vector<std::int64_t> look_ups_;       // of each feature in the batch that was loaded last
  std::vector<Share> shares_;                // each worker's tables
  std::vector<ListedLookUps> lists_;         // each worker's memory
  WorkerTeam team_;
};

}  // namespace bagpipe
