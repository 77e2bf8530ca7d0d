/* Kernels, launch lists and what entry points take and give, out of a manifest. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const struct {
    const char *target, *suffix;
} SUFFIXES[] = {{"llvm", ".o"}, {"spirv", ".spv"}, {"ptx", ".ptx"}};

static uint32_t element_nbytes(fields *f, const char *dtype) {
    static const struct {
        const char *name;
        uint32_t nbytes;
    } rows[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f8e4m3", 1}, {"i32", 4}, {"u32", 4},
                {"i64", 8}, {"u64", 8}, {"i8", 1},   {"u8", 1},     {"bool", 4}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        if (strcmp(rows[n].name, dtype) == 0) return rows[n].nbytes;
    refuse(f, "there is no dtype %.20s", dtype);
    return 1;
}

static bool is_plain_name(const char *text) {
    for (const char *c = text; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' ||
              (*c >= '0' && *c <= '9' && c != text)))
            return false;
    return text[0] != 0;
}

static void parse_blob(fields *f, const json *row, blob_row *b) {
    b->dtype = get_text(f, row, "dtype", 16);
    b->each = element_nbytes(f, b->dtype);
    for (const json *n = get_list(f, row, "box")->first; n != NULL; n = n->next) {
        if (n->kind != JSON_INT || n->number < 1 || n->number > 65536 || b->rank == 5)
            refuse(f, "box needs one to five extents");
        else
            b->box[b->rank++] = (uint32_t)n->number;
    }
    if (is_null(row, "swizzle")) return;
    const char *swizzle = get_text(f, row, "swizzle", 8);
    b->swizzle = strcmp(swizzle, "32B") == 0 ? 32 : strcmp(swizzle, "64B") == 0 ? 64 : 128;
}

static void parse_kernel(poot_program *p, const json *row, const archive *files, fields *f,
                         kernel *k) {
    const char *file = get_text(f, row, "file", 160);
    k->name = get_text(f, row, "name", 200);
    k->symbol = get_text(f, row, "symbol", 200);
    k->threads = (uint32_t)get_int(f, row, "threads", 1, 1024);
    k->subgroup = is_null(row, "subgroup") ? 0 : (uint32_t)get_int(f, row, "subgroup", 1, 1024);
    k->shared_nbytes =
        (uint32_t)get_int(f, row, "shared_nbytes", 0, (int64_t)p->needs.workgroup_nbytes);
    const json *params = get_list(f, row, "params");
    const json *imms = get_list(f, row, "imms"), *blobs = get_list(f, row, "blobs");
    if (params->number > 1024 || imms->number > 1024 || blobs->number > 64)
        refuse(f, "kernel %s takes too much", k->name);
    if (!is_plain_name(k->name) || !is_plain_name(k->symbol)) refuse(f, "a kernel's name is odd");
    const member *m = find_member(files, file);
    const char *suffix = "";
    for (size_t n = 0; n < sizeof SUFFIXES / sizeof *SUFFIXES; n++)
        if (strcmp(SUFFIXES[n].target, p->needs.target) == 0) suffix = SUFFIXES[n].suffix;
    size_t length = strlen(file), tail = strlen(suffix);
    if (m == NULL || tail == 0 || strncmp(file, "kernels/", 8) || length < tail ||
        strcmp(file + length - tail, suffix))
        refuse(f, "%.80s is no kernel for %s among the files", file, p->needs.target);
    if (f->failed) return;
    k->data = m->data;
    k->nbytes = m->nbytes;
    k->touched = take(&p->memory, (size_t)params->number, sizeof *k->touched);
    k->writes = take(&p->memory, (size_t)params->number, sizeof *k->writes);
    k->blob = take(&p->memory, (size_t)blobs->number, sizeof *k->blob);
    if (k->touched == NULL || k->writes == NULL || k->blob == NULL) refuse(f, "out of memory");
    for (const json *n = params->first; n != NULL && !f->failed; n = n->next) {
        uint64_t elems = (uint64_t)get_int(f, n, "elems", 0, INT64_C(1) << 48);
        k->touched[k->params] = elems * element_nbytes(f, get_text(f, n, "dtype", 16));
        k->writes[k->params++] = strcmp(get_text(f, n, "access", 4), "r") != 0;
    }
    for (const json *n = blobs->first; n != NULL && !f->failed; n = n->next)
        parse_blob(f, n, &k->blob[k->blobs++]);
    k->imms = (int)imms->number;
}

poot_status parse_kernels(poot_program *p, const json *top, const archive *files, fields *f) {
    const json *rows = get_list(f, top, "kernels");
    p->kernels = take(&p->memory, (size_t)rows->number, sizeof *p->kernels);
    if (p->kernels == NULL) return fail(f->error, POOT_ERROR_MEMORY, "out of memory");
    for (const json *row = rows->first; row != NULL && !f->failed; row = row->next)
        parse_kernel(p, row, files, f, &p->kernels[p->kernel_count++]);
    return POOT_OK;
}

static bool is_shared(const char *buffer) {
    return strncmp(buffer, "weights", 7) == 0 || strncmp(buffer, "consts", 6) == 0;
}

static void parse_counts(fields *f, const json *object, const char *key, uint32_t *out,
                         int64_t least, int64_t most) {
    const json *rows = get_list(f, object, key);
    if (rows->number != 3) refuse(f, "%s needs three counts", key);
    int n = 0;
    for (const json *row = rows->first; row != NULL && n < 3; row = row->next) {
        if (row->kind != JSON_INT || row->number < least || row->number > most)
            refuse(f, "%s needs counts from %lld to %lld", key, (long long)least, (long long)most);
        else
            out[n++] = (uint32_t)row->number;
    }
}

static void parse_bound(poot_program *p, fields *f, const json *row, place *out) {
    parse_place(f, p, row, p->needs.offset_align, out);
    if (!f->failed && (out->nbytes == 0 || out->nbytes > p->needs.binding_nbytes))
        refuse(f, "%llu bytes are more than needs says of a binding, or none",
               (unsigned long long)out->nbytes);
}

static void parse_view(fields *f, const json *row, map_view *v) {
    const json *dims = get_list(f, row, "dims"), *strides = get_list(f, row, "strides");
    if (dims->number != strides->number || dims->number < 1 || dims->number > 5) {
        refuse(f, "dims and strides need one to five axes");
        return;
    }
    const json *stride = strides->first;
    for (const json *dim = dims->first; dim != NULL; dim = dim->next, stride = stride->next) {
        bool is_right = dim->kind == JSON_INT && stride->kind == JSON_INT && dim->number > 0 &&
                        stride->number > 0 && dim->number < INT64_C(1) << 32 &&
                        stride->number < INT64_C(1) << 40;
        if (!is_right) {
            refuse(f, "dims and strides need counts");
            return;
        }
        v->dims[v->rank] = (uint64_t)dim->number;
        v->strides[v->rank++] = (uint64_t)stride->number;
    }
}

static void parse_launch(poot_program *p, const json *row, fields *f, launch *x) {
    x->kernel = (int)get_int(f, row, "kernel", 0, p->kernel_count - 1);
    if (p->kernel_count == 0) refuse(f, "there is no kernel");
    parse_counts(f, row, "grid", x->grid, 0, INT32_MAX);
    x->waits = get_bool(f, row, "waits");
    x->cluster[0] = x->cluster[1] = x->cluster[2] = 1;
    if (!is_null(row, "attributes")) {
        const json *asked = get_object(f, row, "attributes");
        x->overlap = get_bool(f, asked, "overlap");
        x->is_resident = get_bool(f, asked, "is_resident");
        parse_counts(f, asked, "cluster", x->cluster, 1, 16);
    }
    if (f->failed) return;
    const kernel *k = &p->kernels[x->kernel];
    const json *buffers = get_list(f, row, "buffers"), *imms = get_list(f, row, "imms");
    const json *maps = get_list(f, row, "maps");
    if (buffers->number != k->params || imms->number != k->imms || maps->number != k->blobs)
        refuse(f, "kernel %s takes %d buffers, %d immediates and %d maps", k->name, k->params,
               k->imms, k->blobs);
    x->buffers = take(&p->memory, (size_t)k->params, sizeof *x->buffers);
    x->imms = take(&p->memory, (size_t)k->imms, sizeof *x->imms);
    x->maps = take(&p->memory, (size_t)k->blobs, sizeof *x->maps);
    if (x->buffers == NULL || x->imms == NULL || x->maps == NULL) refuse(f, "out of memory");
    int n = 0;
    for (const json *b = buffers->first; b != NULL && !f->failed; b = b->next, n++) {
        parse_bound(p, f, b, &x->buffers[n]);
        if (f->failed) return;
        const char *name = p->buffers[x->buffers[n].buffer].name;
        if (k->touched[n] > x->buffers[n].nbytes)
            refuse(f, "kernel %s touches %llu bytes of %s: %llu are bound", k->name,
                   (unsigned long long)k->touched[n], name,
                   (unsigned long long)x->buffers[n].nbytes);
        if (k->writes[n] && is_shared(name)) refuse(f, "kernel %s writes to %s", k->name, name);
    }
    n = 0;
    for (const json *i = imms->first; i != NULL && !f->failed; i = i->next) {
        if (i->kind != JSON_INT || i->number < 0 || i->number > UINT32_MAX)
            refuse(f, "immediates are words");
        x->imms[n++] = (uint32_t)i->number;
    }
    n = 0;
    for (const json *m = maps->first; m != NULL && !f->failed; m = m->next, n++) {
        parse_bound(p, f, m, &x->maps[n].at);
        parse_view(f, m, &x->maps[n]);
    }
}

static const char *const STORAGES[] = {"weight", "state", "slot"};

static void seen_type(poot_tensor *seen, const type *t) {
    seen->dtype = t->dtype;
    seen->rank = t->rank;
    memcpy(seen->shape, t->shape, sizeof seen->shape);
    seen->nbytes = (size_t)host_nbytes(t);
}

static void parse_range(fields *f, const json *row, const char *key, int64_t *low, int64_t *high) {
    const json *bounds = get_list(f, row, key);
    const json *first = bounds->first, *second = first == NULL ? NULL : first->next;
    if (bounds->number != 2 || first->kind != JSON_INT || second->kind != JSON_INT) {
        refuse(f, "%s needs two bounds", key);
        return;
    }
    *low = first->number;
    *high = second->number;
}

static void parse_input(poot_program *p, const entry *e, const json *row, fields *f, input *i) {
    const char *storage = get_text(f, row, "storage", 16);
    int kind = 0;
    while (kind < 3 && strcmp(STORAGES[kind], storage)) kind++;
    if (kind == 3) refuse(f, "there is no storage %s", storage);
    parse_type(f, row, &i->type);
    if (f->failed) return;
    seen_type(&i->seen, &i->type);
    i->seen.name = get_text(f, row, "name", 4000);
    i->seen.storage = (poot_storage)kind;
    i->resident = -1;
    if (i->seen.storage == POOT_WEIGHT) return;
    char name[4400];
    const char *prefix = i->seen.storage == POOT_SLOT ? e->name : "";
    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? ":" : "", i->seen.name);
    i->resident = find_resident(p, name);
    const resident *r = i->resident < 0 ? NULL : &p->residents[i->resident];
    const char *space = i->seen.storage == POOT_SLOT ? "slots" : "states";
    if (r == NULL || r->type.dtype != i->type.dtype || r->type.rank != i->type.rank ||
        memcmp(r->type.shape, i->type.shape, sizeof r->type.shape) ||
        strncmp(p->buffers[r->at.buffer].name, space, strlen(space)))
        refuse(f, "input %.80s needs a resident of its type among %s", i->seen.name, space);
    if (f->failed || i->seen.storage == POOT_STATE) return;
    i->seen.kind = get_text(f, row, "kind", 100);
    i->is_map = strcmp(i->seen.kind, "write_map") == 0;
    if (!is_null(row, "range")) {
        bool is_words = i->type.dtype >= POOT_I32 && i->type.dtype <= POOT_U8;
        i->seen.has_range = 1;
        parse_range(f, row, "range", &i->seen.low, &i->seen.high);
        if (!is_words || i->seen.low >= i->seen.high) refuse(f, "%.80s: range is odd", i->seen.name);
    }
    if (i->is_map && (i->type.dtype != POOT_I32 || i->type.rank != 1))
        refuse(f, "a write map is i32 of one axis");
}

static void parse_result(poot_program *p, const json *row, fields *f, uint64_t most, place *out) {
    parse_place(f, p, row, 4, out);
    if (!f->failed && (out->buffer != p->results || out->offset + out->nbytes > most))
        refuse(f, "an output or a record lies outside the results");
}

static void parse_guard(const json *row, fields *f, guard *g) {
    const json *shape = get_list(f, row, "shape");
    json dtype = {.kind = JSON_TEXT, .text = "bool", .nbytes = 4, .key = "dtype"};
    json extents = *shape, holder = {.kind = JSON_OBJECT, .first = &dtype};
    extents.key = "shape";
    extents.next = NULL;
    dtype.next = &extents;
    parse_type(f, &holder, &g->witness);
    g->op = get_text(f, row, "op", 4096);
    g->loc = get_text(f, row, "loc", 4096);
    g->needed = get_text(f, row, "needed", 4096);
    g->has_bounds = !is_null(row, "bounds");
    if (g->has_bounds) parse_range(f, row, "bounds", &g->low, &g->high);
}

static void parse_signature(poot_program *p, const json *row, fields *f, entry *e) {
    const json *inputs = get_list(f, row, "inputs"), *outputs = get_list(f, row, "outputs");
    const json *guards = get_list(f, row, "guards"), *records = get_list(f, row, "records");
    const json *late = get_list(f, row, "late");
    if (guards->number != records->number || late->number != records->number)
        refuse(f, "needs a guard and a mark for each record");
    e->inputs = take(&p->memory, (size_t)inputs->number, sizeof *e->inputs);
    e->outputs = take(&p->memory, (size_t)outputs->number, sizeof *e->outputs);
    e->guards = take(&p->memory, (size_t)guards->number, sizeof *e->guards);
    if (e->inputs == NULL || e->outputs == NULL || e->guards == NULL) refuse(f, "out of memory");
    for (const json *n = inputs->first; n != NULL && !f->failed; n = n->next)
        parse_input(p, e, n, f, &e->inputs[e->input_count++]);
    for (const json *n = outputs->first; n != NULL && !f->failed; n = n->next) {
        output *o = &e->outputs[e->output_count++];
        parse_type(f, n, &o->type);
        parse_result(p, n, f, e->results_nbytes, &o->at);
        if (!f->failed && o->at.nbytes != device_nbytes(&o->type))
            refuse(f, "an output has another size than its type");
        seen_type(&o->seen, &o->type);
    }
    const json *record = records->first, *mark = late->first;
    for (const json *n = guards->first; n != NULL && !f->failed; n = n->next) {
        guard *g = &e->guards[e->guard_count++];
        parse_guard(n, f, g);
        parse_result(p, record, f, e->results_nbytes, &g->record);
        if (!f->failed && g->record.nbytes != 12) refuse(f, "a record has 12 bytes");
        if (mark->kind != JSON_BOOL) refuse(f, "late needs true or false");
        g->late = mark->number != 0;
        record = record->next;
        mark = mark->next;
    }
}

poot_status parse_entries(poot_program *p, const json *top, fields *f) {
    const json *rows = get_list(f, top, "entries");
    if (rows->number < 1) refuse(f, "needs an entry point");
    p->entries = take(&p->memory, (size_t)rows->number, sizeof *p->entries);
    if (p->entries == NULL) return fail(f->error, POOT_ERROR_MEMORY, "out of memory");
    for (const json *row = rows->first; row != NULL && !f->failed; row = row->next) {
        entry *e = &p->entries[p->entry_count];
        e->name = get_text(f, row, "name", 200);
        if (poot_entry_find(p, e->name) >= 0) refuse(f, "entry point %s stands twice", e->name);
        int64_t most = p->results < 0 ? 0 : (int64_t)p->buffers[p->results].nbytes;
        e->results_nbytes = (uint64_t)get_int(f, row, "results_nbytes", 0, most);
        const json *launches = get_list(f, row, "launches");
        e->launches = take(&p->memory, (size_t)launches->number, sizeof *e->launches);
        if (e->launches == NULL) refuse(f, "out of memory");
        for (const json *n = launches->first; n != NULL && !f->failed; n = n->next)
            parse_launch(p, n, f, &e->launches[e->launch_count++]);
        parse_signature(p, row, f, e);
        char word[220];
        snprintf(word, sizeof word, "%s:$ok", e->name);
        e->word = find_resident(p, word);
        if (!f->failed && e->word >= 0 && p->residents[e->word].at.nbytes != 4)
            refuse(f, "the word of %s needs 4 bytes", e->name);
        p->entry_count++;
    }
    return POOT_OK;
}
