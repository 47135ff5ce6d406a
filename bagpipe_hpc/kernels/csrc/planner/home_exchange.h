// How many rows trainers exchange for a batch where each row has one home, and where each list of a plan begins.
//
// A pair is a row and a trainer that uses it, and belongs to the bucket of that user and the row's home. All lists of a
// plan are buckets, one behind the other, in each the rows in their order. Lists of what is sent have the receivers in
// the order in which rows for them lie (TrainerGrid); lists of what arrives have the senders in theirs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "counters.h"
#include "plan_arrays.h"
#include "tally.h"

namespace bagpipe {

// Copies for a batch come in two parts: after the update of the batch before, of the rows of that batch; and the rest.
constexpr std::size_t kNext = 0;
constexpr std::size_t kRest = 1;

// Over which trainers rows travel: trainer t stands in row t / columns, column t % columns. Rows go to the trainer of
// the sender's row that stands in the receiver's column, which passes them on (plan/exchange_grid.py). Straight: one
// row.
struct TrainerGrid {
  std::size_t rows;
  std::size_t columns;

  bool is_direct() const { return rows == 1; }
  // Calls work(trainer) in the order in which a sender's rows for them lie: column after column.
  template <class Work>
  void each_sent(const Work& work) const {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t row = 0; row < rows; ++row) work(row * columns + column);
    }
  }
};

// Of a bucket. Where user and home are the same trainer: of its rows that others use as well.
struct PairCounts {
  std::int32_t needed[2] = {};  // kNow, kLater: when the gradients are summed
  std::int32_t copies[2] = {};  // kNext, kRest
  std::int32_t following = 0;   // copies that come for the next batch after this one's update
};

// Of a home.
struct HomeCounts {
  std::int32_t fetched = 0;
  std::int32_t solo = 0;         // rows that it alone uses
  std::int32_t summed[2] = {};  // the others: kNow, kLater
};

// Adds a count to a place, which it returns as it was: where the counted rows begin.
template <class Place>
Place begin(Place& place, Place count) {
  return std::exchange(place, place + count);
}

// Of a batch, or of a part of its rows. When those of all parts are summed, each part has what lies in the parts before
// it: so where its own rows begin.
struct BatchCounts {
  explicit BatchCounts(std::size_t trainers) : pairs(trainers * trainers), homes(trainers) {}

  Counters<PairCounts> pairs;  // by user, then home
  Counters<HomeCounts> homes;

  std::size_t trainers() const { return homes.size(); }
  PairCounts& of(std::size_t user, std::size_t home) { return pairs[user * homes.size() + home]; }
  const PairCounts& of(std::size_t user, std::size_t home) const { return pairs[user * homes.size() + home]; }

  std::size_t bytes() const { return pairs.size() * sizeof(PairCounts) + homes.size() * sizeof(HomeCounts); }

  void clear() {
    std::fill(pairs.begin(), pairs.end(), PairCounts{});
    std::fill(homes.begin(), homes.end(), HomeCounts{});
  }

  // Sum up the parts of a batch, for one trainer at a time, so that threads share the trainers out. All but the copies
  // that follow, and then those.
  void sum(std::size_t trainer, std::vector<BatchCounts>& parts) {
    homes[trainer] = {};
    for (BatchCounts& part : parts) {
      HomeCounts &all = homes[trainer], &own = part.homes[trainer];
      own.fetched = begin(all.fetched, own.fetched);
      own.solo = begin(all.solo, own.solo);
      for (const std::size_t k : {0, 1}) own.summed[k] = begin(all.summed[k], own.summed[k]);
    }
    for (std::size_t home = 0; home < trainers(); ++home) of(trainer, home) = {};
    for (BatchCounts& part : parts) {
      for (std::size_t home = 0; home < trainers(); ++home) {
        PairCounts &all = of(trainer, home), &own = part.of(trainer, home);
        for (const std::size_t k : {0, 1}) {
          own.needed[k] = begin(all.needed[k], own.needed[k]);
          own.copies[k] = begin(all.copies[k], own.copies[k]);
        }
      }
    }
  }
  void sum_following(std::size_t user, std::vector<BatchCounts>& parts) {
    for (std::size_t home = 0; home < trainers(); ++home) of(user, home).following = 0;
    for (BatchCounts& part : parts) {
      for (std::size_t home = 0; home < trainers(); ++home) {
        part.of(user, home).following = begin(of(user, home).following, part.of(user, home).following);
      }
    }
  }

