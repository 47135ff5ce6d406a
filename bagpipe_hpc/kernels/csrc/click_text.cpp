// Reads blocks of Criteo's click text into columns: the fast path of data_prep/formats/criteo.py, which is its
// definition.
//
// It takes plain rows only: a label 0 or 1, integers of at most 18 digits, at most 8 hexadecimal digits, 40 fields a
// line, lines that end with LF, CRLF or CR. On anything else it gives up, and the definition reads the block.
//
// First pass: 64 bytes at a time, where are the separators? Second pass, column by column over 64 rows: with both ends
// of a field known, digits are read eight at a time without branches on their number. All loads stay within the text.
#include <cstdint>
#include <cstring>

#include "simd.h"
#include "text_words.h"

namespace {

using bagpipe::decimal_value;
using bagpipe::Faults;
using bagpipe::kNoNumber;
using bagpipe::kWordBytes;
using bagpipe::leading_digits;
using bagpipe::load;
using bagpipe::repeated;

constexpr int kIntegers = 13;
constexpr int kTables = 26;
constexpr int kFields = 1 + kIntegers + kTables;
constexpr int kTileRows = 64;    // as many as a word of validity bits holds
constexpr int kBlockBytes = 64;  // as many as a mask of separators has bits
// A block may end two rows (the shortest has 40 bytes) and begin a third.
constexpr int kMostEnds = (kTileRows + 2) * kFields + 2 * kBlockBytes;

// One bit for each byte of a word, out of the bytes' bits 4.
inline uint64_t gather_bits(uint64_t marked) { return ((marked >> 4) * 0x0102040810204080u) >> 56; }

struct Separators {
  uint64_t all = 0;    // bytes below 16: tabs, ends of line, and what no row holds
  uint64_t lines = 0;  // those of them that are no tabs
};

inline Separators find_separators(const char* block) {
  Separators found;
  for (int number = 0; number < kBlockBytes / kWordBytes; ++number) {
    const uint64_t word = load(block + number * kWordBytes);
    // The sums set a byte's bit 4 where its upper half, or its difference from a tab, is not zero.
    const uint64_t control = ~(((word >> 4) & repeated(0x0F)) + repeated(0x0F)) & repeated(0x10);
    const uint64_t other = (((word ^ repeated('\t')) & repeated(0x0F)) + repeated(0x0F)) & control;
    found.all |= gather_bits(control) << (number * kWordBytes);
    found.lines |= gather_bits(other) << (number * kWordBytes);
  }
  return found;
}

// The value of the last `length` <= 8 characters of a word.
inline uint32_t hex_value(uint64_t word, uint64_t length, Faults& faults) {
  const uint64_t others = 64 - 8 * length;
  const uint64_t text = (length == 0 ? 0 : (word ^ repeated('0')) >> others << others) ^ repeated('0');
  return bagpipe::hex_value(text, faults);
}

// max(x, 0) of an optional minus and 1 to 18 digits; true if the field is that.
inline bool read_integer(const char* at, const char* end, int64_t& count) {
  const bool negative = at != end && *at == '-';
  at += negative;
  if (at == end || end - at > 18) return false;
  count = 0;
  for (; at != end; ++at) {
    if (*at < '0' || *at > '9') return false;
    count = count * 10 + (*at - '0');
  }
  if (negative) count = 0;
  return true;
}

struct Columns {
  int64_t capacity;
  uint8_t* label;     // [capacity]
  float* dense;       // [capacity, 13]
  uint32_t* values;   // [26, capacity]
  uint64_t* present;  // [26, capacity / 64], a bit a row
  int64_t* missing;   // [26]
  const float* log_of_count;
  int64_t log_counts;
  int64_t* large_places;  // counts that log_of_count does not reach, and where in `dense` their logarithms go
  int64_t* large_counts;
  int64_t larges;
};

// Up to 64 rows: where each starts, and where each of their fields ends.
struct Tile {
  uint32_t starts[kTileRows + 3];
  uint32_t ends[kMostEnds];

