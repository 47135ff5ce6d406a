// What the CUDA files share: units of 4 or 16 bytes, the shape of a launch, the device of a call.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace bagpipe {

constexpr int kThreads = 256;
constexpr int kBlocksOfAMultiprocessor = 32;  // several times what one runs at once; loops over the grid do the rest

// A row is read and written in units: of four floats, one 16-byte access, where every row starts at a multiple of 16
// bytes, else of one.
template <int kFloats>
struct alignas(4 * kFloats) Unit {
  float at[kFloats];
};

inline bool takes_wide_units(std::initializer_list<const void*> arrays, int64_t width) {
  bool aligned = width % 4 == 0;
  for (const void* array : arrays) aligned = aligned && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  return aligned;
}

// Calls function(std::integral_constant: floats of a unit).
template <typename Function>
int with_units(bool wide, Function function) {
  return wide ? function(std::integral_constant<int, 4>{}) : function(std::integral_constant<int, 1>{});
}

// Makes a device the current one of this thread as long as it lives: a stream takes work of its own device alone.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    code_ = cudaGetDevice(&previous_);
    if (code_ == cudaSuccess && device != previous_) code_ = cudaSetDevice(device);
  }
  ~CurrentDevice() {
    int current = previous_;
    if (cudaGetDevice(&current) == cudaSuccess && current != previous_) cudaSetDevice(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t code() const { return code_; }

 private:
  int previous_ = 0;
  cudaError_t code_ = cudaSuccess;
};

inline int multiprocessors(int device) {
  int count = 0;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return std::max(count, 1);  // an error will come again at the launch, which reports it
}

inline unsigned int blocks_for(int device, int64_t work, int64_t work_of_a_block) {
  const int64_t most = int64_t{kBlocksOfAMultiprocessor} * multiprocessors(device);
  return static_cast<unsigned int>(std::min((work + work_of_a_block - 1) / work_of_a_block, most));
}

template <typename... Parameters, typename... Arguments>
int launch(int device, cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
           Arguments... arguments) {
  const CurrentDevice current(device);
  if (current.code() != cudaSuccess) return current.code();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, arguments...);
  const cudaError_t last = cudaGetLastError();  // also clears it, so that no later call reports this one's failure
  return code != cudaSuccess ? code : last;
}

// Blocks of x units of a row by y rows: a thread keeps its place in the row and goes through rows, so that nothing is
// divided, and neighbouring threads touch neighbouring bytes.
inline dim3 block_of_rows(int64_t units) {
  const unsigned int x = static_cast<unsigned int>(std::min<int64_t>(units, kThreads));
  return dim3(x, kThreads / x);
}

}  // namespace bagpipe