  // Copies that a user gets for the batch, of one part or of both.
  std::int64_t copies(std::size_t user, std::size_t part) const {
    std::int64_t count = 0;
    for (std::size_t home = 0; home < trainers(); ++home) count += home == user ? 0 : of(user, home).copies[part];
    return count;
  }
  std::int64_t copies(std::size_t user) const { return copies(user, kNext) + copies(user, kRest); }
  std::int64_t fetched() const {
    std::int64_t count = 0;
    for (const HomeCounts& home : homes) count += home.fetched;
    return count;
  }
};

// The arrays of a trainer's plan and their lengths, as TrainerArrays; behind them what it exchanges (plan/exchange.py).
struct HomeArrays {
  TrainerArrays own;
  std::int32_t* exchange;
  std::int32_t* copy_slots;
  std::int32_t* lent_slots;
  std::int32_t* summed_slots;
  std::int32_t* sum_places;
  std::int32_t* sent_slots;
};
struct HomeLengths {
  TrainerLengths own;
  std::int64_t exchange, copy_slots, lent_slots, summed_slots, sum_places, sent_slots;
};

// What the plan of a batch is made of: its counts, and where its copies lie.
struct ExchangePlan {
  const BatchCounts& counts;
  TrainerGrid grid;
  bool is_training;  // without it nothing is summed
  std::int64_t first_copy;
  std::int64_t first_next_copy;

  std::int64_t lent(std::size_t trainer, std::size_t part) const { return counts.of(trainer, trainer).needed[part]; }
  // Of a trainer's slice, of which so many are copies.
  std::int64_t rows(std::size_t trainer, std::int64_t copies) const {
    return copies + lent(trainer, kNow) + lent(trainer, kLater) + counts.homes[trainer].solo;
  }
  // Gradients that a home sums for a user.
  std::int64_t gradients(std::size_t user, std::size_t home, std::size_t part) const {
    return is_training ? counts.of(user, home).needed[part] : 0;
  }
  std::int64_t summed(std::size_t home, std::size_t part) const {
    return is_training ? counts.homes[home].summed[part] : 0;
  }
  std::int64_t gradients_of(std::size_t home, std::size_t part) const {
    std::int64_t count = 0;
    for (std::size_t user = 0; user < counts.trainers(); ++user) count += gradients(user, home, part);
    return count;
  }
  // Copies that a home sends: for the next batch, or the rest of those for this one.
  std::int64_t sent(std::size_t user, std::size_t home, std::size_t part) const {
    if (user == home) return 0;
    return part == kNext ? counts.of(user, home).following : counts.of(user, home).copies[kRest];
  }

  // `own` holds what does not depend on the exchange.
  HomeLengths lengths(std::size_t trainer, TrainerLengths own, bool verify) const {
    const std::int64_t copies = counts.copies(trainer), lent_rows = lent(trainer, kNow) + lent(trainer, kLater);
    const HomeCounts& home = counts.homes[trainer];
    own.private_slots = home.solo;
    own.fetch_rows = own.fetch_slots = home.fetched;
    own.rows = own.versions = verify ? copies + lent_rows + home.solo : 0;
    std::int64_t sends = 0;
    for (std::size_t user = 0; user < counts.trainers(); ++user) {
      sends += sent(user, trainer, kNext) + sent(user, trainer, kRest);
    }
    return {own,
            kNumbers + (kPairs + (grid.is_direct() ? 0 : kKinds)) * static_cast<std::int64_t>(counts.trainers()),
            copies,
            lent_rows,
            summed(trainer, kNow) + summed(trainer, kLater),
            gradients_of(trainer, kNow) + gradients_of(trainer, kLater),
            sends};
  }

