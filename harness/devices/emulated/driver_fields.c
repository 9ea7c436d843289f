/* nvmlDeviceGetFieldValues: one table of ids, and power smoothing, whose ids moved.
 *
 * The call succeeds as a whole and each entry carries its own return value. The ids 251-273 mean
 * different things before driver 575, from 575, and from 580.82 on; `Era` says which holds, and
 * `settled_id` turns each into the numbering of 580.82.
 */
#include "driver_nvml.h"

#include <time.h>

enum { U32 = 1, U64 = 3, I32 = 5 }; /* NVML's value types */

static Return put(FieldValue *v, unsigned type, uint64_t value)
{
    v->value_type = type;
    v->value.ull = 0;
    if (type == U64)
        v->value.ull = value;
    else
        v->value.ui = (unsigned)value; /* an int32 has the same bits */
    return SUCCESS;
}

/* Turn an id as this driver version numbers it into today's; 0 where it has no such field. */
static unsigned settled_id(unsigned id, Era era)
{
    if (id < 251 || era == FROM_580_82) return id;
    if (era == BEFORE_575) return id <= 268 ? id : 0;
    if (id > 273) return 0;
    return id <= 255 ? id + 18 : id - 5;
}

#define FIELD(ID, TYPE, SENSORS, EXPRESSION) \
    case ID:                                 \
        status = sensed(r, SENSORS);         \
        return status != SUCCESS ? status : put(v, TYPE, (uint64_t)(EXPRESSION));

static Return ecc_field(const Row *r, FieldValue *v)
{
    Return status = r->ecc_enabled ? SUCCESS : NOT_SUPPORTED;
    if (status != SUCCESS && v->field_id > 2) return status;
#define ECC(TYPE, SPAN) (r->ecc[TYPE][SPAN][0] + r->ecc[TYPE][SPAN][1])
    switch (v->field_id) {
        FIELD(1, U32, S_ECC, r->ecc_enabled)
        FIELD(2, U32, S_ECC, r->ecc_enabled)
        FIELD(3, U64, S_ECC, ECC(0, 0))
        FIELD(4, U64, S_ECC, ECC(1, 0))
        FIELD(5, U64, S_ECC, ECC(0, 1))
        FIELD(6, U64, S_ECC, ECC(1, 1))
        FIELD(11, U64, S_ECC, r->ecc[0][0][0])
        FIELD(12, U64, S_ECC, r->ecc[1][0][0])
        FIELD(22, U64, S_ECC, r->ecc[0][1][0])
        FIELD(23, U64, S_ECC, r->ecc[1][1][0])
    default: return NOT_SUPPORTED;
    }
}

static Return power_field(const Row *r, FieldValue *v)
{
    Return status;
    if (v->scope_id != 0) return NOT_SUPPORTED; /* the GPU's own power; no module, no memory */
    switch (v->field_id) {
        FIELD(83, U64, S_ENERGY, r->energy_mj)
        FIELD(185, U32, S_POWER, r->power_average_mw)
        FIELD(186, U32, S_POWER, r->power_instant_mw)
        FIELD(187, U32, 0, r->limit_min_mw)
        FIELD(188, U32, 0, r->limit_max_mw)
        FIELD(189, U32, 0, r->limit_default_mw)
        FIELD(190, U32, 0, limit_in_force(r))
        FIELD(191, U64, S_ENERGY, r->energy_mj)
        FIELD(192, U32, 0, r->limit_requested_mw)
    default: return NOT_SUPPORTED;
    }
}

/* Fields of one link; its number stands in scope_id. */
static Return link_field(const Row *r, FieldValue *v)
{
    Return status;
    unsigned id = v->field_id;
    if (v->scope_id >= r->nvlink_count || v->scope_id >= LINKS) return NOT_SUPPORTED;
    const Link *link = &r->links[v->scope_id];
    /* The counters of the physical layer came with NVLink 5.0 (version number 7). */
    if (id > 200 && r->nvlink_version < 7) return NOT_SUPPORTED;
    if (id >= 235 && id <= 250) {
        status = sensed(r, S_NVLINK);
        return status != SUCCESS ? status : put(v, U64, link->fec_history[id - 235]);
    }
    switch (id) {
        FIELD(138, U64, S_NVLINK, link->tx_kib)
        FIELD(139, U64, S_NVLINK, link->rx_kib)
        FIELD(140, U64, S_NVLINK, link->tx_kib)
        FIELD(141, U64, S_NVLINK, link->rx_kib)
        FIELD(146, U32, S_NVLINK, link->remote_link)
        FIELD(161, U64, S_NVLINK, link->replay)
        FIELD(162, U64, S_NVLINK, link->recovery)
        FIELD(163, U64, S_NVLINK, link->crc)
        FIELD(164, U32, S_NVLINK, link->speed_mbps)
        FIELD(165, U32, S_NVLINK, link->state)
        FIELD(166, U32, S_NVLINK, r->nvlink_version)
        FIELD(202, U64, S_NVLINK, link->tx_kib * 1024)
        FIELD(204, U64, S_NVLINK, link->rx_kib * 1024)
        FIELD(213, U64, S_NVLINK, link->recovered)
        FIELD(214, U64, S_NVLINK, link->unrecovered)
        FIELD(215, U64, S_NVLINK, link->recovered + link->unrecovered)
        FIELD(219, U64, S_NVLINK, link->effective_errors)
        FIELD(220, U64, S_NVLINK, (uint64_t)link->ber_mantissa << 8 | link->ber_exponent)
        FIELD(221, U64, S_NVLINK, link->symbol_errors)
        FIELD(222, U64, S_NVLINK,
              (uint64_t)link->symbol_ber_mantissa << 8 | link->symbol_ber_exponent)
    default: return NOT_SUPPORTED;
    }
}

