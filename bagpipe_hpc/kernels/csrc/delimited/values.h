// The values of fields: integers, decimal and hexadecimal numbers, texts.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>

#include "../simd.h"
#include "../text_words.h"
#include "fields.h"

namespace bagpipe {

constexpr int kMostDigits = 18;  // of an integer that surely fits 64 bits
constexpr int kExactPowers = 22;  // 10^22 is the largest power of ten that a double holds exactly
constexpr uint64_t kExactIntegers = uint64_t{1} << 53;

// An optional minus and 1 to 18 digits.
BAGPIPE_INLINE bool read_integer(const Column& column, Field field, int64_t& value) {
  const char* at = column.text.text + field.begin;
  const char* end = column.text.text + field.end;
  const bool is_negative = at != end && *at == '-';
  at += is_negative;
  if (at == end || end - at > kMostDigits) return false;
  value = 0;
  for (; at != end; ++at) {
    if (*at < '0' || *at > '9') return false;
    value = value * 10 + (*at - '0');
  }
  if (is_negative) value = -value;
  return true;
}

constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// A decimal number of at most 8 characters, without a sign or an exponent: a quotient of two numbers that doubles hold
// exactly is rounded once, as it should be (Clinger: How to read floating point numbers accurately, 1990).
BAGPIPE_INLINE bool read_short_real(uint64_t word, uint32_t length, double& value) {
  const uint64_t digits = leading_digits(word, length);
  const uint64_t others = digits ^ repeated('.' ^ '0');
  const uint64_t points = (others - repeated(1)) & ~others & repeated(0x80);
  uint64_t joined = digits;
  int decimals = 0;
  if (points != 0) {
    const int place = __builtin_ctzll(points) / 8;
    const uint64_t below = (uint64_t{1} << (8 * place)) - 1;
    joined = (digits & ~(below << 8 | 0xFF)) | (digits & below) << 8;
    decimals = 7 - place;
    if (length == 1) return false;
  }
  const uint32_t number = decimal_value(joined);
  if (number == kNoNumber) return false;
  value = number / kPowers[decimals];
  return true;
}

// A decimal number as `[-]digits[.digits][e[+-]digits]` has it.
BAGPIPE_INLINE bool read_real(const char* begin, const char* end, double& value) {
  const char* at = begin;
  const bool is_negative = at != end && *at == '-';
  at += is_negative;
  uint64_t digits = 0;
  int64_t significant = 0, decimals = 0, any = 0;
  bool behind_point = false;
  for (; at != end; ++at) {
    if (*at == '.' && !behind_point) {
      behind_point = true;
    } else if (*at >= '0' && *at <= '9') {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      significant += significant != 0 || *at != '0';
      decimals += behind_point;
      ++any;
      if (significant > kMostDigits) break;
    } else {
      break;
    }
  }
  if (any == 0) return false;
  if (at == end && digits <= kExactIntegers && decimals <= kExactPowers) {
    value = static_cast<double>(digits) / kPowers[decimals];
    if (is_negative) value = -value;
    return true;
  }
  for (const char* other = at; other != end; ++other) {  // neither inf nor nan, nor hexadecimal digits
    const bool is_known = (*other >= '0' && *other <= '9') || *other == '.' || *other == 'e' || *other == 'E' ||
                          *other == '+' || *other == '-';
    if (!is_known) return false;
  }
  const std::from_chars_result found = std::from_chars(begin, end, value, std::chars_format::general);
  return found.ec == std::errc() && found.ptr == end;
}

// Each kind of values has `add`, which takes the value of a field that is not empty.

struct Integers {
  int64_t* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    const uint32_t length = field.length();
    const uint32_t number =
        length <= kWordBytes ? decimal_value(leading_digits(column.word(field.begin), length)) : kNoNumber;
    values[place] = number;
    return number != kNoNumber || read_integer(column, field, values[place]);
  }
};

struct Reals {
  double* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    const uint32_t length = field.length();
    if (length <= kWordBytes && read_short_real(column.word(field.begin), length, values[place])) return true;
    return read_real(column.text.text + field.begin, column.text.text + field.end, values[place]);
  }
};

struct Hexes {
  uint32_t* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    if (field.length() > kWordBytes) return false;
    Faults faults = 0;
    const uint64_t digits = leading_digits(column.word(field.begin), field.length());
    values[place] = hex_value(digits ^ repeated('0'), faults);
    return (faults & kFaults) == 0;
  }
};

// Texts one behind the other: `ends` of each, and room for 16 bytes more than they have.
struct Texts {
  char* characters;
  int32_t* ends;
  int64_t bytes;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) {
    constexpr int kShort = 16;
    const char* from = column.text.text + field.begin;
    const uint32_t length = field.length();
    if (length <= kShort && field.begin + kShort <= column.text.bytes) {
      std::memcpy(characters + bytes, from, kShort);  // as many as are needed, or more: no call, no loop
    } else {
      std::memcpy(characters + bytes, from, length);
    }
    bytes += length;
    ends[place] = static_cast<int32_t>(bytes);
    return true;
  }
};

}  // namespace bagpipe
