/* An emulated driver at NVML's binary interface: libnvidia-ml.so.1 over one mmap'd state file.
 *
 * In: a state file (driver_state.h) named by rackproofSetState or RACKPROOF_NVML_STATE, and the
 * calls of any program that speaks NVML. Out: what that state says. This part maps the file, keeps
 * the handles and counts the GPUs; the readings are in the files beside it. A call that is not
 * exported does not exist here, as in an older driver.
 *
 * Several states may be mapped at once (a process that compares two racks): a handle carries its
 * own, and only enumeration speaks of the current one.
 */
#include "driver_nvml.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static State *states; /* never freed, so that a stale handle is an error and not a crash */
static State *current;
static unsigned users;
static char chosen[4096];

typedef struct {
    const char *name;
    unsigned offset, size;
} Member;

#define ENTRY(S, type, name) {#S "." #name, offsetof(S, name), sizeof(((S *)0)->name)},
#define HEADER_ENTRY(type, name, suffix) ENTRY(Header, type, name)
#define EVENT_ENTRY(type, name, suffix) ENTRY(Event, type, name)
#define LINK_ENTRY(type, name, suffix) ENTRY(Link, type, name)
#define ROW_ENTRY(type, name, suffix) ENTRY(Row, type, name)

static const Member members[] = {
    HEADER_FIELDS(HEADER_ENTRY) EVENT_FIELDS(EVENT_ENTRY) LINK_FIELDS(LINK_ENTRY)
        ROW_FIELDS(ROW_ENTRY){"Header", 0, sizeof(Header)},
    {"Event", 0, sizeof(Event)},
    {"Link", 0, sizeof(Link)},
    {"Row", 0, sizeof(Row)},
};

/* The layout, one member a call, for Python to compare; NOT_FOUND past the last. */
EXPORT Return rackproofLayout(unsigned index, const char **name, unsigned *offset, unsigned *size)
{
    if (index >= sizeof members / sizeof members[0]) return NOT_FOUND;
    *name = members[index].name;
    *offset = members[index].offset;
    *size = members[index].size;
    return SUCCESS;
}

static Era era_of(const char *version)
{
    unsigned major = 0, minor = 0;
    if (sscanf(version, "%u.%u", &major, &minor) < 1 || major < 575) return BEFORE_575;
    return major > 580 || (major == 580 && minor >= 82) ? FROM_580_82 : FROM_575;
}

static int layout_matches(const Header *h, size_t size)
{
    return size >= sizeof *h && !memcmp(h->magic, STATE_MAGIC, sizeof h->magic) &&
           h->version == STATE_VERSION && h->header_size == sizeof(Header) &&
           h->event_size == sizeof(Event) && h->row_size == sizeof(Row) &&
           h->link_size == sizeof(Link) && h->events > 0 && h->events_offset >= sizeof *h &&
           h->events_offset % 8 == 0 && h->rows_offset % 8 == 0 && h->events_offset <= size &&
           h->rows_offset <= size &&
           h->events <= (size - h->events_offset) / sizeof(Event) &&
           h->rows <= (size - h->rows_offset) / sizeof(Row);
}

static void choose_view(State *s)
{
    const char *view = getenv("RACKPROOF_NVML_TRAY");
    s->view_rack = s->header->view_rack;
    s->view_tray = s->header->view_tray;
    if (view && sscanf(view, "%d,%d", &s->view_rack, &s->view_tray) != 2)
        s->view_rack = s->view_tray = -2; /* a view that nobody can read shows nothing */
}

static Return adopt(State *s, Header *header, size_t size)
{
    s->gpus = calloc(header->rows ? header->rows : 1, sizeof(Gpu));
    if (!s->gpus) return MEMORY;
    for (unsigned i = 0; i < header->rows; i++) s->gpus[i] = (Gpu){s, i};
    s->size = size;
    s->events = (Event *)((char *)header + header->events_offset);
    s->rows = (Row *)((char *)header + header->rows_offset);
    s->era = era_of(header->driver_version);
    s->header = header;
    s->next = states;
    states = s;
    return SUCCESS;
}

/* Map the open file, or find it among those that are mapped already. */
static Return map_file(int file, int writable, State **out)
{
    struct stat about;
    if (fstat(file, &about) != 0) return DRIVER_NOT_LOADED;
    for (State *s = states; s; s = s->next)
        if (s->header && s->device == (uint64_t)about.st_dev &&
            s->inode == (uint64_t)about.st_ino) {
            *out = s;
            return SUCCESS;
        }
    size_t size = (size_t)about.st_size;
    if (size < sizeof(Header)) return LIB_RM_VERSION_MISMATCH;
    int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    Header *header = mmap(NULL, size, rights, MAP_SHARED, file, 0);
    if (header == MAP_FAILED) return DRIVER_NOT_LOADED;
    State *s = layout_matches(header, size) ? calloc(1, sizeof *s) : NULL;
    Return status = s ? adopt(s, header, size) : LIB_RM_VERSION_MISMATCH;
    if (status != SUCCESS) {
        munmap(header, size);
        free(s);
        return status;
    }
    s->writable = writable;
    s->device = (uint64_t)about.st_dev;
    s->inode = (uint64_t)about.st_ino;
    *out = s;
    return SUCCESS;
}

