/* The CPU: kernels in memory, workgroups spread over threads.
 *
 * All threads go through the list of launches together. Each takes workgroups of a launch until
 * none is left; before a launch that touches what earlier ones wrote they meet. Between steps they
 * spin for a while, then sleep. Which thread runs which workgroup changes no result. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { LINE = 64, SPINS = 1500, REST_SPINS = 8000, PARTS = 32, MOST_THREADS = 1024 };

typedef void kernel_function(void **buffers, const uint32_t *imms, const uint32_t *grid,
                             int64_t first, int64_t last, void *shared);

struct block {
    uint8_t *data;
    uint64_t nbytes;
};

typedef struct record {
    kernel_function *run;
    void **buffers;
    uint32_t *imms;
    uint32_t grid[3];
    bool waits;
    int64_t groups, taken_at_once;
    _Alignas(LINE) atomic_int_fast64_t next;
} record;

struct executable {
    record *records;
    int count;
    arena memory;
};

typedef struct cpu cpu;
typedef struct worker {
    cpu *pool;
    uint8_t *shared; /* one workgroup's memory */
    pthread_t thread;
} worker;

struct cpu {
    int threads, started;
    unsigned flags;
    worker *workers;
    size_t shared_nbytes;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    executable *list;
    bool quits;
    int sleepers;
    _Alignas(LINE) atomic_uint_fast64_t call;
    _Alignas(LINE) atomic_int arrived;
    _Alignas(LINE) atomic_uint_fast64_t generation;
};

typedef struct module {
    int count;
    code *codes;
    kernel_function **functions;
} module;

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool changes(atomic_uint_fast64_t *word, uint64_t old, int rounds) {
    for (int n = 0; n <= rounds; n++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
        pause_a_little();
    }
    return false;
}

static void meet(cpu *c) {
    uint64_t mine = atomic_load_explicit(&c->generation, memory_order_acquire);
    int before = atomic_fetch_add_explicit(&c->arrived, 1, memory_order_acq_rel);
    if (before + 1 == c->threads) {
        atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&c->generation, mine + 1, memory_order_release);
        return;
    }
    int rounds = SPINS;
    while (!changes(&c->generation, mine, rounds)) {
        sched_yield();
        rounds = 0;
    }
}

static void run_list(worker *w) {
    cpu *c = w->pool;
    executable *x = c->list;
    for (int n = 0; n < x->count; n++) {
        record *r = &x->records[n];
        if (r->waits) meet(c);
        for (;;) {
            int64_t first =
                atomic_fetch_add_explicit(&r->next, r->taken_at_once, memory_order_relaxed);
            if (first >= r->groups) break;
            int64_t last = first + r->taken_at_once;
            r->run(r->buffers, r->imms, r->grid, first, last < r->groups ? last : r->groups,
                   w->shared);
        }
    }
    meet(c);
}

static void *work(void *argument) {
    worker *w = argument;
    cpu *c = w->pool;
    uint64_t done = 0;
    for (;;) {
        if (!changes(&c->call, done, REST_SPINS)) {
            pthread_mutex_lock(&c->mutex);
            c->sleepers++;
            while (!changes(&c->call, done, 0)) pthread_cond_wait(&c->condition, &c->mutex);
            c->sleepers--;
            pthread_mutex_unlock(&c->mutex);
        }
        done++;
        if (c->quits) return NULL;
        run_list(w);
    }
}

static void wake(cpu *c) {
    pthread_mutex_lock(&c->mutex);
    atomic_fetch_add_explicit(&c->call, 1, memory_order_release);
    if (c->sleepers) pthread_cond_broadcast(&c->condition);
    pthread_mutex_unlock(&c->mutex);
}

static poot_status cpu_run(poot_device *d, executable *x, poot_error *error) {
    cpu *c = d->own;
    (void)error;
    for (int n = 0; n < x->count; n++)
        atomic_store_explicit(&x->records[n].next, 0, memory_order_relaxed);
    c->list = x;
    if (c->threads > 1) wake(c);
    run_list(&c->workers[0]);
    return POOT_OK;
}

