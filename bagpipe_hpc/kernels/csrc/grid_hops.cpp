// Rows over a grid of trainers: where they lie on the first hop, and the pass that puts them in order and sends them on
// the second. The native twin of bagpipe_hpc/plan/grid_hops.py, called by kernels/grid_hops.py.
//
// MPI is the caller's: this library links none, and is told where its functions are. Handles are integers of 32 bits in
// MPICH and its kin, and pointers elsewhere.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "simd.h"

namespace {

// Puts `count` trainers' numbers one behind the other.
void lay_out(const std::int64_t* rows, std::int64_t count, std::int64_t width, std::int64_t* counts,
             std::int64_t* starts) {
  std::int64_t start = 0;
  for (std::int64_t trainer = 0; trainer < count; ++trainer) {
    starts[trainer] = start;
    counts[trainer] = rows[trainer] * width;
    start += counts[trainer];
  }
}

// How messages within a column begin; as `_Column` in kernels/grid_hops.py.
struct Column {
  void* isend;  // MPI_Isend
  void* irecv;  // MPI_Irecv
  std::int64_t handle_bytes;
  std::int64_t comm;
  std::int64_t byte;  // MPI_BYTE
  std::int64_t tag;
  const std::int32_t* ranks;  // in `comm`, of the trainers of the column
};

// Begins messages, and keeps their requests; none behind one that MPI refuses.
class Messages {
 public:
  Messages(const Column& column, std::int64_t* requests) : column_(column), requests_(requests) {}

  void take(std::int64_t row, char* memory, std::int64_t bytes) { begin(column_.irecv, row, memory, bytes); }
  void send(std::int64_t row, char* memory, std::int64_t bytes) { begin(column_.isend, row, memory, bytes); }
  std::int64_t begun() const { return begun_; }
  std::int32_t failure() const { return failure_; }

 private:
  void begin(void* function, std::int64_t row, char* memory, std::int64_t bytes) {
    if (bytes == 0 || failure_ != 0) return;
    if (column_.handle_bytes == 4) {
      call<std::uint32_t>(function, row, memory, bytes);
    } else {
      call<std::uint64_t>(function, row, memory, bytes);
    }
    begun_ += failure_ == 0;
  }

  template <class Handle>
  void call(void* function, std::int64_t row, char* memory, std::int64_t bytes) {
    using Begin = int (*)(void*, int, Handle, int, int, Handle, Handle*);
    Handle request{};
    failure_ = reinterpret_cast<Begin>(function)(memory, static_cast<int>(bytes), static_cast<Handle>(column_.byte),
                                                 column_.ranks[row], static_cast<int>(column_.tag),
                                                 static_cast<Handle>(column_.comm), &request);
    requests_[begun_] = static_cast<std::int64_t>(request);
  }

  const Column& column_;
  std::int64_t* requests_;
  std::int64_t begun_ = 0;
  std::int32_t failure_ = 0;
};

constexpr std::int64_t kWrongSizes = -1, kTooLong = -2;

}  // namespace

// `to` and `source` [rows x columns], `relayed` [columns, rows]. `layouts` takes two pairs of counts and starts, [2,
// columns] each: of what is sent and of what is taken in on the first hop. Returns whether the counts are possible:
// none is negative, and what stays here and what comes for this trainer on the first hop is what it expects of its row.
BAGPIPE_EXPORT std::int32_t lay_out_grid_hop(const std::int32_t* to, const std::int32_t* source,
                                             const std::int32_t* relayed, std::int64_t rows, std::int64_t columns,
                                             std::int64_t row, std::int64_t column, std::int64_t width,
                                             std::int64_t* layouts) {
  std::vector<std::int64_t> to_columns(columns), of_senders(columns);
  std::int32_t signs = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t trainer = r * columns + c, passed = relayed[c * rows + r];
      signs |= to[trainer] | source[trainer] | relayed[c * rows + r];
      to_columns[c] += to[trainer];
      of_senders[c] += passed;
    }
  }
  bool agree = signs >= 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    agree &= relayed[c * rows + row] == (c == column ? 0 : source[row * columns + c]);
  }
  lay_out(to_columns.data(), columns, width, layouts, layouts + columns);
  lay_out(of_senders.data(), columns, width, layouts + 2 * columns, layouts + 3 * columns);
  return agree;
}

// Starts to take in what the others of the column pass on, at its place in `into`. Copies `taken`, one sender's rows of
// `row_bytes` behind the other's, to `passed`, one receiver's behind the other's from the row behind this one's on, and
// sends each receiver's as soon as they are there. Copies those for this trainer to their places in `into`. Counts are
// possible, as `lay_out_grid_hop` says. `requests` takes those of the messages, two for each other row at most, and
// `failure` what MPI says of the last one. Returns how many have begun. If the arrays do not have as many rows as that
// takes, or a message has more bytes than an `int` counts, nothing is done, and it returns a negative number.
BAGPIPE_EXPORT std::int64_t pass_grid_rows(const std::int32_t* source, const std::int32_t* relayed, std::int64_t rows,
                                           std::int64_t columns, std::int64_t row, std::int64_t column,
                                           std::int64_t row_bytes, const char* taken, char* passed, char* into,
                                           std::int64_t taken_rows, std::int64_t passed_rows, std::int64_t into_rows,
                                           const Column* of_column, std::int64_t* requests, std::int32_t* failure) {
  std::vector<const char*> first_of(columns);  // of each sender's rows
  std::vector<std::int64_t> passed_to(rows), of_row(rows);
  for (std::int64_t c = 0; c < columns; ++c) {
    first_of[c] = taken;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t count = relayed[c * rows + r];
      taken += count * row_bytes;
      taken_rows -= count;
      passed_to[r] += count * row_bytes;
      passed_rows -= r == row ? 0 : count;
      of_row[r] += source[r * columns + c] * row_bytes;
      into_rows -= source[r * columns + c];
    }
  }
  if (taken_rows != 0 || passed_rows != 0 || into_rows != 0) return kWrongSizes;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (r != row && std::max(passed_to[r], of_row[r]) > std::numeric_limits<std::int32_t>::max()) return kTooLong;
  }
  Messages messages(*of_column, requests);
  char* own = into;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (r == row) {
      own = into;
    } else {
      messages.take(r, into, of_row[r]);
    }
    into += of_row[r];
  }
  // A sender's rows lie receiver after receiver.
  const auto copy = [&](std::int64_t c, std::int64_t r, char* target) {
    const std::int32_t* const counts = relayed + c * rows;
    const std::int64_t before = std::accumulate(counts, counts + r, std::int64_t{0}) * row_bytes;
    const std::int64_t bytes = counts[r] * row_bytes;
    if (bytes > 0) std::memcpy(target, first_of[c] + before, bytes);
    return target + bytes;
  };
  for (std::int64_t step = 1; step < rows; ++step) {
    const std::int64_t r = (row + step) % rows;
    char* const first = passed;
    for (std::int64_t c = 0; c < columns; ++c) passed = copy(c, r, passed);
    messages.send(r, first, passed_to[r]);
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    own = c == column ? own + source[row * columns + c] * row_bytes : copy(c, row, own);
  }
  *failure = messages.failure();
  return messages.begun();
}
