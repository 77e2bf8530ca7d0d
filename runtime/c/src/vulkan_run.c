/* Vulkan: kernels as pipelines, and launch lists as command buffers that are submitted again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#if defined(POOT_VULKAN)
#include "vulkan_own.h"

enum { UNIFORM_ALIGN = 256 }; /* what every Vulkan device allows uniform blocks to start at */

typedef struct pipeline {
    VkPipeline pipeline;
    VkPipelineLayout layout;
    VkDescriptorSetLayout set_layout;
} pipeline;

typedef struct module {
    int count;
    pipeline *pipelines;
} module;

struct executable {
    VkCommandBuffer commands;
    VkDescriptorPool descriptors;
    VkDescriptorSet *sets; /* one a launch */
    VkFence fence;
    block *uniforms;
};

static void destroy(vulkan *v, pipeline *p) {
    if (p->pipeline) v->DestroyPipeline(v->device, p->pipeline, NULL);
    if (p->layout) v->DestroyPipelineLayout(v->device, p->layout, NULL);
    if (p->set_layout) v->DestroyDescriptorSetLayout(v->device, p->set_layout, NULL);
}

static VkResult make_layouts(vulkan *v, const kernel *k, pipeline *out) {
    uint32_t count = (uint32_t)k->params + (k->imms > 0);
    VkDescriptorSetLayoutBinding *bindings = calloc(count + 1, sizeof *bindings);
    if (bindings == NULL) return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t n = 0; n < count; n++) {
        bool is_uniform = n == (uint32_t)k->params;
        bindings[n] = (VkDescriptorSetLayoutBinding){
            .binding = n,
            .descriptorType = is_uniform ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                         : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .descriptorCount = 1,
            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    }
    VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = count, .pBindings = bindings};
    VkResult result = v->CreateDescriptorSetLayout(v->device, &set, NULL, &out->set_layout);
    free(bindings);
    if (result != VK_SUCCESS) return result;
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1, .pSetLayouts = &out->set_layout};
    return v->CreatePipelineLayout(v->device, &layout, NULL, &out->layout);
}

static poot_status make_pipeline(vulkan *v, const kernel *k, pipeline *out, poot_error *error) {
    if (k->nbytes == 0 || k->nbytes % 4)
        return fail(error, POOT_ERROR_FORMAT, "kernel %s is no SPIR-V", k->name);
    uint32_t *words = malloc(k->nbytes); /* a file's bytes need not lie at a multiple of 4 */
    VkResult result = words == NULL ? VK_ERROR_OUT_OF_HOST_MEMORY : make_layouts(v, k, out);
    VkShaderModule shader = VK_NULL_HANDLE;
    if (result == VK_SUCCESS) {
        memcpy(words, k->data, k->nbytes);
        VkShaderModuleCreateInfo text = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                         .codeSize = k->nbytes, .pCode = words};
        result = v->CreateShaderModule(v->device, &text, NULL, &shader);
    }
    bool asks = k->subgroup && v->has_control && k->subgroup >= v->least_subgroup &&
                k->subgroup <= v->most_subgroup;
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo width = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = k->subgroup};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = asks ? &width : NULL,
                  .flags = asks ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = shader, .pName = "main"},
        .layout = out->layout,
        .basePipelineIndex = -1};
    if (result == VK_SUCCESS)
        result = v->CreateComputePipelines(v->device, VK_NULL_HANDLE, 1, &info, NULL, &out->pipeline);
    if (shader) v->DestroyShaderModule(v->device, shader, NULL);
    free(words);
    char what[256];
    snprintf(what, sizeof what, "kernel %s", k->name);
    return told(v, result, what, error);
}

void vulkan_unload(poot_device *d, void *loaded) {
    module *m = loaded;
    if (m == NULL) return;
    for (int n = 0; n < m->count; n++) destroy(d->own, &m->pipelines[n]);
    free(m->pipelines);
    free(m);
}

