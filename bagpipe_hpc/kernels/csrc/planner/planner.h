// What a planner is to the C interface, whichever rules it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

#include "batch_look_ups.h"
#include "worker_team.h"

namespace bagpipe {

struct PlannerSettings {
  std::int64_t trainers;
  std::int64_t lookahead;
  std::int64_t shared_capacity;
  std::int64_t private_capacity;
  std::int64_t first_private_slot;
  std::int64_t threads;
  std::int64_t loading_threads;  // that load a batch while the others plan one; 0: all do the one, then the other
  std::int64_t writing_threads;  // that write a plan each while the others decide on later batches; 0: all do both

  std::size_t deciding_threads() const { return static_cast<std::size_t>(threads - loading_threads - writing_threads); }
  // Plans that are written at once, while one more batch is decided on.
  std::size_t drafts() const { return static_cast<std::size_t>(writing_threads) + 1; }
  // Kept at once: those of the window of the batch that is decided, the one behind it where it is loaded meanwhile, and
  // those whose plans are written.
  std::int64_t batches() const { return lookahead + (loading_threads > 0 ? 1 : 0) + writing_threads; }
};

// A batch that is decided.
struct Decided {
  std::uint32_t number;     // of the batch
  std::int64_t free_group;  // whose slots were taken back last
};

// More slots are needed than there are.
struct SlotsUsedUp : std::runtime_error {
  SlotsUsedUp(std::size_t used_up, std::int64_t wanted)
      : std::runtime_error("slots used up"), pool(static_cast<std::int64_t>(used_up)), needed(wanted) {}
  std::int64_t pool;  // as in Tally
  std::int64_t needed;
};

// While one thread decides on a batch, another one may load the batch that comes first behind its window, and as many
// others as `writing_threads` may write the plans of those before it. The plans are the same: what is decided on a
// batch depends on links within its window, a load makes links of later batches alone, and a plan is written from what
// was kept when its batch was decided.
class Planner {
 public:
  static constexpr std::int64_t kNotWritten = -1;

  virtual ~Planner() = default;

  // Shared by whoever plans: until then batches stay where they are in memory.
  std::shared_mutex in_place;

  // What an earlier segment loaded is out of the window.
  virtual void start_segment(bool is_training) = 0;
  // Takes the next batch into the window. After a WrongBatch the planner is of no use.
  virtual void load(const BatchRows& batch) = 0;
  // Takes the slots of groups up to `free_group` back, and those of later groups up to `latest_group` as far as slots
  // are lacking; then decides on the oldest batch that is not decided, whose dead rows leave with `retiring_group`, and
  // whose plan writes back groups up to `write_group`: 0 for none, or kNotWritten if no plan is written.
  virtual Decided decide(std::int64_t free_group, std::int64_t latest_group, std::int64_t retiring_group,
                         std::int64_t write_group) = 0;
  // Takes the slots of groups up to `group` back.
  virtual void free_slots(std::int64_t group) = 0;

  // Lengths of the arrays of the plan of decided batch `number`. Those of the shared part, then of each trainer's, in
  // the order of the fields in batch_plan.py.
  virtual void measure_plan(std::uint32_t number, std::int64_t* lengths) = 0;
  // The same for a plan that only writes back, when no plan is left to be written.
  virtual void measure_closing_plan(std::int64_t write_group, std::int64_t* lengths) = 0;
  // Fills the arrays of the plan that was measured, in the order of their lengths.
  virtual void write_plan(std::uint32_t number, const void* const* arrays) = 0;
  virtual void write_closing_plan(const void* const* arrays) = 0;
  // Notes that training step `step` updates the rows of a decided batch.
  virtual void count_update(std::uint32_t number, std::int64_t step) = 0;

  // Of a decided batch whose plan is not written yet.
  virtual std::int64_t unique_rows(std::uint32_t number) = 0;
  virtual std::int64_t fetched_rows(std::uint32_t number) = 0;

  // The most slots in use at once: shared ones, and private ones of the trainer with the most.
  virtual std::int64_t shared_peak() const = 0;
  virtual std::int64_t private_peak() const = 0;
  virtual std::size_t state_bytes() const = 0;
  // The most that ever grew with the window: its batches, the retired rows whose slots are not free yet, free slots.
  virtual std::size_t window_bytes() const = 0;
  // Of the threads that decide, and write where no others do; of those that only load.
  virtual TeamTimes times() const = 0;
  virtual TeamTimes loading_times() const = 0;
};

}  // namespace bagpipe
