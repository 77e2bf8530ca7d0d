/* A Vulkan device: libvulkan.so.1, loaded at run time; memory and its copies. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#if defined(POOT_VULKAN)
#include "vulkan_own.h"

enum { STAGING = 4 << 20, LLVMPIPE_TRIPS = 65535, MOST_DEVICES = 32, MOST_FAMILIES = 64 };

static const VkBufferUsageFlags USAGE =
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

poot_status told(vulkan *v, VkResult result, const char *what, poot_error *error) {
    if (result == VK_SUCCESS) return POOT_OK;
    if (result == VK_ERROR_DEVICE_LOST) v->is_lost = true;
    if (result == VK_ERROR_DEVICE_LOST)
        return fail(error, POOT_ERROR_LOST, "%s: the device is lost", what);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
        return fail(error, POOT_ERROR_MEMORY, "%s: the driver is out of memory", what);
    return fail(error, POOT_ERROR_LAUNCH, "%s: Vulkan's error %d", what, (int)result);
}

/* The memory type to use: cached host memory where that is the device's own too. */
static int memory_type(const vulkan *v, bool mapped, uint32_t allowed) {
    const VkMemoryPropertyFlags visible =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags cached = visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const VkMemoryPropertyFlags wishes[] = {v->is_direct ? cached | local : (mapped ? cached : local),
                                            mapped ? cached : local, mapped ? visible : 0};
    for (size_t wish = 0; wish < sizeof wishes / sizeof *wishes; wish++)
        for (uint32_t n = 0; n < v->memory.memoryTypeCount; n++)
            if (allowed >> n & 1 &&
                (v->memory.memoryTypes[n].propertyFlags & wishes[wish]) == wishes[wish])
                return (int)n;
    return -1;
}

void release_block(vulkan *v, block *b) {
    if (b == NULL) return;
    if (b->buffer) v->DestroyBuffer(v->device, b->buffer, NULL);
    if (b->memory) v->FreeMemory(v->device, b->memory, NULL);
    free(b);
}

poot_status allocate_block(vulkan *v, uint64_t nbytes, bool mapped, const char *label, block **out,
                           poot_error *error) {
    block *b = calloc(1, sizeof *b);
    *out = NULL;
    if (b == NULL) return fail(error, POOT_ERROR_MEMORY, "%s: out of memory", label);
    b->nbytes = PADDED(nbytes);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = b->nbytes,
                               .usage = USAGE};
    VkResult result = v->CreateBuffer(v->device, &info, NULL, &b->buffer);
    if (result == VK_SUCCESS) {
        VkMemoryRequirements need;
        v->GetBufferMemoryRequirements(v->device, b->buffer, &need);
        int kind = memory_type(v, mapped, need.memoryTypeBits);
        VkMemoryAllocateInfo order = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                      .allocationSize = need.size,
                                      .memoryTypeIndex = (uint32_t)kind};
        result = kind < 0 ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                          : v->AllocateMemory(v->device, &order, NULL, &b->memory);
    }
    if (result == VK_SUCCESS) result = v->BindBufferMemory(v->device, b->buffer, b->memory, 0);
    if (result == VK_SUCCESS && (mapped || v->is_direct)) {
        void *seen;
        result = v->MapMemory(v->device, b->memory, 0, VK_WHOLE_SIZE, 0, &seen);
        b->mapped = seen;
    }
    if (result != VK_SUCCESS) {
        release_block(v, b);
        return told(v, result, label, error);
    }
    *out = b;
    return POOT_OK;
}

void barrier(vulkan *v, VkCommandBuffer commands, bool to_host) {
    const VkPipelineStageFlags work =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkMemoryBarrier b = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = to_host ? VK_ACCESS_HOST_READ_BIT
                                 : VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                                       VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    v->CmdPipelineBarrier(commands, work, to_host ? VK_PIPELINE_STAGE_HOST_BIT : work, 0, 1, &b, 0,
                          NULL, 0, NULL);
}

