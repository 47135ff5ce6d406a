// Moves blocks between a file and frames of memory, in threads of its own: many are under way at once, as an SSD wants.
//
// A move writes what a frame holds to its block, where that has changed, and then reads another block into the frame,
// or fills it with zeros; a frame that gets the block that it holds keeps its bytes. Moves are taken in the order in
// which they were given. A block that is read while its last write is still under way waits for that, so that a caller
// may ask for a block again that it has just let go.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "simd.h"

namespace {

constexpr int64_t kNone = -1;                 // no block
constexpr int64_t kMostAtOnce = 1024;         // neighbouring blocks that one call moves, as many as any system takes
constexpr int64_t kBytesAtOnce = 512 * 1024;  // and no more bytes than these, so that others may move as many meanwhile
constexpr int32_t kCutShort = -1;             // the file ended where a block should be

// Frames that one call moves: they hold blocks that follow each other from `written` on, and get those from `read` on.
struct Move {
  int64_t job, written, read;
  std::vector<int64_t> frames;
};

class BlockFile {
 public:
  BlockFile(int descriptor, char* memory, int64_t block_bytes, int32_t threads)
      : descriptor_(descriptor), memory_(memory), block_bytes_(block_bytes) {
    for (int32_t started = 0; started < threads; ++started) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
        break;  // fewer will do
      }
    }
  }

  ~BlockFile() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
      moves_.clear();
    }
    given_.notify_all();
    written_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Takes `count` moves as one job; its number, from 1 on.
  int64_t submit(int64_t count, const int64_t* frames, const int64_t* written, const int64_t* read) {
    int64_t moves = 0, job = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job = first_job_ + static_cast<int64_t>(left_.size());
      for (int64_t at = 0; at < count; ++moves) {
        Move move{job, written[at], read[at], {frames[at]}};
        const int64_t first = at++;
        const int64_t most = std::max<int64_t>(1, std::min(kMostAtOnce, kBytesAtOnce / block_bytes_));
        for (; at < count && at - first < most; ++at) {
          const int64_t step = at - first;
          if (written[at] != (move.written == kNone ? kNone : move.written + step)) break;
          if (read[at] != (move.read == kNone ? kNone : move.read + step)) break;
          move.frames.push_back(frames[at]);
        }
        for (int64_t step = 0; move.written != kNone && step < at - first; ++step) writing_.insert(move.written + step);
        moves_.push_back(std::move(move));
      }
      left_.push_back(moves);
    }
    if (moves == 1) {
      given_.notify_one();
    } else {
      given_.notify_all();
    }
    return job;
  }

  // The last job that is complete, as are all before it.
  int64_t done() {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!left_.empty() && left_.front() == 0) {
      left_.pop_front();
      ++first_job_;
    }
    return first_job_ - 1;
  }

  // What the system said of the first move that failed: its error, or kCutShort; 0 if none has.
  int32_t failure(int64_t* block, int32_t* was_write) {
    std::lock_guard<std::mutex> lock(mutex_);
    *block = failed_block_;
    *was_write = failed_write_;
    return failure_;
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      given_.wait(lock, [this] { return ends_ || !moves_.empty(); });
      if (ends_) return;
      Move move = std::move(moves_.front());
      moves_.pop_front();
      const int64_t count = static_cast<int64_t>(move.frames.size());
      if (move.written != kNone) {
        lock.unlock();
        transfer(move.written, move.frames, true);
        lock.lock();
        for (int64_t step = 0; step < count; ++step) writing_.erase(move.written + step);
        written_.notify_all();
      }
      // A write that is waited for was given earlier, so a thread is at it already.
      written_.wait(lock, [&] { return ends_ || !is_writing(move.read, count); });
      lock.unlock();
      if (move.read != kNone) {
        if (move.read != move.written) transfer(move.read, move.frames, false);
      } else {
        for (int64_t frame : move.frames) std::memset(memory_ + frame * block_bytes_, 0, block_bytes_);
      }
      lock.lock();
      --left_[move.job - first_job_];
    }
  }

  bool is_writing(int64_t first, int64_t count) const {
    if (first == kNone || writing_.empty()) return false;
    for (int64_t block = first; block < first + count; ++block) {
      if (writing_.count(block)) return true;
    }
    return false;
  }

  void transfer(int64_t block, const std::vector<int64_t>& frames, bool is_write) {
    iovec parts[kMostAtOnce];
    const int count = static_cast<int>(frames.size());
    for (int part = 0; part < count; ++part) {
      parts[part] = {memory_ + frames[part] * block_bytes_, static_cast<size_t>(block_bytes_)};
    }
    int64_t begin = block * block_bytes_, left = count * block_bytes_;
    for (iovec* next = parts; left > 0;) {
      const int rest = count - static_cast<int>(next - parts);
      const ssize_t moved = is_write ? pwritev(descriptor_, next, rest, begin) : preadv(descriptor_, next, rest, begin);
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) {
        fail(moved < 0 ? errno : kCutShort, begin / block_bytes_, is_write);
        return;
      }
      begin += moved;
      left -= moved;
      for (size_t passed = static_cast<size_t>(moved); passed > 0;) {
        const size_t step = std::min(passed, next->iov_len);
        next->iov_base = static_cast<char*>(next->iov_base) + step;
        next->iov_len -= step;
        passed -= step;
        if (next->iov_len == 0) ++next;
      }
    }
  }

  void fail(int32_t error, int64_t block, bool is_write) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != 0) return;
    failure_ = error;
    failed_block_ = block;
    failed_write_ = is_write;
  }

  const int descriptor_;
  char* const memory_;
  const int64_t block_bytes_;
  std::mutex mutex_;
  std::condition_variable given_, written_;
  std::deque<Move> moves_;
  std::unordered_set<int64_t> writing_;  // blocks whose write is given and not yet done
  std::deque<int64_t> left_;             // moves that are left of each job from first_job_ on
  int64_t first_job_ = 1;
  int32_t failure_ = 0, failed_write_ = 0;
  int64_t failed_block_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

// Opens a file that the caller has opened, and closes after `block_file_close`; null if no thread can be started.
BAGPIPE_EXPORT void* block_file_open(int32_t descriptor, char* memory, int64_t block_bytes, int32_t threads) {
  try {
    return new BlockFile(descriptor, memory, block_bytes, threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}

BAGPIPE_EXPORT int64_t block_file_submit(void* file, int64_t count, const int64_t* frames, const int64_t* written,
                                         const int64_t* read) {
  return static_cast<BlockFile*>(file)->submit(count, frames, written, read);
}

BAGPIPE_EXPORT int64_t block_file_done(void* file) { return static_cast<BlockFile*>(file)->done(); }

BAGPIPE_EXPORT int32_t block_file_failure(void* file, int64_t* block, int32_t* was_write) {
  return static_cast<BlockFile*>(file)->failure(block, was_write);
}

BAGPIPE_EXPORT void block_file_close(void* file) { delete static_cast<BlockFile*>(file); }