poot_status vulkan_load(poot_device *d, const poot_program *p, void **out, poot_error *error) {
    module *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m != NULL) m->pipelines = calloc((size_t)p->kernel_count + 1, sizeof *m->pipelines);
    if (m == NULL || m->pipelines == NULL) {
        free(m);
        return fail(error, POOT_ERROR_MEMORY, "out of memory");
    }
    poot_status status = POOT_OK;
    for (int n = 0; n < p->kernel_count && status == POOT_OK; n++) {
        m->count = n + 1;
        status = make_pipeline(d->own, &p->kernels[n], &m->pipelines[n], error);
    }
    if (status != POOT_OK) {
        vulkan_unload(d, m);
        return status;
    }
    *out = m;
    return POOT_OK;
}

/* One buffer with every launch's immediates; launch n's start at n * UNIFORM_ALIGN rounded up. */
static uint64_t uniform_stride(const poot_program *p) {
    uint64_t most = 0;
    for (int n = 0; n < p->kernel_count; n++)
        if ((uint64_t)p->kernels[n].imms * 4 > most) most = (uint64_t)p->kernels[n].imms * 4;
    return (most + UNIFORM_ALIGN - 1) / UNIFORM_ALIGN * UNIFORM_ALIGN;
}

static poot_status make_uniforms(vulkan *v, const poot_program *p, const entry *e, executable *x,
                                 poot_error *error) {
    uint64_t stride = uniform_stride(p);
    if (stride == 0 || e->launch_count == 0) return POOT_OK;
    poot_status status = allocate_block(v, stride * (uint64_t)e->launch_count, true, "immediates",
                                        &x->uniforms, error);
    if (status != POOT_OK) return status;
    memset(x->uniforms->mapped, 0, (size_t)x->uniforms->nbytes);
    for (int n = 0; n < e->launch_count; n++) {
        const launch *l = &e->launches[n];
        size_t nbytes = (size_t)p->kernels[l->kernel].imms * 4;
        if (nbytes) memcpy(x->uniforms->mapped + stride * (uint64_t)n, l->imms, nbytes);
    }
    return POOT_OK;
}

static VkResult make_pool(vulkan *v, const poot_program *p, const entry *e, executable *x) {
    VkDescriptorPoolSize sizes[2] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1},
                                     {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, 1}};
    for (int n = 0; n < e->launch_count; n++) {
        sizes[0].descriptorCount += (uint32_t)p->kernels[e->launches[n].kernel].params;
        sizes[1].descriptorCount += p->kernels[e->launches[n].kernel].imms > 0;
    }
    VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = (uint32_t)e->launch_count + 1,
                                       .poolSizeCount = 2, .pPoolSizes = sizes};
    return v->CreateDescriptorPool(v->device, &info, NULL, &x->descriptors);
}

/* How many bytes to bind: whole quanta, within the allocation and the device's limit. */
static uint64_t bound_nbytes(const vulkan *v, const place *at, const block *b) {
    uint64_t most = b->nbytes - at->offset, limit = v->limits.maxStorageBufferRange / 16 * 16;
    uint64_t asked = PADDED(at->nbytes);
    if (limit < most) most = limit;
    return asked < most ? asked : most;
}

