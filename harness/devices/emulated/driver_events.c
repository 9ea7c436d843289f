/* XID events: a ring in the state file that Python fills, and the event sets that wait on it.
 *
 * Every registered GPU has a cursor of its own, so no event is lost or seen twice by a set, and a
 * GPU that is lost still delivers the XID that says so. A reader that fell behind by more than the
 * ring holds is told so once (INSUFFICIENT_RESOURCES) rather than left in the dark.
 */
#include "driver_nvml.h"

#include <stdlib.h>
#include <time.h>

#define XID_EVENT 8ull
#define POLL_NS 1000000 /* how soon a waiter sees an event; Python cannot signal it */

typedef struct {
    Gpu *gpu;
    uint64_t cursor; /* sequence number of the last event seen */
} Registration;

typedef struct {
    unsigned count, room;
    Registration *registered;
} EventSet;

typedef struct {
    Device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

static uint64_t head_of(const State *s)
{
    return __atomic_load_n(&s->header->events_head, __ATOMIC_ACQUIRE);
}

GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, 0, XID_EVENT)

EXPORT Return nvmlEventSetCreate(EventSet **out)
{
    if (!current_state()) return UNINITIALIZED;
    if (!out) return INVALID_ARGUMENT;
    *out = calloc(1, sizeof(EventSet));
    return *out ? SUCCESS : MEMORY;
}

EXPORT Return nvmlEventSetFree(EventSet *set)
{
    if (!set) return INVALID_ARGUMENT;
    free(set->registered);
    free(set);
    return SUCCESS;
}

EXPORT Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet *set)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!set || !types) return INVALID_ARGUMENT;
    if (types & ~XID_EVENT) return NOT_SUPPORTED;
    for (unsigned i = 0; i < set->count; i++)
        if (set->registered[i].gpu == device) return SUCCESS;
    if (set->count == set->room) {
        unsigned room = set->room ? 2 * set->room : 8;
        Registration *grown = realloc(set->registered, room * sizeof *grown);
        if (!grown) return MEMORY;
        set->registered = grown;
        set->room = room;
    }
    set->registered[set->count++] = (Registration){(Gpu *)device, head_of(device->state)};
    return SUCCESS;
}

/* Move this GPU's cursor up to its next event. TIMEOUT: there is none yet. */
static Return seek(Registration *at)
{
    const State *s = at->gpu->state;
    if (!s->header) return UNINITIALIZED;
    uint64_t head = head_of(s), room = s->header->events;
    if (head - at->cursor > room) {
        at->cursor = head - room;
        return INSUFFICIENT_RESOURCES;
    }
    while (at->cursor < head && s->events[at->cursor % room].row != at->gpu->row) at->cursor++;
    return at->cursor < head ? SUCCESS : TIMEOUT;
}

/* Take the event that was posted first among those of all registered GPUs. */
static Return take(EventSet *set, EventData *out)
{
    Registration *first = NULL;
    for (unsigned i = 0; i < set->count; i++) {
        Registration *at = &set->registered[i];
        Return status = seek(at);
        if (status != SUCCESS && status != TIMEOUT) return status;
        if (status == SUCCESS && (!first || at->cursor < first->cursor)) first = at;
    }
    if (!first) return TIMEOUT;
    const State *s = first->gpu->state;
    const Event *e = &s->events[first->cursor++ % s->header->events];
    *out = (EventData){first->gpu, XID_EVENT, e->code, 0xffffffffu, 0xffffffffu};
    return SUCCESS;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

EXPORT Return nvmlEventSetWait_v2(EventSet *set, EventData *out, unsigned timeout_ms)
{
    if (!current_state()) return UNINITIALIZED;
    if (!set || !out) return INVALID_ARGUMENT;
    int64_t deadline = now_ns() + timeout_ms * 1000000LL;
    for (;;) {
        Return status = take(set, out);
        if (status != TIMEOUT || now_ns() >= deadline) return status;
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
}

EXPORT Return nvmlEventSetWait(EventSet *set, EventData *out, unsigned timeout_ms)
{
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}
