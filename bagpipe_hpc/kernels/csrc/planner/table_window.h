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
  bool hashed;  // know only the rows in the window
  bool verify;  // know the version of each row
};

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

  // The features whose look-ups are to the table's rows, in ascending order.
  std::vector<std::int64_t> features;

  std::int64_t first_row() const { return settings_.first_row; }
  std::int64_t unique_rows(std::uint32_t number) const { return uses_.count(number); }

  // Load a batch, in four parts: expect, begin, the blocks of the table's features, end. Batches before `oldest` are out
  // of the window.

  // Notes how many look-ups each feature has. Returns how many unique rows the batch may have.
  std::int64_t expect(const std::vector<std::int64_t>& look_ups_of_features) {
    look_ups_ = 0;
    for (const std::int64_t feature : features) look_ups_ += look_ups_of_features[static_cast<std::size_t>(feature)];
    return most_rows();
  }
  std::int64_t look_ups() const { return look_ups_; }

  void begin_load(std::uint32_t number, std::uint32_t oldest) {
    uses_.open(number, oldest, most_rows());
    std::visit([&](auto& values) { values.reserve(most_rows()); }, last_uses_);
    number_ = number;
    new_uses_ = uses_[number];
  }

  // Takes in the block of a one-hot feature that begins with `first_sample`. Returns whether all its rows are the
  // table's; if not, the planner is of no use.
  template <class Index>
  bool load_column(const BatchRows& batch, std::int64_t feature, std::int64_t first_sample, Index* indices) {
    const ColumnLookUps look_ups{batch.rows + feature, batch.features, settings_.first_row, first_sample};
    const std::int64_t end = std::min(first_sample + kBlockSamples, batch.samples);
    return load_in_slices(batch, first_sample, end, [&](std::int64_t first, std::int64_t last, std::uint16_t user) {
      return load(look_ups, first, last, batch.samples, user, indices);
    });
  }

  // The same of a ragged feature, for samples `first_sample` up to `end`. `list` is memory to work in.
  template <class Index>
  bool load_bags(const BatchRows& batch, std::int64_t feature, std::int64_t first_sample, std::int64_t end,
                 ListedLookUps& list, Index* indices) {
    return load_in_slices(batch, first_sample, end, [&](std::int64_t first, std::int64_t last, std::uint16_t user) {
      list.gather(batch, feature, first, last, settings_.first_row);
      prefetch_first(list);
      return load(list, 0, list.count(), list.count(), user, indices);
    });
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
  // The position of each unique row on its list.
  const std::int32_t* positions() const { return positions_.data(); }

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

  std::int64_t most_rows() const { return std::min(look_ups_, settings_.rows); }

  // Calls load_part(first, end, user) for each part of the samples that is in one trainer's slice, until one is false.
  template <class LoadPart>
  static bool load_in_slices(const BatchRows& batch, std::int64_t first, std::int64_t end, const LoadPart& load_part) {
    std::uint16_t user = 0;
    while (first < end) {
      while (batch.slices[user + 1] <= first) ++user;
      const std::int64_t slice_end = std::min(end, batch.slices[user + 1]);
      if (!load_part(first, slice_end, user)) return false;
      first = slice_end;
    }
    return true;
  }

  // Takes in look-ups `first` up to `end`, all of one user; those up to `known` may be looked at.
  template <class LookUps, class Index>
  bool load(const LookUps& look_ups, std::int64_t first, std::int64_t end, std::int64_t known, std::uint16_t user,
            Index* indices) {
    if (auto* dense = std::get_if<DenseRows<Use>>(&last_uses_)) {
      return dense->is_small() ? load_rows<false>(*dense, look_ups, first, end, known, user, indices)
                               : load_rows<true>(*dense, look_ups, first, end, known, user, indices);
    }
    return load_rows<true>(std::get<HashedRows<Use>>(last_uses_), look_ups, first, end, known, user, indices);
  }

  template <bool kPrefetch, class Values, class LookUps, class Index>
  bool load_rows(Values& last_uses, const LookUps& look_ups, std::int64_t first, std::int64_t end, std::int64_t known,
                 std::uint16_t user, Index* indices) {
    const std::int64_t first_row = settings_.first_row;
    const auto table_rows = static_cast<std::uint64_t>(settings_.rows);
    const std::uint32_t number = number_;
    const RowUses uses = new_uses_;
    auto count = static_cast<std::uint32_t>(uses.count);
    if (kPrefetch) prefetch_new_uses();
    for (std::int64_t i = first; i < end; ++i) {
      if (kPrefetch && i + kAhead < known) last_uses.prefetch(look_ups.row(i + kAhead));
      const std::int64_t row = look_ups.row(i);
      if (static_cast<std::uint64_t>(row) >= table_rows) return false;
      Use& last_use = last_uses[row];
      if (last_use.batch != number) {
        uses.rows[count] = first_row + row;
        uses.next[count] = last_use;  // for end_load
        uses.users[count] = user;
        last_use = Use{number, count};
        indices[look_ups.place(i)] = static_cast<Index>(count++);
      } else {
        const std::uint32_t index = last_use.index;
        if (uses.users[index] != user) uses.users[index] = kSeveral;
        indices[look_ups.place(i)] = static_cast<Index>(index);
      }
    }
    new_uses_.count = count;
    return true;
  }

  void prefetch_first(const ListedLookUps& list) const {
    const std::int64_t end = std::min(kAhead, list.count());
    const auto prefetch = [&](const auto& values) {
      for (std::int64_t i = 0; i < end; ++i) values.prefetch(list.row(i));
    };
    std::visit(prefetch, last_uses_);
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
  std::int64_t look_ups_ = 0;
  RowUses new_uses_{};
  // Of the batch that is decided: the list and the position on it of each unique row, and which are fetched and dead.
  Buffer<std::uint16_t> lists_;
  Buffer<std::int32_t> positions_;
  Buffer<std::uint32_t> fetched_;
  std::int64_t fetched_count_ = 0;
  Buffer<std::uint32_t> dead_;
};

}  // namespace bagpipe
