/* What NVML's binary interface fixes (structs, return values), and what the parts of this library
 * share. Struct layouts follow nvidia-ml-py 13.615; the numbers are NVML's.
 */
#ifndef RACKPROOF_DRIVER_NVML_H
#define RACKPROOF_DRIVER_NVML_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "driver_state.h"

#define EXPORT __attribute__((visibility("default")))

typedef unsigned int Return;
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    MEMORY = 20,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* Which of NVML's three numberings of the field ids 251-273 the driver version speaks. */
typedef enum { BEFORE_575, FROM_575, FROM_580_82 } Era;

typedef struct Gpu Gpu;
typedef struct State {
    struct State *next;
    Header *header; /* NULL once unmapped */
    Event *events;
    Row *rows;
    Gpu *gpus;
    size_t size;
    uint64_t device, inode;
    int writable, view_rack, view_tray;
    Era era;
} State;

struct Gpu {
    State *state;
    unsigned row;
};
typedef const Gpu *Device;

/* Find the row behind a handle. SUCCESS only if the GPU answers and none of `sensors` is hidden. */
Return look(Device device, uint32_t sensors, Row **row);
/* The same, for a setter: also NO_PERMISSION where the row or the file says so. */
Return look_to_write(Device device, Row **row);
/* Whether one of `sensors` of this row is hidden, and how. */
Return sensed(const Row *row, uint32_t sensors);
unsigned visible_index(Device device);
/* The state that enumeration speaks of; NULL before nvmlInit. */
State *current_state(void);
/* The power limit in force in mW: the lowest of VBIOS, in-band and out-of-band. */
unsigned limit_in_force(const Row *row);
Return copy_text(const char *text, size_t room, char *out, unsigned length);

/* A getter with one output: NAME(device, TYPE *out). */
#define GETTER(NAME, TYPE, SENSORS, EXPRESSION)        \
    EXPORT Return NAME(Device device, TYPE *out)       \
    {                                                  \
        Row *r;                                        \
        Return status = look(device, SENSORS, &r);     \
        if (status != SUCCESS) return status;          \
        if (!out) return INVALID_ARGUMENT;             \
        *out = (TYPE)(EXPRESSION);                     \
        return SUCCESS;                                \
    }

/* A getter of a string: NAME(device, char *out, unsigned length). Empty means NOT_SUPPORTED. */
#define TEXT_GETTER(NAME, SENSORS, FIELD)                                \
    EXPORT Return NAME(Device device, char *out, unsigned length)        \
    {                                                                    \
        Row *r;                                                          \
        Return status = look(device, SENSORS, &r);                       \
        if (status != SUCCESS) return status;                            \
        return copy_text(r->FIELD, sizeof r->FIELD, out, length);        \
    }

/* A call that this part has and that says NOT_SUPPORTED. Its further arguments are not touched:
 * the caller owns them under the C calling conventions of x86-64 and AArch64. */
#define REFUSAL(NAME)                                      \
    EXPORT Return NAME(Device device)                      \
    {                                                      \
        Row *r;                                            \
        Return status = look(device, 0, &r);               \
        return status == SUCCESS ? NOT_SUPPORTED : status; \
    }

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    char bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id, reserved[4];
} PciInfoV2;

typedef struct {
    unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
} PciInfoExt;

typedef union {
    double d;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    int si;
    unsigned short us;
} Value;

typedef struct {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_us;
    unsigned value_type;
    Return status;
    Value value;
} FieldValue;

#define VERSIONED(TYPE, N) ((unsigned)sizeof(TYPE) | ((unsigned)(N) << 24))

#endif
