// The look-ups of a batch: the rows as they come, and the indices that stand for them while the batch waits its turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.h"

namespace bagpipe {

// Samples are worked on in blocks, so that a block's look-ups in all columns stay in the nearest cache.
constexpr std::int64_t kBlockSamples = 128;

// Global rows, [samples, columns], and the first sample of each trainer's slice, [trainers + 1].
struct BatchRows {
  const std::int64_t* rows;
  std::int64_t samples;
  std::int64_t columns;
  const std::int64_t* slices;
};

// A batch that is loaded. For each look-up it knows the index of the row among the unique rows of the table; a block's
// columns lie one behind the other, so that they are written and read in one stream.
class LoadedBatch {
 public:
  std::int64_t samples = 0;
  std::int64_t columns = 0;
  std::vector<std::int64_t> slices;
  bool is_wide = false;  // whether an index needs 32 bits instead of 16

  void open(const BatchRows& batch, std::size_t trainers, std::int64_t most_rows_of_a_table) {
    samples = batch.samples;
    columns = batch.columns;
    slices.assign(batch.slices, batch.slices + trainers + 1);
    is_wide = most_rows_of_a_table > kNarrowRows;
    const std::int64_t blocks = (samples + kBlockSamples - 1) / kBlockSamples;
    const std::int64_t items = blocks * kBlockSamples * columns;
    if (is_wide) {
      wide_.make_room(items);
    } else {
      narrow_.make_room(items);
    }
  }

  // Indices of a column in the block that begins with `first_sample`.
  template <class Index>
  Index* indices(std::int64_t first_sample, std::int64_t column) const;

  std::size_t bytes() const { return narrow_.bytes() + wide_.bytes(); }

 private:
  static constexpr std::int64_t kNarrowRows = 1 << 16;

  Buffer<std::uint16_t> narrow_;
  Buffer<std::uint32_t> wide_;
};

template <>
inline std::uint16_t* LoadedBatch::indices(std::int64_t first_sample, std::int64_t column) const {
  return narrow_.data() + first_sample * columns + column * kBlockSamples;
}
template <>
inline std::uint32_t* LoadedBatch::indices(std::int64_t first_sample, std::int64_t column) const {
  return wide_.data() + first_sample * columns + column * kBlockSamples;
}

}  // namespace bagpipe
