// The rows of one table in the window: which batches use them, one linked to the next.
//
// Tables have no rows in common, so each takes its part of a step alone, in any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <variant>
#include <vector>

#include "batch_look_ups.h"
#include "row_values.h"
#include "use_ring.h"
#include "worker_team.h"

namespace bagpipe {

struct TableSettings {
  std::int64_t first_row;  // global
  std::int64_t rows;
  bool hashed;  // know only the rows in the window
  bool verify;  // know the version of each row
};

constexpr std::int64_t kAhead = 32;  // rows between asking for memory and using it

// `Users` notes which trainers use a row, and says which index stands for a look-up: OnlyUser, AllUsers.
template <class Users>
class TableRows {
 public:
  // `batches`: so many are kept at once.
  TableRows(const TableSettings& settings, std::int64_t batches)
      : users(batches), settings_(settings), last_uses_(make_values<Use>(settings)), uses_(batches) {
    if (settings.verify) versions_.emplace(make_values<std::int32_t>(settings));
  }

  // The features whose look-ups are to the table's rows, in ascending order.
  std::vector<std::int64_t> features;
  Users users;

  RowUses uses(std::uint32_t number) { return uses_[number]; }
  UseRing& ring() { return uses_; }
  std::int64_t unique_rows(std::uint32_t number) const { return uses_.count(number); }

  // Load a batch, in five parts: expect, begin, the blocks of the table's features, end; then, of which each of `parts`
  // takes a share, links.

  // Notes how many look-ups each feature has. Returns how many indices the batch may have.
  std::int64_t expect(const std::vector<std::int64_t>& look_ups_of_features) {
    look_ups_ = 0;
    for (const std::int64_t feature : features) look_ups_ += look_ups_of_features[static_cast<std::size_t>(feature)];
    return Users::most_indices(look_ups_, most_rows());
  }
  std::int64_t look_ups() const { return look_ups_; }
  const TableSettings& settings() const { return settings_; }

  // Batches before `oldest` are of no use any more; `in_place` as in UseRing.
  void begin_load(std::uint32_t number, std::uint32_t oldest, std::shared_mutex& in_place) {
    uses_.open(number, oldest, most_rows(), in_place);
    std::visit([&](auto& values) { values.reserve(most_rows()); }, last_uses_);
    number_ = number;
    new_uses_ = uses_[number];
    users.begin(number, new_uses_, look_ups_, most_rows());
  }

  // Takes in the block of a one-hot feature that begins with `first_sample`; `look_ups` are those of the feature.
  // Returns whether all its rows are the table's; if not, the planner is of no use.
  template <class LookUps, class Index>
  bool load_column(const BatchRows& batch, const LookUps look_ups, std::int64_t feature, std::int64_t first_sample,
                   Index* indices) {
    const std::int64_t end = std::min(first_sample + kBlockSamples, batch.samples);
    return load_in_slices(batch, first_sample, end, [&](std::int64_t first, std::int64_t last, std::uint16_t user) {
      return load(look_ups, first, last, batch.samples, users.part(feature, user), indices);
    });
  }

  // The same of a ragged feature, for samples `first_sample` up to `end`. `list` is memory to work in.
  template <class Index>
  bool load_bags(const BatchRows& batch, std::int64_t feature, std::int64_t first_sample, std::int64_t end,
                 ListedLookUps& list, Index* indices) {
    return load_in_slices(batch, first_sample, end, [&](std::int64_t first, std::int64_t last, std::uint16_t user) {
      list.gather(batch, feature, first, last, settings_.first_row);
      prefetch_first(list);
      return load(list.items(), 0, list.count(), list.count(), users.part(feature, user), indices);
    });
  }

  void end_load() {
    uses_.close(number_, new_uses_.count);
    users.end(new_uses_.count);
  }