static VkResult bind(vulkan *v, const poot_program *p, const launch *l, int n, block **blocks,
                     const executable *x, VkDescriptorSet set) {
    const kernel *k = &p->kernels[l->kernel];
    uint32_t count = (uint32_t)k->params + (k->imms > 0);
    VkDescriptorBufferInfo *infos = calloc(count + 1, sizeof *infos);
    VkWriteDescriptorSet *writes = calloc(count + 1, sizeof *writes);
    for (uint32_t i = 0; infos != NULL && writes != NULL && i < count; i++) {
        bool is_uniform = i == (uint32_t)k->params;
        if (is_uniform) {
            infos[i] = (VkDescriptorBufferInfo){x->uniforms->buffer,
                                                uniform_stride(p) * (uint64_t)n,
                                                PADDED((uint64_t)k->imms * 4)};
        } else {
            const block *b = blocks[l->buffers[i].buffer];
            infos[i] = (VkDescriptorBufferInfo){b->buffer, l->buffers[i].offset,
                                                bound_nbytes(v, &l->buffers[i], b)};
        }
        writes[i] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, .dstSet = set, .dstBinding = i,
            .descriptorCount = 1, .pBufferInfo = &infos[i],
            .descriptorType = is_uniform ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                         : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER};
    }
    bool is_there = infos != NULL && writes != NULL;
    if (is_there) v->UpdateDescriptorSets(v->device, count, writes, 0, NULL);
    free(infos);
    free(writes);
    return is_there ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static poot_status make_sets(vulkan *v, const poot_program *p, const module *m, const entry *e,
                             block **blocks, executable *x, poot_error *error) {
    poot_status status = told(v, make_pool(v, p, e, x), "descriptors", error);
    x->sets = calloc((size_t)e->launch_count + 1, sizeof *x->sets);
    if (x->sets == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    for (int n = 0; n < e->launch_count && status == POOT_OK; n++) {
        const launch *l = &e->launches[n];
        VkDescriptorSetAllocateInfo order = {
            .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
            .descriptorPool = x->descriptors, .descriptorSetCount = 1,
            .pSetLayouts = &m->pipelines[l->kernel].set_layout};
        VkResult result = v->AllocateDescriptorSets(v->device, &order, &x->sets[n]);
        if (result == VK_SUCCESS) result = bind(v, p, l, n, blocks, x, x->sets[n]);
        status = told(v, result, p->kernels[l->kernel].name, error);
    }
    return status;
}

static void encode(vulkan *v, const module *m, const entry *e, const executable *x,
                   VkCommandBuffer commands) {
    const VkPipelineBindPoint compute = VK_PIPELINE_BIND_POINT_COMPUTE;
    for (int n = 0; n < e->launch_count; n++) {
        const launch *l = &e->launches[n];
        const pipeline *made = &m->pipelines[l->kernel];
        if (l->waits) barrier(v, commands, false);
        v->CmdBindPipeline(commands, compute, made->pipeline);
        v->CmdBindDescriptorSets(commands, compute, made->layout, 0, 1, &x->sets[n], 0, NULL);
        v->CmdDispatch(commands, l->grid[0], l->grid[1], l->grid[2]);
    }
}

void vulkan_encode(poot_device *d, const poot_program *p, void *loaded, const entry *e,
                   executable *x, void *commands) {
    (void)p;
    barrier(d->own, commands, false);
    encode(d->own, loaded, e, x, commands);
    barrier(d->own, commands, false);
    barrier(d->own, commands, true);
}

poot_status vulkan_prepare(poot_device *d, const poot_program *p, void *loaded, const entry *e,
                           block **blocks, executable **out, poot_error *error) {
    vulkan *v = d->own;
    executable *x = calloc(1, sizeof *x);
    *out = NULL;
    if (x == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    poot_status status = make_uniforms(v, p, e, x, error);
    if (status == POOT_OK) status = make_sets(v, p, loaded, e, blocks, x, error);
    VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    if (status == POOT_OK)
        status = told(v, v->CreateFence(v->device, &info, NULL, &x->fence), "a fence", error);
    if (status == POOT_OK) status = begin_commands(v, &x->commands, error);
    if (status == POOT_OK) {
        encode(v, loaded, e, x, x->commands);
        status = end_commands(v, x->commands, error);
    }
    if (status != POOT_OK) {
        vulkan_drop(d, x);
        return status;
    }
    *out = x;
    return POOT_OK;
}

poot_status vulkan_run(poot_device *d, executable *x, poot_error *error) {
    return submit(d->own, x->commands, x->fence, "a step", error);
}

void vulkan_drop(poot_device *d, executable *x) {
    vulkan *v = d->own;
    if (x == NULL) return;
    if (x->commands) v->FreeCommandBuffers(v->device, v->pool, 1, &x->commands);
    if (x->fence) v->DestroyFence(v->device, x->fence, NULL);
    if (x->descriptors) v->DestroyDescriptorPool(v->device, x->descriptors, NULL);
    release_block(v, x->uniforms);
    free(x->sets);
    free(x);
}

#endif
