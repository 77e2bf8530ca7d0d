// HIP's words for the fiber runner: each lane is a fiber of one thread, a barrier is a switch to the
// next lane. The state is the runner's (runner.cpp); a kernel is compiled apart from it.
#pragma once

#include "../../cpu/words.h"

extern "C" {
extern poot::index3 threadIdx, blockIdx, gridDim;
void poot_meet_group(int line);
void poot_meet_wave(int line);
void poot_wrong(int what, int line);
unsigned poot_wave_lanes();
unsigned poot_wave_lane();
void* poot_board_at();
}
#define poot_board() ((poot::board*)poot_board_at())

#include "../../cpu/waves.h"

static inline void __syncthreads(int line = __builtin_LINE()) { poot_meet_group(line); }

namespace poot {
// Calls a kernel with its arguments, each read through a pointer.
template <typename... A, size_t... I>
static inline void call(void (*kernel)(A...), void** args, integers<I...>) {
  kernel(*(A*)args[I]...);
}
template <typename... A>
static inline void call(void (*kernel)(A...), void** args) {
  call(kernel, args, typename count<sizeof...(A)>::type());
}

// Where the next argument lies in a packed buffer, each at its own alignment.
template <typename T>
static inline T* next(char*& at) {
  at = (char*)(((uintptr_t)at + alignof(T) - 1) & ~(uintptr_t)(alignof(T) - 1));
  T* here = (T*)at;
  at += sizeof(T);
  return here;
}
template <typename... A>
static inline void call_packed(void (*kernel)(A...), char* at) {
  void* args[] = {next<A>(at)..., nullptr};  // in order, as a braced list is evaluated
  call(kernel, args);
}
}  // namespace poot

// What the runner finds of a kernel in a library, by its number there.
#define POOT_EXPORT(number, kernel)                                                       \
  extern "C" void poot_call_##number(void** args) { poot::call(&kernel, args); }        \
  extern "C" void poot_packed_##number(void** args) {                                   \
    poot::call_packed(&kernel, (char*)args[0]);                                         \
  }
// The same for a kernel with workgroup memory: where its section starts and stops.
#define POOT_EXPORT_SHARED(number)                                                        \
  extern "C" char __start_poot_shared_##number[], __stop_poot_shared_##number[];          \
  extern "C" void poot_where_##number(char** start, char** stop) {                       \
    *start = __start_poot_shared_##number;                                                \
    *stop = __stop_poot_shared_##number;                                                  \
  }