poot_status begin_commands(vulkan *v, VkCommandBuffer *out, poot_error *error) {
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = v->pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    poot_status status =
        told(v, v->AllocateCommandBuffers(v->device, &info, out), "recording", error);
    if (status != POOT_OK) *out = NULL;
    if (status != POOT_OK) return status;
    status = told(v, v->BeginCommandBuffer(*out, &begin), "recording", error);
    if (status != POOT_OK) v->FreeCommandBuffers(v->device, v->pool, 1, out), *out = NULL;
    if (status == POOT_OK) barrier(v, *out, false);
    return status;
}

poot_status end_commands(vulkan *v, VkCommandBuffer commands, poot_error *error) {
    barrier(v, commands, true);
    return told(v, v->EndCommandBuffer(commands), "recording", error);
}

poot_status submit(vulkan *v, VkCommandBuffer commands, VkFence fence, const char *what,
                   poot_error *error) {
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1,
                         .pCommandBuffers = &commands};
    if (v->is_lost) return fail(error, POOT_ERROR_LOST, "%s: the device is lost", what);
    VkResult result = v->ResetFences(v->device, 1, &fence);
    if (result == VK_SUCCESS) result = v->QueueSubmit(v->queue, 1, &info, fence);
    if (result == VK_SUCCESS) result = v->WaitForFences(v->device, 1, &fence, VK_TRUE, UINT64_MAX);
    return told(v, result, what, error);
}

/* Records one command, runs it, and lets go of it. `source` NULL: zeroes the target. */
static poot_status once(vulkan *v, const block *source, uint64_t from, const block *target,
                        uint64_t to, uint64_t nbytes, poot_error *error) {
    VkCommandBuffer commands;
    VkFence fence = VK_NULL_HANDLE;
    poot_status status = begin_commands(v, &commands, error);
    if (status != POOT_OK) return status;
    VkBufferCopy region = {from, to, nbytes};
    if (source != NULL)
        v->CmdCopyBuffer(commands, source->buffer, target->buffer, 1, &region);
    else
        v->CmdFillBuffer(commands, target->buffer, to, nbytes, 0);
    status = end_commands(v, commands, error);
    VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    if (status == POOT_OK)
        status = told(v, v->CreateFence(v->device, &info, NULL, &fence), "a copy", error);
    if (status == POOT_OK) status = submit(v, commands, fence, "a copy", error);
    if (fence) v->DestroyFence(v->device, fence, NULL);
    v->FreeCommandBuffers(v->device, v->pool, 1, &commands);
    return status;
}

static poot_status vulkan_allocate(poot_device *d, uint64_t nbytes, const char *label, block **out,
                                   poot_error *error) {
    vulkan *v = d->own;
    poot_status status = allocate_block(v, nbytes, false, label, out, error);
    if (status != POOT_OK) return status;
    if ((*out)->mapped != NULL)
        memset((*out)->mapped, 0, (size_t)(*out)->nbytes);
    else
        status = once(v, NULL, 0, *out, 0, (*out)->nbytes, error);
    if (status != POOT_OK) release_block(v, *out), *out = NULL;
    return status;
}

static void vulkan_release(poot_device *d, block *b) { release_block(d->own, b); }

static poot_status vulkan_write(poot_device *d, block *b, uint64_t at, const void *data,
                                size_t nbytes, poot_error *error) {
    vulkan *v = d->own;
    if (b->mapped != NULL) {
        memcpy(b->mapped + at, data, nbytes);
        return POOT_OK;
    }
    poot_status status = POOT_OK;
    for (size_t done = 0; done < nbytes && status == POOT_OK; done += STAGING) {
        size_t part = nbytes - done < STAGING ? nbytes - done : STAGING;
        memcpy(v->staging->mapped, (const uint8_t *)data + done, part);
        status = once(v, v->staging, 0, b, at + done, part, error);
    }
    return status;
}

static poot_status vulkan_read(poot_device *d, block *b, uint64_t at, void *data, size_t nbytes,
                               poot_error *error) {
    vulkan *v = d->own;
    if (b->mapped != NULL) {
        memcpy(data, b->mapped + at, nbytes);
        return POOT_OK;
    }
    poot_status status = POOT_OK;
    for (size_t done = 0; done < nbytes && status == POOT_OK; done += STAGING) {
        size_t part = nbytes - done < STAGING ? nbytes - done : STAGING;
        status = once(v, b, at + done, v->staging, 0, part, error);
        memcpy((uint8_t *)data + done, v->staging->mapped, part);
    }
    return status;
}

