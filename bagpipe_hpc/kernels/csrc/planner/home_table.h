// One table in the window where each row has one home: what is decided on the rows of a batch.
//
// The rows of a batch are worked on in spans of one table, which any thread takes; what a span needs to know of those
// before it is how many of their rows go where (BatchCounts).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "counters.h"
#include "home_exchange.h"
#include "planner.h"
#include "retirement.h"
#include "row_users.h"
#include "slot_pool.h"
#include "table_rows.h"
#include "tally.h"
#include "use_ring.h"
#include "worker_team.h"

namespace bagpipe {

class HomeTable;

// So many trainers or more use a popular row (planning/homes/choice.py: POPULAR_USERS).
constexpr std::uint32_t kPopularUsers = 8;

// Some rows of a batch.
struct Span {
  HomeTable* table;
  std::int64_t first;
  std::int64_t end;
  std::int64_t fetched = 0;
  std::int64_t dead = 0;
  std::int64_t solo = 0;    // the others are exchanged
  std::int64_t copied = 0;  // pairs of a user and another trainer's row that the batch before uses too
  std::vector<std::uint32_t> popular = {};  // rows that are fetched

  // Fetched rows whose users take them in turn.
  std::int64_t in_turn() const { return fetched - static_cast<std::int64_t>(popular.size()); }
};

// Where a trainer's part of a plan goes.
struct HomeOutput {
  HomeArrays to;
  std::int32_t copies;     // of the rows of its slice: they come first
  std::int32_t not_solo;   // then rows that are lent: so many are not solo
  std::int32_t now_rows;   // of the rows that it sums
};

class alignas(kLineBytes) HomeTable {
 public:
  HomeTable(const TableSettings& settings, const PlannerSettings& all)
      : rows(settings, all.batches()), has_lookahead_(all.lookahead > 1), lists_(all.drafts()) {}

  TableRows<AllUsers> rows;

