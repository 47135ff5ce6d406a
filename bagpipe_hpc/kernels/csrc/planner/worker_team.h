// Threads that do one piece of work together, again and again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bagpipe {

// The calling thread is worker 0; the others sleep between pieces of work, so an idle planner leaves its cores alone.
class WorkerTeam {
 public:
  explicit WorkerTeam(std::size_t workers) {
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

  // Runs work(worker) in every worker and returns when all are done. An exception of a worker is thrown again here.
  void run(const std::function<void(std::size_t)>& work) {
    if (threads_.empty()) {
      work(0);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
      busy_ = threads_.size();
      failure_ = nullptr;
      ++round_;
    }
    has_work_.notify_all();
    attempt(work, 0);
    std::unique_lock lock(mutex_);
    is_done_.wait(lock, [this] { return busy_ == 0; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void serve(std::size_t worker) {
    std::unique_lock lock(mutex_);
    for (std::size_t done = 0;; ++done) {
      has_work_.wait(lock, [&] { return stopping_ || round_ != done; });
      if (stopping_) return;
      const auto& work = *work_;
      lock.unlock();
      attempt(work, worker);
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
};

}  // namespace bagpipe
