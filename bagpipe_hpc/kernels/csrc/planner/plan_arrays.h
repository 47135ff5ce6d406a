// The arrays of a plan, in the order of the fields of SharedPlan and TrainerPlan (batch_plan.py), and their lengths.
#pragma once

#include <cstdint>

namespace bagpipe {

struct SharedArrays {
  std::int32_t* now_slots;
  std::int32_t* later_slots;
  std::int64_t* fetch_rows;
  std::int32_t* fetch_slots;
  std::int64_t* rows;
  std::int32_t* versions;
};
struct SharedLengths {
  std::int64_t now_slots, later_slots, fetch_rows, fetch_slots, rows, versions;
};
struct TrainerArrays {
  void* positions;
  std::int32_t* private_slots;
  std::int64_t* fetch_rows;
  std::int32_t* fetch_slots;
  std::int64_t* write_back_rows;
  std::int32_t* write_back_slots;
  std::int64_t* rows;
  std::int32_t* versions;
};
struct TrainerLengths {
  std::int64_t positions, private_slots, fetch_rows, fetch_slots, write_back_rows, write_back_slots, rows, versions;
};

// Where a slice's positions go: indices of its rows, 16 bits wide where that can number them (as_positions).
struct PositionsOutput {
  void* to;
  bool is_narrow;

  static bool are_narrow(std::int64_t rows) { return rows <= 1 << 16; }
  // Of the array, as lengths say it: ~n where n positions are narrow.
  static std::int64_t length(std::int64_t positions, std::int64_t rows) {
    return are_narrow(rows) ? ~positions : positions;
  }
};

}  // namespace bagpipe
