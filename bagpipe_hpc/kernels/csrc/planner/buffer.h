// An array that grows when it is too small, without first values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bagpipe {

template <class T>
class Buffer {
 public:
  T* data() const { return items_.get(); }
  T& operator[](std::int64_t index) const { return items_[static_cast<std::size_t>(index)]; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  // Makes room for `count` items; growing loses the content.
  void make_room(std::int64_t count) {
    if (static_cast<std::size_t>(count) <= size_) return;
    size_ = static_cast<std::size_t>(count + count / 16);  // batches differ a little: it soon fits all of them
    items_.reset();
    items_.reset(new T[size_]);
  }

 private:
  std::unique_ptr<T[]> items_;
  std::size_t size_ = 0;
};

}  // namespace bagpipe
