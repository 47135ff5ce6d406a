// Waits for MPI requests without the interpreter: looks at them as often as told, and ends when a group of them is
// complete or somebody rings.
//
// A look frees no request and changes none (MPI 4.1, section 3.7.6), but lets MPI move on what is under way. MPI itself
// is the caller's: this library links no MPI, and is told where `MPI_Request_get_status` is. Handles are integers
// of 32 bits in MPICH and its kin, and pointers elsewhere.
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>

#include "simd.h"

namespace {

using Bell = std::atomic<uint32_t>;
static_assert(sizeof(Bell) == sizeof(uint32_t) && Bell::is_always_lock_free, "the kernel waits at a bell's address");

constexpr uint32_t silent = 0, rung = 1;
constexpr double growth = 1.5;  // of the pauses between looks
constexpr double second_ns = 1e9;
constexpr unsigned long timer_slack_ns = 1000;  // 50,000 unless asked for: a pause of 20 us would take 75
constexpr int64_t most_looks = 64;             // between two pauses, whatever they move on
constexpr double of_idle = 2;                  // so many times as long as an idle look, one has moved something
constexpr double forgotten = 1.0 / 256;        // of what an idle look takes, with each look
// To fall asleep and wake up takes longer: a shorter pause is spent awake.
constexpr double shortest_sleep_ns = 10e3;

double now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * second_ns + static_cast<double>(now.tv_nsec);
}

// So many nanoseconds, or until somebody rings.
void pause_at(Bell* bell, double pause_ns) {
  if (pause_ns < shortest_sleep_ns) {
    for (const double end_ns = now_ns() + pause_ns; bell->load() == silent && now_ns() < end_ns;) sched_yield();
    return;
  }
  timespec pause;
  pause.tv_sec = static_cast<time_t>(pause_ns / second_ns);
  pause.tv_nsec = static_cast<long>(pause_ns - static_cast<double>(pause.tv_sec) * second_ns);
  syscall(SYS_futex, bell, FUTEX_WAIT_PRIVATE, silent, &pause, nullptr, 0);
}

// Tells looks that let MPI move something on from those that found nothing to move, by the time that they take.
//
// What an idle look takes depends on the processor and the way of the messages: 0.2 us on one host, 2.3 over TCP where
// system calls are slow. So it is the shortest look of late, which is forgotten bit by bit.
class Looks {
 public:
  // `least_ns`, 0 at first: the shortest look; stays with who waits. `moving_ns`: no shorter look has moved anything.
  Looks(double* least_ns, double moving_ns) : least_ns_(least_ns), moving_ns_(moving_ns) {}

  bool has_moved(double look_ns) {
    const bool moved = look_ns >= std::max(moving_ns_, of_idle * *least_ns_);
    *least_ns_ = *least_ns_ > 0 ? std::min(look_ns, *least_ns_ * (1 + forgotten)) : look_ns;
    return moved;
  }

 private:
  double* least_ns_;
  double moving_ns_;
};

struct Requests {
  void* get_status;      // MPI_Request_get_status
  int64_t handle_bytes;  // 4 or 8
  const int64_t* handles;
  void* status;  // room for an MPI_Status

  // Whether a request is complete; so is one that MPI calls wrong, which whoever owns it has to hear.
  bool is_complete(int64_t number) const {
    int flag = 0;
    int failed;
    if (handle_bytes == 4) {
      using GetStatus = int (*)(int32_t, int*, void*);
      failed = reinterpret_cast<GetStatus>(get_status)(static_cast<int32_t>(handles[number]), &flag, status);
    } else {
      using GetStatus = int (*)(void*, int*, void*);
      failed = reinterpret_cast<GetStatus>(get_status)(reinterpret_cast<void*>(handles[number]), &flag, status);
    }
    return failed != 0 || flag != 0;
  }

  // Whether all requests of a group are complete; looks no further than at the first that is not.
  bool are_complete(int64_t first, int64_t end) const {
    for (int64_t number = first; number < end; ++number)
      if (!is_complete(number)) return false;
    return true;
  }
};

}  // namespace

// Let a wait at `bell` end, or the next one at once.
BAGPIPE_EXPORT void request_watch_ring(uint32_t* bell) {
  reinterpret_cast<Bell*>(bell)->store(rung);
  syscall(SYS_futex, bell, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Silence a bell; whether it was rung.
BAGPIPE_EXPORT int64_t request_watch_hear(uint32_t* bell) {
  return reinterpret_cast<Bell*>(bell)->exchange(silent) == rung;
}

// Pause, look, and pause a little longer, until a group is complete, `limit_ns` have passed, or somebody rang, which is
// heard with that. Group g has the requests from ends[g - 1] to ends[g]. Looks that have let MPI move something on
// (`Looks`, with the time for a group) may do so again: they do not count among the `looks` between two pauses.
// Returns whether somebody has rung.
BAGPIPE_EXPORT int64_t request_watch_wait(uint32_t* bell_at, void* get_status, int64_t handle_bytes,
                                          const int64_t* handles, const int64_t* ends, int64_t groups, void* status,
                                          int64_t looks, double* least_ns, double moving_ns, double pause_ns,
                                          double longest_ns, double limit_ns) {
  // Once a thread. Where it is not granted, pauses are longer.
  thread_local const bool is_prompt = prctl(PR_SET_TIMERSLACK, timer_slack_ns, 0, 0, 0) == 0;
  static_cast<void>(is_prompt);
  Bell* bell = reinterpret_cast<Bell*>(bell_at);
  const Requests requests{get_status, handle_bytes, handles, status};
  Looks each_look(least_ns, moving_ns);
  const double end_ns = now_ns() + limit_ns;
  if (groups == 0) pause_ns = std::max(pause_ns, limit_ns);  // nothing to look at
  while (true) {
    if (bell->load() == silent) pause_at(bell, pause_ns);
    if (bell->exchange(silent) == rung) return 1;
    for (int64_t look = 0, idle = 0; groups && look < most_looks && idle < looks && bell->load() == silent; ++look) {
      const double since_ns = now_ns();
      int64_t first = 0;
      for (int64_t group = 0; group < groups; first = ends[group++])
        if (requests.are_complete(first, ends[group])) return 0;
      if (!each_look.has_moved((now_ns() - since_ns) / static_cast<double>(groups))) ++idle;
    }
    if (now_ns() >= end_ns) return bell->exchange(silent) == rung;
    pause_ns = std::min(pause_ns * growth, longest_ns);
  }
}
