// Which trainers use the rows of a table in each batch, as it is loaded: only whether one alone does, or all of them.
//
// A part is the look-ups of one feature in one trainer's slice, or as many of them as lie together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "use_ring.h"

namespace bagpipe {

// Notes a row's only user in the ring. A look-up's index is that of its row.
class OnlyUser {
 public:
  class Part {
   public:
    Part(std::uint16_t* users, std::uint16_t user) : users_(users), user_(user) {}

    std::uint32_t meet(std::uint32_t row) {
      users_[row] = user_;
      return row;
    }
    std::uint32_t meet_again(std::uint32_t row) {
      if (users_[row] != user_) users_[row] = kSeveral;
      return row;
    }

   private:
    std::uint16_t* users_;
    std::uint16_t user_;
  };

  explicit OnlyUser(std::int64_t) {}

  static std::int64_t most_indices(std::int64_t, std::int64_t rows) { return rows; }
  void begin(std::uint32_t, const RowUses& uses, std::int64_t, std::int64_t) { users_ = uses.trainers; }
  Part part(std::int64_t, std::uint16_t user) const { return {users_, user}; }
  void keep(const Part&) {}
  void end(std::int64_t) {}
  void note_previous(std::int64_t, std::uint32_t) {}
  std::size_t bytes() const { return 0; }

 private:
  std::uint16_t* users_ = nullptr;
};

// The users of the rows of a batch: pairs of a row and a user, row after row, in each by user.
struct BatchPairs {
  std::int64_t rows = 0;
  std::int64_t meetings = 0;
  Buffer<std::uint32_t> ends;      // one after the last pair of each row
  Buffer<std::uint16_t> users;     // of each pair
  Buffer<std::uint32_t> places;    // the pair of each meeting
  Buffer<std::uint8_t> is_copied;  // whether the batch before uses the row too

  std::uint32_t first(std::int64_t row) const { return row == 0 ? 0 : ends[row - 1]; }
  std::uint32_t of_row(std::int64_t row) const { return ends[row] - first(row); }
  std::uint32_t count() const { return first(rows); }
  std::size_t bytes() const { return ends.bytes() + users.bytes() + places.bytes() + is_copied.bytes(); }
};

// Knows all users of each row. Look-ups of one row in one part are a meeting, whose number is their index.
class AllUsers {
 public:
  class Part {
   public:
    Part(std::uint32_t* rows, std::uint32_t* newest, std::uint32_t first, std::uint32_t count)
        : rows_(rows), newest_(newest), first_(first), count_(count) {}

    std::uint32_t meet(std::uint32_t row) {
      rows_[count_] = row;
      newest_[row] = count_;
      return count_++;
    }
    std::uint32_t meet_again(std::uint32_t row) { return newest_[row] >= first_ ? newest_[row] : meet(row); }

   private:
    friend AllUsers;
    std::uint32_t* rows_;    // of each meeting
    std::uint32_t* newest_;  // meeting of each row
    std::uint32_t first_;    // meeting of the part
    std::uint32_t count_;
  };

  explicit AllUsers(std::int64_t batches) : batches_(static_cast<std::size_t>(batches)) {}

  static std::int64_t most_indices(std::int64_t look_ups, std::int64_t) { return look_ups; }

  void begin(std::uint32_t number, const RowUses&, std::int64_t look_ups, std::int64_t rows) {
    number_ = number;
    count_ = 0;
    parts_.clear();
    rows_.make_room(look_ups);
    newest_.make_room(rows);
  }

  Part part(std::int64_t feature, std::uint16_t user) {
    if (parts_.empty() || parts_.back().user != user || parts_.back().feature != feature) {
      parts_.push_back({feature, user, count_});
    }
    return {rows_.data(), newest_.data(), parts_.back().first, count_};
  }

  void keep(const Part& part) { count_ = part.count_; }

  // Puts the meetings of a batch of so many rows in order: row after row, in each by user.
  void end(std::int64_t rows) {
    sort_parts();
    BatchPairs& pairs = of(number_);
    pairs.rows = rows;
    pairs.meetings = count_;
    pairs.ends.make_room(rows);
    pairs.is_copied.make_room(rows);
    is_copied_ = pairs.is_copied.data();
    pairs.places.make_room(count_);
    std::uint32_t* const ends = pairs.ends.data();
    std::fill_n(ends, rows, 0);
    each_meeting([&](std::uint32_t, std::uint32_t row, std::uint16_t, bool is_new) { ends[row] += is_new; });
    std::uint32_t count = 0;
    for (std::int64_t row = 0; row < rows; ++row) {  // where the row's first pair goes
      const std::uint32_t of_row = ends[row];
      ends[row] = count;
      count += of_row;
    }
    pairs.users.make_room(count);
    each_meeting([&](std::uint32_t meeting, std::uint32_t row, std::uint16_t user, bool is_new) {
      const std::uint32_t place = is_new ? ends[row]++ : ends[row] - 1;
      pairs.users[place] = user;
      pairs.places[meeting] = place;
    });
  }

  // Of a row of the batch, after `end`: the batch that used it before.
  void note_previous(std::int64_t row, std::uint32_t batch) { is_copied_[row] = batch + 1 == number_; }

  BatchPairs& of(std::uint32_t number) { return batches_[number % batches_.size()]; }
  std::size_t bytes() const {
    std::size_t bytes = rows_.bytes() + newest_.bytes();
    for (const BatchPairs& pairs : batches_) bytes += pairs.bytes();
    return bytes;
  }

 private:
  struct Begun {
    std::int64_t feature;
    std::uint16_t user;
    std::uint32_t first;    // meeting
    std::uint32_t end = 0;  // one after the last
  };

  // One user after the other.
  void sort_parts() {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      parts_[part].end = part + 1 < parts_.size() ? parts_[part + 1].first : count_;
    }
    is_shared_ = !parts_.empty() && parts_.front().feature != parts_.back().feature;
    std::stable_sort(parts_.begin(), parts_.end(), [](const Begun& a, const Begun& b) { return a.user < b.user; });
  }

  // Calls work(meeting, row, user, is_new) for all meetings, one user after the other. Where features share the table,
  // a user may meet a row in several parts: it is new to it in the first one.
  template <class Work>
  void each_meeting(const Work& work) {
    const auto each_of = [&](const Begun& part, const auto& is_new) {
      for (std::uint32_t meeting = part.first; meeting < part.end; ++meeting) {
        work(meeting, rows_[meeting], part.user, is_new(rows_[meeting]));
      }
    };
    if (!is_shared_) {
      for (const Begun& part : parts_) each_of(part, [](std::uint32_t) { return true; });
      return;
    }
    std::uint32_t* const latest = newest_.data();  // user of each row
    std::fill_n(latest, of(number_).rows, kSeveral);
    for (const Begun& part : parts_) {
      each_of(part, [&](std::uint32_t row) {
        const bool is_new = latest[row] != part.user;
        latest[row] = part.user;
        return is_new;
      });
    }
  }

  std::vector<BatchPairs> batches_;  // each at its number modulo their number
  // Of the batch that is being loaded.
  std::uint32_t number_ = 0;
  std::uint32_t count_ = 0;
  std::vector<Begun> parts_;
  std::uint8_t* is_copied_ = nullptr;  // of its pairs
  bool is_shared_ = false;  // whether several features have look-ups
  Buffer<std::uint32_t> rows_;
  Buffer<std::uint32_t> newest_;
};

}  // namespace bagpipe
