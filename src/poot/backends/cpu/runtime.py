"""What runs a launch list on all threads, in LLVM IR: one call a step, no Python inside.

A launch record has 128 bytes; a counter that threads take groups from has a cache line of its own.
Before a launch that touches what earlier ones wrote, a thread waits until their groups are done: it
spins, then yields. Nobody waits for a thread that has taken no group, so a worker that wakes late,
or has no processor, costs nothing: it joins a list that is under way, or finds it closed. Between
calls the workers spin for a while, then sleep.
"""

from __future__ import annotations

import platform
import sys

RECORD_NBYTES = 128
POOL_NBYTES = 1024
WORKER_NBYTES = 64
# Rounds of spinning before a thread yields, and before a worker sleeps. A round is one `pause`:
# about 40 cycles on Zen 4 (AMD's optimisation guide), so the two are about 20 us and 100 us.
SPINS, REST_SPINS = 1500, 8000
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
_PAUSE = "@llvm.x86.sse2.pause()" if _IS_X86 else "@llvm.aarch64.hint(i32 1)"
CLOCK_MONOTONIC = 6 if sys.platform == "darwin" else 1

# record: 0 fn, 8 buffers, 16 immediates, 24 grid (3 x i32), 36 i32 waits, 40 i64 groups,
#         48 i64 groups taken at a time, 64 i64 next group, 72 i64 groups done
# pool:   0 i64 threads, 8 records, 16 i64 count, 24 times, 64 i64 call, 128 i64 workers at the
#         list, and OPEN while they may come to it, 256 i64 sleepers, 264 i64 quits, 320 mutex,
#         448 condition
# worker: 0 pool, 8 i64 number, 16 workgroup memory
RECORD = {"fn": 0, "buffers": 8, "imms": 16, "grid": 24, "waits": 36, "groups": 40, "take": 48,
          "next": 64, "finished": 72}  # fmt: skip
POOL = {
    "threads": 0, "records": 8, "count": 16, "times": 24, "call": 64, "inside": 128,
    "sleepers": 256, "quits": 264, "mutex": 320, "condition": 448,
}  # fmt: skip
OPEN = 1 << 32
WORKER = {"pool": 0, "number": 8, "shared": 16}


def runtime_text() -> str:
    """The module: `poot_call(worker 0)` runs the pool's list, `poot_worker(worker)` is a thread."""
    return _HEAD + _CHANGES + _BECOMES + _SETTLE + _LIST + _CALL + _WORKER


def _at(base: str, table: dict[str, int], *names: str) -> str:
    """Lines that make each field's address, under its name."""
    lines = [f"  %{n} = getelementptr i8, ptr %{base}, i64 {table[n]}" for n in names]
    return "\n".join(lines)


def _read(base: str, table: dict[str, int], **types: str) -> str:
    """Lines that load each field, under its name."""
    lines = [
        f"  %{n}.at = getelementptr i8, ptr %{base}, i64 {table[n]}\n"
        f"  %{n} = load {type}, ptr %{n}.at"
        for n, type in types.items()
    ]
    return "\n".join(lines)


def _each_record(then: str, carried: str = "") -> str:
    """From block `entry`: for each record, `then` with %record, which goes on to `onward`; after
    all, `end`. A value that is `carried` is 0 at first, then what `then` leaves in its `.next`."""
    held = (
        f"  %{carried} = phi i64 [ 0, %entry ], [ %{carried}.next, %onward ]\n" if carried else ""
    )
    return f"""head:
  %n = phi i64 [ 0, %entry ], [ %n.next, %onward ]
{held}  %is.more = icmp ult i64 %n, %count
  br i1 %is.more, label %one, label %end
one:
  %offset = mul i64 %n, {RECORD_NBYTES}
  %record = getelementptr i8, ptr %records, i64 %offset
{then}
onward:
  %n.next = add i64 %n, 1
  br label %head
"""