  // The work that rows `first` up to `end` of a batch are: rows and pairs.
  std::int64_t work(std::uint32_t number, std::int64_t first, std::int64_t end) {
    const BatchPairs& pairs = rows.users.of(number);
    return end - first + pairs.first(end) - pairs.first(first);
  }
  // Cuts off, from row `first` of a batch, rows that are so much work at most. Returns one after the last.
  std::int64_t cut(std::uint32_t number, std::int64_t first, std::int64_t most) {
    std::int64_t low = first, high = rows.unique_rows(number);
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (work(number, first, middle) <= most) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // Decide on a batch, in five parts: begin, which rows are fetched and dead, homes of popular rows, homes of the
  // others, slots.

  // `knows_next`: whether the batch behind it is loaded.
  void begin(std::uint32_t number, bool knows_next) {
    const BatchPairs& pairs = rows.users.of(number);
    Lists& own = lists(number);
    own.fetched.make_room(pairs.rows);
    own.dead.make_room(pairs.rows);
    own.solo.make_room(pairs.rows);
    own.exchanged.make_room(pairs.rows);
    own.pair_positions.make_room(pairs.count());
    own.positions.make_room(pairs.meetings);
    if (rows.knows_versions()) own.versions.make_room(pairs.rows);
    if (!knows_next) return;
    const BatchPairs& next = rows.users.of(number + 1);
    own.copied_rows.make_room(next.rows);
    own.copies.make_room(next.count());
  }

  void find(std::uint32_t number, Span& span) {
    const RowUses uses = rows.uses(number);
    std::uint32_t* const fetched = lists(number).fetched.data() + span.first;
    std::uint32_t* const dead = lists(number).dead.data() + span.first;
    std::int64_t fetched_count = 0, dead_count = 0;
    for (std::int64_t i = span.first; i < span.end; ++i) {
      // Whether a row is on these lists is as good as random: a branch would often be guessed wrong.
      fetched[fetched_count] = dead[dead_count] = static_cast<std::uint32_t>(i);
      fetched_count += uses.slots[i] == kAbsent;
      dead_count += uses.next[i].batch == 0;
    }
    span.fetched = fetched_count;
    span.dead = dead_count;
  }

  // Lists popular rows that are fetched. In the middle of a segment there are hardly any, so the branch is guessed
  // well.
  void find_popular(std::uint32_t number, Span& span) {
    const BatchPairs& pairs = rows.users.of(number);
    const std::uint32_t* const fetched = lists(number).fetched.data() + span.first;
    for (std::int64_t k = 0; k < span.fetched; ++k) {
      if (pairs.of_row(fetched[k]) >= kPopularUsers) span.popular.push_back(fetched[k]);
    }
  }

  // Gives each popular row that is fetched to the one of its users with the least load, of several the first. `load` is
  // what homes are to exchange of the popular rows before: gradients that come in for them, or copies that leave.
  void choose_popular_homes(std::uint32_t number, const Span& span, std::vector<std::int64_t>& load) {
    const RowUses uses = rows.uses(number);
    const BatchPairs& pairs = rows.users.of(number);
    const std::uint16_t* const users = pairs.users.data();
    for (const std::uint32_t i : span.popular) {
      const auto has_less = [&](std::uint16_t user, std::uint16_t other) { return load[user] < load[other]; };
      const std::uint16_t home = *std::min_element(users + pairs.first(i), users + pairs.ends[i], has_less);
      uses.trainers[i] = home;
      load[home] += pairs.of_row(i) - 1;
    }
  }

  // Gives homes to the other rows that are fetched: of the users of each one takes it, in turn, by its number among all
  // of them, from `number_of_first`. Then counts.
  void choose_homes(std::uint32_t number, Span& span, std::int64_t number_of_first, bool is_training,
                    BatchCounts& counts) {
    const RowUses uses = rows.uses(number);
    const BatchPairs& pairs = rows.users.of(number);
    const std::uint32_t* const fetched = lists(number).fetched.data() + span.first;
    for (std::int64_t k = 0, turn = number_of_first; k < span.fetched; ++k) {
      const std::uint32_t i = fetched[k], first = pairs.first(i), users = pairs.ends[i] - first;
      const bool is_popular = users >= kPopularUsers;
      const std::uint16_t next = pairs.users[first + turn % users];
      const std::uint16_t home = is_popular ? uses.trainers[i] : next;
      turn += !is_popular;
      uses.trainers[i] = home;
      ++counts.homes[home].fetched;
    }
    separate_solo(number, span);
    const std::uint32_t* const solo = lists(number).solo.data() + span.first;
    for (std::int64_t k = 0; k < span.solo; ++k) ++counts.homes[uses.trainers[solo[k]]].solo;
    each_exchanged(number, span, is_training, [&](const Row& row) {
      ++counts.homes[row.home].summed[row.needed];
      for (const std::uint16_t* user = row.users; user != row.users_end; ++user) {
        PairCounts& count = counts.of(*user, row.home);
        ++count.needed[row.needed];
        ++count.copies[row.copied];
      }
    });
  }

  // `grants` are the slots of each home's fetched rows, of which those before `taken` are those of other spans. Dead
  // rows go to their places in `retired`, from `place`.
  void assign(std::uint32_t number, const Span& span, const std::vector<Grant>& grants, std::int32_t first_private_slot,
              Counters<std::int64_t>& taken, RetiredRows& retired, std::int64_t place) {
    const RowUses uses = rows.uses(number);
    const std::uint32_t* const fetched = lists(number).fetched.data() + span.first;
    const std::uint32_t* const dead = lists(number).dead.data() + span.first;
    for (std::int64_t k = 0; k < span.fetched; ++k) {
      const std::uint16_t home = uses.trainers[fetched[k]];
      uses.slots[fetched[k]] = grants[home][taken[home]++] + first_private_slot;
    }
    for (std::int64_t i = span.first; i < span.end; ++i) {
      if (i + kAhead < span.end) {
        const Use coming = uses.heir(number, i + kAhead);
        __builtin_prefetch(&rows.ring().slot(coming), 1);
        __builtin_prefetch(&rows.ring().trainer(coming), 1);
      }
      const Use heir = uses.heir(number, i);
      rows.ring().slot(heir) = uses.slots[i];
      rows.ring().trainer(heir) = uses.trainers[i];
    }
    for (std::int64_t k = 0; k < span.dead; ++k, ++place) {
      retired.rows[place] = uses.rows[dead[k]];
      retired.slots[place] = uses.slots[dead[k]];
      retired.writers[place] = uses.trainers[dead[k]];
    }
  }

  // Lists and counts the copies that come for the batch behind a decided one after the update of that, of a span of its
  // rows. Looks at no later uses, which may be linked meanwhile.
  void count_following(std::uint32_t number, Span& span, BatchCounts& counts) {
    const RowUses uses = rows.uses(number + 1);
    const BatchPairs& pairs = rows.users.of(number + 1);
    std::uint32_t* const copied = lists(number).copied_rows.data() + span.first;
    std::int64_t count = 0;
    for (std::int64_t i = span.first; i < span.end; ++i) {
      copied[count] = static_cast<std::uint32_t>(i);
      count += pairs.is_copied[i];
    }
    Copy* const first_copy = lists(number).copies.data() + pairs.first(span.first);
    Copy* copy = first_copy;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::uint16_t home = uses.trainers[copied[k]];
      for (std::uint32_t pair = pairs.first(copied[k]); pair < pairs.ends[copied[k]]; ++pair) {
        *copy = {uses.slots[copied[k]], pairs.users[pair], home};
        copy += copy->user != home;
      }
    }
    span.copied = copy - first_copy;
    for (copy = first_copy; copy != first_copy + span.copied; ++copy) ++counts.of(copy->user, copy->home).following;
  }

