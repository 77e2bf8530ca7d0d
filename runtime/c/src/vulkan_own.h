/* What the two files of the Vulkan device share. */
#ifndef POOT_VULKAN_OWN_H
#define POOT_VULKAN_OWN_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "internal.h"

#define GLOBAL_FUNCTIONS(F) F(CreateInstance)
#define INSTANCE_FUNCTIONS(F)                                                                      \
    F(DestroyInstance) F(EnumeratePhysicalDevices) F(GetPhysicalDeviceProperties2)                 \
    F(GetPhysicalDeviceFeatures2) F(GetPhysicalDeviceMemoryProperties)                             \
    F(GetPhysicalDeviceQueueFamilyProperties) F(EnumerateDeviceExtensionProperties)                \
    F(CreateDevice) F(GetDeviceProcAddr)
#define DEVICE_FUNCTIONS(F)                                                                        \
    F(DestroyDevice) F(GetDeviceQueue) F(CreateCommandPool) F(DestroyCommandPool)                  \
    F(AllocateCommandBuffers) F(FreeCommandBuffers) F(BeginCommandBuffer) F(EndCommandBuffer)      \
    F(CmdPipelineBarrier) F(CmdBindPipeline) F(CmdBindDescriptorSets) F(CmdDispatch)               \
    F(CmdCopyBuffer) F(CmdFillBuffer) F(CreateBuffer) F(DestroyBuffer)                             \
    F(GetBufferMemoryRequirements) F(AllocateMemory) F(FreeMemory) F(BindBufferMemory)             \
    F(MapMemory) F(CreateDescriptorSetLayout) F(DestroyDescriptorSetLayout)                        \
    F(CreatePipelineLayout) F(DestroyPipelineLayout) F(CreateShaderModule) F(DestroyShaderModule)  \
    F(CreateComputePipelines) F(DestroyPipeline) F(CreateDescriptorPool) F(DestroyDescriptorPool)  \
    F(AllocateDescriptorSets) F(UpdateDescriptorSets) F(CreateFence) F(DestroyFence)               \
    F(ResetFences) F(WaitForFences) F(QueueSubmit)

struct block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint8_t *mapped; /* NULL where the host doesn't reach it */
    uint64_t nbytes; /* whole quanta */
};

typedef struct vulkan {
    void *library;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    VkPhysicalDeviceLimits limits;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t largest, local_nbytes;
    uint32_t family, subgroup, least_subgroup, most_subgroup;
    bool is_adopted; /* the caller's device */
    bool is_direct, has_control, has_f16_storage, has_i64, is_llvmpipe, is_lost;
    block *staging;
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define DECLARE(name) PFN_vk##name name;
    GLOBAL_FUNCTIONS(DECLARE) INSTANCE_FUNCTIONS(DECLARE) DEVICE_FUNCTIONS(DECLARE)
#undef DECLARE
} vulkan;

/* An error of Vulkan's as the runtime's; POOT_OK for VK_SUCCESS. */
poot_status told(vulkan *v, VkResult result, const char *what, poot_error *error);
poot_status begin_commands(vulkan *v, VkCommandBuffer *out, poot_error *error);
poot_status end_commands(vulkan *v, VkCommandBuffer commands, poot_error *error);
poot_status submit(vulkan *v, VkCommandBuffer commands, VkFence fence, const char *what,
                   poot_error *error);
void barrier(vulkan *v, VkCommandBuffer commands, bool to_host);
poot_status allocate_block(vulkan *v, uint64_t nbytes, bool mapped, const char *label, block **out,
                           poot_error *error);
void release_block(vulkan *v, block *b);

poot_status vulkan_load(poot_device *d, const poot_program *p, void **module, poot_error *error);
void vulkan_unload(poot_device *d, void *module);
poot_status vulkan_prepare(poot_device *d, const poot_program *p, void *module, const entry *e,
                           block **blocks, executable **out, poot_error *error);
poot_status vulkan_run(poot_device *d, executable *x, poot_error *error);
void vulkan_encode(poot_device *d, const poot_program *p, void *module, const entry *e,
                   executable *x, void *commands);
void vulkan_drop(poot_device *d, executable *x);

#endif
