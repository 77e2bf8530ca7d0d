/* Sessions: memory on a device, and the steps that change it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct poot_session {
    poot_program *program;
    poot_device *device;
    void *module;
    block **blocks;       /* one a buffer */
    executable **ready;   /* one an entry point, once it is prepared */
    bool **given;         /* for each entry point, which inputs hold something */
    uint8_t *results;     /* of the last step, on the host */
    int last;             /* the last step's entry point, or -1 */
    bool is_broken;       /* a step stopped part-way */
};

const char *poot_device_name(const poot_device *device) { return device->name; }

void poot_device_close(poot_device *device) {
    if (device == NULL) return;
    device->ops->close(device);
    free(device);
}

void poot_session_close(poot_session *s) {
    if (s == NULL) return;
    poot_program *p = s->program;
    const device_ops *ops = s->device->ops;
    for (int n = 0; n < p->entry_count; n++) {
        if (s->ready != NULL && s->ready[n] != NULL) ops->drop(s->device, s->ready[n]);
        if (s->given != NULL) free(s->given[n]);
    }
    for (int n = 0; s->blocks != NULL && n < p->buffer_count; n++)
        if (s->blocks[n] != NULL) ops->release(s->device, s->blocks[n]);
    if (s->module != NULL) ops->unload(s->device, s->module);
    free(s->blocks);
    free(s->ready);
    free(s->given);
    free(s->results);
    free(s);
}

static bool is_kind(const char *buffer, const char *kind) {
    size_t nbytes = strlen(kind);
    return strncmp(buffer, kind, nbytes) == 0 && (buffer[nbytes] == 0 || buffer[nbytes] == '.');
}

