// Reads blocks of text with a separator between fields into columns, as a list of columns says: the fast path of
// data_prep/formats/delimited.py, which is its definition.
//
// It takes plain rows only: the same number of fields in each line, lines that end with LF, CRLF or CR, quotes around a
// whole field and nowhere else, integers of at most 18 digits, at most 8 hexadecimal digits. On anything else it gives
// up, and the definition reads the block.
//
// First pass: 64 bytes at a time, where are the separators? Second pass, column by column over some rows that stay in
// the nearest caches: with both ends of a field known, digits are read eight at a time without branches on their
// number. All loads stay within the text.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "delimited/fields.h"
#include "delimited/text_index.h"
#include "delimited/values.h"
#include "simd.h"
#include "text_words.h"

namespace bagpipe {
namespace {

constexpr int kWordRows = 64;  // as many as a word of validity bits holds
constexpr int kTileRows = 8 * kWordRows;

BAGPIPE_CLONES bool index_plain(Index& index, int64_t bytes) { return index_block<false>(index, bytes); }

// Quotes are as they should be where all of them stand around whole fields.
BAGPIPE_CLONES bool index_quoted(Index& index, int64_t bytes) {
  if (!index_block<true>(index, bytes)) return false;
  int64_t around = 0;
  for (int64_t row = 0; row < index.rows; ++row) {
    uint32_t before = index.starts[row];
    for (int64_t field = 0; field < index.fields; ++field) {
      const uint32_t begin = before + 1, end = index.ends[row * index.fields + field];
      if (begin < end && index.text[begin] == '"') {
        if (end - begin < 2 || index.text[end - 1] != '"') return false;
        around += 2;
      }
      before = end;
    }
  }
  return around == index.quotes;
}

// What a column is and where its values go. kernels/text/delimited_text.py has the same members.
struct Task {
  int64_t kind;
  int64_t number;     // of the field
  int64_t separator;  // between the values of a list; 0 where there is one value
  int64_t weights;    // between a value and its weight; 0 where there are none
  void* values;
  uint64_t* present;      // [rows / 64], a bit a row; of single values
  int32_t* list_ends;     // [rows]: where each list ends among the values
  int32_t* text_ends;     // where each text ends in `values`
  float* value_weights;   // of each value of a list
  int64_t missing;        // fields
  int64_t count;          // values, those of missing fields among them
  int64_t bytes;          // characters of texts
};

constexpr uint8_t kNoLabel = 2;

enum Kind : int64_t { kLabel = 0, kInteger = 1, kReal = 2, kHex = 3, kText = 4 };

BAGPIPE_INLINE bool read_labels(const Column& column, int64_t first, int64_t last, uint8_t* labels) {
  bool is_good = true;
  for (int64_t row = first; row < last; ++row) {
    const Field field = column.field(row);
    labels[row] = field.length() == 1 ? static_cast<uint8_t>(column.text.text[field.begin] - '0') : kNoLabel;
    is_good &= labels[row] <= 1;
  }
  return is_good;
}

// Single values of up to 8 characters are read many at a time; `add` reads the others.
struct ShortFields {
  uint64_t words[kWordRows];
  uint64_t lengths[kWordRows];
  uint64_t present = 0;
  uint64_t longest = 0;

