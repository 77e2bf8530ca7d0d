/* The library's own names, out of the way of those of the program that it is linked into. */
#ifndef POOT_NAMES_H
#define POOT_NAMES_H

#define allocate_block poot_own_allocate_block
#define arena_free poot_own_arena_free
#define barrier poot_own_barrier
#define begin_commands poot_own_begin_commands
#define check_records poot_own_check_records
#define check_slot poot_own_check_slot
#define device_nbytes poot_own_device_nbytes
#define dtype_nbytes poot_own_dtype_nbytes
#define end_commands poot_own_end_commands
#define fail poot_own_fail
#define find_buffer poot_own_find_buffer
#define find_member poot_own_find_member
#define find_resident poot_own_find_resident
#define get_bool poot_own_get_bool
#define get_int poot_own_get_int
#define get_list poot_own_get_list
#define get_object poot_own_get_object
#define get_text poot_own_get_text
#define has_feature poot_own_has_feature
#define host_nbytes poot_own_host_nbytes
#define is_null poot_own_is_null
#define json_find poot_own_json_find
#define json_parse poot_own_json_parse
#define map_object poot_own_map_object
#define parse_entries poot_own_parse_entries
#define parse_kernels poot_own_parse_kernels
#define parse_place poot_own_parse_place
#define parse_type poot_own_parse_type
#define refuse poot_own_refuse
#define release_block poot_own_release_block
#define submit poot_own_submit
#define take poot_own_take
#define take_text poot_own_take_text
#define told poot_own_told
#define unmap_object poot_own_unmap_object
#define unzip poot_own_unzip
#define vulkan_drop poot_own_vulkan_drop
#define vulkan_encode poot_own_vulkan_encode
#define vulkan_load poot_own_vulkan_load
#define vulkan_prepare poot_own_vulkan_prepare
#define vulkan_run poot_own_vulkan_run
#define vulkan_unload poot_own_vulkan_unload

#endif
