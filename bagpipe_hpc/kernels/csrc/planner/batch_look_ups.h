// The look-ups of a batch: the rows as they come, and the indices that stand for them while the batch waits its turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "buffer.h"

namespace bagpipe {

// One-hot samples are worked on in blocks, so that a block's look-ups of all features stay in the nearest cache.
constexpr std::int64_t kBlockSamples = 128;
// Blocks of ragged samples have about so many look-ups.
constexpr std::int64_t kBlockLookUps = 16384;

// Global rows, [look_ups]: sample after sample, and feature after feature within a sample.
struct BatchRows {
  const std::int64_t* rows;
  std::int64_t look_ups;
  const std::int64_t* offsets;  // where bags begin, [samples * features + 1]; null where each has one row
  std::int64_t samples;
  std::int64_t features;
  const std::int64_t* slices;  // first sample of each trainer's slice, [trainers + 1]

  bool is_ragged() const { return offsets != nullptr; }
  // Where the look-ups of a sample begin.
  std::int64_t start(std::int64_t sample) const { return is_ragged() ? offsets[sample * features] : sample * features; }
};

// A batch is not what it should be: bags that do not lie one behind the other, or a row that is not its table's.
struct WrongBatch : std::runtime_error {
  WrongBatch() : std::runtime_error("wrong batch") {}
};

// A global row as its table counts it: modulo 2^64, so that what is not one of the table's rows is beyond its last one.
inline std::int64_t row_in_table(std::int64_t row, std::int64_t first_row) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(row) - static_cast<std::uint64_t>(first_row));
}

// The look-ups of one feature in a block of one-hot samples; that of sample s is number s.
struct ColumnLookUps {
  const std::int64_t* rows;  // of the first sample
  std::int64_t stride;
  std::int64_t first_row;     // of the table
  std::int64_t first_sample;  // of the block

  std::int64_t row(std::int64_t number) const { return row_in_table(rows[number * stride], first_row); }
  std::int64_t place(std::int64_t number) const { return number - first_sample; }
};

// Rows of some samples, each counted from the first row of its feature's table; one before that becomes one behind all.
inline void narrow_rows(const std::int64_t* from, std::int64_t samples, std::int64_t features,
                        const std::int64_t* first_rows, std::uint32_t* to) {
  for (std::int64_t sample = 0; sample < samples; ++sample, from += features, to += features) {
    for (std::int64_t feature = 0; feature < features; ++feature) {
      const auto row = static_cast<std::uint64_t>(row_in_table(from[feature], first_rows[feature]));
      to[feature] = static_cast<std::uint32_t>(std::min<std::uint64_t>(row, UINT32_MAX));
    }
  }
}

// The look-ups of one-hot samples, feature after feature: a thread then reads those of its tables alone, where it would
// touch the memory of all of them otherwise. Rows are counted from the first of their table, of which there are fewer
// than 2^32 - 1.
class TurnedLookUps {
 public:
  static constexpr std::int64_t kMostRows = UINT32_MAX - 1;

  void make_room(const BatchRows& batch) { rows_.make_room(batch.samples * batch.features); }

  // Turns samples `first` up to `end`, block by block; `first_rows` as in narrow_rows.
  void turn(const BatchRows& batch, const std::vector<std::int64_t>& first_rows, std::int64_t first, std::int64_t end) {
    const std::int64_t features = batch.features;
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(kBlockSamples * features));
    for (; first < end; first += kBlockSamples) {
      const std::int64_t samples = std::min(kBlockSamples, end - first);
      narrow_rows(batch.rows + first * features, samples, features, first_rows.data(), rows.data());
      for (std::int64_t feature = 0; feature < features; ++feature) {
        std::uint32_t* const to = rows_.data() + feature * batch.samples + first;
        for (std::int64_t sample = 0; sample < samples; ++sample) {
          to[sample] = rows[static_cast<std::size_t>(sample * features + feature)];
        }
      }
    }
  }

  // Of a feature; as ColumnLookUps.
  struct Column {
    const std::uint32_t* rows;  // of the batch
    std::int64_t first_sample;  // of the block

    std::int64_t row(std::int64_t number) const { return rows[number]; }
    std::int64_t place(std::int64_t number) const { return number - first_sample; }
  };
  Column column(const BatchRows& batch, std::int64_t feature, std::int64_t first_sample) const {
    return {rows_.data() + feature * batch.samples, first_sample};
  }
  std::size_t bytes() const { return rows_.bytes(); }

 private:
  Buffer<std::uint32_t> rows_;
};

// The look-ups of one feature in some ragged samples, as a list.
class ListedLookUps {
 public:
  // As ColumnLookUps.
  struct Items {
    const std::int64_t* rows;
    const std::uint32_t* places;

    std::int64_t row(std::int64_t number) const { return rows[number]; }
    std::int64_t place(std::int64_t number) const { return places[number]; }
  };

  std::int64_t count() const { return count_; }
  Items items() const { return {rows_.data(), places_.data()}; }

