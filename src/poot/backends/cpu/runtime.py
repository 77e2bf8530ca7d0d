"""What runs a launch list on all threads, in LLVM IR: one call a step, no Python inside.

A launch record has 128 bytes; a counter that threads take groups from has a cache line of its own.
Between launches that touch the same bytes the threads meet; they spin, then yield. Between calls
the workers spin for a while, then sleep.
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
#         48 i64 groups taken at a time, 64 i64 next group
# pool:   0 i64 threads, 8 records, 16 i64 count, 24 times, 64 i64 call, 128 i64 arrived,
#         192 i64 generation, 256 i64 sleepers, 264 i64 quits, 320 mutex, 448 condition
# worker: 0 pool, 8 i64 number, 16 workgroup memory
RECORD = {"fn": 0, "buffers": 8, "imms": 16, "grid": 24, "waits": 36, "groups": 40, "take": 48,
          "next": 64}  # fmt: skip
POOL = {
    "threads": 0, "records": 8, "count": 16, "times": 24, "call": 64, "arrived": 128,
    "generation": 192, "sleepers": 256, "quits": 264, "mutex": 320, "condition": 448,
}  # fmt: skip
WORKER = {"pool": 0, "number": 8, "shared": 16}


def runtime_text() -> str:
    """The module: `poot_call(worker 0)` runs the pool's list, `poot_worker(worker)` is a thread."""
    return _HEAD + _MEET + _LIST + _CALL + _WORKER