static poot_status vulkan_check(poot_device *d, const needs *n, poot_error *error) {
    const vulkan *v = d->own;
    const VkPhysicalDeviceLimits *l = &v->limits;
    if (strcmp(n->target, "spirv"))
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program needs a device that takes %s: %s takes spirv", n->target, d->name);
    uint32_t sets = l->maxDescriptorSetStorageBuffers, stage = l->maxPerStageDescriptorStorageBuffers;
    uint64_t align = l->minStorageBufferOffsetAlignment;
    const struct {
        const char *what;
        uint64_t asked, most;
    } rows[] = {
        {"lanes", n->threads, l->maxComputeWorkGroupInvocations},
        {"lanes on an axis", n->threads, l->maxComputeWorkGroupSize[0]},
        {"bytes of workgroup memory", n->workgroup_nbytes, l->maxComputeSharedMemorySize},
        {"storage buffers", n->storage_buffers, sets < stage ? sets : stage},
        {"bytes in a binding", n->binding_nbytes, l->maxStorageBufferRange},
        {"bytes in a buffer", n->buffer_nbytes, v->largest},
        {"bytes of device memory", n->memory_nbytes, v->local_nbytes},
        {"groups on axis 0", n->grid[0], l->maxComputeWorkGroupCount[0]},
        {"groups on axis 1", n->grid[1], l->maxComputeWorkGroupCount[1]},
        {"groups on axis 2", n->grid[2], l->maxComputeWorkGroupCount[2]},
        {"16-bit storage", n->flags & NEEDS_F16_STORAGE, v->has_f16_storage ? ~0u : 0},
        {"64-bit integers", n->flags & NEEDS_I64, v->has_i64 ? ~0u : 0},
        {"what no Vulkan device has", n->flags & ~(unsigned)(NEEDS_F16_STORAGE | NEEDS_I64), 0},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        if (rows[row].asked > rows[row].most)
            return fail(error, POOT_ERROR_CAPABILITY, "the program needs %llu %s: %s has %llu",
                        (unsigned long long)rows[row].asked, rows[row].what, d->name,
                        (unsigned long long)rows[row].most);
    if (n->subgroup && n->subgroup != v->subgroup)
        return fail(error, POOT_ERROR_CAPABILITY, "the program needs subgroups of %u: %s has %u",
                    n->subgroup, d->name, v->subgroup);
    if (align && n->offset_align % align)
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program places values at multiples of %llu: %s asks %llu",
                    (unsigned long long)n->offset_align, d->name, (unsigned long long)align);
    if (v->is_llvmpipe && (n->loop_trips == 0 || n->loop_trips > LLVMPIPE_TRIPS))
        return fail(error, POOT_ERROR_CAPABILITY,
                    "the program may take more trips through a loop than %s, %d; compile it for "
                    "that device", d->name, LLVMPIPE_TRIPS);
    return POOT_OK;
}

static void vulkan_close(poot_device *d) {
    vulkan *v = d->own;
    if (v->device) {
        release_block(v, v->staging);
        if (v->pool) v->DestroyCommandPool(v->device, v->pool, NULL);
        if (!v->is_adopted) v->DestroyDevice(v->device, NULL);
    }
    if (v->instance && !v->is_adopted) v->DestroyInstance(v->instance, NULL);
    if (v->library) dlclose(v->library);
    free(v);
}

static const device_ops VULKAN = {vulkan_check,  vulkan_allocate, vulkan_release, vulkan_write,
                                  vulkan_read,   vulkan_load,     vulkan_unload,  vulkan_prepare,
                                  vulkan_run,    vulkan_drop,     vulkan_encode,  vulkan_close};

static bool has_extension(const vulkan *v, const char *name) {
    uint32_t count = 0;
    bool found = false;
    v->EnumerateDeviceExtensionProperties(v->physical, NULL, &count, NULL);
    VkExtensionProperties *rows = calloc(count + 1, sizeof *rows);
    if (rows == NULL) return false;
    v->EnumerateDeviceExtensionProperties(v->physical, NULL, &count, rows);
    for (uint32_t n = 0; n < count; n++) found |= strcmp(rows[n].extensionName, name) == 0;
    free(rows);
    return found;
}

