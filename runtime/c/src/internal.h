/* What the runtime's files share. */
#ifndef POOT_INTERNAL_H
#define POOT_INTERNAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../poot.h"
#include "names.h"

/* Errors: fills `error` and gives its status. */
poot_status fail(poot_error *error, poot_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory that goes all at once. NULL where there is no more. */
typedef struct arena {
    struct chunk *chunks;
} arena;
void *take(arena *a, size_t count, size_t each);
char *take_text(arena *a, const char *text, size_t nbytes);
void arena_free(arena *a);

/* JSON: integers, texts, booleans, null, lists and objects. */
typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_TEXT, JSON_LIST, JSON_OBJECT } json_kind;
typedef struct json {
    json_kind kind;
    int64_t number;      /* of an int or a bool; how many children of a list or an object */
    const char *text;    /* zero-terminated, without zeros in it */
    size_t nbytes;
    const char *key;     /* where it stands in an object */
    struct json *first, *next;
} json;
/* NULL and a format error where the bytes are none. `who` names them. */
json *json_parse(arena *a, const uint8_t *data, size_t nbytes, const char *who, poot_error *error);
const json *json_find(const json *object, const char *key); /* NULL where there is none */

/* A reader of fields that remembers the first that is wrong; what it gives then is 0 or "". */
typedef struct fields {
    const char *where;
    poot_error *error;
    bool failed;
} fields;
void refuse(fields *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t get_int(fields *f, const json *object, const char *key, int64_t least, int64_t most);
bool get_bool(fields *f, const json *object, const char *key);
const char *get_text(fields *f, const json *object, const char *key, size_t most);
const json *get_list(fields *f, const json *object, const char *key);
const json *get_object(fields *f, const json *object, const char *key);
bool is_null(const json *object, const char *key);

/* The zip. */
typedef struct member {
    const char *name;
    const uint8_t *data;
    size_t nbytes;
} member;
typedef struct archive {
    member *members;
    size_t count;
} archive;
poot_status unzip(arena *a, const uint8_t *data, size_t nbytes, archive *out, poot_error *error);
const member *find_member(const archive *a, const char *name);

/* A bundle. */
typedef struct buffer_row {
    const char *name;
    uint64_t nbytes;
    const uint8_t *image; /* of Consts */
} buffer_row;

typedef struct place {
    int buffer;
    uint64_t offset, nbytes;
} place;

typedef struct type {
    poot_dtype dtype;
    int rank;
    int64_t shape[POOT_MOST_RANK];
    uint64_t elems;
} type;

typedef struct map_view { /* a tensor for a kernel's tensor map */
    place at;
    int rank;
    uint64_t dims[5], strides[5]; /* in elements, innermost first */
} map_view;

typedef struct blob_row {
    uint32_t box[5];
    int rank, swizzle; /* 0, 32, 64 or 128 */
    const char *dtype;
    uint32_t each;     /* bytes of an element */
} blob_row;

typedef struct kernel {
    const char *name, *symbol;
    const uint8_t *data;
    size_t nbytes;
    uint32_t threads, subgroup, shared_nbytes; /* subgroup 0: any */
    int params, imms, blobs;
    uint64_t *touched;  /* bytes of each parameter */
    bool *writes;
    blob_row *blob;
} kernel;

typedef struct launch {
    int kernel;
    uint32_t grid[3];
    place *buffers;
    uint32_t *imms;
    map_view *maps;
    uint32_t cluster[3];
    bool waits, overlap, is_resident;
} launch;

typedef struct resident {
    const char *name;
    type type;
    place at;
    bool is_plain; /* lies as numpy has it */
} resident;

typedef struct input {
    poot_tensor seen;
    type type;
    int resident; /* of a State or a slot */
    bool is_map;  /* a write map */
} input;

typedef struct guard {
    const char *op, *loc, *needed;
    bool has_bounds, late;
    int64_t low, high;
    type witness;
    place record;
} guard;

typedef struct output {
    poot_tensor seen;
    type type;
    place at;
} output;

typedef struct entry {
    const char *name;
    launch *launches;
    input *inputs;
    output *outputs;
    guard *guards;
    int launch_count, input_count, output_count, guard_count;
    int word; /* the resident that says that the slots hold; -1 where there is none */
    uint64_t results_nbytes;
} entry;

enum {
    NEEDS_F16_STORAGE = 1, NEEDS_I64 = 2, NEEDS_MATRIX_UNITS = 4, NEEDS_ASYNC_COPY = 8,
    NEEDS_TENSOR_MAPS = 16, NEEDS_RESIDENTS = 32
};

typedef struct needs {
    const char *target, *arch;
    uint32_t subgroup, threads, workgroup_nbytes, storage_buffers;
    unsigned flags; /* NEEDS_... */
    uint64_t grid[3], binding_nbytes, buffer_nbytes, memory_nbytes, offset_align, loop_trips;
} needs;

struct poot_program {
    arena memory;
    uint8_t *file;
    const char *key;
    needs needs;
    buffer_row *buffers;
    kernel *kernels;
    resident *residents;
    entry *entries;
    int buffer_count, kernel_count, resident_count, entry_count;
    int results; /* the buffer of that name, or -1 */
};

poot_status parse_type(fields *f, const json *object, type *out);
void parse_place(fields *f, const poot_program *p, const json *object, uint64_t align, place *out);
poot_status parse_kernels(poot_program *p, const json *top, const archive *files, fields *f);
poot_status parse_entries(poot_program *p, const json *top, fields *f);
uint64_t device_nbytes(const type *t);  /* whole words, a bool one of them */
uint64_t host_nbytes(const type *t);
uint32_t dtype_nbytes(poot_dtype d);
int find_resident(const poot_program *p, const char *name);
int find_buffer(const poot_program *p, const char *name);

/* Of a slot's words before a step, and of the guards' records after it. */
/* `data` are elements first .. first + count - 1. */
poot_status check_slot(const input *i, const void *data, uint64_t first, uint64_t count,
                       poot_error *error);
poot_status check_records(const entry *e, const uint8_t *results, poot_error *error);

/* A device. Buffers are handles of its own; all calls are in order. */
typedef struct block block;
typedef struct executable executable;
typedef struct device_ops {
    poot_status (*check)(poot_device *d, const needs *n, poot_error *error);
    poot_status (*allocate)(poot_device *d, uint64_t nbytes, const char *label, block **out,
                            poot_error *error); /* zeroed */
    void (*release)(poot_device *d, block *b);
    poot_status (*write)(poot_device *d, block *b, uint64_t at, const void *data, size_t nbytes,
                         poot_error *error);
    poot_status (*read)(poot_device *d, block *b, uint64_t at, void *data, size_t nbytes,
                        poot_error *error);
    poot_status (*load)(poot_device *d, const poot_program *p, void **module, poot_error *error);
    void (*unload)(poot_device *d, void *module);
    poot_status (*prepare)(poot_device *d, const poot_program *p, void *module, const entry *e,
                           block **blocks, executable **out, poot_error *error);
    poot_status (*run)(poot_device *d, executable *x, poot_error *error); /* until it is done */
    void (*drop)(poot_device *d, executable *x);
    /* Into a command buffer of the caller's; NULL where there are none. */
    void (*encode)(poot_device *d, const poot_program *p, void *module, const entry *e,
                   executable *x, void *commands);
    void (*close)(poot_device *d);
} device_ops;

struct poot_device {
    const device_ops *ops;
    char name[256];
    void *own;
};

/* Object files of x86-64, mapped to be run. */
typedef struct code {
    void *memory;
    size_t nbytes;
} code;
poot_status map_object(const uint8_t *data, size_t nbytes, const char *symbol, code *out,
                       void **address, poot_error *error);
void unmap_object(code *c);

/* Whether this processor, and the system, have a feature by LLVM's name. */
bool has_feature(const char *name, size_t nbytes);

#define PADDED(n) ((n) <= 16 ? 16 : ((n) + 15) / 16 * 16)

#endif
