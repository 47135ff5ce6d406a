// One table in the window: which of its rows the batches use, and what is decided on them.
//
// Tables have no rows in common, so each takes its part of a step alone, in any thread. What a part needs to know of the
// tables before it is how many of their rows are on which list (`before`).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "batch_look_ups.h"
#include "buffer.h"
#include "retired_rows.h"
#include "row_values.h"
#include "slot_pool.h"
#include "tally.h"
#include "use_ring.h"

namespace bagpipe {

struct TableSettings {
  std::int64_t first_row;  // global
  std::int64_t rows;
  std::int64_t column;  // which has the look-ups of the table, or kAllColumns
  bool hashed;          // know only the rows in the window
  bool verify;          // know the version of each row
};
constexpr std::int64_t kAllColumns = -1;

// Where the rows of a list go; without versions only their slots do.
struct ListOutput {
  std::int32_t* slots;
  std::int64_t* rows;
  std::int32_t* versions;
};
struct FetchOutput {
  std::int64_t* rows;
  std::int32_t* slots;
};

class TableWindow {
 public:
  TableWindow(const TableSettings& settings, std::int64_t lookahead, std::size_t trainers)
      : tally(trainers),
        before(trainers),
        settings_(settings),
        has_lookahead_(lookahead > 1),
        last_uses_(make_values<Use>(settings)),
        uses_(lookahead) {
    if (settings.verify) versions_.emplace(make_values<std::int32_t>(settings));
  }

  // Of the batch that was classified last: the table's rows, and those of the tables before it.
  Tally tally;
  Tally before;

  std::int64_t first_column() const { return settings_.column == kAllColumns ? 0 : settings_.column; }
  std::int64_t end_column(std::int64_t columns) const { return settings_.column == kAllColumns ? columns : first_column() + 1; }
  // Unique rows that a batch may have.
  std::int64_t most_rows(std::int64_t samples, std::int64_t columns) const {
    return std::min(samples * (end_column(columns) - first_column()), settings_.rows);
  }
  std::int64_t unique_rows(std::uint32_t number) const { return uses_.count(number); }

  // Load a batch, in three parts: begin, the blocks of the table's columns, end. Batches before `oldest` are out of the
  // window.

  void begin_load(std::uint32_t number, std::uint32_t oldest, std::int64_t most_rows) {
    uses_.open(number, oldest, most_rows);
    std::visit([&](auto& values) { values.reserve(most_rows); }, last_uses_);
    number_ = number;
    new_uses_ = uses_[number];
  }

  // Takes in the block of a column that begins with `first_sample`. Returns the first sample whose row is not the
  // table's, or -1. The planner is of no use after one.
  template <class Index>
  std::int64_t load(const BatchRows& batch, std::int64_t column, std::int64_t first_sample, Index* indices) {
    if (auto* dense = std::get_if<DenseRows<Use>>(&last_uses_)) {
      return dense->is_small() ? load_rows<false>(*dense, batch, column, first_sample, indices)
                               : load_rows<true>(*dense, batch, column, first_sample, indices);
    }
    return load_rows<true>(std::get<HashedRows<Use>>(last_uses_), batch, column, first_sample, indices);
  }

  void end_load(std::uint32_t oldest) {
    uses_.close(number_, new_uses_.count);
    std::fill_n(new_uses_.slots, new_uses_.count, kAbsent);
    for (std::int64_t i = 0; i < new_uses_.count; ++i) {
      if (i + kAhead < new_uses_.count) {
        const Use coming = new_uses_.next[i + kAhead];
        if (coming.batch >= oldest) __builtin_prefetch(&uses_.next(coming), 1);
      }
      const Use previous = new_uses_.next[i];
      new_uses_.next[i] = Use{0, 0};
      if (previous.batch >= oldest) uses_.next(previous) = Use{number_, static_cast<std::uint32_t>(i)};
    }
  }

  // Decide on a batch, in two parts: which list each row is on, then its slot.

  void classify(std::uint32_t number) {
    const RowUses uses = uses_[number];
    lists_.make_room(uses.count);
    fetched_.make_room(uses.count);
    dead_.make_room(uses.count);
    tally.clear();
    std::int64_t fetched = 0, dead = 0;
    for (std::int64_t i = 0; i < uses.count; ++i) {
      const std::uint32_t next = uses.next[i].batch;
      const bool is_fetched = uses.slots[i] == kAbsent, is_dead = next == 0;
      const bool is_private = is_dead & (uses.users[i] != kSeveral);
      // Without look-ahead the next batch is unknown, so every shared row counts as needed by it.
      const std::uint16_t shared_list = (next == number + 1) | !has_lookahead_ ? kNow : kLater;
      const auto list = is_private ? static_cast<std::uint16_t>(kFirstPrivate + uses.users[i]) : shared_list;
      lists_[i] = list;
      ++tally.on_list(list);
      tally.fetched(pool_of(list)) += is_fetched;
      // Whether a row is on these lists is as good as random: a branch would often be guessed wrong.
      fetched_[fetched] = dead_[dead] = static_cast<std::uint32_t>(i);
      fetched += is_fetched;
      dead += is_dead;
    }
    fetched_count_ = fetched;
    tally.dead() = dead;
  }

