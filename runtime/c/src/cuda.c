/* A CUDA device: libcuda.so.1, loaded at run time. Launch lists become graphs.
 *
 * The declarations are those of the CUDA Driver API (cuda.h), as far as they are used here. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef int result; /* CUresult; 0 is success */
typedef uint64_t pointer;
typedef struct opaque *handle;

typedef struct attribute { /* CUlaunchAttribute */
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int allowed;
    } value;
} attribute;

typedef struct config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_nbytes;
    handle stream;
    attribute *attributes;
    unsigned count;
} config;

enum {
    CLUSTER_DIMENSION = 4, PROGRAMMATIC_SERIALIZATION = 6,         /* CUlaunchAttributeID */
    THREADS = 1, GRID_X = 5, UNITS = 16, MAJOR = 75, MINOR = 76, SHARED_OPTIN = 97,
    DYNAMIC_SHARED = 8, NON_PORTABLE_CLUSTER = 13,                 /* CUfunction_attribute */
    CAPTURE_THREAD_LOCAL = 1, ERROR_MEMORY = 2, STATIC_NBYTES = 48 << 10, MAP_NBYTES = 128
};

/* The functions, by the names that the library has them under. */
#define CUDA_FUNCTIONS(F)                                                                          \
    F(init, "cuInit", (unsigned))                                                                  \
    F(device_get, "cuDeviceGet", (int *, int))                                                     \
    F(device_name, "cuDeviceGetName", (char *, int, int))                                          \
    F(device_memory, "cuDeviceTotalMem_v2", (size_t *, int))                                       \
    F(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                 \
    F(retain, "cuDevicePrimaryCtxRetain", (handle *, int))                                         \
    F(give_back, "cuDevicePrimaryCtxRelease_v2", (int))                                            \
    F(push, "cuCtxPushCurrent_v2", (handle))                                                       \
    F(pop, "cuCtxPopCurrent_v2", (handle *))                                                       \
    F(stream_create, "cuStreamCreate", (handle *, unsigned))                                       \
    F(stream_destroy, "cuStreamDestroy_v2", (handle))                                              \
    F(synchronize, "cuStreamSynchronize", (handle))                                                \
    F(mem_alloc, "cuMemAlloc_v2", (pointer *, size_t))                                             \
    F(mem_free, "cuMemFree_v2", (pointer))                                                         \
    F(fill, "cuMemsetD8Async", (pointer, unsigned char, size_t, handle))                           \
    F(copy_in, "cuMemcpyHtoDAsync_v2", (pointer, const void *, size_t, handle))                    \
    F(copy_out, "cuMemcpyDtoHAsync_v2", (void *, pointer, size_t, handle))                         \
    F(module_load, "cuModuleLoadData", (handle *, const void *))                                   \
    F(module_unload, "cuModuleUnload", (handle))                                                   \
    F(module_function, "cuModuleGetFunction", (handle *, handle, const char *))                    \
    F(function_set, "cuFuncSetAttribute", (handle, int, int))                                      \
    F(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor", (int *, handle, int, size_t))      \
    F(launch_kernel, "cuLaunchKernelEx", (const config *, handle, void **, void **))               \
    F(begin_capture, "cuStreamBeginCapture_v2", (handle, int))                                     \
    F(end_capture, "cuStreamEndCapture", (handle, handle *))                                       \
    F(instantiate, "cuGraphInstantiateWithFlags", (handle *, handle, unsigned long long))          \
    F(graph_launch, "cuGraphLaunch", (handle, handle))                                             \
    F(graph_destroy, "cuGraphDestroy", (handle))                                                   \
    F(exec_destroy, "cuGraphExecDestroy", (handle))                                                \
    F(error_name, "cuGetErrorName", (result, const char **))

typedef struct cuda {
    void *library;
    int device, major, minor, units, threads, shared_nbytes, grid[3];
    size_t memory_nbytes;
    handle context, stream;
    bool is_lost;
    /* There since CUDA 12; NULL before it. */
    result (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                     const uint32_t *, const uint32_t *, int, int, int, int);
#define DECLARE(name, symbol, arguments) result(*name) arguments;
    CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
} cuda;

struct block {
    pointer at;
    uint64_t nbytes;
};

typedef struct module {
    int count;
    handle *modules, *functions;
} module;

struct executable {
    handle graph, exec;
};

static poot_status told(cuda *c, result got, const char *what, poot_error *error) {
    /* The errors after which a context is of no more use: CUDA Driver API, CUresult. */
    static const int lost[] = {214, 700, 702, 709, 714, 715, 716, 717, 718, 719, 721};
    const char *name = NULL;
    if (got == 0) return POOT_OK;
    if (c->error_name(got, &name) || name == NULL) name = "an unknown error";
    for (size_t n = 0; n < sizeof lost / sizeof *lost; n++) c->is_lost |= got == lost[n];
    poot_status status = got == ERROR_MEMORY ? POOT_ERROR_MEMORY
                         : c->is_lost         ? POOT_ERROR_LOST
                                              : POOT_ERROR_LAUNCH;
    return fail(error, status, "%s: %s", what, name);
}

static poot_status enter(cuda *c, poot_error *error) {
    if (c->is_lost) return fail(error, POOT_ERROR_LOST, "the device is lost");
    return told(c, c->push(c->context), "the context", error);
}

static void leave(cuda *c) {
    handle old;
    c->pop(&old);
}

static poot_status cuda_check(poot_device *d, const needs *n, poot_error *error) {
    const cuda *c = d->own;
    if (strcmp(n->target, "ptx"))
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program needs a device that takes %s: %s takes ptx", n->target, d->name);
    char *rest = NULL;
    long asked = strncmp(n->arch, "sm_", 3) ? 0 : strtol(n->arch + 3, &rest, 10);
    int own = 10 * c->major + c->minor;
    bool is_letter = rest != NULL && *rest; /* sm_90a runs on its own kind alone */
    if (asked < 10 || asked > 1000 || (is_letter ? asked != own : asked > own))
        return fail(error, POOT_ERROR_CAPABILITY, "the program needs arch '%s': %s has 'sm_%d'",
                    n->arch, d->name, own);
    const struct {
        const char *what;
        uint64_t asked, most;
    } rows[] = {
        {"lanes", n->threads, (uint64_t)c->threads},
        {"bytes of workgroup memory", n->workgroup_nbytes, (uint64_t)c->shared_nbytes},
        {"bytes of device memory", n->memory_nbytes, c->memory_nbytes},
        {"groups on axis 0", n->grid[0], (uint64_t)c->grid[0]},
        {"groups on axis 1", n->grid[1], (uint64_t)c->grid[1]},
        {"groups on axis 2", n->grid[2], (uint64_t)c->grid[2]},
        {"lanes in a subgroup", n->subgroup, 32},
        {"tensor maps", n->flags & NEEDS_TENSOR_MAPS, c->major >= 9 && c->encode ? ~0u : 0},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        if (rows[row].asked > rows[row].most)
            return fail(error, POOT_ERROR_CAPABILITY, "the program needs %llu %s: %s has %llu",
                        (unsigned long long)rows[row].asked, rows[row].what, d->name,
                        (unsigned long long)rows[row].most);
    return POOT_OK;
}

static poot_status cuda_allocate(poot_device *d, uint64_t nbytes, const char *label, block **out,
                                 poot_error *error) {
    cuda *c = d->own;
    *out = NULL;
    block *b = calloc(1, sizeof *b);
    if (b == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    b->nbytes = PADDED(nbytes);
    poot_status status = enter(c, error);
    if (status == POOT_OK) {
        status = told(c, c->mem_alloc(&b->at, (size_t)b->nbytes), label, error);
        if (status == POOT_OK)
            status = told(c, c->fill(b->at, 0, (size_t)b->nbytes, c->stream), label, error);
        if (status != POOT_OK && b->at) c->mem_free(b->at);
        leave(c);
    }
    if (status != POOT_OK)
        free(b);
    else
        *out = b;
    return status;
}

static void cuda_release(poot_device *d, block *b) {
    cuda *c = d->own;
    if (b == NULL) return;
    if (enter(c, NULL) == POOT_OK) {
        c->synchronize(c->stream);
        c->mem_free(b->at);
        leave(c);
    }
    free(b);
}

static poot_status cuda_write(poot_device *d, block *b, uint64_t at, const void *data,
                              size_t nbytes, poot_error *error) {
    cuda *c = d->own;
    poot_status status = enter(c, error);
    if (status != POOT_OK) return status;
    status = told(c, c->copy_in(b->at + at, data, nbytes, c->stream), "a copy", error);
    if (status == POOT_OK) status = told(c, c->synchronize(c->stream), "a copy", error);
    leave(c);
    return status;
}

static poot_status cuda_read(poot_device *d, block *b, uint64_t at, void *data, size_t nbytes,
                             poot_error *error) {
    cuda *c = d->own;
    poot_status status = enter(c, error);
    if (status != POOT_OK) return status;
    status = told(c, c->copy_out(data, b->at + at, nbytes, c->stream), "a copy", error);
    if (status == POOT_OK) status = told(c, c->synchronize(c->stream), "a copy", error);
    leave(c);
    return status;
}

static void cuda_unload(poot_device *d, void *loaded) {
    cuda *c = d->own;
    module *m = loaded;
    if (m == NULL) return;
    if (m->count && enter(c, NULL) == POOT_OK) {
        for (int n = 0; n < m->count; n++) c->module_unload(m->modules[n]);
        leave(c);
    }
    free(m->modules);
    free(m->functions);
    free(m);
}

/* Workgroup memory that a launch has to ask for: all of it where it passes 48 KiB. */
static uint32_t dynamic_nbytes(const kernel *k) {
    return k->shared_nbytes > STATIC_NBYTES ? k->shared_nbytes : 0;
}

static poot_status load_kernel(cuda *c, const kernel *k, module *m, poot_error *error) {
    char *text = malloc(k->nbytes + 1); /* the driver reads up to a zero */
    if (text == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    memcpy(text, k->data, k->nbytes);
    text[k->nbytes] = 0;
    poot_status status = told(c, c->module_load(&m->modules[m->count], text), k->name, error);
    free(text);
    if (status != POOT_OK) return status;
    int n = m->count++;
    status = told(c, c->module_function(&m->functions[n], m->modules[n], k->name), k->name, error);
    if (status == POOT_OK && dynamic_nbytes(k))
        status = told(c, c->function_set(m->functions[n], DYNAMIC_SHARED, (int)dynamic_nbytes(k)),
                      k->name, error);
    return status;
}

static poot_status cuda_load(poot_device *d, const poot_program *p, void **out, poot_error *error) {
    cuda *c = d->own;
    module *m = calloc(1, sizeof *m);
    size_t count = (size_t)p->kernel_count + 1;
    *out = NULL;
    if (m != NULL) {
        m->modules = calloc(count, sizeof *m->modules);
        m->functions = calloc(count, sizeof *m->functions);
    }
    poot_status status = enter(c, error);
    if (status == POOT_OK) {
        if (m == NULL || m->modules == NULL || m->functions == NULL)
            status = fail(error, POOT_ERROR_MEMORY, "out of memory");
        for (int n = 0; n < p->kernel_count && status == POOT_OK; n++)
            status = load_kernel(c, &p->kernels[n], m, error);
        leave(c);
    }
    if (status != POOT_OK)
        cuda_unload(d, m);
    else
        *out = m;
    return status;
}

static poot_status encode_map(cuda *c, const blob_row *b, const map_view *v, pointer at, void *out,
                              poot_error *error) {
    static const struct {
        const char *name;
        int type; /* CUtensorMapDataType */
    } types[] = {{"u8", 0}, {"i8", 0}, {"f8e4m3", 0}, {"u32", 2}, {"i32", 3},
                 {"f16", 6}, {"f32", 7}, {"bf16", 9}};
    uint64_t strides[5] = {0};
    uint32_t ones[5] = {1, 1, 1, 1, 1};
    int kind = -1, swizzle = b->swizzle == 32 ? 1 : b->swizzle == 64 ? 2 : b->swizzle ? 3 : 0;
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        if (strcmp(types[n].name, b->dtype) == 0) kind = types[n].type;
    uint64_t last = 0;
    for (int n = 0; n < v->rank; n++) last += (v->dims[n] - 1) * v->strides[n];
    if (kind < 0 || c->encode == NULL || v->rank != b->rank || v->strides[0] != 1 ||
        last >= v->at.nbytes / b->each)
        return fail(error, POOT_ERROR_FORMAT, "a tensor map of %s leaves its buffer", b->dtype);
    for (int n = 1; n < v->rank; n++) strides[n - 1] = v->strides[n] * b->each;
    return told(c, c->encode(out, kind, (uint32_t)v->rank, (void *)(uintptr_t)at, v->dims, strides,
                             b->box, ones, 0, swizzle, 2, 0),
                "a tensor map", error);
}

static poot_status launch_one(cuda *c, const poot_program *p, const module *m, const launch *l,
                              block **blocks, poot_error *error) {
    const kernel *k = &p->kernels[l->kernel];
    size_t count = (size_t)(k->params + k->imms + k->blobs);
    arena memory = {NULL};
    void **arguments = take(&memory, count + 1, sizeof *arguments);
    pointer *pointers = take(&memory, (size_t)k->params, sizeof *pointers);
    uint8_t *maps = take(&memory, (size_t)k->blobs + 1, MAP_NBYTES);
    poot_status status = POOT_OK;
    if (arguments == NULL || pointers == NULL || maps == NULL)
        status = fail(error, POOT_ERROR_MEMORY, "out of memory");
    int at = 0;
    for (int n = 0; n < k->params && status == POOT_OK; n++) {
        pointers[n] = blocks[l->buffers[n].buffer]->at + l->buffers[n].offset;
        arguments[at++] = &pointers[n];
    }
    for (int n = 0; n < k->imms && status == POOT_OK; n++) arguments[at++] = &l->imms[n];
    for (int n = 0; n < k->blobs && status == POOT_OK; n++) {
        uint8_t *map = maps + (64 - (uintptr_t)maps % 64) % 64 + (size_t)n * MAP_NBYTES;
        const map_view *v = &l->maps[n];
        status = encode_map(c, &k->blob[n], v, blocks[v->at.buffer]->at + v->at.offset, map, error);
        arguments[at++] = map;
    }
    attribute attributes[2] = {{0}};
    config asked = {{l->grid[0], l->grid[1], l->grid[2]}, {k->threads, 1, 1}, dynamic_nbytes(k),
                    c->stream, attributes, 0};
    if (l->overlap) {
        attributes[asked.count].id = PROGRAMMATIC_SERIALIZATION;
        attributes[asked.count++].value.allowed = 1;
    }
    unsigned groups = l->cluster[0] * l->cluster[1] * l->cluster[2];
    if (groups > 1) {
        attributes[asked.count].id = CLUSTER_DIMENSION;
        attributes[asked.count].value.cluster.x = l->cluster[0];
        attributes[asked.count].value.cluster.y = l->cluster[1];
        attributes[asked.count++].value.cluster.z = l->cluster[2];
    }
    handle function = m->functions[l->kernel];
    if (status == POOT_OK && groups > 8)
        status = told(c, c->function_set(function, NON_PORTABLE_CLUSTER, 1), k->name, error);
    if (status == POOT_OK)
        status = told(c, c->launch_kernel(&asked, function, arguments, NULL), k->name, error);
    arena_free(&memory);
    return status;
}

/* Groups that wait for one another have to be resident all at once. */
static poot_status check_resident(cuda *c, const poot_program *p, const module *m, const launch *l,
                                  poot_error *error) {
    const kernel *k = &p->kernels[l->kernel];
    int each = 0;
    poot_status status = told(c, c->occupancy(&each, m->functions[l->kernel], (int)k->threads,
                                              dynamic_nbytes(k)), k->name, error);
    double asked = (double)l->grid[0] * l->grid[1] * l->grid[2];
    if (status == POOT_OK && asked > (double)each * c->units)
        status = fail(error, POOT_ERROR_CAPABILITY,
                      "kernel %s asks %.0f groups that are resident all at once: the device holds "
                      "%d on each of its %d multiprocessors", k->name, asked, each, c->units);
    return status;
}

static poot_status cuda_prepare(poot_device *d, const poot_program *p, void *loaded, const entry *e,
                                block **blocks, executable **out, poot_error *error) {
    cuda *c = d->own;
    *out = NULL;
    executable *x = calloc(1, sizeof *x);
    if (x == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    poot_status status = enter(c, error);
    if (status != POOT_OK) {
        free(x);
        return status;
    }
    for (int n = 0; n < e->launch_count && status == POOT_OK; n++)
        if (e->launches[n].is_resident) status = check_resident(c, p, loaded, &e->launches[n], error);
    if (status == POOT_OK)
        status = told(c, c->begin_capture(c->stream, CAPTURE_THREAD_LOCAL), "recording", error);
    if (status == POOT_OK) {
        for (int n = 0; n < e->launch_count && status == POOT_OK; n++) {
            const launch *l = &e->launches[n];
            if (l->grid[0] && l->grid[1] && l->grid[2])
                status = launch_one(c, p, loaded, l, blocks, error);
        }
        result got = c->end_capture(c->stream, &x->graph);
        if (status == POOT_OK) status = told(c, got, "recording", error);
    }
    if (status == POOT_OK)
        status = told(c, c->instantiate(&x->exec, x->graph, 0), "recording", error);
    if (x->graph) c->graph_destroy(x->graph);
    leave(c);
    if (status != POOT_OK)
        free(x);
    else
        *out = x;
    return status;
}

static poot_status cuda_run(poot_device *d, executable *x, poot_error *error) {
    cuda *c = d->own;
    poot_status status = enter(c, error);
    if (status != POOT_OK) return status;
    status = told(c, c->graph_launch(x->exec, c->stream), "a step", error);
    if (status == POOT_OK) status = told(c, c->synchronize(c->stream), "a step", error);
    leave(c);
    return status;
}

static void cuda_drop(poot_device *d, executable *x) {
    cuda *c = d->own;
    if (x != NULL && enter(c, NULL) == POOT_OK) {
        c->exec_destroy(x->exec);
        leave(c);
    }
    free(x);
}

static void cuda_close(poot_device *d) {
    cuda *c = d->own;
    if (c->stream && enter(c, NULL) == POOT_OK) {
        c->stream_destroy(c->stream);
        leave(c);
    }
    if (c->context) c->give_back(c->device);
    if (c->library) dlclose(c->library);
    free(c);
}

static const device_ops CUDA = {cuda_check, cuda_allocate, cuda_release, cuda_write,
                                cuda_read,  cuda_load,     cuda_unload,  cuda_prepare,
                                cuda_run,   cuda_drop,     NULL,          cuda_close};

static poot_status open_cuda(cuda *c, int index, char *name, int nbytes, poot_error *error) {
    c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (c->library == NULL)
        return fail(error, POOT_ERROR_UNAVAILABLE, "libcuda.so.1 can't be loaded: install NVIDIA's "
                    "driver");
    void *found;
#define FIND(name, symbol, arguments)                                                              \
    found = dlsym(c->library, symbol);                                                             \
    if (found == NULL)                                                                             \
        return fail(error, POOT_ERROR_UNAVAILABLE, "libcuda.so.1 is older than CUDA 12: it has no " symbol); \
    memcpy(&c->name, &found, sizeof found);
    CUDA_FUNCTIONS(FIND)
#undef FIND
    found = dlsym(c->library, "cuTensorMapEncodeTiled");
    memcpy(&c->encode, &found, sizeof found);
    result got = c->init(0);
    if (got || c->device_get(&c->device, index))
        return fail(error, POOT_ERROR_UNAVAILABLE, "there is no cuda:%d", index);
    const struct {
        int which, *out;
    } rows[] = {{THREADS, &c->threads}, {GRID_X, &c->grid[0]}, {GRID_X + 1, &c->grid[1]},
                {GRID_X + 2, &c->grid[2]}, {UNITS, &c->units}, {MAJOR, &c->major},
                {MINOR, &c->minor}, {SHARED_OPTIN, &c->shared_nbytes}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows && !got; n++)
        got = c->device_attribute(rows[n].out, rows[n].which, c->device);
    if (!got) got = c->device_name(name, nbytes, c->device);
    if (!got) got = c->device_memory(&c->memory_nbytes, c->device);
    if (!got) got = c->retain(&c->context, c->device);
    poot_status status = told(c, got, "opening the device", error);
    if (status == POOT_OK) status = enter(c, error);
    if (status != POOT_OK) return status;
    status = told(c, c->stream_create(&c->stream, 1), "a stream", error); /* CU_STREAM_NON_BLOCKING */
    leave(c);
    return status;
}

poot_status poot_open_cuda(int index, poot_device **device, poot_error *error) {
    *device = NULL;
    poot_device *d = calloc(1, sizeof *d);
    cuda *c = calloc(1, sizeof *c);
    if (d == NULL || c == NULL) {
        free(d);
        free(c);
        return fail(error, POOT_ERROR_MEMORY, "out of memory");
    }
    d->ops = &CUDA;
    d->own = c;
    poot_status status = open_cuda(c, index, d->name, (int)sizeof d->name, error);
    if (status != POOT_OK) {
        cuda_close(d);
        free(d);
        return status;
    }
    *device = d;
    return POOT_OK;
}
