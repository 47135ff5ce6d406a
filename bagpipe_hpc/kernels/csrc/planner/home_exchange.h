// How many rows trainers exchange for a batch where each row has one home, and where each list of a plan begins.
//
// A pair is a row and a trainer that uses it, and belongs to the bucket of that user and the row's home. All lists of a
// plan are buckets, one behind the other, in each the rows in their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan_arrays.h"
#include "tally.h"

namespace bagpipe {

// Copies for a batch come in two parts: after the update of the batch before, of the rows of that batch; and the rest.
constexpr std::size_t kNext = 0;
constexpr std::size_t kRest = 1;

// Of a bucket. Where user and home are the same trainer: of its rows that others use as well.
struct PairCounts {
  std::int32_t needed[2] = {};  // kNow, kLater: when the gradients are summed
  std::int32_t copies[2] = {};  // kNext, kRest
  std::int32_t following = 0;   // copies that come for the next batch after this one's update

  void add(const PairCounts& other) {
    for (const std::size_t part : {0, 1}) needed[part] += other.needed[part], copies[part] += other.copies[part];
    following += other.following;
  }
};

// Of a home.
struct HomeCounts {
  std::int32_t fetched = 0;
  std::int32_t solo = 0;         // rows that it alone uses
  std::int32_t summed[2] = {};  // the others: kNow, kLater

  void add(const HomeCounts& other) {
    for (const std::size_t part : {0, 1}) summed[part] += other.summed[part];
    fetched += other.fetched;
    solo += other.solo;
  }
};

// Of a batch, or of a part of its rows.
struct BatchCounts {
  explicit BatchCounts(std::size_t trainers) : pairs(trainers * trainers), homes(trainers) {}

  std::vector<PairCounts> pairs;  // by user, then home
  std::vector<HomeCounts> homes;

  std::size_t trainers() const { return homes.size(); }
  PairCounts& of(std::size_t user, std::size_t home) { return pairs[user * homes.size() + home]; }
  const PairCounts& of(std::size_t user, std::size_t home) const { return pairs[user * homes.size() + home]; }

  void clear() {
    std::fill(pairs.begin(), pairs.end(), PairCounts{});
    std::fill(homes.begin(), homes.end(), HomeCounts{});
  }
  void add(const BatchCounts& other) {
    for (std::size_t bucket = 0; bucket < pairs.size(); ++bucket) pairs[bucket].add(other.pairs[bucket]);
    for (std::size_t home = 0; home < homes.size(); ++home) homes[home].add(other.homes[home]);
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
  bool is_training;  // without it nothing is summed
  std::int64_t first_copy;
  std::int64_t first_next_copy;

  std::int64_t lent(std::size_t trainer, std::size_t part) const { return counts.of(trainer, trainer).needed[part]; }
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
    for (std::size_t user = 0; user < counts.trainers(); ++user) sends += sent(user, trainer, kNext) + sent(user, trainer, kRest);
    return {own,
            kNumbers + kArrays * static_cast<std::int64_t>(counts.trainers()),
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
    for (const std::size_t part : {kNow, kLater}) {
      put_each([&](std::size_t home) { return home == trainer ? 0 : gradients(trainer, home, part); });
      put_each([&](std::size_t user) { return gradients(user, trainer, part); });
    }
    for (const std::size_t part : {kNext, kRest}) {
      put_each([&](std::size_t user) { return sent(user, trainer, part); });
      put_each([&](std::size_t home) { return sent(trainer, home, part); });
    }
  }

 private:
  static constexpr std::int64_t kNumbers = 4;
  static constexpr std::int64_t kArrays = 8;
};

// Where the next row of a bucket goes.
struct PairCursors {
  std::int32_t slice[2];   // kNow, kLater: among the rows of the user's slice
  std::int32_t sums[2];    // kNow, kLater: among the gradients that the home gets
  std::int32_t copies[2];  // kNext, kRest: slot of the user's cache
  std::int32_t sent[2];    // kNext, kRest: among the slots that the home sends
};
// Where the next row of a home goes.
struct HomeCursors {
  std::int32_t fetched;
  std::int32_t solo;       // among its private slots
  std::int32_t summed[2];  // kNow, kLater: place among its rows of that part
};

struct BatchCursors {
  explicit BatchCursors(std::size_t trainers) : pairs(trainers * trainers), homes(trainers) {}

  std::vector<PairCursors> pairs;  // by user, then home
  std::vector<HomeCursors> homes;

  // The start of each list.
  void start(const ExchangePlan& plan) {
    const std::size_t trainers = homes.size();
    const auto of = [&](std::size_t user, std::size_t home) -> PairCursors& { return pairs[user * trainers + home]; };
    std::fill(homes.begin(), homes.end(), HomeCursors{});
    for (std::size_t user = 0; user < trainers; ++user) {
      std::int64_t place = 0, slot = plan.first_copy;
      for (const std::size_t part : {kNow, kLater}) {  // needed now or later, and then next ones or the rest
        for (std::size_t home = 0; home < trainers; ++home) {
          if (home == user) continue;
          of(user, home).slice[part] = begin(place, plan.counts.of(user, home).needed[part]);
          of(user, home).copies[part] = begin(slot, plan.counts.of(user, home).copies[part]);
        }
      }
      for (const std::size_t part : {kNow, kLater}) of(user, user).slice[part] = begin(place, plan.lent(user, part));
    }
    for (std::size_t home = 0; home < trainers; ++home) {
      std::int64_t gradient = 0, slot = 0;
      for (const std::size_t part : {kNow, kLater}) {
        for (std::size_t user = 0; user < trainers; ++user) {
          of(user, home).sums[part] = begin(gradient, plan.gradients(user, home, part));
          of(user, home).sent[part] = begin(slot, plan.sent(user, home, part));
        }
      }
    }
  }

  // Moves on by the rows of a part of the batch.
  void skip(const BatchCounts& counts) {
    for (std::size_t bucket = 0; bucket < pairs.size(); ++bucket) {
      const PairCounts& count = counts.pairs[bucket];
      for (const std::size_t part : {0, 1}) {
        pairs[bucket].slice[part] += count.needed[part];
        pairs[bucket].sums[part] += count.needed[part];
        pairs[bucket].copies[part] += count.copies[part];
      }
      pairs[bucket].sent[kNext] += count.following;
      pairs[bucket].sent[kRest] += count.copies[kRest];
    }
    for (std::size_t home = 0; home < homes.size(); ++home) {
      const HomeCounts& count = counts.homes[home];
      homes[home].fetched += count.fetched;
      homes[home].solo += count.solo;
      for (const std::size_t part : {0, 1}) homes[home].summed[part] += count.summed[part];
    }
  }

 private:
  static std::int32_t begin(std::int64_t& place, std::int64_t count) {
    return static_cast<std::int32_t>(std::exchange(place, place + count));
  }
};

}  // namespace bagpipe
