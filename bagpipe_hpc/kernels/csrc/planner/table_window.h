// One table in the window where rows are replicated: what is decided on the rows of a batch.
//
// What a table needs to know of the tables before it is how many of their rows are on which list (`before`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "counters.h"
#include "planner.h"
#include "retirement.h"
#include "row_users.h"
#include "slot_pool.h"
#include "table_rows.h"
#include "tally.h"
#include "use_ring.h"

namespace bagpipe {

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

class alignas(kLineBytes) TableWindow {
 public:
  TableWindow(const TableSettings& settings, const PlannerSettings& all)
      : rows(settings, all.batches()), tally(all.trainers), before(all.trainers), has_lookahead_(all.lookahead > 1) {}

  TableRows<OnlyUser> rows;
  // Of the batch that was classified last: the table's rows, and those of the tables before it.
  Tally tally;
  Tally before;

  // Decide on a batch, in two parts: which list each row is on, then its slot.

  void classify(std::uint32_t number) {
    const RowUses uses = rows.uses(number);
    lists_.make_room(uses.count);
    fetched_.make_room(uses.count);
    dead_.make_room(uses.count);
    tally.clear();
    std::int64_t fetched = 0, dead = 0;
    for (std::int64_t i = 0; i < uses.count; ++i) {
      const std::uint32_t next = uses.next[i].batch;
      const bool is_fetched = uses.slots[i] == kAbsent, is_dead = next == 0;
      const bool is_private = is_dead & (uses.trainers[i] != kSeveral);
      // Without look-ahead the next batch is unknown, so every shared row counts as needed by it.
      const std::uint16_t shared_list = (next == number + 1) | !has_lookahead_ ? kNow : kLater;
      const auto list = is_private ? static_cast<std::uint16_t>(kFirstPrivate + uses.trainers[i]) : shared_list;
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
    const RowUses uses = rows.uses(number);
    Counters<std::int64_t> taken = before.all_fetched();
    for (std::int64_t k = 0; k < fetched_count_; ++k) {
      const std::uint32_t i = fetched_[k];
      const std::size_t pool = pool_of(lists_[i]);
      uses.slots[i] = grants[pool][taken[pool]++] + (pool == kSharedPool ? 0 : first_private_slot);
    }
    for (std::int64_t i = 0; i < uses.count; ++i) {
      if (i + kAhead < uses.count) __builtin_prefetch(&rows.ring().slot(uses.heir(number, i + kAhead)), 1);
      rows.ring().slot(uses.heir(number, i)) = uses.slots[i];
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
  }

  // Write a plan, in two parts: the rows' lists, then (once all tables have theirs) the look-ups' positions on them.

  // `starts` is the position of each list's first row.
  void write_lists(std::uint32_t number, const std::vector<ListOutput>& lists, const std::vector<FetchOutput>& fetches,
                   const std::vector<std::int64_t>& starts) {
    const RowUses uses = rows.uses(number);
    positions_.make_room(uses.count);
    Counters<std::int64_t> written = before.all_on_list();
    for (std::int64_t i = 0; i < uses.count; ++i) {
      const std::uint16_t list = lists_[i];
      const std::int64_t place = written[list]++;
      positions_[i] = static_cast<std::int32_t>(starts[list] + place);
      lists[list].slots[place] = uses.slots[i];
      if (rows.knows_versions()) {
        lists[list].rows[place] = uses.rows[i];
        lists[list].versions[place] = rows.version(uses.rows[i]);
      }
    }
    Counters<std::int64_t> fetched = before.all_fetched();
    for (std::int64_t k = 0; k < fetched_count_; ++k) {
      const std::uint32_t i = fetched_[k];
      const FetchOutput& fetch = fetches[pool_of(lists_[i])];
      const std::int64_t place = fetched[pool_of(lists_[i])]++;
      fetch.rows[place] = uses.rows[i];
      fetch.slots[place] = uses.slots[i];
    }
  }

  // The position of each unique row on its list: so of each index of a look-up.
  const std::int32_t* positions(std::uint32_t) const { return positions_.data(); }

  std::size_t window_bytes() const {
    return rows.window_bytes() + lists_.bytes() + positions_.bytes() + fetched_.bytes() + dead_.bytes();
  }

 private:
  bool has_lookahead_;
  // Of the batch that is decided: the list and the position on it of each unique row, and which are fetched and dead.
  Buffer<std::uint16_t> lists_;
  Buffer<std::int32_t> positions_;
  Buffer<std::uint32_t> fetched_;
  std::int64_t fetched_count_ = 0;
  Buffer<std::uint32_t> dead_;
};

}  // namespace bagpipe