  BAGPIPE_INLINE void take(const Column& column, int64_t first, int rows) {
    const uint32_t* before = column.before + first * column.stride;
    const uint32_t* ends = column.ends + first * column.text.fields;
    if (column.is_plain && ends[(rows - 1) * column.text.fields] + kWordBytes <= column.text.bytes) {
      for (int row = 0; row < rows; ++row) {
        const uint32_t begin = before[row * column.stride] + 1;
        words[row] = load(column.text.text + begin);
        lengths[row] = ends[row * column.text.fields] - begin;
      }
    } else {
      for (int row = 0; row < rows; ++row) {
        const Field field = column.field(first + row);
        words[row] = column.word(field.begin);
        lengths[row] = field.length();
      }
    }
    for (int row = 0; row < rows; ++row) {
      present |= static_cast<uint64_t>(lengths[row] != 0) << row;
      longest = lengths[row] > longest ? lengths[row] : longest;
    }
  }
};

BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Integers values, uint64_t& present) {
  ShortFields fields;
  fields.take(column, first, rows);
  present = fields.present;
  uint32_t numbers[kWordRows];
  uint32_t largest = 0;
  for (int row = 0; row < rows; ++row) {
    const uint64_t length = fields.lengths[row] < kWordBytes ? fields.lengths[row] : kWordBytes;
    numbers[row] = decimal_value(leading_digits(fields.words[row], length));
    values.values[first + row] = numbers[row];
    largest = numbers[row] > largest ? numbers[row] : largest;
  }
  if (fields.longest <= kWordBytes && largest != kNoNumber) return true;
  for (int row = 0; row < rows; ++row) {
    if (fields.lengths[row] <= kWordBytes && numbers[row] != kNoNumber) continue;
    if (!read_integer(column, column.field(first + row), values.values[first + row])) return false;
  }
  return true;
}

BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Hexes values, uint64_t& present) {
  ShortFields fields;
  fields.take(column, first, rows);
  present = fields.present;
  Faults faults = 0;
  for (int row = 0; row < rows; ++row) {
    const uint64_t length = fields.lengths[row] < kWordBytes ? fields.lengths[row] : kWordBytes;
    values.values[first + row] =
        hex_value(leading_digits(fields.words[row], length) ^ repeated('0'), faults);
  }
  return fields.longest <= kWordBytes && (faults & kFaults) == 0;
}

template <typename Values>
BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Values& values, uint64_t& present) {
  bool is_good = true;
  present = 0;
  for (int row = 0; row < rows; ++row) {
    const Field field = column.field(first + row);
    if (field.length() != 0) {
      present |= uint64_t{1} << row;
      is_good &= values.add(column, field, first + row);
    } else {
      values.add_missing(first + row);
    }
  }
  return is_good;
}

struct OptionalReals : Reals {
  void add_missing(int64_t place) { values[place] = 0; }
};

struct OptionalTexts : Texts {
  void add_missing(int64_t place) { ends[place] = static_cast<int32_t>(bytes); }
};

template <typename Values>
BAGPIPE_INLINE bool read_single(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  bool is_good = true;
  for (int64_t row = first; row < last && is_good; row += kWordRows) {
    const int rows = static_cast<int>(last - row < kWordRows ? last - row : kWordRows);
    uint64_t present;
    is_good = read_words(column, row, rows, values, present);
    task.present[row / kWordRows] = present;
    task.missing += rows - __builtin_popcountll(present);
  }
  return is_good;
}

// Calls `take` with each piece of a field that is not empty, up to the next separator.
template <typename Take>
BAGPIPE_INLINE void for_each_piece(const Column& column, Field field, char separator, Take&& take) {
  uint32_t begin = field.begin;
  for (uint32_t at = field.begin; at < field.end; at += kBlockBytes) {
    char copy[kBlockBytes];
    const char* block = column.text.text + at;
    if (at + kBlockBytes > column.text.bytes) {
      std::memcpy(copy, block, static_cast<size_t>(field.end - at));
      block = copy;
    }
    uint64_t found = places_of(block, separator);
    if (field.end - at < kBlockBytes) found &= (uint64_t{1} << (field.end - at)) - 1;
    for (; found != 0; found &= found - 1) {
      const uint32_t end = at + static_cast<uint32_t>(__builtin_ctzll(found));
      take(Field{begin, end});
      begin = end + 1;
    }
  }
  take(Field{begin, field.end});
}

// Reads the weight behind the last separator of a value, and leaves the value; false where there is none.
BAGPIPE_INLINE bool take_weight(const Column& column, char separator, Field& value, float& weight) {
  const char* text = column.text.text;
  uint32_t at = value.end;
  while (at > value.begin && text[at - 1] != separator) --at;
  double read;
  if (at == value.begin || !read_real(text + at, text + value.end, read)) return false;
  weight = static_cast<float>(read);
  value.end = at - 1;
  return std::isfinite(weight);
}

