// The rows that die with a batch: where they lie until their slots are free again, and who writes them back.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer.h"

namespace bagpipe {

struct RetiredRows {
  std::int64_t group = 0;  // group that they leave with
  std::int64_t count = 0;
  Buffer<std::int64_t> rows;  // global rows
  Buffer<std::int32_t> slots;
  Buffer<std::uint16_t> writers;         // trainers
  std::vector<std::int64_t> written_by;  // how many each trainer writes back

  void start(std::int64_t leaves_with, std::int64_t dead) {
    group = leaves_with;
    count = dead;
    rows.make_room(dead);
    slots.make_room(dead);
    writers.make_room(dead);
  }

  void count_writers(std::int64_t trainers) {
    written_by.assign(static_cast<std::size_t>(trainers), 0);
    for (std::int64_t i = 0; i < count; ++i) ++written_by[writers[i]];
  }

  std::size_t bytes() const { return rows.bytes() + slots.bytes() + writers.bytes(); }
};

}  // namespace bagpipe
