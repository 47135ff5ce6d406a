// Memory that starts as zeros and takes up room only where it is written to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace bagpipe {

// An array of zeros. Large ones ask for huge pages: the planner reads them at random, and a miss in the page tables
// costs as much as one in the caches.
template <class T>
class ZeroPages {
 public:
  ZeroPages() = default;

  explicit ZeroPages(std::size_t count) : count_(count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();  // the product might wrap round
#ifdef __SANITIZE_ADDRESS__
    // Memory of which AddressSanitizer knows the end.
    if (count == 0) return;
    mapped_ = std::calloc(count, sizeof(T));
    if (mapped_ == nullptr) throw std::bad_alloc();
    items_ = static_cast<T*>(mapped_);
#else
    const std::size_t used = count * sizeof(T);
    const std::size_t slack = used >= kHugePage ? kHugePage : 0;  // room to start at a huge page's boundary
    mapped_bytes_ = used + slack;
    if (mapped_bytes_ == 0) return;
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    auto start = reinterpret_cast<std::uintptr_t>(mapped_);
    if (slack != 0) {
      start = (start + kHugePage - 1) & ~(kHugePage - 1);
      madvise(reinterpret_cast<void*>(start), used, MADV_HUGEPAGE);  // where it is refused, small pages do as well
    }
    items_ = reinterpret_cast<T*>(start);
#endif
  }

  ZeroPages(ZeroPages&& other) noexcept { swap(other); }
  ZeroPages& operator=(ZeroPages&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ZeroPages() {
#ifdef __SANITIZE_ADDRESS__
    std::free(mapped_);
#else
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
#endif
  }

  T& operator[](std::size_t index) { return items_[index]; }
  T* data() { return items_; }  // null where there are none
  const T* data() const { return items_; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  void swap(ZeroPages& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(items_, other.items_);
    std::swap(count_, other.count_);
  }

  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  T* items_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace bagpipe
