// Characters of a text, eight at a time in a word: the first is taken to be its lowest byte, as on x86 and ARM.
#pragma once

#include <cstdint>
#include <cstring>

namespace bagpipe {

constexpr int kWordBytes = 8;

constexpr uint64_t repeated(uint8_t byte) { return 0x0101010101010101u * byte; }

inline uint64_t load(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// What is wrong with any of the hexadecimal fields so far; bit 7 of a byte.
using Faults = uint64_t;
constexpr Faults kFaults = repeated(0x80);

// The value of 8 hexadecimal digits.
inline uint32_t hex_value(uint64_t text, Faults& faults) {
  const uint64_t lower = text | repeated(0x20);
  // Sums of bytes below 128 do not carry into the next one; bytes of 128 and above are faults by themselves.
  const uint64_t is_digit = (text + repeated(0x80 - '0')) & ~(text + repeated(0x80 - '9' - 1));
  const uint64_t is_letter = (lower + repeated(0x80 - 'a')) & ~(lower + repeated(0x80 - 'f' - 1));
  faults |= text | ~(is_digit | is_letter);
  const uint64_t digits = (text & repeated(0x0F)) + ((text >> 6) & repeated(0x01)) * 9;
  // The first digit is the lowest byte and counts most: swap neighbours while joining them.
  const uint64_t bytes = ((digits << 4) | (digits >> 8)) & 0x00FF00FF00FF00FFu;
  const uint64_t halves = ((bytes << 8) | (bytes >> 16)) & 0x0000FFFF0000FFFFu;
  return static_cast<uint32_t>((halves << 16) | (halves >> 32));
}

constexpr uint32_t kNoNumber = 0xFFFFFFFFu;

// The number that 8 decimal digits make, each without the bits of '0'; kNoNumber where one is no digit.
inline uint32_t decimal_value(uint64_t digits) {
  const uint64_t faults = ((digits + repeated(0x80 - 10)) | digits) & repeated(0x80);
  const uint64_t pairs = (digits * 10 + (digits >> 8)) & 0x00FF00FF00FF00FFu;
  const uint64_t fours = (pairs * 100 + (pairs >> 16)) & 0x0000FFFF0000FFFFu;
  const uint32_t number = static_cast<uint32_t>(fours * 10000 + (fours >> 32));
  return faults == 0 ? number : kNoNumber;
}

// The first `length` <= 8 characters of a word as 8 digits, without the bits of '0': zeros are put before them.
inline uint64_t leading_digits(uint64_t word, uint64_t length) {
  return length == 0 ? 0 : (word ^ repeated('0')) << (64 - 8 * length);
}

}  // namespace bagpipe
