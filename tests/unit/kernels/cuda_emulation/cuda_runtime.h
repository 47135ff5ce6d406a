// As much of CUDA as the kernels use, on the CPU: with this folder before CUDA's, g++ compiles the .cu files unchanged.
//
// A block's threads are fibers of the calling thread. Each runs until it synchronises; which one runs next is drawn anew
// each time, and so is the order of the blocks, so that a result that depends on such an order shows. A block whose
// threads do not all come to the same synchronisation is an error, as is one whose threads have ended meanwhile.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned int x, y, z;
  dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
using cudaStream_t = void*;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
// One multiprocessor only: few rows make every loop over a grid go round.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorInvalidValue ? "invalid argument" : code == cudaSuccess ? "no error" : "launch failure";
}

using std::max;
using std::min;

namespace emulation {

enum class State { kReady, kAtWarp, kAtBlock, kEnded };

struct Fiber {
  jmp_buf place;
  State state = State::kEnded;
  dim3 index;
  bool vote = false;
  unsigned int votes = 0;
};

constexpr int kWarp = 32, kMostThreads = 1024;
constexpr size_t kStackBytes = 1 << 16;

struct Machine {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
  int started = 0;  // fibers that have a stack
  Fiber* running = nullptr;
  jmp_buf scheduler;
  ucontext_t entry;
  std::function<void()> kernel;
  dim3 grid, block, block_index;
  std::mt19937 order{1};
};

inline Machine machine;

inline void yield(State state) {
  machine.running->state = state;
  if (_setjmp(machine.running->place) == 0) _longjmp(machine.scheduler, 1);
}

inline void live() {
  for (;;) {
    yield(State::kEnded);
    machine.kernel();
  }
}

inline void start_fiber(int number) {
  static std::vector<std::vector<char>> stacks;
  stacks.emplace_back(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks.back().data();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, live, 0);
  machine.running = &machine.fibers[number];
  if (_setjmp(machine.scheduler) == 0) setcontext(&context);
}

// Lets every fiber of [first, last) go on, if all of them wait in the same way.
inline bool release(int first, int last, State waiting) {
  for (int i = first; i < last; ++i) {
    if (machine.fibers[i].state != waiting) return false;
  }
  unsigned int votes = 0;
  for (int i = first; i < last; ++i) votes |= static_cast<unsigned int>(machine.fibers[i].vote) << (i - first) % kWarp;
  for (int i = first; i < last; ++i) {
    machine.fibers[i].votes = votes;
    machine.fibers[i].state = State::kReady;
  }
  return true;
}

inline bool run_block(int threads) {
  for (int i = 0; i < threads; ++i) {
    machine.fibers[i].index = dim3(i % machine.block.x, i / machine.block.x, 0);
    machine.fibers[i].state = State::kReady;
  }
  for (;;) {
    std::vector<int> ready;
    for (int i = 0; i < threads; ++i) {
      if (machine.fibers[i].state == State::kReady) ready.push_back(i);
    }
    std::shuffle(ready.begin(), ready.end(), machine.order);
    for (int i : ready) {
      machine.running = &machine.fibers[i];
      if (_setjmp(machine.scheduler) == 0) _longjmp(machine.running->place, 1);
    }
    bool released = release(0, threads, State::kAtBlock);
    for (int first = 0; first < threads; first += kWarp) {
      released = release(first, std::min(first + kWarp, threads), State::kAtWarp) || released;
    }
    if (!released) break;
  }
  return std::all_of(machine.fibers.begin(), machine.fibers.begin() + threads,
                     [](const Fiber& fiber) { return fiber.state == State::kEnded; });
}

inline cudaError_t run_grid(dim3 grid, dim3 block, std::function<void()> kernel) {
  const int threads = static_cast<int>(block.x * block.y * block.z);
  if (grid.x == 0 || grid.y != 1 || grid.z != 1 || block.z != 1 || threads == 0 || threads > kMostThreads) {
    return cudaErrorInvalidConfiguration;
  }
  machine.kernel = std::move(kernel);
  machine.grid = grid;
  machine.block = block;
  while (machine.started < threads) start_fiber(machine.started++);
  std::vector<unsigned int> blocks(grid.x);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), machine.order);
  for (unsigned int number : blocks) {
    machine.block_index = dim3(number, 0, 0);
    if (!run_block(threads)) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

}  // namespace emulation

inline const dim3& gridDim = emulation::machine.grid;
inline const dim3& blockDim = emulation::machine.block;
inline const dim3& blockIdx = emulation::machine.block_index;
#define threadIdx (emulation::machine.running->index)

inline void __syncthreads() { emulation::yield(emulation::State::kAtBlock); }
inline void __syncwarp() { emulation::yield(emulation::State::kAtWarp); }
inline unsigned int __ballot_sync(unsigned int, bool vote) {
  emulation::machine.running->vote = vote;
  emulation::yield(emulation::State::kAtWarp);
  return emulation::machine.running->votes;
}
// One fiber runs at a time, and none is stopped between two accesses.
inline void __threadfence() {}
template <typename T>
T exchange(T* place, T value) {
  const T before = *place;
  *place = value;
  return before;
}
inline unsigned long long atomicMin(unsigned long long* place, unsigned long long value) {
  return exchange(place, std::min(*place, value));
}
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
  return exchange(place, *place + value);
}
inline int __ffs(unsigned int bits) { return __builtin_ffs(static_cast<int>(bits)); }

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  return emulation::run_grid(config->gridDim, config->blockDim, [=] { kernel(arguments...); });
}