  // Writes ExchangeCounts as it encodes them.
  void write_counts(std::size_t trainer, std::int32_t* to) const {
    const auto put = [&](std::int64_t number) { *to++ = static_cast<std::int32_t>(number); };
    const auto put_each = [&](const auto& number) {
      for (std::size_t other = 0; other < counts.trainers(); ++other) put(number(other));
    };
    put(summed(trainer, kNow));
    put(gradients(trainer, trainer, kNow));
    put(first_copy + counts.copies(trainer, kNext));
    put(first_next_copy);
    put(static_cast<std::int64_t>(grid.columns));
    for (const std::size_t part : {kNow, kLater}) {
      put_each([&](std::size_t home) { return sent_gradients(trainer, home, part); });
      put_each([&](std::size_t user) { return gradients(user, trainer, part); });
    }
    for (const std::size_t part : {kNext, kRest}) {
      put_each([&](std::size_t user) { return sent(user, trainer, part); });
      put_each([&](std::size_t home) { return sent(trainer, home, part); });
    }
    if (grid.is_direct()) return;
    const auto put_relayed = [&](const auto& number) {  // of each trainer in the row, for each in the column
      const std::size_t row = trainer / grid.columns, column = trainer % grid.columns;
      for (std::size_t from = 0; from < grid.columns; ++from) {
        for (std::size_t to = 0; to < grid.rows; ++to) {
          put(number(row * grid.columns + from, to * grid.columns + column));
        }
      }
    };
    for (const std::size_t part : {kNow, kLater}) {
      put_relayed([&](std::size_t user, std::size_t home) { return sent_gradients(user, home, part); });
    }
    for (const std::size_t part : {kNext, kRest}) {
      put_relayed([&](std::size_t home, std::size_t user) { return sent(user, home, part); });
    }
  }

 private:
  std::int64_t sent_gradients(std::size_t user, std::size_t home, std::size_t part) const {
    return user == home ? 0 : gradients(user, home, part);
  }

  static constexpr std::int64_t kNumbers = 5;
  static constexpr std::int64_t kPairs = 8;  // arrays by the other trainer
  static constexpr std::int64_t kKinds = 4;  // of rows that are passed on
};

// Where the rows of a bucket begin.
struct PairStarts {
  std::int32_t slice[2];   // kNow, kLater: among the rows of the user's slice
  std::int32_t sums[2];    // kNow, kLater: among the gradients that the home gets
  std::int32_t copies[2];  // kNext, kRest: slot of the user's cache
  std::int32_t sent[2];    // kNext, kRest: among the slots that the home sends
};

class BatchStarts {
 public:
  explicit BatchStarts(std::size_t trainers) : trainers_(trainers), pairs_(trainers * trainers) {}

  const PairStarts& of(std::size_t user, std::size_t home) const { return pairs_[user * trainers_ + home]; }
  std::size_t bytes() const { return pairs_.size() * sizeof(PairStarts); }

  // What a trainer uses, and what it is home of: all trainers have other numbers, so threads share them out.

  void start_user(const ExchangePlan& plan, std::size_t user) {
    std::int32_t place = 0, slot = static_cast<std::int32_t>(plan.first_copy);
    for (const std::size_t part : {0, 1}) {  // gradients that it sends, now or later, and copies: next ones or the rest
      plan.grid.each_sent([&](std::size_t home) {
        if (home != user) at(user, home).slice[part] = begin(place, plan.counts.of(user, home).needed[part]);
      });
      for (std::size_t home = 0; home < trainers_; ++home) {
        if (home != user) at(user, home).copies[part] = begin(slot, plan.counts.of(user, home).copies[part]);
      }
    }
    for (const std::size_t part : {kNow, kLater}) {
      at(user, user).slice[part] = begin(place, plan.counts.of(user, user).needed[part]);
    }
  }

  void start_home(const ExchangePlan& plan, std::size_t home) {
    std::int64_t gradient = 0, slot = 0;
    for (const std::size_t part : {0, 1}) {  // gradients that it gets, now or later, and copies that it sends
      for (std::size_t user = 0; user < trainers_; ++user) {
        at(user, home).sums[part] = static_cast<std::int32_t>(begin(gradient, plan.gradients(user, home, part)));
      }
      plan.grid.each_sent([&](std::size_t user) {
        at(user, home).sent[part] = static_cast<std::int32_t>(begin(slot, plan.sent(user, home, part)));
      });
    }
  }

 private:
  PairStarts& at(std::size_t user, std::size_t home) { return pairs_[user * trainers_ + home]; }

  std::size_t trainers_;
  std::vector<PairStarts> pairs_;  // by user, then home
};

}  // namespace bagpipe
