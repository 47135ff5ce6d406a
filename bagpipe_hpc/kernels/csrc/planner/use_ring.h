// The unique rows of one table in each batch of the window, and what is known of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "zero_pages.h"

namespace bagpipe {

constexpr std::int32_t kAbsent = -1;        // slot of a row that is in no cache
constexpr std::uint16_t kSeveral = 0xFFFF;  // user of a row that more than one trainer uses

// A use of a row: the number of a batch, and the index of the row among the unique rows of that batch. Batches are
// numbered from 1 in ascending order.
struct Use {
  std::uint32_t batch;  // 0: there is none
  std::uint32_t index;
};

// Arrays over the unique rows of one batch, in the order of their first look-up.
struct RowUses {
  std::int64_t count;
  std::int64_t* rows;    // global rows
  Use* next;             // the use after this one, as far as it is loaded
  std::int32_t* slots;   // kAbsent until an earlier use hands its slot on, or the batch is decided
  std::uint16_t* trainers;  // whose each row is: its only user, or kSeveral; or its home

  // The use after that of row `i` in batch `number`, which these are; of a row that has none, that of row `i` itself.
  // Whether it has one is as good as random: a branch would often be guessed wrong.
  Use heir(std::uint32_t number, std::int64_t i) const {
    const std::uint32_t if_none = next[i].batch == 0 ? UINT32_MAX : 0;  // then the index is 0 as well
    return {next[i].batch | (if_none & number), next[i].index | (if_none & static_cast<std::uint32_t>(i))};
  }
};

// Keeps the batches of a window side by side in a few large arrays, one batch behind the other and round again: the
// planner goes from use to use across the whole window, which is quick only in memory of huge pages.
class UseRing {
 public:
  explicit UseRing(std::int64_t batches) : batches_(batches) {
    while (parts_.size() < static_cast<std::size_t>(batches)) {
      parts_.resize(std::max<std::size_t>(1, 2 * parts_.size()));
    }
  }

  // Makes room for batch `number`, of up to `most` rows. Batches before `oldest` are of no use any more; the others
  // stay where they are unless nobody holds `in_place`.
  void open(std::uint32_t number, std::uint32_t oldest, std::int64_t most, std::shared_mutex& in_place) {
    most = std::max(most, kLeastRoom);
    std::int64_t first = find_room(number, oldest, most);
    if (first < 0) {
      const std::lock_guard lock(in_place);
      grow(number, oldest, most);
      first = find_room(number, oldest, most);
    }
    part(number) = {first, 0};
  }
  // The open batch turns out to have `count` rows.
  void close(std::uint32_t number, std::int64_t count) { part(number).count = count; }

  RowUses operator[](std::uint32_t number) {
    const Part& found = part(number);
    // By data(): a table without rows in any batch has no arrays.
    const std::int64_t first = found.first;
    return {found.count, rows_.data() + first, next_.data() + first, slots_.data() + first, trainers_.data() + first};
  }
  std::int64_t count(std::uint32_t number) const { return parts_[number & (parts_.size() - 1)].count; }
  Use& next(const Use& use) { return next_[part(use.batch).first + use.index]; }
  std::int32_t& slot(const Use& use) { return slots_[part(use.batch).first + use.index]; }
  std::uint16_t& trainer(const Use& use) { return trainers_[part(use.batch).first + use.index]; }

  std::size_t bytes() const { return rows_.bytes() + next_.bytes() + slots_.bytes() + trainers_.bytes(); }

 private:
  struct Part {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t room() const { return std::max(count, kLeastRoom); }
    std::int64_t end() const { return first + room(); }
  };

  // Of a batch without rows, too: two batches never begin at the same place, so which one comes first tells whether the
  // newest is behind the oldest or has gone round.
  static constexpr std::int64_t kLeastRoom = 1;

  Part& part(std::uint32_t number) { return parts_[number & (parts_.size() - 1)]; }

  // Where `most` rows fit in one piece behind the newest batch, or -1.
  std::int64_t find_room(std::uint32_t number, std::uint32_t oldest, std::int64_t most) {
    const auto capacity = static_cast<std::int64_t>(rows_.size());
    if (oldest == number) return most <= capacity ? 0 : -1;
    const std::int64_t begin = part(oldest).first, end = part(number - 1).end();
    const bool has_wrapped = part(number - 1).first < begin;
    if (most <= (has_wrapped ? begin : capacity) - end) return end;
    return !has_wrapped && most <= begin ? 0 : -1;
  }

  // Makes the arrays as large as a full window of such batches needs, and moves the batches to their start. Where twice
  // `most` is free, one piece of so much is: before the oldest batch, or behind the newest.
  void grow(std::uint32_t number, std::uint32_t oldest, std::int64_t most) {
    std::int64_t kept = 0;
    for (std::uint32_t batch = oldest; batch != number; ++batch) kept += part(batch).room();
    const std::int64_t average = number == oldest ? 0 : kept / (number - oldest);
    const auto capacity = static_cast<std::size_t>(std::max(kept, average * batches_) * 17 / 16 + 2 * most);
    ZeroPages<std::int64_t> rows(capacity);
    ZeroPages<Use> next(capacity);
    ZeroPages<std::int32_t> slots(capacity);
    ZeroPages<std::uint16_t> trainers(capacity);
    std::int64_t first = 0;
    for (std::uint32_t batch = oldest; batch != number; ++batch) {
      const RowUses from = (*this)[batch];
      std::copy_n(from.rows, from.count, rows.data() + first);
      std::copy_n(from.next, from.count, next.data() + first);
      std::copy_n(from.slots, from.count, slots.data() + first);
      std::copy_n(from.trainers, from.count, trainers.data() + first);
      part(batch).first = first;
      first = part(batch).end();
    }
    rows_ = std::move(rows);
    next_ = std::move(next);
    slots_ = std::move(slots);
    trainers_ = std::move(trainers);
  }

  std::int64_t batches_;     // at most
  std::vector<Part> parts_;  // each batch's at its number modulo their number, a power of two
  ZeroPages<std::int64_t> rows_;
  ZeroPages<Use> next_;
  ZeroPages<std::int32_t> slots_;
  ZeroPages<std::uint16_t> trainers_;
};

}  // namespace bagpipe
