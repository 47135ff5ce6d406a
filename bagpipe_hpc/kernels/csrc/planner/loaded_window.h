// The batches of the window: loads them into their tables, table by table in several threads, and translates their
// look-ups.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "batch_look_ups.h"
#include "plan_arrays.h"
#include "planner.h"
#include "table_rows.h"
#include "worker_team.h"

namespace bagpipe {

// A `Table` has TableRows `rows`, and the positions of a batch's indices, `positions(number)`.
//
// One thread may load a batch while others work on the decided batch, on the one behind it, and on those before it
// whose plans are written. So what a load changes is its own (of `tables_` what TableRows loads with, and the memory of
// the new batch), or links from batches behind the decided one.
template <class Table>
class LoadedWindow {
 public:
  // `feature_tables`: the table of each feature; none if all features of any batch have the only table.
  LoadedWindow(const PlannerSettings& settings, const std::vector<TableSettings>& tables,
               std::vector<std::size_t> feature_tables)
      : trainers_(static_cast<std::size_t>(settings.trainers)),
        lookahead_(static_cast<std::uint32_t>(settings.lookahead)),
        batches_(static_cast<std::size_t>(settings.batches())),
        feature_tables_(std::move(feature_tables)),
        takes_any_features_(feature_tables_.empty()),
        team_(settings.deciding_threads()) {
    if (settings.loading_threads > 0) own_loaders_.emplace(static_cast<std::size_t>(settings.loading_threads));
    for (std::int64_t thread = 0; thread < settings.writing_threads; ++thread) {
      own_writing_.emplace_back(std::size_t{1});
    }
    lists_ = std::vector<ListedLookUps>(loaders().size());
    for (const TableSettings& table : tables) {
      tables_.emplace_back(table, settings);
      can_turn_ &= table.rows <= TurnedLookUps::kMostRows;
    }
    give_features_to_tables();
  }

  std::vector<Table>& tables() { return tables_; }
  std::size_t workers() const { return team_.size(); }
  TeamTimes times() const { return team_.times(); }
  TeamTimes loading_times() const { return own_loaders_ ? own_loaders_->times() : TeamTimes{}; }
  // Runs work(worker) in every worker of those that decide.
  template <class Work>
  void run(const Work& work) {
    team_.run(work);
  }
  // Runs work(i) for each i below `count`; a worker of those that decide takes those that lie side by side.
  template <class Work>
  void each(std::size_t count, const Work& work) {
    team_.each(count, work);
  }
  // Who writes the plan of a batch: the thread that calls, or all that decide.
  WorkerTeam& writing_team(std::uint32_t number) {
    return own_writing_.empty() ? team_ : own_writing_[number % own_writing_.size()];
  }
  // Runs work(table) for all tables, which workers share out by the rows of the decided batch.
  template <class Work>
  void each_table(const Work& work) {
    team_.run([&](std::size_t worker) {
      for (Table* table : shares_[worker]) work(*table);
    });
  }

  // Batches are numbered from 1.
  std::uint32_t loaded() const { return loaded_; }
  std::uint32_t decided() const { return decided_; }
  void start_segment() {
    for (Table& table : tables_) table.rows.forget();
    decided_ = loaded_;
    first_ = loaded_ + 1;
  }
  void decide_next() {
    ++decided_;
    shares_ = share_out(team_.size(), [&](Table& table) { return table.rows.unique_rows(decided_); });
  }