/* Whether this processor has all of a level of the x86-64 psABI. */
static bool has_level(const char *cpu_name, size_t nbytes, bool *is_level) {
    static const char *const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    static const char *const added[3][7] = {
        {"sse4.2"},
        {"avx", "avx2", "fma", "f16c", "bmi", "bmi2"},
        {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    };
    *is_level = false;
    for (int level = 0; level < 3; level++) {
        if (strlen(levels[level]) != nbytes || memcmp(levels[level], cpu_name, nbytes)) continue;
        *is_level = true;
        for (int n = 0; n <= level; n++)
            for (int i = 0; added[n][i] != NULL; i++)
                if (!has_feature(added[n][i], strlen(added[n][i]))) return false;
        return true;
    }
    return false;
}

static poot_status cpu_check(poot_device *d, const needs *n, poot_error *error) {
    const cpu *c = d->own;
    if (strcmp(n->target, "llvm"))
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program needs a device that takes %s: the cpu takes llvm", n->target);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), there = page * (uint64_t)sysconf(_SC_PHYS_PAGES);
    if (n->memory_nbytes > there)
        return fail(error, POOT_ERROR_CAPABILITY, "the program needs %llu bytes of memory: there are "
                    "%llu", (unsigned long long)n->memory_nbytes, (unsigned long long)there);
    const char *at = n->arch;
    size_t length = strcspn(at, ",");
    bool is_level;
    bool has_all = has_level(at, length, &is_level) || !is_level;
    if (!is_level && !(c->flags & POOT_ANY_PROCESSOR))
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program is compiled for the processor %.*s, and this runtime can't tell "
                    "whether this one (%s) is; compile it for cpu-avx2, or open the device with "
                    "POOT_ANY_PROCESSOR", (int)length, at, d->name);
    for (at += length; *at == ','; at += length) {
        at++;
        length = strcspn(at, ",");
        if (*at == '+' && !has_feature(at + 1, length - 1)) has_all = false;
    }
    if (!has_all)
        return fail(error, POOT_ERROR_CAPABILITY, "the program needs %s: this processor (%s) lacks "
                    "some of it", n->arch, d->name);
    return POOT_OK;
}

static poot_status cpu_allocate(poot_device *d, uint64_t nbytes, const char *label, block **out,
                                poot_error *error) {
    (void)d;
    block *b = calloc(1, sizeof *b);
    void *data = NULL;
    if (b == NULL || nbytes > SIZE_MAX / 2 || posix_memalign(&data, LINE, PADDED(nbytes))) {
        free(b);
        return fail(error, POOT_ERROR_MEMORY, "%s asks %llu bytes: out of memory", label,
                    (unsigned long long)nbytes);
    }
    memset(data, 0, PADDED(nbytes));
    b->data = data;
    b->nbytes = nbytes;
    *out = b;
    return POOT_OK;
}

static void cpu_release(poot_device *d, block *b) {
    (void)d;
    if (b != NULL) free(b->data);
    free(b);
}

static poot_status cpu_write(poot_device *d, block *b, uint64_t at, const void *data, size_t nbytes,
                             poot_error *error) {
    (void)d, (void)error;
    memcpy(b->data + at, data, nbytes);
    return POOT_OK;
}

static poot_status cpu_read(poot_device *d, block *b, uint64_t at, void *data, size_t nbytes,
                            poot_error *error) {
    (void)d, (void)error;
    memcpy(data, b->data + at, nbytes);
    return POOT_OK;
}

static void cpu_unload(poot_device *d, void *loaded) {
    module *m = loaded;
    (void)d;
    if (m == NULL) return;
    for (int n = 0; n < m->count; n++) unmap_object(&m->codes[n]);
    free(m->codes);
    free(m->functions);
    free(m);
}

/* Workgroup memory of each thread, as much as any program loaded asks. */
static poot_status need_shared(cpu *c, size_t nbytes, poot_error *error) {
    if (nbytes <= c->shared_nbytes) return POOT_OK;
    for (int n = 0; n < c->threads; n++) {
        void *made = NULL;
        if (posix_memalign(&made, 4096, (nbytes + 4095) / 4096 * 4096))
            return fail(error, POOT_ERROR_MEMORY, "workgroup memory of %zu bytes: out of memory",
                        nbytes);
        memset(made, 0, nbytes);
        free(c->workers[n].shared);
        c->workers[n].shared = made;
    }
    c->shared_nbytes = nbytes;
    return POOT_OK;
}

static poot_status cpu_load(poot_device *d, const poot_program *p, void **out, poot_error *error) {
    module *m = calloc(1, sizeof *m);
    size_t count = (size_t)p->kernel_count, shared = 64;
    *out = NULL;
    if (m != NULL) {
        m->codes = calloc(count + 1, sizeof *m->codes);
        m->functions = calloc(count + 1, sizeof *m->functions);
    }
    poot_status status = POOT_OK;
    if (m == NULL || m->codes == NULL || m->functions == NULL)
        status = fail(error, POOT_ERROR_MEMORY, "%zu kernels: out of memory", count);
    for (int n = 0; n < p->kernel_count && status == POOT_OK; n++) {
        const kernel *k = &p->kernels[n];
        void *address;
        status = map_object(k->data, k->nbytes, k->symbol, &m->codes[n], &address, error);
        if (status != POOT_OK) break;
        m->count = n + 1;
        memcpy(&m->functions[n], &address, sizeof address); /* an object as a function: POSIX */
        if (k->shared_nbytes > shared) shared = k->shared_nbytes;
    }
    if (status == POOT_OK) status = need_shared(d->own, shared, error);
    if (status != POOT_OK) {
        cpu_unload(d, m);
        return status;
    }
    *out = m;
    return POOT_OK;
}