template <typename Values>
BAGPIPE_INLINE bool read_lists(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  const char separator = static_cast<char>(task.separator), of_weight = static_cast<char>(task.weights);
  int64_t count = task.count;
  bool is_good = true;
  for (int64_t row = first; row < last; ++row) {
    const Field field = column.field(row);
    if (field.length() != 0) {
      for_each_piece(column, field, separator, [&](Field value) __attribute__((always_inline)) {
        // There is room for so many values as a field can hold that are not empty: nothing is written behind an error.
        if (is_good && of_weight != 0) is_good = take_weight(column, of_weight, value, task.value_weights[count]);
        is_good = is_good && value.length() != 0 && values.add(column, value, count);
        ++count;
      });
    }
    task.list_ends[row] = static_cast<int32_t>(count);
  }
  task.count = count;
  return is_good;
}

template <typename Values>
BAGPIPE_INLINE bool read_some(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  return task.separator != 0 ? read_lists(column, first, last, values, task)
                             : read_single(column, first, last, values, task);
}

BAGPIPE_CLONES bool read_column(const Text& text, int64_t first, int64_t last, Task& task) {
  const Column column(text, task.number);
  switch (task.kind) {
    case kLabel:
      return read_labels(column, first, last, static_cast<uint8_t*>(task.values));
    case kInteger: {
      Integers values{static_cast<int64_t*>(task.values)};
      return read_some(column, first, last, values, task);
    }
    case kReal: {
      OptionalReals values{{static_cast<double*>(task.values)}};
      return read_some(column, first, last, values, task);
    }
    case kHex: {
      Hexes values{static_cast<uint32_t*>(task.values)};
      return read_some(column, first, last, values, task);
    }
    case kText: {
      OptionalTexts values{{static_cast<char*>(task.values), task.text_ends, task.bytes}};
      const bool is_good = read_some(column, first, last, values, task);
      task.bytes = values.bytes;
      return is_good;
    }
  }
  return false;
}

}  // namespace

// Where the fields of `text` are, or -1 where a line is no plain row; the number of rows. See Index for the arrays;
// `quoted`: whether a field may stand in quotes. `bytes` is below 2^32 - 64.
BAGPIPE_EXPORT int64_t index_fields(const char* text, int64_t bytes, int64_t fields, int64_t separator, int64_t quoted,
                                    int64_t most_rows, uint32_t* starts, uint32_t* ends) {
  Index index{text, fields, static_cast<char>(separator), most_rows, starts, ends};
  return (quoted != 0 ? index_quoted(index, bytes) : index_plain(index, bytes)) ? index.rows : -1;
}

// Characters of a column, quotes and words for missing values among them.
BAGPIPE_EXPORT int64_t field_bytes(const uint32_t* starts, const uint32_t* ends, int64_t fields, int64_t rows,
                                   int64_t number) {
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const uint32_t before = number == 0 ? starts[row] : ends[row * fields + number - 1];
    total += ends[row * fields + number] - (before + 1);
  }
  return total;
}

// Reads `rows` rows of columns into the arrays of their tasks; 0 where a field is not plain, else 1.
//
// `words` and their ends: texts that mean that a value is missing, none of them empty.
BAGPIPE_EXPORT int64_t read_columns(const char* text, int64_t bytes, const uint32_t* starts, const uint32_t* ends,
                                    int64_t fields, int64_t rows, int64_t quoted, const char* words,
                                    const int64_t* word_ends, int64_t word_count, Task* tasks, int64_t columns) {
  const Text source{text, bytes, starts, ends, fields, quoted != 0, {words, word_ends, word_count}};
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t last = first + kTileRows < rows ? first + kTileRows : rows;
    for (int64_t number = 0; number < columns; ++number) {
      if (!read_column(source, first, last, tasks[number])) return 0;
    }
  }
  return 1;
}

}  // namespace bagpipe