  // Links each row's use before this one to it, if it is not before `oldest`.
  void link(std::uint32_t oldest, std::size_t part, std::size_t parts) {
    const std::int64_t first = share_start(new_uses_.count, part, parts);
    const std::int64_t end = share_start(new_uses_.count, part + 1, parts);
    std::fill(new_uses_.slots + first, new_uses_.slots + end, kAbsent);
    for (std::int64_t i = first; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(&uses_.next(use_before(i + kAhead, oldest)), 1);
      const Use before = use_before(i, oldest);
      const std::uint32_t if_linked = before.batch == number_ ? 0 : UINT32_MAX;
      new_uses_.next[i] = Use{0, 0};
      users.note_previous(i, before.batch);
      uses_.next(before) = Use{number_ & if_linked, static_cast<std::uint32_t>(i) & if_linked};
    }
  }

  // Forgets the rows that die with a batch, where only rows in the window are known. An array is left as it is: what it
  // says of a dead row is older than the window when the row is loaded again.
  void forget_dead(std::uint32_t number) {
    auto* const last_uses = std::get_if<HashedRows<Use>>(&last_uses_);
    if (last_uses == nullptr) return;
    const RowUses uses = uses_[number];
    for (std::int64_t i = 0; i < uses.count; ++i) {
      if (i + kAhead < uses.count) last_uses->prefetch(uses.rows[i + kAhead] - settings_.first_row);
      if (uses.next[i].batch == 0) last_uses->erase(uses.rows[i] - settings_.first_row);
    }
  }
  // Forgets all rows.
  void forget() {
    std::visit([](auto& values) { values.clear(); }, last_uses_);
  }

  bool knows_versions() const { return versions_.has_value(); }
  // Of a global row, where versions are known.
  std::int32_t& version(std::int64_t row) {
    return std::visit(
        [&](auto& values) -> std::int32_t& {
          values.reserve(1);
          return values[row - settings_.first_row];
        },
        *versions_);
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
  std::size_t window_bytes() const { return uses_.bytes() + users.bytes(); }

 private:
  template <class Value>
  using RowValues = std::variant<DenseRows<Value>, HashedRows<Value>>;
  using Part = typename Users::Part;

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
  bool load(const LookUps look_ups, std::int64_t first, std::int64_t end, std::int64_t known, const Part& part,
            Index* indices) {
    if (auto* dense = std::get_if<DenseRows<Use>>(&last_uses_)) {
      return dense->is_small() ? load_rows<false>(*dense, look_ups, first, end, known, part, indices)
                               : load_rows<true>(*dense, look_ups, first, end, known, part, indices);
    }
    return load_rows<true>(std::get<HashedRows<Use>>(last_uses_), look_ups, first, end, known, part, indices);
  }

  template <bool kPrefetch, class Values, class LookUps, class Index>
  bool load_rows(Values& last_uses, const LookUps look_ups, std::int64_t first, std::int64_t end, std::int64_t known,
                 Part part, Index* indices) {
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
        uses.next[count] = last_use;  // for link
        last_use = Use{number, count};
        indices[look_ups.place(i)] = static_cast<Index>(part.meet(count++));
      } else {
        indices[look_ups.place(i)] = static_cast<Index>(part.meet_again(last_use.index));
      }
    }
    new_uses_.count = count;
    users.keep(part);
    return true;
  }

  // The use of row `i` before the new batch; where that is before `oldest`, the new use itself: as in RowUses::heir.
  Use use_before(std::int64_t i, std::uint32_t oldest) const {
    const Use found = new_uses_.next[i];
    const std::uint32_t if_old = found.batch < oldest ? UINT32_MAX : 0;
    return {(found.batch & ~if_old) | (number_ & if_old),
            (found.index & ~if_old) | (static_cast<std::uint32_t>(i) & if_old)};
  }

  void prefetch_first(const ListedLookUps& list) const {
    const std::int64_t end = std::min(kAhead, list.count());
    const auto prefetch = [&](const auto& values) {
      for (std::int64_t i = 0; i < end; ++i) values.prefetch(list.items().row(i));
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
      __builtin_prefetch(new_uses_.trainers + i, 1);
    }
  }

  TableSettings settings_;
  RowValues<Use> last_uses_;  // of each row in the batches that are loaded
  std::optional<RowValues<std::int32_t>> versions_;
  UseRing uses_;
  // Of the batch that is being loaded.
  std::uint32_t number_ = 0;
  std::int64_t look_ups_ = 0;
  RowUses new_uses_{};
};

}  // namespace bagpipe