static void ask_limits(vulkan *v, char *name, size_t nbytes) {
    VkPhysicalDeviceSubgroupSizeControlProperties widths = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
        .pNext = v->has_control ? &widths : NULL};
    VkPhysicalDeviceMaintenance3Properties most = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceProperties2 about = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &most};
    v->GetPhysicalDeviceProperties2(v->physical, &about);
    VkPhysicalDevice16BitStorageFeatures storage = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &storage};
    v->GetPhysicalDeviceFeatures2(v->physical, &features);
    v->GetPhysicalDeviceMemoryProperties(v->physical, &v->memory);
    snprintf(name, nbytes, "%s", about.properties.deviceName);
    v->limits = about.properties.limits;
    v->is_llvmpipe = strstr(name, "llvmpipe") != NULL;
    v->has_f16_storage = storage.storageBuffer16BitAccess;
    v->has_i64 = features.features.shaderInt64;
    const VkSubgroupFeatureFlags need =
        VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT |
        VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT |
        VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    bool has_all = (subgroup.supportedOperations & need) == need &&
                   subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
    v->subgroup = has_all ? subgroup.subgroupSize : 0;
    v->least_subgroup = widths.minSubgroupSize;
    v->most_subgroup = widths.maxSubgroupSize;
    for (uint32_t n = 0; n < v->memory.memoryHeapCount; n++)
        if (v->memory.memoryHeaps[n].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT &&
            v->memory.memoryHeaps[n].size > v->local_nbytes)
            v->local_nbytes = v->memory.memoryHeaps[n].size;
    v->largest = most.maxMemoryAllocationSize < v->local_nbytes ? most.maxMemoryAllocationSize
                                                                : v->local_nbytes;
    const VkMemoryPropertyFlags direct =
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
        VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    for (uint32_t n = 0; n < v->memory.memoryTypeCount; n++)
        v->is_direct |= (v->memory.memoryTypes[n].propertyFlags & direct) == direct;
}

static void find_device_functions(vulkan *v) {
#define FIND(name) v->name = (PFN_vk##name)v->GetDeviceProcAddr(v->device, "vk" #name);
    DEVICE_FUNCTIONS(FIND)
#undef FIND
}

static void find_instance_functions(vulkan *v) {
#define FIND(name) v->name = (PFN_vk##name)v->GetInstanceProcAddr(v->instance, "vk" #name);
    INSTANCE_FUNCTIONS(FIND)
#undef FIND
}

static poot_status make_pool(vulkan *v, poot_error *error) {
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = v->family};
    poot_status status =
        told(v, v->CreateCommandPool(v->device, &pool, NULL, &v->pool), "opening", error);
    if (status == POOT_OK && !v->is_direct)
        status = allocate_block(v, STAGING, true, "staging", &v->staging, error);
    return status;
}

static poot_status make_device(vulkan *v, poot_error *error) {
    VkQueueFamilyProperties families[MOST_FAMILIES];
    uint32_t count = MOST_FAMILIES;
    v->GetPhysicalDeviceQueueFamilyProperties(v->physical, &count, families);
    for (v->family = 0; v->family < count; v->family++)
        if (families[v->family].queueFlags & VK_QUEUE_COMPUTE_BIT) break;
    if (v->family == count) return fail(error, POOT_ERROR_UNAVAILABLE, "it has no compute queue");
    VkPhysicalDevice16BitStorageFeatures storage = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
        .storageBuffer16BitAccess = v->has_f16_storage};
    VkPhysicalDeviceSubgroupSizeControlFeatures control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .pNext = &storage, .subgroupSizeControl = VK_TRUE, .computeFullSubgroups = VK_TRUE};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = v->has_control ? (void *)&control : &storage,
                                          .features = {.shaderInt64 = v->has_i64}};
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = v->family, .queueCount = 1,
                                     .pQueuePriorities = &priority};
    const char *extension = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
                               .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = v->has_control,
                               .ppEnabledExtensionNames = &extension};
    poot_status status =
        told(v, v->CreateDevice(v->physical, &info, NULL, &v->device), "opening", error);
    if (status != POOT_OK) return status;
    find_device_functions(v);
    v->GetDeviceQueue(v->device, v->family, 0, &v->queue);
    return make_pool(v, error);
}

