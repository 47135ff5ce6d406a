// Compresses chunks of a shard as HDF5's shuffle filter and h5py's LZF filter do, so that any h5py reads them, and
// reads what those filters have written.
//
// LZF (Marc Lehmann's liblzf) is a row of pieces: 000nnnnn and n + 1 bytes as they are, or nnnooooo [nnnnnnnn]
// oooooooo, a repetition of n + 2 bytes that started o + 1 bytes ago, with more of n in its own byte where nnn is 7.
#include <array>
#include <cstdint>
#include <cstring>

#include "simd.h"

namespace {

constexpr int kHashBits = 13;
constexpr int64_t kMostLiterals = 32;
constexpr int64_t kMostDistance = 8192;
constexpr int64_t kFirstPlace = kMostDistance + 1;  // of places in the table, so that 0, none yet, is too far from all
constexpr int64_t kMostLength = 264;
constexpr int64_t kShortest = 4;  // LZF can repeat 3 bytes; that saves a byte at best, and is found by chance too often
constexpr int kPatience = 4;      // after 2^kPatience places without a repetition every second one is tried, and so on

inline uint32_t load32(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline uint64_t load64(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline uint32_t hash(uint32_t word) { return (word * 2654435761u) >> (32 - kHashBits); }

// Bytes from `at` on that are the same from `earlier` on, at most `most`; both may be read up to `end`.
inline int64_t same_bytes(const uint8_t* earlier, const uint8_t* at, const uint8_t* end, int64_t most) {
  const int64_t limit = end - at < most ? end - at : most;
  int64_t length = 0;
  while (length + 8 <= limit) {
    const uint64_t difference = load64(earlier + length) ^ load64(at + length);
    if (difference != 0) return length + (__builtin_ctzll(difference) >> 3);
    length += 8;
  }
  while (length < limit && earlier[length] == at[length]) ++length;
  return length;
}

inline uint8_t* write_literals(const uint8_t* from, const uint8_t* to, uint8_t* out) {
  while (from < to) {
    const int64_t count = to - from < kMostLiterals ? to - from : kMostLiterals;
    *out++ = static_cast<uint8_t>(count - 1);
    std::memcpy(out, from, static_cast<size_t>(count));
    out += count;
    from += count;
  }
  return out;
}

inline uint8_t* write_repetition(int64_t distance, int64_t length, uint8_t* out) {
  const int64_t offset = distance - 1, count = length - 2;
  if (count < 7) {
    *out++ = static_cast<uint8_t>(count << 5 | offset >> 8);
  } else {
    *out++ = static_cast<uint8_t>(7 << 5 | offset >> 8);
    *out++ = static_cast<uint8_t>(count - 7);
  }
  *out++ = static_cast<uint8_t>(offset);
  return out;
}

// Copies what lies `distance` bytes before `out`, which the copy may run into: it then repeats itself.
inline void repeat(uint8_t* out, int64_t distance, int64_t length) {
  const uint8_t* const from = out - distance;
  for (int64_t done = 0; done < length;) {
    const int64_t known = distance + done < length - done ? distance + done : length - done;
    std::memcpy(out + done, from, static_cast<size_t>(known));
    done += known;
  }
}

// What the first byte of a piece says, by that byte.
struct Piece {
  uintptr_t repeats = 0;  // all bits where it is a repetition: its distance follows
  uint8_t length = 0;
  uint8_t more = 0;      // all bits where the next byte is to be added to the length
  uint8_t distance = 0;  // number of the byte that has the lower bits of the distance
  uint8_t bytes = 0;     // of the piece
};

constexpr std::array<Piece, 256> pieces() {
  std::array<Piece, 256> found{};
  for (unsigned first = 0; first < found.size(); ++first) {
    Piece& piece = found[first];
    const bool is_long = first >> 5 == 7;
    if (first < kMostLiterals) {
      piece.length = static_cast<uint8_t>(first + 1);
      piece.bytes = static_cast<uint8_t>(first + 2);
    } else {
      piece.repeats = ~uintptr_t{0};
      piece.length = static_cast<uint8_t>((first >> 5) + 2);
      piece.more = is_long ? 255 : 0;
      piece.distance = is_long ? 2 : 1;
      piece.bytes = is_long ? 3 : 2;
    }
  }
  return found;
}
constexpr std::array<Piece, 256> kPieces = pieces();

constexpr int64_t kCopied = 16;  // bytes at once

// The same as `repeat` for a distance below kCopied, where that many bytes more may be written.
inline void repeat_near(uint8_t* out, int64_t distance, int64_t length) {
  constexpr uint8_t kWhole[kCopied] = {0, 16, 16, 15, 16, 15, 12, 14, 16, 9, 10, 11, 12, 13, 14, 15};  // whole periods
  uint8_t periods[2 * kCopied];
  std::memcpy(periods, out - distance, kCopied);  // the first period, and what will be written over
  for (int64_t known = distance; known < kCopied; known *= 2) {
    uint8_t copied[kCopied];
    std::memcpy(copied, periods, kCopied);
    std::memcpy(periods + known, copied, kCopied);
  }
  for (int64_t done = 0; done < length; done += kWhole[distance]) std::memcpy(out + done, periods, kCopied);
}

// Room that a repetition, and literals up to `literals`, take at most.
inline int64_t room(int64_t literals) { return literals + (literals + kMostLiterals - 1) / kMostLiterals + 3; }

}  // namespace

// Puts the first bytes of all elements before the second bytes, and so on.
BAGPIPE_EXPORT BAGPIPE_CLONES void shuffle_bytes(const uint8_t* values, int64_t count, int64_t width, uint8_t* out) {
  if (width == 4) {
    for (int64_t number = 0; number < count; ++number) {
      const uint32_t value = load32(values + 4 * number);
      out[number] = static_cast<uint8_t>(value);
      out[count + number] = static_cast<uint8_t>(value >> 8);
      out[2 * count + number] = static_cast<uint8_t>(value >> 16);
      out[3 * count + number] = static_cast<uint8_t>(value >> 24);
    }
    return;
  }
  for (int64_t byte = 0; byte < width; ++byte)
    for (int64_t number = 0; number < count; ++number) out[byte * count + number] = values[number * width + byte];
}

// Bytes written to `out`; 0 if they would be more than `capacity`.
BAGPIPE_EXPORT int64_t compress_lzf(const uint8_t* text, int64_t bytes, uint8_t* out, int64_t capacity) {
  uint32_t last_seen[1 << kHashBits] = {};  // place + kFirstPlace of the last 4 bytes with this hash
  const uint8_t* const end = text + bytes;
  const uint8_t* literals = text;
  const uint8_t* at = text;
  uint8_t* const begin = out;
  uint8_t* const full = out + capacity;
  uint32_t tried = 1u << kPatience;
  while (end - at >= kShortest) {
    const uint32_t word = load32(at);
    uint32_t& seen = last_seen[hash(word)];
    const int64_t place = at - text, distance = place + kFirstPlace - seen;
    // One test, and so one branch that may be foreseen wrongly; what lies too far back is compared with itself.
    const bool is_near = distance <= kMostDistance;
    const uint8_t* earlier = at - (is_near ? distance : 0);
    const bool repeats = is_near & (load32(earlier) == word);
    seen = static_cast<uint32_t>(place + kFirstPlace);
    if (!repeats) {
      at += tried++ >> kPatience;
      continue;
    }
    while (at > literals && earlier > text && at[-1] == earlier[-1]) --at, --earlier;  // what skipping passed over
    if (full - out < room(at - literals)) return 0;
    out = write_literals(literals, at, out);
    const int64_t length = same_bytes(earlier, at, end, kMostLength);
    out = write_repetition(at - earlier, length, out);
    at += length;
    literals = at;
    tried = 1u << kPatience;
    if (end - at >= kShortest) last_seen[hash(load32(at - 2))] = static_cast<uint32_t>(at - 2 - text + kFirstPlace);
  }
  if (full - out < room(end - literals)) return 0;
  return write_literals(literals, end, out) - begin;
}

// Puts bytes that `shuffle_bytes` took apart together again.
BAGPIPE_EXPORT BAGPIPE_CLONES void unshuffle_bytes(const uint8_t* bytes, int64_t count, int64_t width, uint8_t* out) {
  if (width == 4) {
    for (int64_t number = 0; number < count; ++number) {
      const uint32_t value = static_cast<uint32_t>(bytes[number]) | static_cast<uint32_t>(bytes[count + number]) << 8 |
                             static_cast<uint32_t>(bytes[2 * count + number]) << 16 |
                             static_cast<uint32_t>(bytes[3 * count + number]) << 24;
      std::memcpy(out + 4 * number, &value, sizeof value);
    }
    return;
  }
  for (int64_t byte = 0; byte < width; ++byte)
    for (int64_t number = 0; number < count; ++number) out[number * width + byte] = bytes[byte * count + number];
}

// Whether `packed` is LZF of exactly `bytes` bytes; no others are written or read, whatever it is.
BAGPIPE_EXPORT int64_t decompress_lzf(const uint8_t* packed, int64_t packed_bytes, uint8_t* out, int64_t bytes) {
  const uint8_t* at = packed;
  const uint8_t* const end = packed + packed_bytes;
  uint8_t* const begin = out;
  uint8_t* const full = out + bytes;
  // Far from both ends. What a piece is, and how long, is as good as random, and a branch on it would often be guessed
  // wrong. So both kinds are copied by the same instructions; the next pieces write over what is too much.
  while (end - at >= 3 + kMostLiterals && full - out >= kMostLength + kMostLiterals) {
    const Piece& piece = kPieces[*at];
    const int64_t length = piece.length + (piece.more & at[1]);
    const uintptr_t distance = (((*at & 31u) << 8 | at[piece.distance]) + 1u) & piece.repeats;
    if (static_cast<uintptr_t>(out - begin) < distance) return 0;
    const auto literals = reinterpret_cast<uintptr_t>(at + 1), repeated = reinterpret_cast<uintptr_t>(out) - distance;
    const auto* const from = reinterpret_cast<const uint8_t*>((literals & ~piece.repeats) | (repeated & piece.repeats));
    at += piece.bytes;
    if (distance - 1 < kCopied - 1) {
      repeat_near(out, static_cast<int64_t>(distance), length);
    } else {
      std::memcpy(out, from, kCopied);
      std::memcpy(out + kCopied, from + kCopied, kCopied);
      for (int64_t done = 2 * kCopied; done < length; done += kCopied) std::memcpy(out + done, from + done, kCopied);
    }
    out += length;
  }
  while (at < end) {
    const int64_t control = *at++;
    if (control < kMostLiterals) {
      const int64_t count = control + 1;
      if (end - at < count || full - out < count) return 0;
      std::memcpy(out, at, static_cast<size_t>(count));
      at += count;
      out += count;
      continue;
    }
    int64_t length = (control >> 5) + 2;
    if (length == 7 + 2) {
      if (at == end) return 0;
      length += *at++;
    }
    if (at == end) return 0;
    const int64_t distance = ((control & 31) << 8 | *at++) + 1;
    if (out - begin < distance || full - out < length) return 0;
    repeat(out, distance, length);
    out += length;
  }
  return out == full;
}
