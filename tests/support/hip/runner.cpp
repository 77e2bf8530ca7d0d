// The fiber runner: runs a kernel's workgroups one after another, each lane a fiber of this thread.
//
// A lane runs until it meets others: at a barrier with all lanes of its group, at an exchange with
// those of its wave. Lanes that can't meet are an error that names both places. Workgroup memory is
// poison before each group. An access of a page that isn't there ends the launch and is reported.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "include/cpu/words.h"
#define poot_board() ((poot::board*)0)
extern "C" {
void poot_meet_wave(int line);
void poot_wrong(int what, int line);
unsigned poot_wave_lanes();
unsigned poot_wave_lane();
}
#include "include/cpu/waves.h"

extern "C" {
poot::index3 threadIdx, blockIdx, gridDim;
}

namespace {
const unsigned MOST_LANES = 1024;
const size_t STACK_NBYTES = 256 << 10;
const size_t GUARD_NBYTES = (size_t)256 << 20;
enum state { READY, AT_GROUP, AT_WAVE, DONE };

struct fiber {
  void* stack_pointer;
  char* stack;
  state at;
  int line;
  unsigned meetings;
};

// What a launch says of itself, read by the caller.
struct report {
  int what;
  unsigned group[3];
  unsigned lane, other;
  int line, other_line;
  uint64_t address;
};

typedef void (*call_t)(void** args);

struct launch {
  call_t call;
  void** args;
  unsigned lanes, wave;
};

fiber fibers[MOST_LANES];
poot::board boards[MOST_LANES / 32][2];
launch now;
report said;
unsigned own;
void* outside;
sigjmp_buf escape;
bool is_running;

extern "C" void poot_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl poot_switch
.type poot_switch, @function
poot_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl poot_switch
.type poot_switch, %function
poot_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "the fiber runner switches lanes on x86-64 and aarch64"
#endif

[[noreturn]] void leave(int what, unsigned lane, unsigned other) {
  said.what = what;
  said.lane = lane;
  said.other = other;
  said.line = fibers[lane].line;
  said.other_line = fibers[other].line;
  siglongjmp(escape, 1);
}

void wait_as(state at, int line) {
  fiber& me = fibers[own];
  me.at = at;
  me.line = line;
  poot_switch(&me.stack_pointer, outside);
}

void start() {
  now.call(now.args);
  wait_as(DONE, 0);
  abort();  // a lane that is done is never resumed
}

// A fresh stack whose first switch returns into `start`.
void prepare(fiber& lane) {
  if (!lane.stack) {
    void* got = mmap(0, STACK_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) abort();
    mprotect(got, 4096, PROT_NONE);  // a lane that needs more stack is reported, not lost
    lane.stack = (char*)got;
  }
  uintptr_t top = ((uintptr_t)lane.stack + STACK_NBYTES) & ~(uintptr_t)15;
#if defined(__x86_64__)
  void** at = (void**)top;
  *--at = 0;
  *--at = (void*)start;
  for (int n = 0; n < 6; ++n) *--at = 0;
#else
  void** at = (void**)(top - 160);
  memset(at, 0, 160);
  at[11] = (void*)start;
#endif
  lane.stack_pointer = at;
  lane.at = READY;
  lane.line = 0;
  lane.meetings = 0;
}

void resume(unsigned lane) {
  own = lane;
  threadIdx = {lane, 0, 0};
  poot_switch(&outside, fibers[lane].stack_pointer);
}

// Runs a wave until it is at a barrier or done; a lane that differs from the first is an error.
void run_wave(unsigned first, unsigned stop, bool backward) {
  while (true) {
    for (unsigned n = first; n < stop; ++n) {
      const unsigned lane = backward ? first + stop - 1 - n : n;
      if (fibers[lane].at == READY) resume(lane);
    }
    const fiber& leader = fibers[first];
    for (unsigned lane = first + 1; lane < stop; ++lane) {
      const fiber& other = fibers[lane];
      const bool meets = leader.at == AT_WAVE || other.at == AT_WAVE;
      if (meets && (other.at != leader.at || other.line != leader.line)) {
        leave(poot::DIVERGENT_WAVE, first, lane);
      }
    }
    if (leader.at != AT_WAVE) return;
    for (unsigned lane = first; lane < stop; ++lane) fibers[lane].at = READY;
  }
}

void run_group(bool backward) {
  const unsigned waves = (now.lanes + now.wave - 1) / now.wave;
  for (unsigned lane = 0; lane < now.lanes; ++lane) prepare(fibers[lane]);
  while (true) {
    for (unsigned n = 0; n < waves; ++n) {
      const unsigned first = (backward ? waves - 1 - n : n) * now.wave;
      const unsigned stop = first + now.wave < now.lanes ? first + now.wave : now.lanes;
      run_wave(first, stop, backward);
    }
    for (unsigned lane = 1; lane < now.lanes; ++lane) {
      if (fibers[lane].at != fibers[0].at || fibers[lane].line != fibers[0].line) {
        leave(poot::DIVERGENT_BARRIER, 0, lane);
      }
    }
    if (fibers[0].at == DONE) return;
    for (unsigned lane = 0; lane < now.lanes; ++lane) fibers[lane].at = READY;
  }
}

// Lanes that never meet need no fibers.
void run_alone(bool backward) {
  for (unsigned n = 0; n < now.lanes; ++n) {
    own = backward ? now.lanes - 1 - n : n;
    threadIdx = {own, 0, 0};
    now.call(now.args);
  }
}

void on_fault(int, siginfo_t* info, void*) {
  if (!is_running) abort();
  said.address = (uint64_t)info->si_addr;
  fibers[own].line = 0;
  leave(poot::BAD_ADDRESS, own, own);
}
}  // namespace