  const uint32_t* fields(int row) const { return ends + row * kFields; }
};

inline bool read_labels(const char* text, const Tile& tile, int rows, int64_t first, Columns& columns) {
  bool good = true;
  for (int row = 0; row < rows; ++row) {
    const uint32_t start = tile.starts[row];
    const uint8_t label = static_cast<uint8_t>(text[start] - '0');
    good &= label <= 1 && tile.fields(row)[0] == start + 1;
    columns.label[first + row] = label;
  }
  return good;
}

BAGPIPE_CLONES bool read_dense(const char* text, const Tile& tile, int rows, int64_t first, int column,
                               Columns& columns) {
  uint64_t words[kTileRows], lengths[kTileRows];
  uint32_t numbers[kTileRows];
  for (int row = 0; row < rows; ++row) {
    const uint32_t* fields = tile.fields(row) + column;
    words[row] = load(text + fields[0] + 1);  // 25 tabs and more follow the field.
    lengths[row] = fields[1] - fields[0] - 1;
  }
  for (int row = 0; row < rows; ++row)
    numbers[row] = lengths[row] <= 8 ? decimal_value(leading_digits(words[row], lengths[row])) : kNoNumber;
  float* logs = columns.dense + first * kIntegers + column;
  for (int row = 0; row < rows; ++row) {
    if (numbers[row] < columns.log_counts) {
      logs[row * kIntegers] = columns.log_of_count[numbers[row]];
      continue;
    }
    const char* begin = text + tile.fields(row)[column] + 1;
    int64_t count;
    if (!read_integer(begin, begin + lengths[row], count)) return false;
    if (count < columns.log_counts) {
      logs[row * kIntegers] = columns.log_of_count[count];
    } else {
      columns.large_places[columns.larges] = (first + row) * kIntegers + column;
      columns.large_counts[columns.larges++] = count;
    }
  }
  return true;
}

BAGPIPE_CLONES bool read_values(const char* text, const Tile& tile, int rows, int64_t first, int table,
                                Columns& columns) {
  uint64_t words[kTileRows], lengths[kTileRows];
  uint64_t present = 0, longest = 0;
  for (int row = 0; row < rows; ++row) {
    const uint32_t* fields = tile.fields(row) + kIntegers + table;
    words[row] = load(text + fields[1] - kWordBytes);  // 15 characters and more precede the field.
    lengths[row] = fields[1] - fields[0] - 1;
    present |= static_cast<uint64_t>(lengths[row] != 0) << row;
  }
  uint32_t* values = columns.values + table * columns.capacity + first;
  Faults faults = 0;
  for (int row = 0; row < rows; ++row) {
    longest = lengths[row] > longest ? lengths[row] : longest;
    values[row] = hex_value(words[row], lengths[row] < 8 ? lengths[row] : 8, faults);
  }
  columns.present[(table * columns.capacity + first) / 64] = present;
  columns.missing[table] += rows - __builtin_popcountll(present);
  return longest <= 8 && (faults & bagpipe::kFaults) == 0;
}

bool read_tile(const char* text, const Tile& tile, int rows, int64_t first, Columns& columns) {
  bool good = read_labels(text, tile, rows, first, columns);
  for (int column = 0; good && column < kIntegers; ++column)
    good = read_dense(text, tile, rows, first, column, columns);
  for (int table = 0; good && table < kTables; ++table) good = read_values(text, tile, rows, first, table, columns);
  return good;
}

// Cuts text into lines and fields, and hands 64 rows at a time to read_tile.
struct Reader {
  const char* text;
  Columns& columns;
  Tile tile;
  int ends = 0;       // separators in tile.ends
  int tile_rows = 0;  // complete rows among them
  int64_t first = 0;  // rows before the tile's
  uint32_t line_start = 0;

