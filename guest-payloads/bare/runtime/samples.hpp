// SPDX-License-Identifier: Apache-2.0
// Cycle counts of repeated measurements: the minimum of all, the median of at most `Capacity` evenly spaced ones (to
// sort more takes too long where every instruction is interpreted). Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace payload {

template <std::size_t Capacity>
class Samples {
 public:
  // Forgets everything; about `expected` values will come.
  void start(std::uint64_t expected) {
    size_ = 0;
    seen_ = 0;
    minimum_ = 0;
    stride_ = (expected + Capacity - 1) / Capacity;
    next_ = 0;
  }
  void add(std::uint64_t value) {
    if (seen_ == 0 || value < minimum_) minimum_ = value;
    if (seen_ == next_ && size_ < Capacity) {
      values_[size_++] = value;
      next_ += stride_;
    }
    ++seen_;
  }
  std::uint64_t seen() const { return seen_; }
  std::uint64_t minimum() const { return minimum_; }
  // The lower one of the two middle values.
  std::uint64_t median() {
    sort();
    return size_ == 0 ? 0 : values_[(size_ - 1) / 2];
  }

 private:
  // Shell sort with Knuth's gaps: no recursion on a small stack, and few instructions where each is interpreted.
  void sort() {
    std::size_t gap = 1;
    while (gap < size_ / 3) gap = gap * 3 + 1;
    for (; gap != 0; gap /= 3) {
      for (std::size_t i = gap; i < size_; ++i) {
        const std::uint64_t value = values_[i];
        std::size_t position = i;
        for (; position >= gap && values_[position - gap] > value; position -= gap) {
          values_[position] = values_[position - gap];
        }
        values_[position] = value;
      }
    }
  }

  std::size_t size_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t minimum_ = 0;
  std::uint64_t stride_ = 1;
  std::uint64_t next_ = 0;
  std::uint64_t values_[Capacity] = {};
};

}  // namespace payload
