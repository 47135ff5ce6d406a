// Mistakes that a sanitizer must report, each in a function of its own: tests/sanitizers/test_planted_errors.py.
#include <cstdint>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int64_t no_error(const uint8_t* bytes, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += bytes[i];
  return sum;
}

EXPORT int64_t read_after_free(const uint8_t*, int64_t count) {
  volatile int64_t* number = new int64_t(count);
  delete number;
  return *number;
}

EXPORT int64_t index_beyond_vector(const uint8_t*, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  numbers.reserve(static_cast<size_t>(2 * count));
  return numbers[static_cast<size_t>(count)];
}

EXPORT int64_t overflow(const uint8_t*, int64_t count) { return INT64_MAX - 1 + count; }

EXPORT int64_t shift_by_all_bits(const uint8_t*, int64_t count) { return int64_t{1} << (48 + count); }

EXPORT int64_t misaligned(const uint8_t* bytes, int64_t) { return *reinterpret_cast<const int32_t*>(bytes + 1); }

EXPORT int64_t race(const uint8_t*, int64_t count) {
  int64_t sum = 0;
  const auto add = [&] {
    for (int64_t i = 0; i < 1000 * count; ++i) *const_cast<volatile int64_t*>(&sum) = sum + i;
  };
  std::thread other(add);
  add();
  other.join();
  return sum;
}