  // `grants` are the slots of all tables' fetched rows, by pool; dead rows go to their places in `retired`.
  void assign(std::uint32_t number, const std::vector<Grant>& grants, std::int32_t first_private_slot,
              RetiredRows& retired) {
    const RowUses uses = uses_[number];
    std::vector<std::int64_t> taken = before.all_fetched();
    for (std::int64_t k = 0; k < fetched_count_; ++k) {
      const std::uint32_t i = fetched_[k];
      const std::size_t pool = pool_of(lists_[i]);
      uses.slots[i] = grants[pool][taken[pool]++] + (pool == kSharedPool ? 0 : first_private_slot);
    }
    std::int32_t nobody;  // takes the slots of dead rows
    for (std::int64_t i = 0; i < uses.count; ++i) {
      if (i + kAhead < uses.count) __builtin_prefetch(&uses_.slot(uses.next[i + kAhead]), 1);
      std::int32_t& heir = uses.next[i].batch == 0 ? nobody : uses_.slot(uses.next[i]);
      heir = uses.slots[i];
    }
    const std::size_t trainers = grants.size() - 1;
    std::int64_t place = before.dead();
    std::size_t turn = static_cast<std::size_t>(place) % trainers;
    for (std::int64_t k = 0; k < tally.dead(); ++k, ++place) {
      const std::uint32_t i = dead_[k];
      retired.rows[place] = uses.rows[i];
      retired.slots[place] = uses.slots[i];
      retired.writers[place] = static_cast<std::uint16_t>(lists_[i] < kFirstPrivate ? turn : lists_[i] - kFirstPrivate);
      if (++turn == trainers) turn = 0;
    }
    if (auto* hashed = std::get_if<HashedRows<Use>>(&last_uses_)) forget_dead_rows(*hashed, uses);
  }

  // Write a plan, in two parts: the rows' lists, then (once all tables have theirs) the look-ups' positions on them.

  // `starts` is the position of each list's first row.
  void write_lists(std::uint32_t number, const std::vector<ListOutput>& lists, const std::vector<FetchOutput>& fetches,
                   const std::vector<std::int64_t>& starts) {
    const RowUses uses = uses_[number];
    positions_.make_room(uses.count);
    std::vector<std::int64_t> written = before.all_on_list();
    for (std::int64_t i = 0; i < uses.count; ++i) {
      const std::uint16_t list = lists_[i];
      const std::int64_t place = written[list]++;
      positions_[i] = static_cast<std::int32_t>(starts[list] + place);
      lists[list].slots[place] = uses.slots[i];
      if (versions_) {
        lists[list].rows[place] = uses.rows[i];
        lists[list].versions[place] = version(uses.rows[i]);
      }
    }
    std::vector<std::int64_t> fetched = before.all_fetched();
    for (std::int64_t k = 0; k < fetched_count_; ++k) {
      const std::uint32_t i = fetched_[k];
      const FetchOutput& fetch = fetches[pool_of(lists_[i])];
      const std::int64_t place = fetched[pool_of(lists_[i])]++;
      fetch.rows[place] = uses.rows[i];
      fetch.slots[place] = uses.slots[i];
    }
  }

  // Positions of the look-ups with these indices; `stride` lies between two of them.
  template <class Index>
  void translate(const Index* indices, std::int64_t count, std::int32_t* positions, std::int64_t stride) const {
    const std::int32_t* const of_rows = positions_.data();
    for (std::int64_t i = 0; i < count; ++i) positions[i * stride] = of_rows[indices[i]];
  }

  // Notes that training step `step` updates the batch's rows.
  void count_update(std::uint32_t number, std::int32_t step) {
    const RowUses uses = uses_[number];
    for (std::int64_t i = 0; i < uses.count; ++i) version(uses.rows[i]) = step;
  }