  // Write a plan: versions of whole tables, then spans, then positions, of which each of `parts` takes a share.

  void find_versions(std::uint32_t number) {
    const RowUses uses = rows.uses(number);
    for (std::int64_t i = 0; i < uses.count; ++i) lists(number).versions[i] = rows.version(uses.rows[i]);
  }

  // `counts` is what lies before the span's rows, and then before those of the next span.
  void write(std::uint32_t number, const Span& span, bool is_training, const BatchStarts& starts, BatchCounts& counts,
             const std::vector<HomeOutput>& outputs) {
    const RowUses uses = rows.uses(number);
    const std::uint32_t* const fetched = lists(number).fetched.data() + span.first;
    for (std::int64_t k = 0; k < span.fetched; ++k) {
      const std::uint16_t home = uses.trainers[fetched[k]];
      const std::int32_t place = counts.homes[home].fetched++;
      outputs[home].to.own.fetch_rows[place] = uses.rows[fetched[k]];
      outputs[home].to.own.fetch_slots[place] = uses.slots[fetched[k]];
    }
    const std::uint32_t* const solo = lists(number).solo.data() + span.first;
    const BatchPairs& pairs = rows.users.of(number);
    std::int32_t* const pair_positions = lists(number).pair_positions.data();
    for (std::int64_t k = 0; k < span.solo; ++k) {
      const std::uint32_t i = solo[k];
      const HomeOutput& home = outputs[uses.trainers[i]];
      const std::int32_t place = counts.homes[uses.trainers[i]].solo++, position = home.not_solo + place;
      home.to.own.private_slots[place] = uses.slots[i];
      pair_positions[pairs.first(i)] = position;
      write_version(number, home, position, uses.rows[i], i);
    }
    each_exchanged(number, span, is_training, [&](const Row& row) {
      const HomeOutput& home = outputs[row.home];
      std::int32_t* position = pair_positions + row.first_pair;
      std::int32_t sum = 0;
      if (is_training) {
        sum = counts.homes[row.home].summed[row.needed]++;
        home.to.summed_slots[(row.needed == kNow ? 0 : home.now_rows) + sum] = row.slot;
      }
      for (const std::uint16_t* user = row.users; user != row.users_end; ++user, ++position) {
        const PairStarts& start = starts.of(*user, row.home);
        PairCounts& count = counts.of(*user, row.home);
        const HomeOutput& slice = outputs[*user];
        const std::int32_t gradient = count.needed[row.needed]++;
        *position = start.slice[row.needed] + gradient;
        if (*user == row.home) {
          slice.to.lent_slots[*position - slice.copies] = row.slot;
        } else {
          const std::int32_t copy = count.copies[row.copied]++;
          slice.to.copy_slots[*position] = start.copies[row.copied] + copy;
          if (row.copied == kRest) home.to.sent_slots[start.sent[kRest] + copy] = row.slot;
        }
        if (is_training) home.to.sum_places[start.sums[row.needed] + gradient] = sum;
        write_version(number, slice, *position, uses.rows[row.index], row.index);
      }
    });
  }

  // The slots of which copies are sent for a batch after the update of the one before.
  void write_following(std::uint32_t number, const Span& span, const BatchStarts& starts, BatchCounts& counts,
                       const std::vector<HomeOutput>& outputs) {
    const Copy* const first = lists(number).copies.data() + rows.users.of(number + 1).first(span.first);
    for (const Copy* copy = first; copy != first + span.copied; ++copy) {
      const std::int32_t place =
          starts.of(copy->user, copy->home).sent[kNext] + counts.of(copy->user, copy->home).following++;
      outputs[copy->home].to.sent_slots[place] = copy->slot;
    }
  }