  // Takes the next batch into the window. After a WrongBatch the planner is of no use. `in_place` as in Planner.
  void load(const BatchRows& look_ups, std::shared_mutex& in_place) {
    if (loaded_ == std::numeric_limits<std::uint32_t>::max()) {
      throw std::overflow_error("batches are numbered in 32 bits");
    }
    if (takes_any_features_ && feature_tables_.size() != static_cast<std::size_t>(look_ups.features)) {
      const std::lock_guard lock(in_place);
      feature_tables_.assign(static_cast<std::size_t>(look_ups.features), 0);
      give_features_to_tables();
    }
    const std::uint32_t number = loaded_ + 1;
    LoadedBatch& loaded = batch(number);
    loaded.open(look_ups, trainers_, look_ups_);
    std::int64_t most_rows = 0;
    for (Table& table : tables_) most_rows = std::max(most_rows, table.rows.expect(look_ups_));
    loaded.make_room(look_ups, most_rows);
    WorkerTeam& team = loaders();
    // A look-up costs little, a new row much more: it is the one that misses the caches; the batch before says how many
    // there are.
    const std::vector<Share> shares = share_out(team.size(), [&](Table& table) {
      return table.rows.look_ups() + 8 * table.rows.unique_rows(number - 1);
    });
    const bool is_turned = !look_ups.is_ragged() && can_turn_;
    if (is_turned) {
      turned_.make_room(look_ups);
      team.run([&](std::size_t worker) { turn_share(worker, team.size(), look_ups); });
    }
    std::vector<std::uint8_t> is_sound(team.size());
    team.run([&](std::size_t worker) {
      const Share& share = shares[worker];
      open_share(number, share, in_place);
      is_sound[worker] = loaded.is_wide ? load_share<std::uint32_t>(loaded, worker, share, look_ups, is_turned)
                                        : load_share<std::uint16_t>(loaded, worker, share, look_ups, is_turned);
    });
    if (std::find(is_sound.begin(), is_sound.end(), 0) != is_sound.end()) throw WrongBatch();
    team.run([&](std::size_t worker) {
      for (Table& table : tables_) table.rows.link(before(number, lookahead_ - 1), worker, team.size());
    });
    loaded_ = number;
  }

  LoadedBatch& batch(std::uint32_t number) { return batches_[number % batches_.size()]; }

  // Writes a part, of so many, of the positions of a batch's look-ups, of each trainer's slice to where it wants them.
  void write_positions(std::uint32_t number, std::size_t part, std::size_t parts,
                       const std::vector<PositionsOutput>& positions) {
    batch(number).is_wide ? write_part<std::uint32_t>(number, part, parts, positions)
                          : write_part<std::uint16_t>(number, part, parts, positions);
  }

  std::size_t state_bytes() const {
    std::size_t bytes = 0;
    for (const Table& table : tables_) bytes += table.rows.state_bytes();
    return bytes;
  }
  std::size_t window_bytes() const {
    std::size_t bytes = turned_.bytes();
    for (const Table& table : tables_) bytes += table.window_bytes();
    for (const LoadedBatch& batch : batches_) bytes += batch.bytes();
    return bytes;
  }

 private:
  using Share = std::vector<Table*>;

  static constexpr std::int64_t kRowsOfCacheLine = 8;

  WorkerTeam& loaders() { return own_loaders_ ? *own_loaders_ : team_; }

  // The batch of the segment that comes so many before another one; its first, if there are not as many.
  std::uint32_t before(std::uint32_t number, std::uint32_t count) const {
    return number - std::min(number - first_, count);
  }

  void give_features_to_tables() {
    for (Table& table : tables_) table.rows.features.clear();
    for (std::size_t feature = 0; feature < feature_tables_.size(); ++feature) {
      tables_[feature_tables_[feature]].rows.features.push_back(static_cast<std::int64_t>(feature));
    }
  }

  // The tables of each of so many workers, so that all have about as much to do: cost(table) says how much.
  template <class Cost>
  std::vector<Share> share_out(std::size_t workers, const Cost& cost) {
    std::vector<Share> shares(workers);
    std::vector<std::pair<std::int64_t, Table*>> costs;
    for (Table& table : tables_) costs.emplace_back(cost(table), &table);
    if (workers > 1) {
      std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    }
    std::vector<std::int64_t> loads(workers);
    for (const auto& [work, table] : costs) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += work;
      shares[static_cast<std::size_t>(least - loads.begin())].push_back(table);
    }
    return shares;
  }