  // Lists samples `first` up to `end`; rows are counted from the table's `first_row`.
  void gather(const BatchRows& batch, std::int64_t feature, std::int64_t first, std::int64_t end,
              std::int64_t first_row) {
    const std::int64_t* const offsets = batch.offsets + feature;
    count_ = 0;
    for (std::int64_t sample = first; sample < end; ++sample) count_ += length(batch, offsets, sample);
    rows_.make_room(count_);
    places_.make_room(count_);
    std::int64_t number = 0;
    for (std::int64_t sample = first; sample < end; ++sample) {
      const std::int64_t begin = offsets[sample * batch.features], bag_end = offsets[sample * batch.features + 1];
      for (std::int64_t place = begin; place < bag_end; ++place, ++number) {
        rows_[number] = row_in_table(batch.rows[place], first_row);
        places_[number] = static_cast<std::uint32_t>(place);
      }
    }
  }

 private:
  static std::int64_t length(const BatchRows& batch, const std::int64_t* offsets, std::int64_t sample) {
    return offsets[sample * batch.features + 1] - offsets[sample * batch.features];
  }

  Buffer<std::int64_t> rows_;
  Buffer<std::uint32_t> places_;
  std::int64_t count_ = 0;
};

// A batch that is loaded. For each look-up it knows the index of the row among the unique rows of the table. Of one-hot
// samples a block's features lie one behind the other; of ragged ones each index has the place of its look-up. Either
// way positions are written in one stream.
class LoadedBatch {
 public:
  std::int64_t samples = 0;
  std::int64_t features = 0;
  bool is_ragged = false;
  bool is_wide = false;  // whether an index needs 32 bits instead of 16
  std::vector<std::int64_t> slices;
  std::vector<std::int64_t> slice_starts;  // first look-up of each slice, and the end of the last
  std::vector<std::int64_t> blocks;        // first sample of each block of ragged samples, and the end of the last

  // Looks at a batch; `look_ups` becomes the number of those of each feature.
  void open(const BatchRows& batch, std::size_t trainers, std::vector<std::int64_t>& look_ups) {
    samples = batch.samples;
    features = batch.features;
    is_ragged = batch.is_ragged();
    look_ups.assign(static_cast<std::size_t>(features), is_ragged ? 0 : samples);
    if (is_ragged) open_bags(batch, look_ups.data());
    slices.assign(batch.slices, batch.slices + trainers + 1);
    slice_starts.clear();
    for (const std::int64_t sample : slices) slice_starts.push_back(batch.start(sample));
  }

  void make_room(const BatchRows& batch, std::int64_t most_rows_of_a_table) {
    is_wide = most_rows_of_a_table > kNarrowRows;
    const std::int64_t blocks_of_samples = (samples + kBlockSamples - 1) / kBlockSamples;
    const std::int64_t items = is_ragged ? batch.look_ups : blocks_of_samples * kBlockSamples * features;
    if (is_wide) {
      wide_.make_room(items);
    } else {
      narrow_.make_room(items);
    }
  }

  // Of all look-ups, where samples are ragged.
  template <class Index>
  Index* indices() const;
  // Of a feature in the block of one-hot samples that begins with `first_sample`.
  template <class Index>
  Index* indices(std::int64_t first_sample, std::int64_t feature) const {
    return indices<Index>() + first_sample * features + feature * kBlockSamples;
  }
  // One after the last look-up of each bag, [samples * features], where samples are ragged.
  const std::uint32_t* bag_ends() const { return bag_ends_.data(); }

  std::size_t bytes() const { return narrow_.bytes() + wide_.bytes() + bag_ends_.bytes(); }

 private:
  static constexpr std::int64_t kNarrowRows = 1 << 16;

  void open_bags(const BatchRows& batch, std::int64_t* look_ups) {
    bag_ends_.make_room(samples * features);
    blocks.assign(1, 0);
    bool is_wrong = batch.offsets[0] != 0 || batch.offsets[samples * features] != batch.look_ups;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t* const offsets = batch.offsets + sample * features;
      std::uint32_t* const ends = bag_ends_.data() + sample * features;
      for (std::int64_t feature = 0; feature < features; ++feature) {
        const std::int64_t length = offsets[feature + 1] - offsets[feature];
        is_wrong |= length < 0;
        look_ups[feature] += length;
        ends[feature] = static_cast<std::uint32_t>(offsets[feature + 1]);
      }
      const bool is_full = offsets[features] - batch.offsets[blocks.back() * features] > kBlockLookUps;
      if (is_full && sample > blocks.back()) blocks.push_back(sample);
    }
    if (is_wrong) throw WrongBatch();
    if (samples > 0) blocks.push_back(samples);
  }

  Buffer<std::uint16_t> narrow_;
  Buffer<std::uint32_t> wide_;
  Buffer<std::uint32_t> bag_ends_;
};

template <>
inline std::uint16_t* LoadedBatch::indices() const {
  return narrow_.data();
}
template <>
inline std::uint32_t* LoadedBatch::indices() const {
  return wide_.data();
}

}  // namespace bagpipe