static poot_status open_vulkan(vulkan *v, int index, char *name, size_t nbytes, poot_error *error) {
    v->library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = v->library == NULL ? NULL : dlsym(v->library, "vkGetInstanceProcAddr");
    if (symbol == NULL)
        return fail(error, POOT_ERROR_UNAVAILABLE, "libvulkan.so.1 can't be loaded: install the "
                    "Vulkan loader");
    memcpy(&v->GetInstanceProcAddr, &symbol, sizeof symbol);
    v->CreateInstance = (PFN_vkCreateInstance)v->GetInstanceProcAddr(NULL, "vkCreateInstance");
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "poot", .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    if (v->CreateInstance == NULL || v->CreateInstance(&info, NULL, &v->instance) != VK_SUCCESS)
        return fail(error, POOT_ERROR_UNAVAILABLE, "the Vulkan loader finds no driver");
    find_instance_functions(v);
    VkPhysicalDevice found[MOST_DEVICES];
    uint32_t count = MOST_DEVICES;
    VkResult result = v->EnumeratePhysicalDevices(v->instance, &count, found);
    if ((result != VK_SUCCESS && result != VK_INCOMPLETE) || index < 0 || (uint32_t)index >= count)
        return fail(error, POOT_ERROR_UNAVAILABLE, "there is no vulkan:%d: the loader finds %u "
                    "devices", index, count);
    v->physical = found[index];
    v->has_control = has_extension(v, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    ask_limits(v, name, nbytes);
    return make_device(v, error);
}

static poot_status adopt(vulkan *v, const poot_vulkan_handles *own, char *name, size_t nbytes,
                         poot_error *error) {
    if (!own->instance || !own->physical || !own->device || !own->queue ||
        !own->get_instance_proc_addr)
        return fail(error, POOT_ERROR_BIND, "an adopted device needs all its handles");
    v->is_adopted = true;
    v->instance = own->instance;
    v->physical = own->physical;
    v->device = own->device;
    v->queue = own->queue;
    v->family = own->family;
    memcpy(&v->GetInstanceProcAddr, &own->get_instance_proc_addr, sizeof v->GetInstanceProcAddr);
    find_instance_functions(v);
    find_device_functions(v);
    v->has_control = has_extension(v, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    ask_limits(v, name, nbytes);
    v->has_control = v->has_control && own->flags & POOT_VULKAN_SUBGROUP_CONTROL;
    v->has_f16_storage = v->has_f16_storage && own->flags & POOT_VULKAN_16BIT_STORAGE;
    v->has_i64 = v->has_i64 && own->flags & POOT_VULKAN_INT64;
    return make_pool(v, error);
}

static poot_status open_either(int index, const poot_vulkan_handles *own, poot_device **device,
                               poot_error *error) {
    *device = NULL;
    poot_device *d = calloc(1, sizeof *d);
    vulkan *v = calloc(1, sizeof *v);
    if (d == NULL || v == NULL) {
        free(d);
        free(v);
        return fail(error, POOT_ERROR_MEMORY, "out of memory");
    }
    d->ops = &VULKAN;
    d->own = v;
    poot_status status = own == NULL ? open_vulkan(v, index, d->name, sizeof d->name, error)
                                     : adopt(v, own, d->name, sizeof d->name, error);
    if (status != POOT_OK) {
        vulkan_close(d);
        free(d);
        return status;
    }
    *device = d;
    return POOT_OK;
}

poot_status poot_open_vulkan(int index, poot_device **device, poot_error *error) {
    return open_either(index, NULL, device, error);
}

poot_status poot_adopt_vulkan(const poot_vulkan_handles *handles, poot_device **device,
                              poot_error *error) {
    return open_either(0, handles, device, error);
}

#else

poot_status poot_open_vulkan(int index, poot_device **device, poot_error *error) {
    (void)index;
    *device = NULL;
    return fail(error, POOT_ERROR_UNAVAILABLE, "this runtime was built without Vulkan's headers");
}

poot_status poot_adopt_vulkan(const poot_vulkan_handles *handles, poot_device **device,
                              poot_error *error) {
    (void)handles;
    return poot_open_vulkan(0, device, error);
}

#endif
