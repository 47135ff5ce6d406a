// Counts the lines of a block of text: the fast path of data_prep/inputs/text_blocks.py.
#include <cstdint>
#include <cstring>

#include "simd.h"

namespace {

constexpr int64_t kLanes = 64;
constexpr int64_t kMostSums = 255;  // as many as a lane of 8 bits holds

// 1 where a line ends: at a CR, and at an LF but behind a CR, whose end it is.
inline uint8_t ends_line(uint8_t before, uint8_t byte) {
  return static_cast<uint8_t>((byte == '\r') | ((byte == '\n') & (before != '\r')));
}

}  // namespace

// Ends of line, LF, CRLF or CR, in `text`.
BAGPIPE_EXPORT BAGPIPE_CLONES int64_t count_line_ends(const uint8_t* text, int64_t bytes) {
  if (bytes == 0) return 0;
  int64_t found = ends_line(0, text[0]), at = 1;
  while (bytes - at >= kLanes) {
    const int64_t left = (bytes - at) / kLanes, sums = left < kMostSums ? left : kMostSums;
    uint8_t lanes[kLanes] = {};
    for (int64_t sum = 0; sum < sums; ++sum, at += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += ends_line(text[at + lane - 1], text[at + lane]);
    for (const uint8_t lane : lanes) found += lane;
  }
  for (; at < bytes; ++at) found += ends_line(text[at - 1], text[at]);
  return found;
}