  void find_positions(std::uint32_t number, std::size_t part, std::size_t parts) {
    const BatchPairs& pairs = rows.users.of(number);
    const std::int32_t* const pair_positions = lists(number).pair_positions.data();
    std::int32_t* const positions = lists(number).positions.data();
    const std::int64_t end = share_start(pairs.meetings, part + 1, parts);
    for (std::int64_t meeting = share_start(pairs.meetings, part, parts); meeting < end; ++meeting) {
      positions[meeting] = pair_positions[pairs.places[meeting]];
    }
  }
  // In its trainer's slice, of each meeting: so of each index of a look-up.
  const std::int32_t* positions(std::uint32_t number) const { return lists_[number % lists_.size()].positions.data(); }

  std::size_t window_bytes() const {
    std::size_t bytes = rows.window_bytes();
    for (const Lists& lists : lists_) bytes += lists.bytes();
    return bytes;
  }

 private:
  // A row of a batch that is exchanged, and what the rules say of it.
  struct Row {
    std::int64_t index;
    std::uint32_t first_pair;
    const std::uint16_t* users;
    const std::uint16_t* users_end;
    std::uint16_t home;
    std::int32_t slot;
    std::uint16_t needed;  // kNow or kLater
    std::size_t copied;    // kNext or kRest
  };

  // A copy of a row for a user.
  struct Copy {
    std::int32_t slot;  // of its home
    std::uint16_t user;
    std::uint16_t home;
  };

  // Of a batch that is decided, until its plan is written.
  struct Lists {
    // Which rows are fetched and dead, which their home alone uses and which are exchanged, from the first row of each
    // span; versions of its rows, and positions of its pairs and meetings.
    Buffer<std::uint32_t> fetched;
    Buffer<std::uint32_t> dead;
    Buffer<std::uint32_t> solo;
    Buffer<std::uint32_t> exchanged;
    Buffer<std::int32_t> versions;
    Buffer<std::int32_t> pair_positions;
    Buffer<std::int32_t> positions;
    // Of the batch behind it: which rows the decided one uses too, and the copies of them that are sent, from the first
    // row and pair of each span.
    Buffer<std::uint32_t> copied_rows;
    Buffer<Copy> copies;

    std::size_t bytes() const {
      return fetched.bytes() + dead.bytes() + solo.bytes() + exchanged.bytes() + versions.bytes() +
             pair_positions.bytes() + positions.bytes() + copied_rows.bytes() + copies.bytes();
    }
  };

  Lists& lists(std::uint32_t number) { return lists_[number % lists_.size()]; }

  // Lists the rows of a span that their home alone uses, and the others. Without branches, as in `find`.
  void separate_solo(std::uint32_t number, Span& span) {
    const RowUses uses = rows.uses(number);
    const BatchPairs& pairs = rows.users.of(number);
    std::uint32_t* const solo = lists(number).solo.data() + span.first;
    std::uint32_t* const exchanged = lists(number).exchanged.data() + span.first;
    std::int64_t solo_count = 0;
    std::uint32_t first = pairs.first(span.first);
    for (std::int64_t i = span.first; i < span.end; ++i) {
      const std::uint32_t end = pairs.ends[i];
      solo[solo_count] = exchanged[i - span.first - solo_count] = static_cast<std::uint32_t>(i);
      solo_count += (end == first + 1) & (pairs.users[first] == uses.trainers[i]);
      first = end;
    }
    span.solo = solo_count;
  }

  // Calls work(row) for the rows of a span that are not solo.
  template <class Work>
  void each_exchanged(std::uint32_t number, const Span& span, bool is_training, const Work& work) {
    const RowUses uses = rows.uses(number);
    const BatchPairs& pairs = rows.users.of(number);
    const std::uint32_t* const exchanged = lists(number).exchanged.data() + span.first;
    const std::uint16_t* const users = pairs.users.data();
    for (std::int64_t k = 0; k < span.end - span.first - span.solo; ++k) {
      const std::int64_t i = exchanged[k];
      const std::uint32_t first = pairs.first(i), end = pairs.ends[i];
      // Without look-ahead the next batch is unknown, so every row that is not solo counts as needed by it.
      const std::uint16_t needed = (uses.next[i].batch == number + 1) | !has_lookahead_ ? kNow : kLater;
      const std::size_t copied = is_training & (pairs.is_copied[i] != 0) ? kNext : kRest;
      work(Row{i, first, users + first, users + end, uses.trainers[i], uses.slots[i], needed, copied});
    }
  }

  void write_version(std::uint32_t number, const HomeOutput& slice, std::int32_t position, std::int64_t row,
                     std::int64_t index) {
    if (!rows.knows_versions()) return;
    slice.to.own.rows[position] = row;
    slice.to.own.versions[position] = lists(number).versions[index];
  }

  bool has_lookahead_;
  std::vector<Lists> lists_;  // each decided batch's at its number modulo their number
};

}  // namespace bagpipe
