// C interface of the native planner; bagpipe_hpc/kernels/native_planner.py is its only user.
//
// One thread at a time may use a planner, but for `load`, and for `measure_plan` and `write_plan` of batches before the
// one that is decided, which may run meanwhile (planner/planner.h). After a failure of `load` or `decide` plans of
// batches that were decided before may still be written; apart from that, after any failure, it can only be destroyed.

#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "planner/home_planner.h"
#include "planner/lookahead_planner.h"
#include "planner/planner.h"
#include "simd.h"

namespace {

using bagpipe::Planner;

enum Status : std::int64_t { kDone = 0, kWrongBatch = 1, kSlotsUsedUp = 2, kOutOfMemory = 3, kOther = 4 };

struct Failure {
  std::int64_t details[2];
  char message[112];
};

// Runs `work` and turns what it throws into a status: no exception may cross a C interface.
template <class Work>
std::int64_t guarded(Failure* failure, Work&& work) noexcept {
  try {
    work();
    return kDone;
  } catch (const bagpipe::WrongBatch&) {
    return kWrongBatch;
  } catch (const bagpipe::SlotsUsedUp& used_up) {
    failure->details[0] = used_up.pool;
    failure->details[1] = used_up.needed;
    return kSlotsUsedUp;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    failure->message[text.copy(failure->message, sizeof failure->message - 1)] = '\0';
    return kOther;
  }
}

}  // namespace

// `settings`: the members of PlannerSettings in their order; `tables` [count, 3]: first row, rows, whether hashed;
// `feature_tables` [features]: the table of each feature. No features: any number of them, which have the only table.
// `grid_columns`: of the grid of trainers over which rows with one home travel; 0 if rows are replicated.
BAGPIPE_EXPORT std::int64_t bagpipe_planner_create(const std::int64_t* settings, const std::int64_t* tables,
                                                   std::int64_t count, const std::int64_t* feature_tables,
                                                   std::int64_t features, std::int64_t verify,
                                                   std::int64_t grid_columns, Planner** planner,
                                                   Failure* failure) {
  return guarded(failure, [&] {
    std::vector<bagpipe::TableSettings> list;
    for (const std::int64_t* table = tables; table < tables + 3 * count; table += 3) {
      list.push_back({table[0], table[1], table[2] != 0, verify != 0});
    }
    const bagpipe::PlannerSettings all = {settings[0], settings[1], settings[2], settings[3],
                                           settings[4], settings[5], settings[6], settings[7]};
    std::vector<std::size_t> of_features(feature_tables, feature_tables + features);
    if (grid_columns != 0) {
      *planner = new bagpipe::HomePlanner(all, list, std::move(of_features), static_cast<std::size_t>(grid_columns));
    } else {
      *planner = new bagpipe::LookaheadPlanner(all, list, std::move(of_features));
    }
  });
}

BAGPIPE_EXPORT void bagpipe_planner_destroy(Planner* planner) { delete planner; }

BAGPIPE_EXPORT void bagpipe_planner_start_segment(Planner* planner, std::int64_t is_training) {
  planner->start_segment(is_training != 0);
}

// `rows` [look_ups]; `offsets` [samples * features + 1], or null; `slices` [trainers + 1].
BAGPIPE_EXPORT std::int64_t bagpipe_planner_load(Planner* planner, const std::int64_t* rows,
                                                 std::int64_t look_ups, const std::int64_t* offsets,
                                                 std::int64_t samples, std::int64_t features,
                                                 const std::int64_t* slices, Failure* failure) {
  return guarded(failure, [&] { planner->load({rows, look_ups, offsets, samples, features, slices}); });
}

// `free_group`: the group whose slots are free, and then the one whose slots were taken back last. `write_group`: that
// the plan writes back, or -1 if none is written. `number`: of the batch that is decided.
BAGPIPE_EXPORT std::int64_t bagpipe_planner_decide(Planner* planner, std::int64_t* free_group,
                                                   std::int64_t latest_group, std::int64_t retiring_group,
                                                   std::int64_t write_group, std::uint32_t* number, Failure* failure) {
  return guarded(failure, [&] {
    const std::shared_lock lock(planner->in_place);
    const bagpipe::Decided decided = planner->decide(*free_group, latest_group, retiring_group, write_group);
    *number = decided.number;
    *free_group = decided.free_group;
  });
}

// `number`: as `decide` gave it. `lengths`: those of the shared part's arrays, then of each trainer's; `counts` [2]:
// unique and fetched rows.
BAGPIPE_EXPORT std::int64_t bagpipe_planner_measure_plan(Planner* planner, std::uint32_t number, std::int64_t* lengths,
                                                         std::int64_t* counts, Failure* failure) {
  return guarded(failure, [&] {
    const std::shared_lock lock(planner->in_place);
    planner->measure_plan(number, lengths);
    counts[0] = planner->unique_rows(number);
    counts[1] = planner->fetched_rows(number);
  });
}

// `arrays`: as their lengths; `step`: training step that updates the rows, 0 for none.
BAGPIPE_EXPORT std::int64_t bagpipe_planner_write_plan(Planner* planner, std::uint32_t number,
                                                       const void* const* arrays, std::int64_t step,
                                                       Failure* failure) {
  return guarded(failure, [&] {
    const std::shared_lock lock(planner->in_place);
    planner->write_plan(number, arrays);
    if (step != 0) planner->count_update(number, step);
  });
}

// The same for a plan that only writes back.
BAGPIPE_EXPORT std::int64_t bagpipe_planner_measure_closing_plan(Planner* planner, std::int64_t write_group,
                                                                 std::int64_t* lengths, Failure* failure) {
  return guarded(failure, [&] { planner->measure_closing_plan(write_group, lengths); });
}
BAGPIPE_EXPORT std::int64_t bagpipe_planner_write_closing_plan(Planner* planner, const void* const* arrays,
                                                               Failure* failure) {
  return guarded(failure, [&] { planner->write_closing_plan(arrays); });
}

BAGPIPE_EXPORT std::int64_t bagpipe_planner_free_slots(Planner* planner, std::int64_t group, Failure* failure) {
  return guarded(failure, [&] { planner->free_slots(group); });
}

// `sizes` [4]: bytes of state and of the window, peaks of the shared and of the greediest private pool.
BAGPIPE_EXPORT void bagpipe_planner_sizes(const Planner* planner, std::int64_t* sizes) {
  sizes[0] = static_cast<std::int64_t>(planner->state_bytes());
  sizes[1] = static_cast<std::int64_t>(planner->window_bytes());
  sizes[2] = planner->shared_peak();
  sizes[3] = planner->private_peak();
}

// `times` [4]: of its threads so far, of those that only load or of those that decide; the members of TeamTimes in
// their order.
BAGPIPE_EXPORT void bagpipe_planner_times(const Planner* planner, std::int64_t is_loading, std::int64_t* times) {
  const bagpipe::TeamTimes found = is_loading != 0 ? planner->loading_times() : planner->times();
  times[0] = found.rounds;
  times[1] = found.first;
  times[2] = found.slowest;
  times[3] = found.all;
}
