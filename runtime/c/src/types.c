/* Dtypes, types and places out of a manifest. */
#include <string.h>

#include "internal.h"

static const struct {
    const char *name;
    uint32_t nbytes; /* on a device */
} DTYPES[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f8e4m3", 1}, {"i32", 4},
              {"u32", 4}, {"i8", 1},  {"u8", 1},   {"bool", 4}};

uint32_t dtype_nbytes(poot_dtype d) { return DTYPES[d].nbytes; }

uint64_t device_nbytes(const type *t) {
    return (t->elems * DTYPES[t->dtype].nbytes + 3) / 4 * 4;
}

uint64_t host_nbytes(const type *t) {
    return t->elems * (t->dtype == POOT_BOOL ? 1 : DTYPES[t->dtype].nbytes);
}

poot_status parse_type(fields *f, const json *object, type *out) {
    const char *name = get_text(f, object, "dtype", 16);
    int dtype = 0, count = (int)(sizeof DTYPES / sizeof *DTYPES);
    while (dtype < count && strcmp(DTYPES[dtype].name, name)) dtype++;
    if (dtype == count) {
        refuse(f, "there is no dtype %s", name);
        dtype = 0;
    }
    const json *shape = get_list(f, object, "shape");
    memset(out, 0, sizeof *out);
    out->dtype = (poot_dtype)dtype;
    out->elems = 1;
    if (shape->number > POOT_MOST_RANK) {
        refuse(f, "shape has %lld axes", (long long)shape->number);
        return POOT_ERROR_FORMAT;
    }
    for (const json *axis = shape->first; axis != NULL; axis = axis->next) {
        if (axis->kind != JSON_INT || axis->number < 0) {
            refuse(f, "shape needs extents");
            return POOT_ERROR_FORMAT;
        }
        uint64_t extent = (uint64_t)axis->number;
        if (extent && out->elems > (UINT64_C(1) << 48) / extent) {
            refuse(f, "shape is too large");
            return POOT_ERROR_FORMAT;
        }
        out->shape[out->rank++] = axis->number;
        out->elems *= extent;
    }
    return POOT_OK;
}

int find_buffer(const poot_program *p, const char *name) {
    for (int n = 0; n < p->buffer_count; n++)
        if (strcmp(p->buffers[n].name, name) == 0) return n;
    return -1;
}

int find_resident(const poot_program *p, const char *name) {
    for (int n = 0; n < p->resident_count; n++)
        if (strcmp(p->residents[n].name, name) == 0) return n;
    return -1;
}

void parse_place(fields *f, const poot_program *p, const json *object, uint64_t align, place *out) {
    const char *name = get_text(f, object, "buffer", 64);
    uint64_t offset = (uint64_t)get_int(f, object, "offset", 0, INT64_MAX / 4);
    uint64_t nbytes = (uint64_t)get_int(f, object, "nbytes", 0, INT64_MAX / 4);
    memset(out, 0, sizeof *out);
    int buffer = find_buffer(p, name);
    if (buffer < 0) {
        refuse(f, "there is no buffer %.40s", name);
        return;
    }
    if (offset + nbytes > p->buffers[buffer].nbytes || offset % align || offset % 4) {
        refuse(f, "bytes [%llu, %llu) of %s, which has %llu: needs to lie inside, from a multiple of %llu",
               (unsigned long long)offset, (unsigned long long)(offset + nbytes), name,
               (unsigned long long)p->buffers[buffer].nbytes, (unsigned long long)align);
        return;
    }
    out->buffer = buffer;
    out->offset = offset;
    out->nbytes = nbytes;
}