  Reader(const char* text_, Columns& columns_) : text(text_), columns(columns_) { tile.starts[0] = 0; }

  // Takes in the 64 bytes at `block`, which follow `base` others; false if a line has another number of fields.
  inline bool add(const char* block, uint32_t base) {
    Separators found = find_separators(block);
    if (ends > kMostEnds - 2 * kBlockBytes) return false;  // far too many fields in a line
    for (; found.lines != 0; found.lines &= found.lines - 1) {
      const int bit = __builtin_ctzll(found.lines);
      const uint64_t here = uint64_t{1} << bit;
      const uint32_t at = base + static_cast<uint32_t>(bit);
      if (block[bit] != '\n' && block[bit] != '\r') return false;
      const int before = ends + __builtin_popcountll(found.all & (here - 1));
      if (before == (tile_rows + 1) * kFields - 1) {
        ++tile_rows;
      } else if (at == line_start) {
        found.all ^= here;  // an empty line, or the LF after a CR
      } else {
        return false;
      }
      line_start = tile.starts[tile_rows] = at + 1;
    }
    const int count = __builtin_popcountll(found.all);
    uint32_t* out = tile.ends + ends;
    // Eight at once, needed or not, cost less than a loop that ends after an unpredictable number.
    for (int done = 0; done < count; done += 8) {
      for (int number = 0; number < 8; ++number) {
        out[done + number] = base + static_cast<uint32_t>(found.all == 0 ? 0 : __builtin_ctzll(found.all));
        found.all &= found.all - 1;
      }
    }
    ends += count;
    return true;
  }

  // Reads the rows of a full tile, or with `last` those that there are.
  inline bool flush(bool last) {
    const int rows = tile_rows < kTileRows ? tile_rows : kTileRows;
    if (rows < kTileRows && !last) return true;
    if (first + rows > columns.capacity || !read_tile(text, tile, rows, first, columns)) return false;
    ends -= rows * kFields;
    std::memmove(tile.ends, tile.ends + rows * kFields, static_cast<size_t>(ends) * sizeof(uint32_t));
    std::memmove(tile.starts, tile.starts + rows, sizeof(uint32_t) * static_cast<size_t>(tile_rows - rows + 1));
    tile_rows -= rows;
    first += rows;
    return true;
  }
};

BAGPIPE_CLONES int64_t read_block(const char* text, int64_t bytes, Columns& columns) {
  Reader reader(text, columns);
  int64_t base = 0;
  for (; base + kBlockBytes <= bytes; base += kBlockBytes) {
    if (!reader.add(text + base, static_cast<uint32_t>(base)) || !reader.flush(false)) return -1;
  }
  char rest[kBlockBytes];
  std::memset(rest, ' ', sizeof rest);
  std::memcpy(rest, text + base, static_cast<size_t>(bytes - base));
  rest[bytes - base] = '\n';  // the end of a last line that lacks it, else an empty line
  if (!reader.add(rest, static_cast<uint32_t>(base))) return -1;
  while (reader.tile_rows > 0) {
    if (!reader.flush(true)) return -1;
  }
  return reader.ends == 0 ? reader.first : -1;
}

}  // namespace

// Rows of `text`, or -1 where a line is not a plain row. See Columns for the arrays; `larges` gets the number of large
// counts. `capacity` is a multiple of 64, `bytes` below 2^32.
BAGPIPE_EXPORT int64_t read_clicks(const char* text, int64_t bytes, int64_t capacity, uint8_t* label, float* dense,
                                   uint32_t* values, uint64_t* present, int64_t* missing, const float* log_of_count,
                                   int64_t log_counts, int64_t* large_places, int64_t* large_counts, int64_t* larges) {
  Columns columns{capacity,     label,      dense,        values,       present, missing,
                  log_of_count, log_counts, large_places, large_counts, 0};
  const int64_t rows = read_block(text, bytes, columns);
  *larges = columns.larges;
  return rows;
}