  std::size_t state_bytes() const {
    std::size_t bytes = std::visit([](const auto& values) { return values.bytes(); }, last_uses_);
    if (versions_) bytes += std::visit([](const auto& values) { return values.bytes(); }, *versions_);
    return bytes;
  }
  std::size_t window_bytes() const { return uses_.bytes() + lists_.bytes() + positions_.bytes() + fetched_.bytes() + dead_.bytes(); }

 private:
  template <class Value>
  using RowValues = std::variant<DenseRows<Value>, HashedRows<Value>>;

  static constexpr std::int64_t kAhead = 32;  // rows between asking for memory and using it
  static constexpr std::int64_t kCacheLine = 64;

  template <class Value>
  static RowValues<Value> make_values(const TableSettings& settings) {
    if (settings.hashed) return HashedRows<Value>(settings.rows);
    return DenseRows<Value>(settings.rows);
  }

  template <bool kPrefetch, class Values, class Index>
  std::int64_t load_rows(Values& last_uses, const BatchRows& batch, std::int64_t column, std::int64_t first_sample,
                         Index* indices) {
    const std::int64_t* const rows = batch.rows + column;
    const std::int64_t stride = batch.columns;
    const std::int64_t first_row = settings_.first_row;
    const auto table_rows = static_cast<std::uint64_t>(settings_.rows);
    const std::uint32_t number = number_;
    const RowUses uses = new_uses_;
    auto count = static_cast<std::uint32_t>(uses.count);
    const std::int64_t end = std::min(first_sample + kBlockSamples, batch.samples);
    if (kPrefetch) prefetch_new_uses();
    std::uint16_t user = 0;
    for (std::int64_t sample = first_sample; sample < end;) {
      while (batch.slices[user + 1] <= sample) ++user;
      const std::int64_t slice_end = std::min(end, batch.slices[user + 1]);
      for (; sample < slice_end; ++sample) {
        if (kPrefetch && sample + kAhead < batch.samples) {
          last_uses.prefetch(rows[(sample + kAhead) * stride] - first_row);
        }
        const std::int64_t row = rows[sample * stride] - first_row;
        if (static_cast<std::uint64_t>(row) >= table_rows) return sample;
        Use& last_use = last_uses[row];
        if (last_use.batch != number) {
          uses.rows[count] = first_row + row;
          uses.next[count] = last_use;  // for end_load
          uses.users[count] = user;
          last_use = Use{number, count};
          indices[sample - first_sample] = static_cast<Index>(count++);
        } else {
          const std::uint32_t index = last_use.index;
          if (uses.users[index] != user) uses.users[index] = kSeveral;
          indices[sample - first_sample] = static_cast<Index>(index);
        }
      }
    }
    new_uses_.count = count;
    return -1;
  }

  // The memory that the rows of the next block may be written to.
  void prefetch_new_uses() const {
    const std::int64_t first = new_uses_.count + kBlockSamples / 2;
    for (std::int64_t i = first; i < first + kBlockSamples; i += kCacheLine / 8) {
      __builtin_prefetch(new_uses_.rows + i, 1);
      __builtin_prefetch(new_uses_.next + i, 1);
    }
    for (std::int64_t i = first; i < first + kBlockSamples; i += kCacheLine / 2) {
      __builtin_prefetch(new_uses_.users + i, 1);
    }
  }

  // An array is left as it is: what it says of a dead row is older than the window when the row is loaded again.
  void forget_dead_rows(HashedRows<Use>& last_uses, const RowUses& uses) {
    const std::int64_t dead = tally.dead();
    for (std::int64_t k = 0; k < dead; ++k) {
      if (k + kAhead < dead) last_uses.prefetch(uses.rows[dead_[k + kAhead]] - settings_.first_row);
      last_uses.erase(uses.rows[dead_[k]] - settings_.first_row);
    }
  }

  std::int32_t& version(std::int64_t row) {
    return std::visit(
        [&](auto& values) -> std::int32_t& {
          values.reserve(1);
          return values[row - settings_.first_row];
        },
        *versions_);
  }

  TableSettings settings_;
  bool has_lookahead_;
  RowValues<Use> last_uses_;  // of each row in the batches that are loaded
  std::optional<RowValues<std::int32_t>> versions_;
  UseRing uses_;
  // Of the batch that is being loaded.
  std::uint32_t number_ = 0;
  RowUses new_uses_{};
  // Of the batch that is decided: the list and the position on it of each unique row, and which are fetched and dead.
  Buffer<std::uint16_t> lists_;
  Buffer<std::int32_t> positions_;
  Buffer<std::uint32_t> fetched_;
  std::int64_t fetched_count_ = 0;
  Buffer<std::uint32_t> dead_;
};

}  // namespace bagpipe
