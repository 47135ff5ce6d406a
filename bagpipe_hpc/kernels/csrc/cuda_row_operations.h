// The C interface of _cuda.so: row operations on one GPU, called from kernels/rows/cuda.py (`reference.py` beside it
// defines them), and what looks for numbers that are not finite (kernels/dense/finite_notes.py).
//
// Legend: R rows of a table, N rows of one call, M look-ups, U distinct rows, O outputs, D width of a row, W numbers
// of a record.
//
// All arrays but those of addresses, widths and counts are in the memory of GPU `device`, contiguous, row after row.
// Work is only put on `stream`. Every function but the last returns 0 or a cudaError_t. Slots, positions, starts and
// outputs are not checked: one outside its table is an access outside it. Slots of one call are distinct where rows are
// written.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "simd.h"

constexpr int kMostParts = 4;  // tables of one record, as `MOST_TABLES` of cuda_calls.py

// Side by side, rows of `parts` tables columns[i] [R, widths[i]]: slots [N] to records [N, W].
BAGPIPE_EXPORT int bagpipe_gather_records(int device, cudaStream_t stream, const float* const* columns,
                                          const int32_t* widths, int32_t parts, const int32_t* slots, int64_t rows,
                                          float* records);

// The inverse: records [N, W] to rows of the tables.
BAGPIPE_EXPORT int bagpipe_scatter_records(int device, cudaStream_t stream, float* const* columns,
                                           const int32_t* widths, int32_t parts, const int32_t* slots, int64_t rows,
                                           const float* records);

// table[slots[positions]]: table [R, D], slots [U], positions [M] to rows [M, D].
BAGPIPE_EXPORT int bagpipe_gather_look_ups(int device, cudaStream_t stream, const float* table, int32_t width,
                                           const int32_t* slots, const int32_t* positions, int64_t look_ups,
                                           float* rows);

// Sum u is 0 + gradients[order[starts[u]]] + ... + gradients[order[starts[u + 1] - 1]], from left to right:
// gradients [M, D], order [M], starts [U + 1] to sums [U, D].
BAGPIPE_EXPORT int bagpipe_sum_segments(int device, cudaStream_t stream, const float* gradients, int32_t width,
                                        const int64_t* order, const int32_t* starts, int64_t segments, float* sums);

// Output o is 0 + rows of look-ups starts[o] up to starts[o + 1], each times its scale, from left to right: row m is
// table[slots[positions[m]]]; table [R, D], slots [U], positions [M], scales [M] or null for 1, starts [O + 1] to
// pooled [O, D].
BAGPIPE_EXPORT int bagpipe_pool(int device, cudaStream_t stream, const float* table, int32_t width,
                                const int32_t* slots, const int32_t* positions, const float* scales,
                                const int32_t* starts, int64_t outputs, float* pooled);

// As bagpipe_sum_segments, where the gradient of look-up m is gradients[outputs[m]], times its scale: gradients [O, D],
// order [M], outputs [M], scales [M] or null for 1, starts [U + 1] to sums [U, D].
BAGPIPE_EXPORT int bagpipe_sum_pooled(int device, cudaStream_t stream, const float* gradients, int32_t width,
                                      const int64_t* order, const int32_t* outputs, const float* scales,
                                      const int32_t* starts, int64_t segments, float* sums);

// Updates in place: weights and other state [R, D], of row-wise ones the last table [R, 1], slots [N], gradients
// [N, D].
BAGPIPE_EXPORT int bagpipe_apply_sgd(int device, cudaStream_t stream, float* weights, int32_t width,
                                     const int32_t* slots, const float* gradients, int64_t rows, float lr);

BAGPIPE_EXPORT int bagpipe_apply_momentum(int device, cudaStream_t stream, float* weights, float* velocity,
                                          int32_t width, const int32_t* slots, const float* gradients, int64_t rows,
                                          float momentum, float lr);

BAGPIPE_EXPORT int bagpipe_apply_nesterov(int device, cudaStream_t stream, float* weights, float* velocity,
                                          int32_t width, const int32_t* slots, const float* gradients, int64_t rows,
                                          float momentum, float lr);

BAGPIPE_EXPORT int bagpipe_apply_rowwise_adagrad(int device, cudaStream_t stream, float* weights, float* accumulator,
                                                 int32_t width, const int32_t* slots, const float* gradients,
                                                 int64_t rows, float lr, float eps);

BAGPIPE_EXPORT int bagpipe_apply_adagrad(int device, cudaStream_t stream, float* weights, float* accumulator,
                                         int32_t width, const int32_t* slots, const float* gradients, int64_t rows,
                                         float lr, float eps);

// `step_size` and `root_scale` are the factors of rows/optimizers/adam.py.
BAGPIPE_EXPORT int bagpipe_apply_adam(int device, cudaStream_t stream, float* weights, float* first, float* second,
                                      int32_t width, const int32_t* slots, const float* gradients, int64_t rows,
                                      float beta1, float rest1, float beta2, float rest2, float eps, float step_size,
                                      float root_scale);

BAGPIPE_EXPORT int bagpipe_apply_rowwise_adam(int device, cudaStream_t stream, float* weights, float* first,
                                              float* second, int32_t width, const int32_t* slots,
                                              const float* gradients, int64_t rows, float beta1, float rest1,
                                              float beta2, float rest2, float eps, float step_size, float root_scale);

// `beta`, `threshold` and `least` are the bounds of rows/optimizers/ftrl.py.
BAGPIPE_EXPORT int bagpipe_apply_ftrl(int device, cudaStream_t stream, float* weights, float* squares, float* z,
                                      int32_t width, const int32_t* slots, const float* gradients, int64_t rows,
                                      float lr, float beta, float threshold, float least);

// Of the rows `slots` [N] of tables as in gather_records, whose numbers are finite or not: if `note` has no step yet,
// and a row is not finite, the note gets `step` and the first such row: numbers[slot], or the slot where `numbers` is
// null. `note` is four int64 on the GPU, at first 0, 0, -1, 0; one call at a time uses it. Where a record has more
// tables than one call takes, only the last call has `is_last`, and the note is of all of them.
BAGPIPE_EXPORT int bagpipe_note_rows(int device, cudaStream_t stream, const float* const* columns,
                                     const int32_t* widths, int32_t parts, const int32_t* slots, int64_t rows,
                                     const int64_t* numbers, int32_t is_last, int64_t step, void* note);

// Likewise of `count` tensors of so many numbers: the note gets the place of the first that is not finite.
BAGPIPE_EXPORT int bagpipe_note_tensors(int device, cudaStream_t stream, const float* const* tensors,
                                        const int64_t* numbers, int32_t count, int64_t step, void* note);

// What a returned number means, in English.
BAGPIPE_EXPORT const char* bagpipe_error_text(int code);
