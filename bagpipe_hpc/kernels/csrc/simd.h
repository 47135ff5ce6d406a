// Compiles a function for several instruction sets and picks one when the library is loaded, so that one build runs on
// every node of a cluster at that node's speed. Results do not depend on the choice: see CXX_FLAGS in setup.py.
#pragma once

// Words are taken apart into bytes, and bytes into bits, the lowest first.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the native code is for little-endian processors");

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12  // picks by levels of x86-64
#define BAGPIPE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BAGPIPE_CLONES __attribute__((target_clones("avx2", "default")))
#endif
#else
#define BAGPIPE_CLONES
#endif

// What a cloned function calls is compiled for its instruction sets only where it is part of that function.
#if defined(__GNUC__)
#define BAGPIPE_INLINE inline __attribute__((always_inline))
#else
#define BAGPIPE_INLINE inline
#endif

#define BAGPIPE_EXPORT extern "C" __attribute__((visibility("default")))