static poot_status fill(poot_session *s, int buffer, poot_error *error) {
    const buffer_row *b = &s->program->buffers[buffer];
    const device_ops *ops = s->device->ops;
    size_t nbytes = (size_t)(b->nbytes + 3) / 4 * 4;
    if (b->image != NULL)
        return ops->write(s->device, s->blocks[buffer], 0, b->image, (size_t)b->nbytes, error);
    if (!is_kind(b->name, "rest")) return POOT_OK;
    uint8_t *ones = malloc(nbytes); /* scratch that is at rest is all ones between launches */
    if (ones == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    memset(ones, 0xff, nbytes);
    poot_status status = ops->write(s->device, s->blocks[buffer], 0, ones, nbytes, error);
    free(ones);
    return status;
}

/* The weights' file: safetensors, a tensor a resident, as it lies on the device. */
enum { MOST_HEADER = 64 << 20, BOUNCE = 1 << 20 };

static poot_status copy_tensor(poot_session *s, FILE *file, uint64_t at, const place *to,
                               uint8_t *bounce, poot_error *error) {
    poot_status status = POOT_OK;
    if (fseeko(file, (off_t)at, SEEK_SET)) status = POOT_ERROR_FORMAT;
    for (uint64_t done = 0; done < to->nbytes && status == POOT_OK; done += BOUNCE) {
        size_t part = to->nbytes - done < BOUNCE ? (size_t)(to->nbytes - done) : BOUNCE;
        if (fread(bounce, 1, part, file) != part)
            status = POOT_ERROR_FORMAT;
        else
            status = s->device->ops->write(s->device, s->blocks[to->buffer], to->offset + done,
                                           bounce, part, error);
    }
    if (status == POOT_ERROR_FORMAT) fail(error, status, "the weights: can't be read whole");
    return status;
}

static poot_status copy_weights(poot_session *s, FILE *file, uint64_t size, const json *head,
                                uint64_t start, uint8_t *bounce, poot_error *error) {
    const poot_program *p = s->program;
    fields f = {"the weights", error, false};
    const json *metadata = json_find(head, "__metadata__");
    const json *key = metadata == NULL ? NULL : json_find(metadata, "poot.program");
    if (key == NULL || key->kind != JSON_TEXT || strcmp(key->text, p->key))
        return fail(error, POOT_ERROR_BIND, "the weights are those of another program");
    for (int n = 0; n < p->resident_count; n++) {
        const resident *r = &p->residents[n];
        if (!is_kind(p->buffers[r->at.buffer].name, "weights") || r->at.nbytes == 0) continue;
        const json *tensor = get_object(&f, head, r->name);
        const json *offsets = get_list(&f, tensor, "data_offsets");
        const json *first = offsets->first, *last = first == NULL ? NULL : first->next;
        if (f.failed) return POOT_ERROR_FORMAT;
        bool is_right = last != NULL && first->kind == JSON_INT && last->kind == JSON_INT &&
                        first->number >= 0 && last->number >= first->number &&
                        (uint64_t)last->number <= size - start &&
                        (uint64_t)(last->number - first->number) == r->at.nbytes;
        if (!is_right)
            return fail(error, POOT_ERROR_FORMAT, "the weights: %.80s needs %llu bytes inside",
                        r->name, (unsigned long long)r->at.nbytes);
        poot_status status = copy_tensor(s, file, start + (uint64_t)first->number, &r->at,
                                         bounce, error);
        if (status != POOT_OK) return status;
    }
    return POOT_OK;
}

static poot_status read_weights(poot_session *s, const char *path, poot_error *error) {
    const poot_program *p = s->program;
    bool needs_some = false;
    for (int n = 0; n < p->resident_count; n++)
        needs_some |= is_kind(p->buffers[p->residents[n].at.buffer].name, "weights");
    if (!needs_some) return POOT_OK;
    if (path == NULL) return fail(error, POOT_ERROR_BIND, "the program needs its weights' file");
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fail(error, POOT_ERROR_FORMAT, "%s: can't be read", path);
    uint8_t raw[8];
    off_t size = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : 0;
    uint64_t length = 0;
    if (size >= 8 && fseeko(file, 0, SEEK_SET) == 0 && fread(raw, 1, 8, file) == 8)
        for (int n = 7; n >= 0; n--) length = length << 8 | raw[n];
    poot_status status = POOT_ERROR_FORMAT;
    arena memory = {NULL};
    uint8_t *text = NULL, *bounce = malloc(BOUNCE);
    if (bounce != NULL && size >= 8 && length <= MOST_HEADER && length <= (uint64_t)size - 8)
        text = malloc((size_t)length + 1);
    if (text == NULL || fread(text, 1, (size_t)length, file) != length) {
        fail(error, status, "%s: is no safetensors file", path);
    } else {
        const json *head = json_parse(&memory, text, (size_t)length, "the weights", error);
        if (head != NULL) status = copy_weights(s, file, (uint64_t)size, head, 8 + length, bounce, error);
    }
    free(text);
    free(bounce);
    arena_free(&memory);
    fclose(file);
    return status;
}

static poot_status open_session(poot_session *s, const char *weights, poot_error *error) {
    poot_program *p = s->program;
    const device_ops *ops = s->device->ops;
    poot_status status = ops->check(s->device, &p->needs, error);
    if (status != POOT_OK) return status;
    s->blocks = calloc((size_t)p->buffer_count + 1, sizeof *s->blocks);
    s->ready = calloc((size_t)p->entry_count, sizeof *s->ready);
    s->given = calloc((size_t)p->entry_count, sizeof *s->given);
    s->results = malloc(p->results < 0 ? 1 : (size_t)p->buffers[p->results].nbytes + 4);
    bool is_there = s->blocks && s->ready && s->given && s->results;
    for (int n = 0; n < p->entry_count && is_there; n++) {
        s->given[n] = calloc((size_t)p->entries[n].input_count + 1, sizeof **s->given);
        is_there = s->given[n] != NULL;
    }
    if (!is_there) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    for (int n = 0; n < p->buffer_count && status == POOT_OK; n++) {
        const buffer_row *b = &p->buffers[n];
        status = ops->allocate(s->device, b->nbytes, b->name, &s->blocks[n], error);
        if (status == POOT_OK) status = fill(s, n, error);
    }
    if (status == POOT_OK) status = ops->load(s->device, p, &s->module, error);
    for (int n = 0; n < p->entry_count && status == POOT_OK; n++) {
        static const uint32_t holds = 1;
        if (p->entries[n].word < 0) continue;
        const place *at = &p->residents[p->entries[n].word].at;
        status = ops->write(s->device, s->blocks[at->buffer], at->offset, &holds, 4, error);
    }
    return status == POOT_OK ? read_weights(s, weights, error) : status;
}

poot_status poot_bind(poot_program *program, poot_device *device, const char *weights,
                      poot_session **session, poot_error *error) {
    *session = NULL;
    poot_session *s = calloc(1, sizeof *s);
    if (s == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    s->program = program;
    s->device = device;
    s->last = -1;
    poot_status status = open_session(s, weights, error);
    if (status != POOT_OK) {
        poot_session_close(s);
        return status;
    }
    *session = s;
    return POOT_OK;
}

static const entry *entry_of(const poot_session *s, int n, poot_error *error) {
    if (n >= 0 && n < s->program->entry_count) return &s->program->entries[n];
    fail(error, POOT_ERROR_BIND, "there is no entry point %d; there are %d", n,
         s->program->entry_count);
    return NULL;
}

/* Writes an array as the device holds it. */
static poot_status put(poot_session *s, const type *t, const place *at, const void *data,
                       poot_error *error) {
    size_t nbytes = (size_t)device_nbytes(t), given = (size_t)host_nbytes(t);
    if (nbytes == 0) return POOT_OK;
    uint8_t *words = calloc(1, nbytes);
    if (words == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    if (t->dtype == POOT_BOOL)
        for (size_t n = 0; n < given; n++) words[4 * n] = ((const uint8_t *)data)[n] != 0;
    else
        memcpy(words, data, given);
    poot_status status =
        s->device->ops->write(s->device, s->blocks[at->buffer], at->offset, words, nbytes, error);
    free(words);
    return status;
}

static void unput(const type *t, const uint8_t *words, void *data) {
    size_t given = (size_t)host_nbytes(t);
    if (t->dtype == POOT_BOOL)
        for (size_t n = 0; n < given; n++) ((uint8_t *)data)[n] = words[4 * n] != 0;
    else if (given)
        memcpy(data, words, given);
}

/* A slot's number among the inputs; -1 where there is none. */
static int find_slot(const entry *e, const char *slot, poot_error *error) {
    for (int n = 0; n < e->input_count; n++)
        if (e->inputs[n].seen.storage == POOT_SLOT && strcmp(e->inputs[n].seen.name, slot) == 0)
            return n;
    fail(error, POOT_ERROR_BIND, "entry point '%s' has no slot %.100s", e->name, slot);
    return -1;
}

poot_status poot_set(poot_session *s, int at, const char *slot, const void *data, size_t nbytes,
                     poot_error *error) {
    const entry *e = entry_of(s, at, error);
    int n = e == NULL ? -1 : find_slot(e, slot, error);
    if (n < 0) return POOT_ERROR_BIND;
    const input *i = &e->inputs[n];
    if (nbytes != i->seen.nbytes)
        return fail(error, POOT_ERROR_BIND, "slot '%s' needs %zu bytes: got %zu", slot,
                    i->seen.nbytes, nbytes);
    poot_status status = check_slot(i, data, 0, i->type.elems, error);
    if (status == POOT_OK)
        status = put(s, &i->type, &s->program->residents[i->resident].at, data, error);
    if (status == POOT_OK) s->given[at][n] = true;
    return status;
}

poot_status poot_set_part(poot_session *s, int at, const char *slot, size_t first, size_t count,
                          const void *data, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    int n = e == NULL ? -1 : find_slot(e, slot, error);
    if (n < 0) return POOT_ERROR_BIND;
    const input *i = &e->inputs[n];
    size_t each = dtype_nbytes(i->type.dtype);
    if (!s->given[at][n])
        return fail(error, POOT_ERROR_BIND, "slot '%s' holds nothing yet; set it whole first", slot);
    if (i->is_map || i->type.dtype == POOT_BOOL || first > i->type.elems ||
        count > i->type.elems - first || first * each % 4 || count * each % 4)
        return fail(error, POOT_ERROR_BIND, "slot '%s' can't be set in part from %zu on for %zu",
                    slot, first, count);
    poot_status status = check_slot(i, data, first, count, error);
    place at_part = s->program->residents[i->resident].at;
    type part = {.dtype = i->type.dtype, .elems = count};
    at_part.offset += first * each;
    return status == POOT_OK ? put(s, &part, &at_part, data, error) : status;
}

poot_status poot_prepare(poot_session *s, int at, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    if (e == NULL) return POOT_ERROR_BIND;
    if (s->ready[at] != NULL) return POOT_OK;
    return s->device->ops->prepare(s->device, s->program, s->module, e, s->blocks, &s->ready[at],
                                   error);
}

static poot_status need_ready(poot_session *s, int at, const entry *e, poot_error *error) {
    if (s->is_broken)
        return fail(error, POOT_ERROR_LAUNCH, "a step stopped part-way: reset the States first");
    for (int n = 0; n < e->input_count; n++)
        if (e->inputs[n].seen.storage == POOT_SLOT && !s->given[at][n])
            return fail(error, POOT_ERROR_BIND, "entry point '%s' needs the slot %s", e->name,
                        e->inputs[n].seen.name);
    return poot_prepare(s, at, error);
}

poot_status poot_settle(poot_session *s, int at, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    if (e == NULL) return POOT_ERROR_BIND;
    poot_status status = POOT_OK;
    size_t nbytes = (size_t)(e->results_nbytes + 3) / 4 * 4;
    s->last = -1;
    if (nbytes)
        status = s->device->ops->read(s->device, s->blocks[s->program->results], 0, s->results,
                                      nbytes, error);
    if (status != POOT_OK) {
        s->is_broken = true;
        return status;
    }
    status = check_records(e, s->results, error);
    if (status == POOT_OK) s->last = at;
    return status;
}

poot_status poot_step(poot_session *s, int at, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    if (e == NULL) return POOT_ERROR_BIND;
    poot_status status = need_ready(s, at, e, error);
    if (status != POOT_OK) return status;
    s->last = -1;
    status = s->device->ops->run(s->device, s->ready[at], error);
    if (status == POOT_OK) return poot_settle(s, at, error);
    s->is_broken = true;
    return status;
}

poot_status poot_record_vulkan(poot_session *s, int at, void *commands, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    if (e == NULL) return POOT_ERROR_BIND;
    if (s->device->ops->encode == NULL || commands == NULL)
        return fail(error, POOT_ERROR_BIND, "needs a Vulkan device and a command buffer");
    poot_status status = need_ready(s, at, e, error);
    if (status == POOT_OK)
        s->device->ops->encode(s->device, s->program, s->module, e, s->ready[at], commands);
    return status;
}

poot_status poot_get(poot_session *s, int at, int n, void *data, size_t nbytes, poot_error *error) {
    const entry *e = entry_of(s, at, error);
    if (e == NULL) return POOT_ERROR_BIND;
    if (s->last != at || n < 0 || n >= e->output_count)
        return fail(error, POOT_ERROR_BIND, "entry point '%s' has no output %d, or wasn't the last "
                    "step", e->name, n);
    const output *o = &e->outputs[n];
    if (nbytes != o->seen.nbytes)
        return fail(error, POOT_ERROR_BIND, "output %d has %zu bytes: got room for %zu", n,
                    o->seen.nbytes, nbytes);
    unput(&o->type, s->results + o->at.offset, data);
    return POOT_OK;
}

static const input *state_of(const poot_session *s, const char *name, size_t nbytes,
                             poot_error *error) {
    for (int e = 0; e < s->program->entry_count; e++)
        for (int n = 0; n < s->program->entries[e].input_count; n++) {
            const input *i = &s->program->entries[e].inputs[n];
            if (i->seen.storage != POOT_STATE || strcmp(i->seen.name, name)) continue;
            if (nbytes == i->seen.nbytes) return i;
            fail(error, POOT_ERROR_BIND, "State '%s' has %zu bytes: got %zu", name, i->seen.nbytes,
                 nbytes);
            return NULL;
        }
    fail(error, POOT_ERROR_BIND, "there is no State %.100s", name);
    return NULL;
}

poot_status poot_read_state(poot_session *s, const char *name, void *data, size_t nbytes,
                            poot_error *error) {
    const input *i = state_of(s, name, nbytes, error);
    if (i == NULL) return POOT_ERROR_BIND;
    if (s->is_broken)
        return fail(error, POOT_ERROR_LAUNCH, "a step stopped part-way: reset the States first");
    const place *at = &s->program->residents[i->resident].at;
    uint8_t *words = malloc((size_t)at->nbytes + 1);
    if (words == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    poot_status status = POOT_OK;
    if (at->nbytes)
        status = s->device->ops->read(s->device, s->blocks[at->buffer], at->offset, words,
                                      (size_t)at->nbytes, error);
    if (status == POOT_OK) unput(&i->type, words, data);
    free(words);
    return status;
}

poot_status poot_write_state(poot_session *s, const char *name, const void *data, size_t nbytes,
                             poot_error *error) {
    const input *i = state_of(s, name, nbytes, error);
    if (i == NULL) return POOT_ERROR_BIND;
    return put(s, &i->type, &s->program->residents[i->resident].at, data, error);
}

poot_status poot_reset(poot_session *s, poot_error *error) {
    for (int n = 0; n < s->program->resident_count; n++) {
        const resident *r = &s->program->residents[n];
        if (!is_kind(s->program->buffers[r->at.buffer].name, "states") || !r->at.nbytes) continue;
        uint8_t *zeros = calloc(1, (size_t)r->at.nbytes);
        if (zeros == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
        poot_status status = s->device->ops->write(s->device, s->blocks[r->at.buffer], r->at.offset,
                                                   zeros, (size_t)r->at.nbytes, error);
        free(zeros);
        if (status != POOT_OK) return status;
    }
    s->is_broken = false;
    return POOT_OK;
}