static uint64_t total(const Row *r, size_t counter)
{
    uint64_t sum = 0, value;
    for (unsigned i = 0; i < r->nvlink_count && i < LINKS; i++) {
        memcpy(&value, (const char *)&r->links[i] + counter, sizeof value);
        sum += value;
    }
    return sum;
}

/* Fields of all links together. */
static Return links_field(const Row *r, FieldValue *v)
{
    Return status;
    switch (v->field_id) {
        FIELD(38, U64, S_NVLINK, total(r, offsetof(Link, crc)))
        FIELD(52, U64, S_NVLINK, total(r, offsetof(Link, replay)))
        FIELD(59, U64, S_NVLINK, total(r, offsetof(Link, recovery)))
        FIELD(90, U32, S_NVLINK, r->links[0].speed_mbps)
        FIELD(91, U32, S_NVLINK, r->nvlink_count)
        FIELD(147, U32, S_NVLINK, r->nvlink_count)
    default: return NOT_SUPPORTED;
    }
}

static Return smoothing_field(const Row *r, FieldValue *v, unsigned id)
{
    Return status;
    if (!r->smoothing_supported) return NOT_SUPPORTED;
    if (id >= 260 && id <= 263) { /* of one profile: floor %, ramps mW/s, hysteresis ms */
        if (v->scope_id >= PROFILES) return INVALID_ARGUMENT;
        return put(v, U32, r->smoothing_profiles[v->scope_id][id - 260]);
    }
    switch (id) {
        FIELD(251, U32, 0, r->smoothing_enabled)
        FIELD(254, U32, 0, r->smoothing_ceiling_mw)
        FIELD(255, U32, 0, r->smoothing_floor_mw)
        FIELD(256, U32, 0, r->smoothing_floor_max)
        FIELD(257, U32, 0, r->smoothing_floor_min)
        FIELD(258, U32, 0, r->smoothing_lifetime)
        FIELD(259, U32, 0, PROFILES)
        FIELD(264, U32, 0, r->smoothing_profile)
    default: return NOT_SUPPORTED;
    }
}

static Return gpu_field(const Row *r, FieldValue *v, unsigned id)
{
    Return status;
    switch (id) {
        FIELD(74, U64, S_REASONS, r->throttled_power_ns)
        FIELD(75, U64, S_REASONS, r->throttled_thermal_ns)
        FIELD(76, U64, S_REASONS, r->throttled_sync_ns)
        FIELD(77, U64, S_REASONS, r->throttled_board_ns)
        FIELD(78, U64, S_REASONS, r->throttled_idle_ns)
        FIELD(79, U64, S_REASONS, r->throttled_reliability_ns)
        FIELD(82, U32, S_TEMPERATURE, r->memory_temperature_c)
        FIELD(94, U32, S_PCIE, r->pcie_replays)
        FIELD(95, U32, S_PCIE, 0)
        FIELD(142, U32, S_REMAP, r->remap_corrected)
        FIELD(143, U32, S_REMAP, r->remap_uncorrected)
        FIELD(144, U32, S_REMAP, r->remap_pending)
        FIELD(145, U32, S_REMAP, r->remap_failure)
        FIELD(193, I32, 0, r->shutdown_offset_c)
        FIELD(194, I32, 0, r->slowdown_offset_c)
        FIELD(195, I32, 0, r->memory_max_offset_c)
        FIELD(196, I32, 0, r->gpu_max_offset_c)
        FIELD(230, U32, S_RECOVERY, r->recovery_action)
        FIELD(269, U64, S_REASONS, r->throttled_thermal_ns)
        FIELD(270, U64, S_REASONS, r->throttled_hw_thermal_ns)
        FIELD(271, U64, S_REASONS, r->throttled_brake_ns)
    default: return NOT_SUPPORTED;
    }
}

