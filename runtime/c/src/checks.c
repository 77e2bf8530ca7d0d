/* What is checked of slots before a step, and of guards after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static int64_t word_at(poot_dtype dtype, const void *data, uint64_t n) {
    int32_t signed_word;
    uint32_t word;
    switch (dtype) {
    case POOT_I8: return ((const int8_t *)data)[n];
    case POOT_U8: return ((const uint8_t *)data)[n];
    case POOT_U32: memcpy(&word, (const uint8_t *)data + 4 * n, 4); return word;
    default: memcpy(&signed_word, (const uint8_t *)data + 4 * n, 4); return signed_word;
    }
}

/* "[1, 2]", an element's place in a shape. */
static void write_index(char *out, size_t nbytes, const type *t, uint64_t flat) {
    uint64_t index[POOT_MOST_RANK];
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        uint64_t extent = t->shape[axis] ? (uint64_t)t->shape[axis] : 1;
        index[axis] = flat % extent;
        flat /= extent;
    }
    size_t at = 0;
    out[at++] = '[';
    for (int axis = 0; axis < t->rank && at + 24 < nbytes; axis++)
        at += (size_t)snprintf(out + at, nbytes - at, "%s%llu", axis ? ", " : "",
                               (unsigned long long)index[axis]);
    snprintf(out + at, nbytes - at, "]");
}

static int by_value(const void *one, const void *other) {
    int32_t a, b;
    memcpy(&a, one, 4);
    memcpy(&b, other, 4);
    return (a > b) - (a < b);
}

static poot_status check_map(const input *i, const void *data, poot_error *error) {
    size_t count = (size_t)i->type.elems;
    int32_t *rows = malloc(4 * count + 4);
    if (rows == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    memcpy(rows, data, 4 * count);
    poot_status status = POOT_OK;
    for (size_t n = 0; n < count && status == POOT_OK; n++)
        if (rows[n] < -1)
            status = fail(error, POOT_ERROR_SLOT_MAP,
                          "a write map needs slots, or -1 for no write: rows[%zu]=%d", n, rows[n]);
    qsort(rows, count, 4, by_value);
    for (size_t n = 1; n < count && status == POOT_OK; n++)
        if (rows[n] >= 0 && rows[n] == rows[n - 1])
            status = fail(error, POOT_ERROR_SLOT_MAP,
                          "a write map needs each slot once: %d stands twice", rows[n]);
    free(rows);
    return status;
}

poot_status check_slot(const input *i, const void *data, uint64_t first, uint64_t count,
                       poot_error *error) {
    const poot_tensor *seen = &i->seen;
    for (uint64_t n = 0; seen->has_range && n < count; n++) {
        int64_t value = word_at(seen->dtype, data, n);
        if (value >= seen->low && value < seen->high) continue;
        char where[256];
        write_index(where, sizeof where, &i->type, first + n);
        fail(error, POOT_ERROR_RANGE, "slot '%s' needs values in %lld..%lld: %s is %lld",
             seen->name, (long long)seen->low, (long long)seen->high - 1, where, (long long)value);
        if (error != NULL) {
            error->index = (int64_t)(first + n);
            error->value = value;
            error->low = seen->low;
            error->high = seen->high;
            error->count = 1;
        }
        return POOT_ERROR_RANGE;
    }
    return i->is_map ? check_map(i, data, error) : POOT_OK;
}

static int32_t record_word(const guard *g, const uint8_t *results, int n) {
    int32_t word;
    memcpy(&word, results + g->record.offset + 4 * (size_t)n, 4);
    return word;
}

poot_status check_records(const entry *e, const uint8_t *results, poot_error *error) {
    const guard *first = NULL;
    int early = 0, all = 0;
    for (int n = 0; n < e->guard_count; n++) {
        if (record_word(&e->guards[n], results, 0) == 0) continue;
        all++;
        early += !e->guards[n].late;
    }
    if (all == 0) return POOT_OK;
    for (int n = 0; n < e->guard_count && first == NULL; n++)
        if (record_word(&e->guards[n], results, 0) && (!early || !e->guards[n].late))
            first = &e->guards[n];
    int others = (early ? early : all) - 1;
    int32_t count = record_word(first, results, 0), flat = record_word(first, results, 1);
    int32_t value = record_word(first, results, 2);
    char where[256], more[64] = "";
    write_index(where, sizeof where, &first->witness, (uint64_t)(flat < 0 ? 0 : flat));
    if (others) snprintf(more, sizeof more, " and %d more guard%s failed", others, others > 1 ? "s" : "");
    unsigned long long elems = first->witness.elems;
    static const char nothing[] = "nothing was published";
    if (first->has_bounds)
        fail(error, POOT_ERROR_VALIDATION, "index_guard needs %s: %s is %d; %d of %llu failed%s; %s",
             first->needed, where, value, count, elems, more, nothing);
    else
        fail(error, POOT_ERROR_VALIDATION,
             "validate needs every element of its witness (%s): %s is false; %d of %llu failed%s; %s",
             first->op, where, count, elems, more, nothing);
    if (error != NULL) {
        snprintf(error->where, sizeof error->where, "%s", first->loc);
        error->index = flat;
        error->value = value;
        error->low = first->low;
        error->high = first->high;
        error->count = count;
    }
    return POOT_ERROR_VALIDATION;
}