_HEAD = f"""
declare i32 @sched_yield()
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @clock_gettime(i32, ptr)

define internal void @spin() nounwind {{
  call void {_PAUSE}
  ret void
}}
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

# All threads of the pool meet.
_MEET = f"""
define internal void @meet(ptr %pool) nounwind {{
entry:
  %threads = load i64, ptr %pool
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %end, label %many
many:
  %arrived = getelementptr i8, ptr %pool, i64 {POOL["arrived"]}
  %generation = getelementptr i8, ptr %pool, i64 {POOL["generation"]}
  %mine = load atomic i64, ptr %generation acquire, align 8
  %before = atomicrmw add ptr %arrived, i64 1 acq_rel, align 8
  %count = add i64 %before, 1
  %last = icmp eq i64 %count, %threads
  br i1 %last, label %open, label %wait
open:
  store atomic i64 0, ptr %arrived monotonic, align 8
  %next = add i64 %mine, 1
  store atomic i64 %next, ptr %generation release, align 8
  br label %end
wait:
  %n = phi i64 [ 0, %many ], [ %n.next, %again ]
  %seen = load atomic i64, ptr %generation acquire, align 8
  %gone = icmp ne i64 %seen, %mine
  br i1 %gone, label %end, label %idle
idle:
  %hot = icmp ult i64 %n, {SPINS}
  br i1 %hot, label %pause, label %yield
pause:
  call void @spin()
  br label %again
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  %n.next = add i64 %n, 1
  br label %wait
end:
  ret void
}}
"""

# One thread's part of the list: takes groups of each launch until none is left.
_LIST = f"""
define internal void @list(ptr %worker) nounwind {{
entry:
  %pool = load ptr, ptr %worker
  %np = getelementptr i8, ptr %worker, i64 {WORKER["number"]}
  %number = load i64, ptr %np
  %sp = getelementptr i8, ptr %worker, i64 {WORKER["shared"]}
  %shared = load ptr, ptr %sp
  %rp = getelementptr i8, ptr %pool, i64 {POOL["records"]}
  %records = load ptr, ptr %rp
  %cp = getelementptr i8, ptr %pool, i64 {POOL["count"]}
  %count = load i64, ptr %cp
  %tp = getelementptr i8, ptr %pool, i64 {POOL["times"]}
  %times = load ptr, ptr %tp
  %timed = icmp ne ptr %times, null
  %first = icmp eq i64 %number, 0
  %clock = and i1 %timed, %first
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %at.next, %next ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %launch, label %end
launch:
  %offset = mul i64 %at, {RECORD_NBYTES}
  %record = getelementptr i8, ptr %records, i64 %offset
  %fn = load ptr, ptr %record
  %bp = getelementptr i8, ptr %record, i64 {RECORD["buffers"]}
  %buffers = load ptr, ptr %bp
  %ip = getelementptr i8, ptr %record, i64 {RECORD["imms"]}
  %imms = load ptr, ptr %ip
  %grid = getelementptr i8, ptr %record, i64 {RECORD["grid"]}
  %wp = getelementptr i8, ptr %record, i64 {RECORD["waits"]}
  %waits = load i32, ptr %wp
  %gp = getelementptr i8, ptr %record, i64 {RECORD["groups"]}
  %groups = load i64, ptr %gp
  %kp = getelementptr i8, ptr %record, i64 {RECORD["take"]}
  %take = load i64, ptr %kp
  %counter = getelementptr i8, ptr %record, i64 {RECORD["next"]}
  %asked = icmp ne i32 %waits, 0
  %must = or i1 %asked, %timed
  br i1 %must, label %wait, label %ready
wait:
  call void @meet(ptr %pool)
  br label %ready
ready:
  br i1 %clock, label %start, label %grab
start:
  %t0 = call double @now()
  %slot = getelementptr double, ptr %times, i64 %at
  store double %t0, ptr %slot
  br label %grab
grab:
  %from = atomicrmw add ptr %counter, i64 %take monotonic, align 8
  %some = icmp ult i64 %from, %groups
  br i1 %some, label %run, label %next
run:
  %to.raw = add i64 %from, %take
  %over = icmp ugt i64 %to.raw, %groups
  %to = select i1 %over, i64 %groups, i64 %to.raw
  call void %fn(ptr %buffers, ptr %imms, ptr %grid, i64 %from, i64 %to, ptr %shared)
  br label %grab
next:
  %at.next = add i64 %at, 1
  br label %head
end:
  call void @meet(ptr %pool)
  br i1 %clock, label %stop, label %out
stop:
  %t1 = call double @now()
  %final = getelementptr double, ptr %times, i64 %count
  store double %t1, ptr %final
  br label %out
out:
  ret void
}}
"""

# The calling thread is worker 0: it puts the counters back, wakes the others and takes part.
_CALL = f"""
define void @poot_call(ptr %worker) nounwind {{
entry:
  %pool = load ptr, ptr %worker
  %rp = getelementptr i8, ptr %pool, i64 {POOL["records"]}
  %records = load ptr, ptr %rp
  %cp = getelementptr i8, ptr %pool, i64 {POOL["count"]}
  %count = load i64, ptr %cp
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %at.next, %zero ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %zero, label %wake
zero:
  %offset = mul i64 %at, {RECORD_NBYTES}
  %record = getelementptr i8, ptr %records, i64 %offset
  %next = getelementptr i8, ptr %record, i64 {RECORD["next"]}
  store atomic i64 0, ptr %next monotonic, align 8
  %at.next = add i64 %at, 1
  br label %head
wake:
  %threads = load i64, ptr %pool
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %go, label %others
others:
  %call = getelementptr i8, ptr %pool, i64 {POOL["call"]}
  %mutex = getelementptr i8, ptr %pool, i64 {POOL["mutex"]}
  %cond = getelementptr i8, ptr %pool, i64 {POOL["condition"]}
  %sl = getelementptr i8, ptr %pool, i64 {POOL["sleepers"]}
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %was = atomicrmw add ptr %call, i64 1 release, align 8
  %asleep = load i64, ptr %sl
  %some = icmp ne i64 %asleep, 0
  br i1 %some, label %ring, label %unlock
ring:
  %b = call i32 @pthread_cond_broadcast(ptr %cond)
  br label %unlock
unlock:
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %go
go:
  call void @list(ptr %worker)
  ret void
}}
"""

_WORKER = f"""
define ptr @poot_worker(ptr %worker) nounwind {{
entry:
  %pool = load ptr, ptr %worker
  %call = getelementptr i8, ptr %pool, i64 {POOL["call"]}
  %mutex = getelementptr i8, ptr %pool, i64 {POOL["mutex"]}
  %cond = getelementptr i8, ptr %pool, i64 {POOL["condition"]}
  %sl = getelementptr i8, ptr %pool, i64 {POOL["sleepers"]}
  %qp = getelementptr i8, ptr %pool, i64 {POOL["quits"]}
  br label %rest
rest:
  %done = phi i64 [ 0, %entry ], [ %done.next, %work ]
  br label %watch
watch:
  %n = phi i64 [ 0, %rest ], [ %n.next, %pause ]
  %now = load atomic i64, ptr %call acquire, align 8
  %called = icmp ne i64 %now, %done
  br i1 %called, label %check, label %idle
idle:
  %hot = icmp ult i64 %n, {REST_SPINS}
  br i1 %hot, label %pause, label %sleep
pause:
  call void @spin()
  %n.next = add i64 %n, 1
  br label %watch
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %s0 = load i64, ptr %sl
  %s1 = add i64 %s0, 1
  store i64 %s1, ptr %sl
  br label %asleep
asleep:
  %again = load atomic i64, ptr %call acquire, align 8
  %up = icmp ne i64 %again, %done
  br i1 %up, label %rise, label %lie
lie:
  %w = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %asleep
rise:
  %s2 = load i64, ptr %sl
  %s3 = sub i64 %s2, 1
  store i64 %s3, ptr %sl
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %check
check:
  %quits = load atomic i64, ptr %qp acquire, align 8
  %leave = icmp ne i64 %quits, 0
  br i1 %leave, label %out, label %work
work:
  call void @list(ptr %worker)
  %done.next = add i64 %done, 1
  br label %rest
out:
  ret ptr null
}}
"""
