/* poot's runtime: runs programs that poot saved (`program.save("x.poot", weights)`), without Python.
 *
 * A program is loaded from a bundle, bound to a device with its weights, and stepped: slots are
 * given, an entry point runs, outputs are read. A step is a transaction: where it returns an error,
 * no State differs from before it (POOT_ERROR_LAUNCH and POOT_ERROR_LOST apart).
 *
 * Every function that can fail returns a poot_status and fills `error`, which may be NULL. A device
 * and the sessions on it are used by one thread at a time; a program may be shared by several. Names
 * are those of Python: an input's name is dotted ("w.layers.0.q"). Arrays are in C order, of the
 * dtypes below; a bool is one byte, 0 or 1. The machine is little-endian.
 */
#ifndef POOT_H
#define POOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum poot_status {
    POOT_OK = 0,
    POOT_ERROR_FORMAT,      /* a file isn't what it says it is, or of another version */
    POOT_ERROR_CAPABILITY,  /* the device hasn't got what the program needs */
    POOT_ERROR_UNAVAILABLE, /* there is no such device, or no driver */
    POOT_ERROR_MEMORY,      /* the host or the device is out of memory */
    POOT_ERROR_BIND,        /* a name, size or handle that doesn't fit the program */
    POOT_ERROR_RANGE,       /* a slot holds a word outside its declared range */
    POOT_ERROR_SLOT_MAP,    /* a write map names a slot twice, or one outside the pool */
    POOT_ERROR_VALIDATION,  /* a guard failed on the device; nothing was published */
    POOT_ERROR_LAUNCH,      /* the driver refused; States may be half written: reset them */
    POOT_ERROR_LOST         /* the device is gone */
} poot_status;

typedef struct poot_error {
    poot_status status;
    char message[512]; /* for people, with the values seen */
    char where[256];   /* of a guard: file:line in the traced function */
    /* Of POOT_ERROR_RANGE and POOT_ERROR_VALIDATION: the first word that failed, by its flat
     * index, its value, and what it had to lie in; `count` is how many failed. */
    int64_t index, value, low, high, count;
} poot_error;

typedef enum poot_dtype {
    POOT_F32, POOT_F16, POOT_BF16, POOT_F8E4M3, POOT_I32, POOT_U32, POOT_I8, POOT_U8, POOT_BOOL
} poot_dtype;

typedef enum poot_storage { POOT_WEIGHT, POOT_STATE, POOT_SLOT } poot_storage;

#define POOT_MOST_RANK 16

typedef struct poot_tensor {
    const char *name; /* of an input; NULL of an output */
    poot_storage storage;
    poot_dtype dtype;
    int rank;
    int64_t shape[POOT_MOST_RANK];
    size_t nbytes;     /* of the array that a caller hands over or gets */
    const char *kind;  /* of a slot: "pos", "tokens", "slot_map", "write_map", "user", ... */
    int has_range;     /* of a slot: every word lies in low..high, high excluded */
    int64_t low, high;
} poot_tensor;

typedef struct poot_program poot_program;
typedef struct poot_device poot_device;
typedef struct poot_session poot_session;

/* Programs. `poot_load` reads a file; `poot_load_memory` copies what it needs of the bytes. */
poot_status poot_load(const char *path, poot_program **program, poot_error *error);
poot_status poot_load_memory(const void *data, size_t nbytes, poot_program **program,
                             poot_error *error);
void poot_program_free(poot_program *program); /* after its sessions */
const char *poot_program_target(const poot_program *program); /* "llvm", "spirv" or "ptx" */
const char *poot_program_arch(const poot_program *program);
size_t poot_program_memory(const poot_program *program); /* device bytes that a session takes */
int poot_entry_count(const poot_program *program);
const char *poot_entry_name(const poot_program *program, int entry);
int poot_entry_find(const poot_program *program, const char *name); /* -1 where there is none */
int poot_input_count(const poot_program *program, int entry);
int poot_output_count(const poot_program *program, int entry);
int poot_input(const poot_program *program, int entry, int n, poot_tensor *tensor); /* 0: none */
int poot_output(const poot_program *program, int entry, int n, poot_tensor *tensor);

/* Devices. Only what is asked for is loaded: libvulkan.so.1 and libcuda.so.1 at run time. */
#define POOT_ANY_PROCESSOR 1 /* run code for a processor's name: the caller knows it is this one */
poot_status poot_open_cpu(int threads, unsigned flags, poot_device **device,
                          poot_error *error); /* 0 threads: one a processor */
poot_status poot_open_vulkan(int index, poot_device **device, poot_error *error);
poot_status poot_open_cuda(int index, poot_device **device, poot_error *error);
/* A device that the caller opened, with a queue that has compute. `flags` are what it turned on. The
 * caller closes it, after poot_device_close. Calls that copy or step use the queue. */
#define POOT_VULKAN_16BIT_STORAGE 1    /* storageBuffer16BitAccess */
#define POOT_VULKAN_INT64 2            /* shaderInt64 */
#define POOT_VULKAN_SUBGROUP_CONTROL 4 /* subgroupSizeControl and computeFullSubgroups */
typedef struct poot_vulkan_handles {
    void *instance, *physical, *device, *queue; /* VkInstance, VkPhysicalDevice, VkDevice, VkQueue */
    uint32_t family, flags;
    void *get_instance_proc_addr; /* PFN_vkGetInstanceProcAddr */
} poot_vulkan_handles;
poot_status poot_adopt_vulkan(const poot_vulkan_handles *handles, poot_device **device,
                              poot_error *error);
const char *poot_device_name(const poot_device *device);
void poot_device_close(poot_device *device); /* after its sessions */

/* Sessions. `weights` is the path of the safetensors file that was saved with the program, or NULL
 * where the program has no weights. States begin as zeros. */
poot_status poot_bind(poot_program *program, poot_device *device, const char *weights,
                      poot_session **session, poot_error *error);
void poot_session_close(poot_session *session);

/* Slots keep what they were given. Range and write maps are checked here. `nbytes` is the whole
 * array's size. */
poot_status poot_set(poot_session *session, int entry, const char *slot, const void *data,
                     size_t nbytes, poot_error *error);
/* Elements first .. first + count - 1 of a slot that holds something already, in C order: whole words
 * of 4 bytes. A write map is given whole. */
poot_status poot_set_part(poot_session *session, int entry, const char *slot, size_t first,
                          size_t count, const void *data, poot_error *error);
/* Runs an entry point and waits. The launches are recorded at the first step (or by
 * `poot_prepare`), and replayed from then on. */
poot_status poot_prepare(poot_session *session, int entry, poot_error *error);
poot_status poot_step(poot_session *session, int entry, poot_error *error);
/* On Vulkan: the launches into a VkCommandBuffer that is being recorded, between two barriers, to
 * be submitted any number of times. It names the session's memory: submit it before the session is
 * closed. After each, once its fence has signalled, `poot_settle` tells what poot_step would have. */
poot_status poot_record_vulkan(poot_session *session, int entry, void *commands, poot_error *error);
poot_status poot_settle(poot_session *session, int entry, poot_error *error);
/* An output of the last step, which has to have been of this entry point. */
poot_status poot_get(poot_session *session, int entry, int output, void *data, size_t nbytes,
                     poot_error *error);
poot_status poot_read_state(poot_session *session, const char *name, void *data, size_t nbytes,
                            poot_error *error);
poot_status poot_write_state(poot_session *session, const char *name, const void *data,
                             size_t nbytes, poot_error *error);
poot_status poot_reset(poot_session *session, poot_error *error); /* zeroes every State */

#ifdef __cplusplus
}
#endif
#endif