/* Map the state that was chosen and make it the current one; `lock` is held. */
static Return enter(void)
{
    const char *path = chosen[0] ? chosen : getenv("RACKPROOF_NVML_STATE");
    if (!path || !path[0]) return DRIVER_NOT_LOADED;
    int writable = 1, file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        writable = 0;
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0) return DRIVER_NOT_LOADED;
    State *found = NULL;
    Return status = map_file(file, writable, &found);
    close(file);
    if (status != SUCCESS) return status;
    choose_view(found);
    current = found;
    return SUCCESS;
}

/* Choose the state file for the next nvmlInit, or at once where the library is initialised. */
EXPORT Return rackproofSetState(const char *path)
{
    if (!path || strlen(path) >= sizeof chosen) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    char before[sizeof chosen];
    memcpy(before, chosen, sizeof chosen);
    strcpy(chosen, path);
    Return status = users ? enter() : SUCCESS;
    if (status != SUCCESS) memcpy(chosen, before, sizeof chosen);
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT Return nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    Return status = users && current ? SUCCESS : enter();
    if (status == SUCCESS) users++;
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT Return nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT Return nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    Return status = users ? SUCCESS : UNINITIALIZED;
    if (users && --users == 0) {
        for (State *s = states; s; s = s->next) {
            if (s->header) munmap(s->header, s->size);
            s->header = NULL;
        }
        current = NULL;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

State *current_state(void) { return current; }

Return sensed(const Row *row, uint32_t sensors)
{
    if (row->missing & sensors) return UNKNOWN;
    return row->unsupported & sensors ? NOT_SUPPORTED : SUCCESS;
}

Return look(Device device, uint32_t sensors, Row **row)
{
    if (!current) return UNINITIALIZED;
    if (!device || !device->state) return INVALID_ARGUMENT;
    if (!device->state->header) return UNINITIALIZED;
    Row *r = &device->state->rows[device->row];
    if (r->flags & FLAG_LOST) return GPU_IS_LOST;
    if (r->flags & FLAG_HUNG) return TIMEOUT;
    *row = r;
    return sensed(r, sensors);
}

Return look_to_write(Device device, Row **row)
{
    Return status = look(device, 0, row);
    if (status != SUCCESS) return status;
    return device->state->writable && !((*row)->flags & FLAG_NO_PERMISSION) ? SUCCESS
                                                                            : NO_PERMISSION;
}

Return copy_text(const char *text, size_t room, char *out, unsigned length)
{
    size_t size = strnlen(text, room);
    if (!size) return NOT_SUPPORTED;
    if (!out) return INVALID_ARGUMENT;
    if (length <= size) return INSUFFICIENT_SIZE;
    memcpy(out, text, size);
    out[size] = 0;
    return SUCCESS;
}

static int visible(const State *s, unsigned row)
{
    const Row *r = &s->rows[row];
    return !(r->flags & FLAG_ABSENT) &&
           (s->view_rack == -1 ||
            ((int)r->rack == s->view_rack && (int)r->tray == s->view_tray));
}

unsigned visible_index(Device device)
{
    unsigned index = 0;
    for (unsigned i = 0; i < device->row; i++) index += (unsigned)visible(device->state, i);
    return index;
}

EXPORT Return nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!current) return UNINITIALIZED;
    if (!count) return INVALID_ARGUMENT;
    *count = 0;
    for (unsigned i = 0; i < current->header->rows; i++) *count += (unsigned)visible(current, i);
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* Give out the handle of the `index`-th visible GPU for which `is` holds. A lost GPU keeps its
 * place but gives no new handle, as on a real driver. */
static Return find(int (*is)(const Row *, const void *), const void *what, unsigned index,
                   Device *out, Return absent)
{
    if (!current) return UNINITIALIZED;
    if (!out || !what) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < current->header->rows; i++)
        if (visible(current, i) && is(&current->rows[i], what) && index-- == 0) {
            *out = &current->gpus[i];
            return current->rows[i].flags & FLAG_LOST ? GPU_IS_LOST : SUCCESS;
        }
    return absent;
}

static int is_any(const Row *r, const void *what) { return r && what; }
static int is_uuid(const Row *r, const void *what)
{
    return !strncmp(r->uuid, what, sizeof r->uuid);
}
static int is_serial(const Row *r, const void *what)
{
    return !strncmp(r->serial, what, sizeof r->serial);
}
static int is_bus(const Row *r, const void *what)
{
    const unsigned *place = what;
    return r->pci_domain == place[0] && r->pci_bus == place[1] && r->pci_device == place[2];
}

EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out)
{
    return find(is_any, "", index, out, INVALID_ARGUMENT);
}
EXPORT Return nvmlDeviceGetHandleByIndex(unsigned index, Device *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}
EXPORT Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *out)
{
    return find(is_uuid, uuid, 0, out, NOT_FOUND);
}
EXPORT Return nvmlDeviceGetHandleBySerial(const char *serial, Device *out)
{
    return find(is_serial, serial, 0, out, NOT_FOUND);
}
EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char *text, Device *out)
{
    unsigned place[3] = {0, 0, 0};
    if (!text) return INVALID_ARGUMENT;
    if (sscanf(text, "%x:%x:%x", &place[0], &place[1], &place[2]) != 3) {
        place[0] = 0;
        if (sscanf(text, "%x:%x", &place[1], &place[2]) != 2) return INVALID_ARGUMENT;
    }
    return find(is_bus, place, 0, out, NOT_FOUND);
}
EXPORT Return nvmlDeviceGetHandleByPciBusId(const char *text, Device *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(text, out);
}
