// Threads that do one piece of work together, again and again.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace bagpipe {

// Processor time that a team took for its work so far, in nanoseconds.
struct TeamTimes {
  std::int64_t rounds = 0;   // pieces of work
  std::int64_t first = 0;    // of worker 0
  std::int64_t slowest = 0;  // of the worker that took the most for a piece, summed over pieces: all on idle cores
  std::int64_t all = 0;      // of all workers

  void add_round(const std::vector<std::int64_t>& spent) {
    ++rounds;
    first += spent.front();
    slowest += *std::max_element(spent.begin(), spent.end());
    all += std::accumulate(spent.begin(), spent.end(), std::int64_t{0});
  }
};

// Of the calling thread so far, in nanoseconds.
inline std::int64_t thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// Where the share of a part begins, of `count` that are divided into `parts`.
template <class Count>
Count share_start(Count count, std::size_t part, std::size_t parts) {
  return static_cast<Count>(static_cast<std::size_t>(count) * part / parts);
}

// The calling thread is worker 0; the others sleep between pieces of work, so an idle planner leaves its cores alone.
class WorkerTeam {
 public:
  explicit WorkerTeam(std::size_t workers) : spent_(workers) {
    try {
      for (std::size_t worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~WorkerTeam() { stop(); }
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  std::size_t size() const { return threads_.size() + 1; }
  const TeamTimes& times() const { return times_; }

  // Runs work(worker) in every worker and returns when all are done. An exception of a worker is thrown again here.
  void run(const std::function<void(std::size_t)>& work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
      busy_ = threads_.size();
      failure_ = nullptr;
      ++round_;
    }
    has_work_.notify_all();
    const std::int64_t start = thread_time();
    attempt(work, 0);
    spent_[0] = thread_time() - start;
    std::unique_lock lock(mutex_);
    is_done_.wait(lock, [this] { return busy_ == 0; });
    times_.add_round(spent_);
    if (failure_) std::rethrow_exception(failure_);
  }
  // Runs work(i) for each i below `count`; a worker takes those that lie side by side.
  template <class Work>
  void each(std::size_t count, const Work& work) {
    run([&](std::size_t worker) {
      const std::size_t end = share_start(count, worker + 1, size());
      for (std::size_t i = share_start(count, worker, size()); i < end; ++i) work(i);
    });
  }

 private:
  void serve(std::size_t worker) {
    std::int64_t start = thread_time();  // since the last piece of work: waking up counts, too
    std::unique_lock lock(mutex_);
    for (std::size_t done = 0;; ++done) {
      has_work_.wait(lock, [&] { return stopping_ || round_ != done; });
      if (stopping_) return;
      const auto& work = *work_;
      lock.unlock();
      attempt(work, worker);
      const std::int64_t end = thread_time();
      spent_[worker] = end - start;
      start = end;
      lock.lock();
      if (--busy_ == 0) is_done_.notify_one();
    }
  }

  void attempt(const std::function<void(std::size_t)>& work, std::size_t worker) {
    try {
      work(worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable is_done_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::size_t round_ = 0;
  std::size_t busy_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::int64_t> spent_;  // of each worker in the round
  TeamTimes times_;
};

}  // namespace bagpipe