  // Each worker turns blocks that lie side by side.
  void turn_share(std::size_t worker, std::size_t workers, const BatchRows& batch) {
    std::vector<std::int64_t> first_rows;  // of each feature's table
    for (const std::size_t table : feature_tables_) first_rows.push_back(tables_[table].rows.settings().first_row);
    turned_.turn(batch, first_rows, share_start(batch.samples, worker, workers),
                 share_start(batch.samples, worker + 1, workers));
  }

  void open_share(std::uint32_t number, const Share& share, std::shared_mutex& in_place) {
    const std::uint32_t oldest = before(number, static_cast<std::uint32_t>(batches_.size()) - 1);
    for (Table* table : share) {
      if (number - first_ >= lookahead_) table->rows.forget_dead(number - lookahead_);
      table->rows.begin_load(number, oldest, in_place);
    }
  }

  // Returns whether all rows are those of their tables.
  template <class Index>
  bool load_share(const LoadedBatch& loaded, std::size_t worker, const Share& share, const BatchRows& batch,
                  bool is_turned) {
    const bool is_sound = batch.is_ragged() ? load_ragged<Index>(loaded, share, batch, lists_[worker])
                                            : load_one_hot<Index>(loaded, share, batch, is_turned);
    if (is_sound) {
      for (Table* table : share) table->rows.end_load();
    }
    return is_sound;
  }

  // Tables of one feature are loaded side by side, block by block; the others one by one, since the order of their
  // unique rows is that of whole features.

  template <class Index>
  bool load_one_hot(const LoadedBatch& loaded, const Share& share, const BatchRows& batch, bool is_turned) {
    const auto load_block = [&](Table& table, std::int64_t feature, std::int64_t first) {
      Index* const indices = loaded.template indices<Index>(first, feature);
      if (is_turned) {
        return table.rows.load_column(batch, turned_.column(batch, feature, first), feature, first, indices);
      }
      const ColumnLookUps column{batch.rows + feature, batch.features, table.rows.settings().first_row, first};
      return table.rows.load_column(batch, column, feature, first, indices);
    };
    for (std::int64_t first = 0; first < batch.samples && !is_turned; first += kBlockSamples) {
      prefetch_block(batch, first + kBlockSamples);
      for (Table* table : share) {
        if (table->rows.features.size() == 1 && !load_block(*table, table->rows.features.front(), first)) return false;
      }
    }
    for (Table* table : share) {
      if (table->rows.features.size() == 1 && !is_turned) continue;
      for (const std::int64_t feature : table->rows.features) {
        for (std::int64_t first = 0; first < batch.samples; first += kBlockSamples) {
          if (!load_block(*table, feature, first)) return false;
        }
      }
    }
    return true;
  }

