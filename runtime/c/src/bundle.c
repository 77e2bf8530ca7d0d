/* From a bundle's bytes to a program, every size, offset and index held against the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { VERSION = 1, MOST_MANIFEST = 64 << 20 };


static bool kind_is(const char *buffer, const char *kind) {
    size_t nbytes = strlen(kind);
    return strncmp(buffer, kind, nbytes) == 0 && (buffer[nbytes] == 0 || buffer[nbytes] == '.');
}

static void parse_needs(poot_program *p, const json *top, fields *f) {
    const json *o = get_object(f, top, "needs");
    needs *n = &p->needs;
    n->target = get_text(f, o, "target", 16);
    n->arch = get_text(f, o, "arch", 1024);
    n->subgroup = (uint32_t)get_int(f, o, "subgroup", 0, 1024);
    n->threads = (uint32_t)get_int(f, o, "threads", 0, 1024);
    n->workgroup_nbytes = (uint32_t)get_int(f, o, "workgroup_nbytes", 0, 1 << 28);
    n->storage_buffers = (uint32_t)get_int(f, o, "storage_buffers", 0, 1 << 16);
    n->binding_nbytes = (uint64_t)get_int(f, o, "binding_nbytes", 0, INT64_MAX / 4);
    n->buffer_nbytes = (uint64_t)get_int(f, o, "buffer_nbytes", 0, INT64_MAX / 4);
    n->memory_nbytes = (uint64_t)get_int(f, o, "memory_nbytes", 0, INT64_MAX / 4);
    n->offset_align = (uint64_t)get_int(f, o, "offset_align", 4, 1 << 20);
    n->loop_trips = (uint64_t)get_int(f, o, "loop_trips", 0, INT64_MAX / 4);
    static const char *const flags[] = {"has_f16_storage", "has_i64",         "has_matrix_units",
                                        "has_async_copy",  "has_tensor_maps", "counts_residents"};
    for (const json *row = get_list(f, o, "flags")->first; row != NULL; row = row->next) {
        unsigned known = 0;
        for (unsigned bit = 0; bit < sizeof flags / sizeof *flags; bit++)
            if (row->kind == JSON_TEXT && strcmp(row->text, flags[bit]) == 0) known = 1u << bit;
        if (known == 0) refuse(f, "flags has one that this runtime doesn't know");
        n->flags |= known;
    }
    const json *grid = get_list(f, o, "grid");
    int axis = 0;
    for (const json *g = grid->first; g != NULL && axis < 3; g = g->next) {
        if (g->kind != JSON_INT || g->number < 0) refuse(f, "grid needs counts");
        n->grid[axis++] = (uint64_t)g->number;
    }
    if (grid->number != 3) refuse(f, "grid needs three counts");
}

static void parse_buffers(poot_program *p, const json *top, const archive *files, fields *f) {
    static const char *const kinds[] = {"arena", "results", "weights", "states",
                                        "slots", "consts",  "rest"};
    const json *rows = get_list(f, top, "buffers");
    if (rows->number > 4096) refuse(f, "there are %lld buffers", (long long)rows->number);
    if (f->failed) return;
    p->buffers = take(&p->memory, (size_t)rows->number, sizeof *p->buffers);
    if (p->buffers == NULL) refuse(f, "out of memory");
    uint64_t total = 0;
    for (const json *row = rows->first; row != NULL && !f->failed; row = row->next) {
        buffer_row *b = &p->buffers[p->buffer_count];
        b->name = get_text(f, row, "name", 40);
        b->nbytes = (uint64_t)get_int(f, row, "nbytes", 1, (int64_t)p->needs.buffer_nbytes);
        bool is_known = false;
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
            is_known |= kind_is(b->name, kinds[n]);
        if (!is_known || find_buffer(p, b->name) >= 0)
            refuse(f, "%s is no name of a buffer, or stands twice", b->name);
        if (kind_is(b->name, "consts")) {
            char name[80];
            snprintf(name, sizeof name, "consts/%s.bin", b->name);
            const member *m = find_member(files, name);
            if (m == NULL || m->nbytes != b->nbytes)
                refuse(f, "needs %s of %llu bytes", name, (unsigned long long)b->nbytes);
            else
                b->image = m->data;
        }
        total += b->nbytes;
        p->buffer_count++;
    }
    if (!f->failed && total != p->needs.memory_nbytes)
        refuse(f, "buffers take %llu bytes, and needs says %llu", (unsigned long long)total,
               (unsigned long long)p->needs.memory_nbytes);
    p->results = find_buffer(p, "results");
}

static int by_place(const void *one, const void *other) {
    const resident *a = *(const resident *const *)one, *b = *(const resident *const *)other;
    if (a->at.buffer != b->at.buffer) return a->at.buffer < b->at.buffer ? -1 : 1;
    if (a->at.offset != b->at.offset) return a->at.offset < b->at.offset ? -1 : 1;
    return (a->at.nbytes > b->at.nbytes) - (a->at.nbytes < b->at.nbytes);
}

static void check_apart(poot_program *p, fields *f) {
    resident **rows = take(&p->memory, (size_t)p->resident_count, sizeof *rows);
    if (rows == NULL) {
        refuse(f, "out of memory");
        return;
    }
    for (int n = 0; n < p->resident_count; n++) rows[n] = &p->residents[n];
    qsort(rows, (size_t)p->resident_count, sizeof *rows, by_place);
    for (int n = 1; n < p->resident_count; n++) {
        const place *a = &rows[n - 1]->at, *b = &rows[n]->at;
        if (a->buffer == b->buffer && a->offset + a->nbytes > b->offset && b->nbytes)
            refuse(f, "residents %.80s and %.80s lie over each other", rows[n - 1]->name,
                   rows[n]->name);
    }
}

static void parse_residents(poot_program *p, const json *top, fields *f) {
    static const char *const kinds[] = {"weights", "states", "slots", "consts"};
    const json *rows = get_list(f, top, "residents");
    p->residents = take(&p->memory, (size_t)rows->number, sizeof *p->residents);
    if (p->residents == NULL) refuse(f, "out of memory");
    for (const json *row = rows->first; row != NULL && !f->failed; row = row->next) {
        resident *r = &p->residents[p->resident_count];
        r->name = get_text(f, row, "name", 4096);
        parse_place(f, p, row, p->needs.offset_align, &r->at);
        parse_type(f, row, &r->type);
        const json *layout = get_object(f, row, "layout");
        r->is_plain = strcmp(get_text(f, layout, "kind", 40), "row_major") == 0;
        if (f->failed) return;
        const char *buffer = p->buffers[r->at.buffer].name;
        bool is_there = false;
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
            is_there |= kind_is(buffer, kinds[n]);
        if (!is_there) refuse(f, "a resident lies in no %s", buffer);
        if (r->at.nbytes % 4 || (r->is_plain && r->at.nbytes != device_nbytes(&r->type)))
            refuse(f, "%.80s has %llu bytes, and its type takes %llu", r->name,
                   (unsigned long long)r->at.nbytes, (unsigned long long)device_nbytes(&r->type));
        if (!r->is_plain && !kind_is(buffer, "weights")) refuse(f, "%s have no layouts", buffer);
        p->resident_count++;
    }
    if (!f->failed) check_apart(p, f);
}

static poot_status parse(poot_program *p, size_t nbytes, poot_error *error) {
    archive files;
    poot_status status = unzip(&p->memory, p->file, nbytes, &files, error);
    if (status != POOT_OK) return status;
    const member *head = find_member(&files, "manifest.json");
    if (head == NULL || head->nbytes > MOST_MANIFEST)
        return fail(error, POOT_ERROR_FORMAT, "the bundle has no manifest.json");
    const json *top = json_parse(&p->memory, head->data, head->nbytes, "manifest.json", error);
    if (top == NULL) return POOT_ERROR_FORMAT;
    fields f = {"manifest.json", error, false};
    if (strcmp(get_text(&f, top, "format", 40), "poot bundle")) refuse(&f, "is no poot bundle");
    int64_t version = get_int(&f, top, "version", 0, INT64_MAX);
    if (!f.failed && version != VERSION) {
        const char *by = get_text(&f, get_object(&f, top, "made_by"), "poot", 40);
        refuse(&f, "is of bundle version %lld, made by poot %s; this runtime reads version %d",
               (long long)version, by, VERSION);
    }
    p->key = get_text(&f, top, "key", 64);
    parse_needs(p, top, &f);
    if (!f.failed) parse_buffers(p, top, &files, &f);
    if (!f.failed) parse_residents(p, top, &f);
    if (!f.failed) status = parse_kernels(p, top, &files, &f);
    if (!f.failed && status == POOT_OK) status = parse_entries(p, top, &f);
    return f.failed ? POOT_ERROR_FORMAT : status;
}

poot_status poot_load_memory(const void *data, size_t nbytes, poot_program **program,
                             poot_error *error) {
    *program = NULL;
    poot_program *p = calloc(1, sizeof *p);
    uint8_t *copy = malloc(nbytes ? nbytes : 1);
    if (p == NULL || copy == NULL) {
        free(p);
        free(copy);
        return fail(error, POOT_ERROR_MEMORY, "a bundle of %zu bytes: out of memory", nbytes);
    }
    memcpy(copy, data, nbytes);
    p->file = copy;
    poot_status status = parse(p, nbytes, error);
    if (status != POOT_OK) {
        poot_program_free(p);
        return status;
    }
    *program = p;
    return POOT_OK;
}

poot_status poot_load(const char *path, poot_program **program, poot_error *error) {
    *program = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fail(error, POOT_ERROR_FORMAT, "%s: can't be read", path);
    long nbytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    uint8_t *data = nbytes >= 0 && nbytes < (long)UINT32_MAX ? malloc((size_t)nbytes + 1) : NULL;
    bool is_read = data != NULL && fseek(file, 0, SEEK_SET) == 0 &&
                   fread(data, 1, (size_t)nbytes, file) == (size_t)nbytes;
    fclose(file);
    poot_status status = is_read ? poot_load_memory(data, (size_t)nbytes, program, error)
                                 : fail(error, POOT_ERROR_FORMAT, "%s: can't be read", path);
    free(data);
    return status;
}

void poot_program_free(poot_program *program) {
    if (program == NULL) return;
    arena_free(&program->memory);
    free(program->file);
    free(program);
}

const char *poot_program_target(const poot_program *program) { return program->needs.target; }
const char *poot_program_arch(const poot_program *program) { return program->needs.arch; }
size_t poot_program_memory(const poot_program *program) {
    return (size_t)program->needs.memory_nbytes;
}
int poot_entry_count(const poot_program *program) { return program->entry_count; }

static const entry *entry_of(const poot_program *program, int n) {
    return n >= 0 && n < program->entry_count ? &program->entries[n] : NULL;
}

const char *poot_entry_name(const poot_program *program, int n) {
    const entry *e = entry_of(program, n);
    return e == NULL ? NULL : e->name;
}

int poot_entry_find(const poot_program *program, const char *name) {
    for (int n = 0; n < program->entry_count; n++)
        if (strcmp(program->entries[n].name, name) == 0) return n;
    return -1;
}

int poot_input_count(const poot_program *program, int n) {
    const entry *e = entry_of(program, n);
    return e == NULL ? 0 : e->input_count;
}

int poot_output_count(const poot_program *program, int n) {
    const entry *e = entry_of(program, n);
    return e == NULL ? 0 : e->output_count;
}

int poot_input(const poot_program *program, int at, int n, poot_tensor *tensor) {
    const entry *e = entry_of(program, at);
    if (e == NULL || n < 0 || n >= e->input_count) return 0;
    *tensor = e->inputs[n].seen;
    return 1;
}

int poot_output(const poot_program *program, int at, int n, poot_tensor *tensor) {
    const entry *e = entry_of(program, at);
    if (e == NULL || n < 0 || n >= e->output_count) return 0;
    *tensor = e->outputs[n].seen;
    return 1;
}