_HEAD = f"""
declare i32 @sched_yield()
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @clock_gettime(i32, ptr)
declare void {_PAUSE.replace("i32 1", "i32")}

define internal double @now() nounwind {{
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 {CLOCK_MONOTONIC}, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %sf = sitofp i64 %s to double
  %nf = sitofp i64 %n to double
  %su = fmul double %sf, 1.0e6
  %nu = fmul double %nf, 1.0e-3
  %us = fadd double %su, %nu
  ret double %us
}}
"""

# Whether a word is no longer `old`, at once or within so many rounds of spinning.
_CHANGES = f"""
define internal i1 @changes(ptr %word, i64 %old, i64 %rounds) nounwind {{
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %pause ]
  %seen = load atomic i64, ptr %word acquire, align 8
  %is.new = icmp ne i64 %seen, %old
  br i1 %is.new, label %end, label %wait
wait:
  %is.hot = icmp ult i64 %n, %rounds
  br i1 %is.hot, label %pause, label %end
pause:
  call void {_PAUSE}
  %n.next = add i64 %n, 1
  br label %look
end:
  ret i1 %is.new
}}
"""

# Returns when a word is `wanted`: spins for so many rounds, then yields between looks.
_BECOMES = f"""
define internal void @becomes(ptr %word, i64 %wanted) nounwind {{
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %pause ], [ %n, %yield ]
  %seen = load atomic i64, ptr %word acquire, align 8
  %is.there = icmp eq i64 %seen, %wanted
  br i1 %is.there, label %end, label %wait
wait:
  %is.hot = icmp ult i64 %n, {SPINS}
  br i1 %is.hot, label %pause, label %yield
pause:
  call void {_PAUSE}
  %n.next = add i64 %n, 1
  br label %look
yield:
  %y = call i32 @sched_yield()
  br label %look
end:
  ret void
}}
"""

# Every group of the records from `first` to before `stop` is done.
_SETTLE = f"""
define internal void @settle(ptr %records, i64 %first, i64 %stop) nounwind {{
entry:
  br label %head
head:
  %n = phi i64 [ %first, %entry ], [ %n.next, %one ]
  %is.more = icmp ult i64 %n, %stop
  br i1 %is.more, label %one, label %end
one:
  %offset = mul i64 %n, {RECORD_NBYTES}
  %record = getelementptr i8, ptr %records, i64 %offset
{_read("record", RECORD, groups="i64")}
{_at("record", RECORD, "finished")}
  call void @becomes(ptr %finished, i64 %groups)
  %n.next = add i64 %n, 1
  br label %head
end:
  ret void
}}
"""

# One thread's part of the list: takes groups of each launch until none is left, then says how many
# it did. %settled is the first record that isn't known to be done. Who takes a timed launch's first
# group writes its time: what ran before is done by then, and nothing after has begun.
_TAKE = f"""{_read("record", RECORD, fn="ptr", buffers="ptr", imms="ptr", waits="i32")}
{_read("record", RECORD, groups="i64", take="i64")}
{_at("record", RECORD, "grid", "next", "finished")}
  %must = icmp ne i32 %waits, 0
  %settles = or i1 %must, %is.timed
  br i1 %settles, label %settle, label %begin
settle:
  call void @settle(ptr %records, i64 %settled, i64 %n)
  br label %begin
begin:
  %settled.next = phi i64 [ %settled, %one ], [ %n, %settle ]
  br label %grab
grab:
  %mine = phi i64 [ 0, %begin ], [ %mine.next, %run ]
  %first = atomicrmw add ptr %next, i64 %take monotonic, align 8
  %is.first = icmp eq i64 %first, 0
  %stamps = and i1 %is.timed, %is.first
  br i1 %stamps, label %stamp, label %look
stamp:
  %slot = getelementptr double, ptr %times, i64 %n
  %us = call double @now()
  store double %us, ptr %slot
  br label %look
look:
  %is.some = icmp ult i64 %first, %groups
  br i1 %is.some, label %run, label %tell
run:
  %stop = add i64 %first, %take
  %is.over = icmp ugt i64 %stop, %groups
  %last = select i1 %is.over, i64 %groups, i64 %stop
  call void %fn(ptr %buffers, ptr %imms, ptr %grid, i64 %first, i64 %last, ptr %shared)
  %did = sub i64 %last, %first
  %mine.next = add i64 %mine, %did
  br label %grab
tell:
  %f = atomicrmw add ptr %finished, i64 %mine release, align 8
  br label %onward"""