  template <class Index>
  bool load_ragged(const LoadedBatch& loaded, const Share& share, const BatchRows& batch, ListedLookUps& list) {
    const std::vector<std::int64_t>& blocks = loaded.blocks;
    const auto load_block = [&](Table& table, std::int64_t feature, std::size_t block) {
      return table.rows.load_bags(batch, feature, blocks[block], blocks[block + 1], list,
                                  loaded.template indices<Index>());
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
    for (std::int64_t i = first_sample * batch.features; i < end; i += kRowsOfCacheLine) {
      __builtin_prefetch(batch.rows + i);
    }
  }

  // A part is every so-manieth block, also where the slices of two trainers meet in it.

  template <class Index>
  void write_part(std::uint32_t number, std::size_t part, std::size_t parts,
                  const std::vector<PositionsOutput>& positions) {
    std::vector<const std::int32_t*> of_tables;
    for (const Table& table : tables_) of_tables.push_back(table.positions(number));
    if (batch(number).is_ragged) {
      write_ragged_positions<Index>(batch(number), part, parts, of_tables, positions);
    } else {
      write_one_hot_positions<Index>(batch(number), part, parts, of_tables, positions);
    }
  }

  template <class Index>
  void write_one_hot_positions(const LoadedBatch& batch, std::size_t part, std::size_t parts,
                               const std::vector<const std::int32_t*>& of_tables,
                               const std::vector<PositionsOutput>& positions) {
    const auto step = static_cast<std::int64_t>(parts) * kBlockSamples;
    std::size_t trainer = 0;
    for (std::int64_t block = static_cast<std::int64_t>(part) * kBlockSamples; block < batch.samples; block += step) {
      const std::int64_t end = std::min(block + kBlockSamples, batch.samples);
      for (std::int64_t first = block; first < end;) {
        while (batch.slices[trainer + 1] <= first) ++trainer;
        const std::int64_t last = std::min(end, batch.slices[trainer + 1]);
        const std::int64_t place = (first - batch.slices[trainer]) * batch.features;
        with_width(positions[trainer], [&](auto* const to) {
          for (std::size_t table = 0; table < tables_.size(); ++table) {
            for (const std::int64_t feature : tables_[table].rows.features) {
              const Index* indices = batch.template indices<Index>(block, feature) + (first - block);
              translate(indices, last - first, of_tables[table], to + place + feature, batch.features);
            }
          }
        });
        first = last;
      }
    }
  }

  // Calls write(to) with positions as wide as they are.
  template <class Write>
  static void with_width(const PositionsOutput& positions, const Write& write) {
    if (positions.is_narrow) {
      write(static_cast<std::uint16_t*>(positions.to));
    } else {
      write(static_cast<std::int32_t*>(positions.to));
    }
  }

  // `stride` lies between two positions.
  template <class Index, class Position>
  static void translate(const Index* indices, std::int64_t count, const std::int32_t* of_indices, Position* to,
                        std::int64_t stride) {
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = static_cast<Position>(of_indices[indices[i]]);
  }

  template <class Index>
  void write_ragged_positions(const LoadedBatch& batch, std::size_t part, std::size_t parts,
                              const std::vector<const std::int32_t*>& of_tables,
                              const std::vector<PositionsOutput>& positions) {
    const Index* const indices = batch.template indices<Index>();
    std::vector<const std::int32_t*> of_features;
    for (const std::size_t table : feature_tables_) of_features.push_back(of_tables[table]);
    std::size_t trainer = 0;
    for (std::size_t block = part; block + 1 < batch.blocks.size(); block += parts) {
      std::int64_t bag = batch.blocks[block] * batch.features;
      std::int64_t place = bag == 0 ? 0 : batch.bag_ends()[bag - 1];
      for (std::int64_t sample = batch.blocks[block]; sample < batch.blocks[block + 1]; ++sample) {
        while (batch.slices[trainer + 1] <= sample) ++trainer;
        const std::int64_t slice_start = batch.slice_starts[trainer];
        with_width(positions[trainer], [&](auto* const to) {
          using Position = std::remove_pointer_t<std::remove_const_t<decltype(to)>>;
          for (const std::int32_t* const of_indices : of_features) {
            const std::int64_t end = batch.bag_ends()[bag++];
            for (; place < end; ++place) to[place - slice_start] = static_cast<Position>(of_indices[indices[place]]);
          }
        });
      }
    }
  }

  std::size_t trainers_;
  std::uint32_t lookahead_;
  std::vector<Table> tables_;
  std::uint32_t first_ = 1;                // number of the segment's first batch
  std::atomic<std::uint32_t> loaded_ = 0;  // number of the newest batch that is loaded
  std::uint32_t decided_ = 0;              // number of the newest decided batch
  std::vector<LoadedBatch> batches_;       // the newest, each at its number modulo their number
  std::vector<std::size_t> feature_tables_;  // the table of each feature
  bool takes_any_features_;                  // all of which have the only table
  std::vector<std::int64_t> look_ups_;       // of each feature in the batch that was loaded last
  bool can_turn_ = true;                     // whether no table has too many rows
  TurnedLookUps turned_;                     // of the batch that is loaded last
  std::vector<ListedLookUps> lists_;         // each loader's memory
  std::vector<Share> shares_;                // each worker's tables of the decided batch
  WorkerTeam team_;
  std::optional<WorkerTeam> own_loaders_;
  std::deque<WorkerTeam> own_writing_;  // of one thread; each batch's at its number modulo their number
};

}  // namespace bagpipe