static Return answer(const Row *r, FieldValue *v, Era era)
{
    unsigned id = settled_id(v->field_id, era);
    if (id >= 1 && id <= 28) return ecc_field(r, v);
    if (id == 83 || (id >= 185 && id <= 192)) return power_field(r, v);
    if ((id >= 138 && id <= 141) || id == 146 || (id >= 161 && id <= 166) ||
        (id >= 201 && id <= 222) || (id >= 235 && id <= 250))
        return link_field(r, v);
    if ((id >= 32 && id <= 73) || id == 90 || id == 91 || id == 147) return links_field(r, v);
    if (id >= 251 && id <= 268) return smoothing_field(r, v, id);
    return gpu_field(r, v, id);
}

static int64_t time_us(const Header *h)
{
    struct timespec t;
    if (h->time_us) return h->time_us;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

EXPORT Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!values || count < 1) return INVALID_ARGUMENT;
    int64_t now = time_us(device->state->header);
    for (FieldValue *v = values; v < values + count; v++) {
        v->timestamp = now;
        v->latency_us = 0;
        v->status = answer(r, v, device->state->era);
    }
    return SUCCESS;
}

typedef struct {
    unsigned long long reference_ns, violation_ns;
} ViolationTime;

EXPORT Return nvmlDeviceGetViolationStatus(Device device, unsigned policy, ViolationTime *out)
{
    Row *r;
    Return status = look(device, S_REASONS, &r);
    if (status != SUCCESS) return status;
    if (!out || policy >= 12) return INVALID_ARGUMENT;
    if (policy >= 6) return NOT_SUPPORTED;
    const uint64_t times[] = {r->throttled_power_ns, r->throttled_thermal_ns, r->throttled_sync_ns,
                              r->throttled_board_ns, r->throttled_idle_ns,
                              r->throttled_reliability_ns};
    *out = (ViolationTime){(unsigned long long)time_us(device->state->header) * 1000,
                           times[policy]};
    return SUCCESS;
}

/* --- power smoothing: setters ---------------------------------------------------------------- */

static Return smoothing_to_write(Device device, Row **r)
{
    Return status = look_to_write(device, r);
    if (status != SUCCESS) return status;
    return (*r)->smoothing_supported ? SUCCESS : NOT_SUPPORTED;
}

typedef struct {
    unsigned version, state;
} SmoothingState;

EXPORT Return nvmlDevicePowerSmoothingSetState(Device device, const SmoothingState *wanted)
{
    Row *r;
    Return status = smoothing_to_write(device, &r);
    if (status != SUCCESS) return status;
    if (!wanted || wanted->state > 1) return INVALID_ARGUMENT;
    if (wanted->version != VERSIONED(SmoothingState, 1)) return ARGUMENT_VERSION_MISMATCH;
    r->smoothing_enabled = wanted->state;
    return SUCCESS;
}

typedef struct {
    unsigned version, profile, parameter;
    double value;
} SmoothingProfile;

EXPORT Return nvmlDevicePowerSmoothingActivatePresetProfile(Device device,
                                                            const SmoothingProfile *wanted)
{
    Row *r;
    Return status = smoothing_to_write(device, &r);
    if (status != SUCCESS) return status;
    if (!wanted || wanted->profile >= PROFILES) return INVALID_ARGUMENT;
    if (wanted->version != VERSIONED(SmoothingProfile, 1)) return ARGUMENT_VERSION_MISMATCH;
    r->smoothing_profile = wanted->profile;
    return SUCCESS;
}

EXPORT Return nvmlDevicePowerSmoothingUpdatePresetProfileParam(Device device,
                                                               const SmoothingProfile *wanted)
{
    Row *r;
    Return status = smoothing_to_write(device, &r);
    if (status != SUCCESS) return status;
    if (!wanted || wanted->profile >= PROFILES || wanted->parameter >= 4) return INVALID_ARGUMENT;
    if (wanted->version != VERSIONED(SmoothingProfile, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (!(wanted->value >= 0 && wanted->value <= 4e6)) return INVALID_ARGUMENT;
    if (wanted->parameter == 0 && (wanted->value < r->smoothing_floor_min ||
                                   wanted->value > r->smoothing_floor_max))
        return INVALID_ARGUMENT;
    /* Ramp rates are written in W/s and read back in mW/s. */
    double scale = wanted->parameter == 1 || wanted->parameter == 2 ? 1000 : 1;
    r->smoothing_profiles[wanted->profile][wanted->parameter] = (uint32_t)(wanted->value * scale);
    return SUCCESS;
}
