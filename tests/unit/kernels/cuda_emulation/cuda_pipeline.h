// Asynchronous copies to shared memory, carried out as late as CUDA allows: when the thread waits for them. So a kernel
// that reads a stage too early, or gives one back too late, goes wrong here too.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "cuda_runtime.h"

namespace emulation {

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Pipeline {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;
};

inline std::map<Fiber*, Pipeline> pipelines;

}  // namespace emulation

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
  emulation::pipelines[emulation::machine.running].open.push_back({to, from, bytes});
}

inline void __pipeline_commit() {
  emulation::Pipeline& own = emulation::pipelines[emulation::machine.running];
  own.committed.push_back(std::move(own.open));
  own.open.clear();
}

inline void __pipeline_wait_prior(size_t newest) {
  emulation::Pipeline& own = emulation::pipelines[emulation::machine.running];
  for (; own.committed.size() > newest; own.committed.pop_front()) {
    for (const emulation::Copy& copy : own.committed.front()) std::memcpy(copy.to, copy.from, copy.bytes);
  }
}
