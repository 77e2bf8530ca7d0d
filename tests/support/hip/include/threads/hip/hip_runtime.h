// HIP's words for a build whose lanes are threads, so that a sanitizer sees what they do to each
// other: a barrier is a barrier of threads, and nothing else orders two lanes.
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cpu/words.h"

static thread_local poot::index3 threadIdx, blockIdx;
static poot::index3 gridDim;

namespace poot {
static unsigned lanes, wave;
// Two barriers by turns: a sanitizer takes a lane that leaves a barrier late to be after all who have
// come to it since, and would see no race with a lane that is at the same barrier's next meeting.
static pthread_barrier_t group_barriers[2], wave_barriers[32][2];
static thread_local unsigned meetings, group_meetings;

static inline void meet_group() { pthread_barrier_wait(&group_barriers[++group_meetings & 1]); }
}  // namespace poot

static inline void poot_meet_wave(int) {
  ++poot::meetings;
  pthread_barrier_wait(&poot::wave_barriers[threadIdx.x / poot::wave][poot::meetings & 1]);
}
static inline unsigned poot_wave_lanes() {
  const unsigned first = threadIdx.x / poot::wave * poot::wave;
  return first + poot::wave < poot::lanes ? poot::wave : poot::lanes - first;
}
static inline unsigned poot_wave_lane() { return threadIdx.x % poot::wave; }
static inline void poot_wrong(int what, int line) {
  fprintf(stderr, "error %d at line %d in lane %u\n", what, line, threadIdx.x);
  exit(4);
}
namespace poot {
struct board;
static board* own_board();
}  // namespace poot
#define poot_board() poot::own_board()

#include "../../cpu/waves.h"

namespace poot {
static board boards[32][2];
static board* own_board() { return &boards[threadIdx.x / wave][meetings & 1]; }

typedef void (*call_t)(void** args);
static call_t kernel_call;
static void** kernel_args;
static char *shared_start, *shared_stop;

// One lane's thread: every group in turn, workgroup memory as poison at each start.
static void* run_lane(void* number) {
  const unsigned lane = (unsigned)(uintptr_t)number;
  threadIdx = {lane, 0, 0};
  for (unsigned z = 0; z < gridDim.z; ++z) {
    for (unsigned y = 0; y < gridDim.y; ++y) {
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        if (lane == 0 && shared_start) memset(shared_start, 0xff, shared_stop - shared_start);
        meet_group();
        kernel_call(kernel_args);
        meet_group();
      }
    }
  }
  return 0;
}

static void run(call_t call, void** args, unsigned count, unsigned across, char* start, char* stop) {
  lanes = count;
  wave = across;
  kernel_call = call;
  kernel_args = args;
  shared_start = start;
  shared_stop = stop;
  for (int turn = 0; turn < 2; ++turn) pthread_barrier_init(&group_barriers[turn], 0, lanes);
  for (unsigned first = 0; first < lanes; first += wave) {
    threadIdx = {first, 0, 0};
    for (int turn = 0; turn < 2; ++turn) {
      pthread_barrier_init(&wave_barriers[first / wave][turn], 0, poot_wave_lanes());
    }
  }
  pthread_t* threads = new pthread_t[lanes];
  for (unsigned n = 0; n < lanes; ++n) {
    if (pthread_create(&threads[n], 0, run_lane, (void*)(uintptr_t)n)) exit(5);
  }
  for (unsigned n = 0; n < lanes; ++n) pthread_join(threads[n], 0);
  delete[] threads;
}

template <typename... A, size_t... I>
static inline void call(void (*kernel)(A...), void** args, integers<I...>) {
  kernel(*(A*)args[I]...);
}
template <typename... A>
static inline void call(void (*kernel)(A...), void** args) {
  call(kernel, args, typename count<sizeof...(A)>::type());
}
}  // namespace poot

static inline void __syncthreads() { poot::meet_group(); }

#define POOT_EXPORT(number, kernel) \
  static void poot_call_##number(void** args) { poot::call(&kernel, args); }
#define POOT_EXPORT_SHARED(number) \
  extern "C" char __start_poot_shared_##number[], __stop_poot_shared_##number[];