static poot_status cpu_prepare(poot_device *d, const poot_program *p, void *loaded, const entry *e,
                               block **blocks, executable **out, poot_error *error) {
    const cpu *c = d->own;
    const module *m = loaded;
    executable *x = calloc(1, sizeof *x);
    void *records = NULL;
    size_t nbytes = sizeof(record) * (size_t)(e->launch_count + 1);
    if (x == NULL || posix_memalign(&records, LINE, nbytes)) {
        free(x);
        return fail(error, POOT_ERROR_MEMORY, "%d launches: out of memory", e->launch_count);
    }
    memset(records, 0, nbytes);
    x->records = records;
    x->count = e->launch_count;
    for (int n = 0; n < e->launch_count; n++) {
        const launch *l = &e->launches[n];
        record *r = &x->records[n];
        const kernel *k = &p->kernels[l->kernel];
        r->run = m->functions[l->kernel];
        r->buffers = take(&x->memory, (size_t)k->params, sizeof *r->buffers);
        r->imms = l->imms;
        memcpy(r->grid, l->grid, sizeof r->grid);
        r->waits = l->waits;
        if (r->buffers == NULL) {
            arena_free(&x->memory);
            free(records);
            free(x);
            return fail(error, POOT_ERROR_MEMORY, "%d launches: out of memory", e->launch_count);
        }
        for (int i = 0; i < k->params; i++)
            r->buffers[i] = blocks[l->buffers[i].buffer]->data + l->buffers[i].offset;
        /* Each is below 2^31, and a grid of 2^62 groups would end with the sun. */
        double groups = (double)l->grid[0] * l->grid[1] * l->grid[2];
        r->groups = groups < 4e18 ? (int64_t)l->grid[0] * l->grid[1] * l->grid[2] : INT64_MAX / 2;
        r->taken_at_once = r->groups / ((int64_t)c->threads * PARTS);
        if (r->taken_at_once < 1) r->taken_at_once = 1;
    }
    *out = x;
    return POOT_OK;
}

static void cpu_drop(poot_device *d, executable *x) {
    (void)d;
    if (x == NULL) return;
    arena_free(&x->memory);
    free(x->records);
    free(x);
}

static void cpu_close(poot_device *d) {
    cpu *c = d->own;
    if (c->started > 0) {
        c->quits = true;
        wake(c);
    }
    for (int n = 1; n <= c->started; n++) pthread_join(c->workers[n].thread, NULL);
    for (int n = 0; n < c->threads; n++) free(c->workers[n].shared);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->condition);
    free(c->workers);
    free(c);
}

static const device_ops CPU = {cpu_check, cpu_allocate, cpu_release, cpu_write, cpu_read,
                               cpu_load,  cpu_unload,   cpu_prepare, cpu_run,   cpu_drop, NULL,
                               cpu_close};

static void name_cpu(char *out, size_t nbytes) {
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, nbytes, "cpu");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        if (at == NULL) continue;
        snprintf(out, nbytes, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
        break;
    }
    if (file != NULL) fclose(file);
}

poot_status poot_open_cpu(int threads, unsigned flags, poot_device **device, poot_error *error) {
    *device = NULL;
    if (threads == 0) {
        cpu_set_t set;
        threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    if (threads < 1 || threads > MOST_THREADS)
        return fail(error, POOT_ERROR_BIND, "%d threads: needs 1 to %d", threads, MOST_THREADS);
    poot_device *d = calloc(1, sizeof *d);
    void *pool = NULL;
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (d == NULL || workers == NULL || posix_memalign(&pool, LINE, sizeof(cpu))) {
        free(d);
        free(workers);
        return fail(error, POOT_ERROR_MEMORY, "%d threads: out of memory", threads);
    }
    memset(pool, 0, sizeof(cpu));
    cpu *c = pool;
    c->threads = threads;
    c->flags = flags;
    c->workers = workers;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->condition, NULL);
    for (int n = 0; n < threads; n++) workers[n].pool = c;
    d->ops = &CPU;
    d->own = c;
    name_cpu(d->name, sizeof d->name);
    for (int n = 1; n < threads; n++) {
        if (pthread_create(&workers[n].thread, NULL, work, &workers[n])) {
            cpu_close(d);
            free(d);
            return fail(error, POOT_ERROR_MEMORY, "thread %d can't be started", n);
        }
        c->started = n;
    }
    *device = d;
    return POOT_OK;
}