extern "C" {
void poot_meet_group(int line) { wait_as(AT_GROUP, line); }
void poot_meet_wave(int line) {
  ++fibers[own].meetings;
  wait_as(AT_WAVE, line);
}
void poot_wrong(int what, int line) {
  fibers[own].line = line;
  leave(what, own, own);
}
unsigned poot_wave_lanes() {
  const unsigned first = own / now.wave * now.wave;
  return first + now.wave < now.lanes ? now.wave : now.lanes - first;
}
unsigned poot_wave_lane() { return own % now.wave; }
void* poot_board_at() { return &boards[own / now.wave][fibers[own].meetings & 1]; }

// Runs a grid. `order` 0: lanes forward, 1: backward, 2: by turns of groups, the first forward, 3:
// the other way round in everything: groups from the last on, each with its lanes turned.
// `meets` is 0 where no lane waits for another. Returns the kind of error, 0 for none.
int poot_run(call_t call, void** args, const unsigned* grid, unsigned lanes, unsigned wave, int meets,
             int order, char* shared, char* shared_stop, report* out) {
  now = {call, args, lanes, wave};
  gridDim = {grid[0], grid[1], grid[2]};
  said = report();
  static char* alternate = (char*)malloc(64 << 10);
  stack_t old_stack, stack = {};
  stack.ss_sp = alternate;
  stack.ss_size = 64 << 10;
  sigaltstack(&stack, &old_stack);
  struct sigaction act = {}, old_segv, old_bus;
  act.sa_sigaction = on_fault;
  act.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &act, &old_segv);
  sigaction(SIGBUS, &act, &old_bus);
  is_running = true;
  if (!sigsetjmp(escape, 1)) {
    const uint64_t groups = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t n = 0; n < groups; ++n) {
      const uint64_t at = order == 3 ? groups - 1 - n : n;
      const uint64_t rows = at / grid[0];
      blockIdx = {(unsigned)(at % grid[0]), (unsigned)(rows % grid[1]), (unsigned)(rows / grid[1])};
      const bool backward = order < 2 ? order == 1 : (at + order) % 2 == 1;
      if (shared) memset(shared, 0xff, shared_stop - shared);
      if (meets) run_group(backward);
      else run_alone(backward);
    }
  }
  is_running = false;
  sigaction(SIGSEGV, &old_segv, 0);
  sigaction(SIGBUS, &old_bus, 0);
  sigaltstack(&old_stack, 0);
  said.group[0] = blockIdx.x;
  said.group[1] = blockIdx.y;
  said.group[2] = blockIdx.z;
  *out = said;
  return said.what;
}

// Memory with addresses on both sides that nobody may touch: `nbytes` from the result on, a multiple
// of 16, end where those begin. What lies before, up to a page, is poison, so that reads of it show
// and writes are found.
char* poot_guarded(size_t nbytes) {
  const size_t inside = (nbytes + 4095) / 4096 * 4096;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* got = (char*)mmap(0, inside + 2 * GUARD_NBYTES, PROT_NONE, flags, -1, 0);
  if (got == MAP_FAILED) return 0;
  if (mprotect(got + GUARD_NBYTES, inside, PROT_READ | PROT_WRITE)) return 0;
  memset(got + GUARD_NBYTES, 0xff, inside - nbytes);
  return got + GUARD_NBYTES + inside - nbytes;
}
void poot_unguard(char* at, size_t nbytes) {
  const size_t inside = (nbytes + 4095) / 4096 * 4096;
  munmap(at + nbytes - inside - GUARD_NBYTES, inside + 2 * GUARD_NBYTES);
}
// Bytes of the poison before `at` that something has written.
size_t poot_touched(const char* at, size_t nbytes) {
  const size_t before = (nbytes + 4095) / 4096 * 4096 - nbytes;
  size_t count = 0;
  for (size_t n = 1; n <= before; ++n) count += (unsigned char)at[-(ptrdiff_t)n] != 0xff;
  return count;
}
}