_LIST = f"""
define internal void @list(ptr %worker) nounwind {{
entry:
{_read("worker", WORKER, pool="ptr", shared="ptr")}
{_read("pool", POOL, records="ptr", count="i64", times="ptr")}
  %is.timed = icmp ne ptr %times, null
  br label %head
{_each_record(_TAKE, "settled")}end:
  ret void
}}
"""

# The calling thread is worker 0: it puts the counters back, opens the list, wakes the others and
# takes part. It closes the list when no group is left, and waits for those who are still at one.
_RESET = f"""{_at("record", RECORD, "next", "finished")}
  store atomic i64 0, ptr %next monotonic, align 8
  store atomic i64 0, ptr %finished monotonic, align 8
  br label %onward"""
_CALL = f"""
define void @poot_call(ptr %worker) nounwind {{
entry:
{_read("worker", WORKER, pool="ptr")}
{_read("pool", POOL, threads="i64", records="ptr", count="i64", times="ptr")}
{_at("pool", POOL, "call", "inside", "mutex", "condition")}
  br label %head
{_each_record(_RESET)}end:
  %is.alone = icmp eq i64 %threads, 1
  br i1 %is.alone, label %go, label %wake
wake:
  store atomic i64 {OPEN}, ptr %inside release, align 8
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %was = atomicrmw add ptr %call, i64 1 release, align 8
{_read("pool", POOL, sleepers="i64")}
  %are.some = icmp ne i64 %sleepers, 0
  br i1 %are.some, label %ring, label %unlock
ring:
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  br label %unlock
unlock:
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %go
go:
  call void @list(ptr %worker)
  %open = atomicrmw and ptr %inside, i64 {OPEN - 1} acq_rel, align 8
  call void @becomes(ptr %inside, i64 0)
  %is.timed = icmp ne ptr %times, null
  br i1 %is.timed, label %stamp, label %done
stamp:
  %slot = getelementptr double, ptr %times, i64 %count
  %us = call double @now()
  store double %us, ptr %slot
  br label %done
done:
  ret void
}}
"""

_WORKER = f"""
define ptr @poot_worker(ptr %worker) nounwind {{
entry:
{_read("worker", WORKER, pool="ptr")}
{_at("pool", POOL, "call", "inside", "mutex", "condition", "sleepers", "quits")}
  br label %rest
rest:
  %done = phi i64 [ 0, %entry ], [ %called, %leave ], [ %called, %come ]
  %is.called = call i1 @changes(ptr %call, i64 %done, i64 {REST_SPINS})
  br i1 %is.called, label %check, label %sleep
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %awake = load i64, ptr %sleepers
  %lying = add i64 %awake, 1
  store i64 %lying, ptr %sleepers
  br label %asleep
asleep:
  %is.up = call i1 @changes(ptr %call, i64 %done, i64 0)
  br i1 %is.up, label %rise, label %lie
lie:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %asleep
rise:
  %all = load i64, ptr %sleepers
  %others = sub i64 %all, 1
  store i64 %others, ptr %sleepers
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %check
check:
  %asked = load atomic i64, ptr %quits acquire, align 8
  %leaves = icmp ne i64 %asked, 0
  br i1 %leaves, label %out, label %called.at
called.at:
  %called = load atomic i64, ptr %call acquire, align 8
  br label %come
come:
  %held = load atomic i64, ptr %inside acquire, align 8
  %is.open = icmp uge i64 %held, {OPEN}
  br i1 %is.open, label %join, label %rest
join:
  %more = add i64 %held, 1
  %pair = cmpxchg ptr %inside, i64 %held, i64 %more acq_rel acquire, align 8
  %is.in = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %is.in, label %work, label %come
work:
  call void @list(ptr %worker)
  br label %leave
leave:
  %after = atomicrmw sub ptr %inside, i64 1 release, align 8
  br label %rest
out:
  ret ptr null
}}
"""
