/* The sensors of one GPU and its setters: memory, load, heat, power, clocks, ECC, remaps, PCIe. */
#include "driver_nvml.h"

typedef struct {
    unsigned long long total, free, used;
} MemoryInfo;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryInfoV2;

EXPORT Return nvmlDeviceGetMemoryInfo(Device device, MemoryInfo *out)
{
    Row *r;
    Return status = look(device, S_MEMORY, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    unsigned long long used = r->memory_used + r->memory_reserved; /* version 1 counts both */
    *out = (MemoryInfo){r->memory_total, r->memory_total - used, used};
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryInfoV2 *out)
{
    Row *r;
    Return status = look(device, S_MEMORY, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(MemoryInfoV2, 2)) return ARGUMENT_VERSION_MISMATCH;
    *out = (MemoryInfoV2){out->version, r->memory_total, r->memory_reserved,
                          r->memory_total - r->memory_used - r->memory_reserved, r->memory_used};
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetBAR1MemoryInfo(Device device, MemoryInfo *out)
{
    Row *r;
    Return status = look(device, S_MEMORY, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (MemoryInfo){r->bar1_total, r->bar1_total - r->bar1_used, r->bar1_used};
    return SUCCESS;
}

/* Two outputs that one sensor gives. */
static Return two(Device device, uint32_t sensors, size_t first, size_t second, unsigned *a,
                  unsigned *b)
{
    Row *r;
    Return status = look(device, sensors, &r);
    if (status != SUCCESS) return status;
    if (!a || !b) return INVALID_ARGUMENT;
    memcpy(a, (char *)r + first, sizeof *a);
    memcpy(b, (char *)r + second, sizeof *b);
    return SUCCESS;
}
#define TWO(SENSORS, A, B, OUT_A, OUT_B) \
    two(device, SENSORS, offsetof(Row, A), offsetof(Row, B), OUT_A, OUT_B)

EXPORT Return nvmlDeviceGetUtilizationRates(Device device, unsigned *out)
{
    return TWO(S_UTILISATION, util_gpu, util_memory, out, out ? out + 1 : NULL);
}

EXPORT Return nvmlDeviceGetEncoderUtilization(Device device, unsigned *out, unsigned *period_us)
{
    Return status = TWO(S_UTILISATION, util_encoder, util_encoder, out, period_us);
    if (status == SUCCESS) *period_us = 100000;
    return status;
}

EXPORT Return nvmlDeviceGetDecoderUtilization(Device device, unsigned *out, unsigned *period_us)
{
    Return status = TWO(S_UTILISATION, util_decoder, util_decoder, out, period_us);
    if (status == SUCCESS) *period_us = 100000;
    return status;
}

/* --- heat ------------------------------------------------------------------------------------ */

EXPORT Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out)
{
    Row *r;
    Return status = look(device, S_TEMPERATURE, &r);
    if (status != SUCCESS) return status;
    if (!out || sensor != 0) return INVALID_ARGUMENT;
    *out = (unsigned)r->temperature_c;
    return SUCCESS;
}

typedef struct {
    unsigned version, sensor;
    int temperature;
} Temperature;

EXPORT Return nvmlDeviceGetTemperatureV(Device device, Temperature *out)
{
    Row *r;
    Return status = look(device, S_TEMPERATURE, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(Temperature, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != 0) return INVALID_ARGUMENT;
    out->temperature = r->temperature_c;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int margin;
} Margin;

EXPORT Return nvmlDeviceGetMarginTemperature(Device device, Margin *out)
{
    Row *r;
    Return status = look(device, S_TEMPERATURE | S_MARGIN, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(Margin, 1)) return ARGUMENT_VERSION_MISMATCH;
    out->margin = r->margin_c;
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetTemperatureThreshold(Device device, unsigned which, unsigned *out)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    const int values[] = {r->shutdown_c, r->slowdown_c, r->memory_max_c, r->gpu_max_c};
    if (which >= 8) return INVALID_ARGUMENT;
    if (which >= 4 || values[which] == 0) return NOT_SUPPORTED;
    *out = (unsigned)values[which];
    return SUCCESS;
}

/* --- power ----------------------------------------------------------------------------------- */

unsigned limit_in_force(const Row *r)
{
    unsigned limit = r->limit_requested_mw;
    if (r->limit_out_of_band_mw && r->limit_out_of_band_mw < limit) limit = r->limit_out_of_band_mw;
    return r->limit_max_mw < limit ? r->limit_max_mw : limit;
}

GETTER(nvmlDeviceGetPowerUsage, unsigned, S_POWER, r->power_average_mw)
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, S_ENERGY, r->energy_mj)
GETTER(nvmlDeviceGetPowerManagementMode, unsigned, 0, 1)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, 0, limit_in_force(r))
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 0, limit_in_force(r))
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 0, r->limit_default_mw)

EXPORT Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned *lowest,
                                                           unsigned *highest)
{
    return TWO(0, limit_min_mw, limit_max_mw, lowest, highest);
}

EXPORT Return nvmlDeviceSetPowerManagementLimit(Device device, unsigned limit)
{
    Row *r;
    Return status = look_to_write(device, &r);
    if (status != SUCCESS) return status;
    if (limit < r->limit_min_mw || limit > r->limit_max_mw) return INVALID_ARGUMENT;
    r->limit_requested_mw = limit;
    return SUCCESS;
}

typedef struct {
    unsigned version, scope, limit;
} PowerValue;

EXPORT Return nvmlDeviceSetPowerManagementLimit_v2(Device device, const PowerValue *value)
{
    if (!value) return INVALID_ARGUMENT;
    if (value->version != VERSIONED(PowerValue, 2)) return ARGUMENT_VERSION_MISMATCH;
    return value->scope == 0 ? nvmlDeviceSetPowerManagementLimit(device, value->limit)
                             : NOT_SUPPORTED;
}

/* --- clocks ---------------------------------------------------------------------------------- */

static Return clock_of(Device device, unsigned type, size_t field, unsigned *out)
{
    Row *r;
    Return status = look(device, S_CLOCK, &r);
    if (status != SUCCESS) return status;
    if (!out || type >= 4) return INVALID_ARGUMENT;
    memcpy(out, (char *)r + field + type * sizeof *out, sizeof *out);
    return SUCCESS;
}
#define CLOCK_GETTER(NAME, FIELD)                                      \
    EXPORT Return NAME(Device device, unsigned type, unsigned *out)    \
    {                                                                  \
        return clock_of(device, type, offsetof(Row, FIELD), out);      \
    }
CLOCK_GETTER(nvmlDeviceGetClockInfo, clock_mhz)
CLOCK_GETTER(nvmlDeviceGetMaxClockInfo, clock_max_mhz)
CLOCK_GETTER(nvmlDeviceGetApplicationsClock, clock_app_mhz)
CLOCK_GETTER(nvmlDeviceGetDefaultApplicationsClock, clock_app_mhz)
CLOCK_GETTER(nvmlDeviceGetMaxCustomerBoostClock, clock_max_mhz)

EXPORT Return nvmlDeviceGetClock(Device device, unsigned type, unsigned id, unsigned *out)
{
    static const size_t fields[] = {offsetof(Row, clock_mhz), offsetof(Row, clock_app_mhz),
                                    offsetof(Row, clock_app_mhz), offsetof(Row, clock_max_mhz)};
    return id < 4 ? clock_of(device, type, fields[id], out) : INVALID_ARGUMENT;
}

EXPORT Return nvmlDeviceSetGpuLockedClocks(Device device, unsigned lowest, unsigned highest)
{
    Row *r;
    Return status = look_to_write(device, &r);
    if (status != SUCCESS) return status;
    if (lowest > highest || !highest) return INVALID_ARGUMENT;
    r->clock_locked_min_mhz = lowest;
    r->clock_locked_max_mhz = highest;
    return SUCCESS;
}

EXPORT Return nvmlDeviceResetGpuLockedClocks(Device device)
{
    Row *r;
    Return status = look_to_write(device, &r);
    if (status == SUCCESS) r->clock_locked_min_mhz = r->clock_locked_max_mhz = 0;
    return status;
}

GETTER(nvmlDeviceGetPerformanceState, unsigned, 0, r->pstate)
GETTER(nvmlDeviceGetPowerState, unsigned, 0, r->pstate)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, S_REASONS, r->event_reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, S_REASONS, r->event_reasons)
GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, S_REASONS, 0x1ff)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, S_REASONS, 0x1ff)

/* --- ECC and remapped rows ------------------------------------------------------------------- */

EXPORT Return nvmlDeviceGetEccMode(Device device, unsigned *now, unsigned *pending)
{
    return TWO(S_ECC, ecc_enabled, ecc_enabled, now, pending);
}

/* Find the counters of an error type and span: two numbers, DRAM and SRAM. */
static Return ecc_counters(Device device, unsigned type, unsigned span, Row **r)
{
    Return status = look(device, S_ECC, r);
    if (status != SUCCESS) return status;
    if (type >= 2 || span >= 2) return INVALID_ARGUMENT;
    return (*r)->ecc_enabled ? SUCCESS : NOT_SUPPORTED;
}

EXPORT Return nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned span,
                                          unsigned long long *out)
{
    Row *r;
    Return status = ecc_counters(device, type, span, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = r->ecc[type][span][0] + r->ecc[type][span][1];
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetMemoryErrorCounter(Device device, unsigned type, unsigned span,
                                              unsigned location, unsigned long long *out)
{
    Row *r;
    Return status = ecc_counters(device, type, span, &r);
    if (status != SUCCESS) return status;
    if (!out || location >= 8) return INVALID_ARGUMENT;
    if (location != 2 && location != 7) return NOT_SUPPORTED; /* DRAM, SRAM */
    *out = r->ecc[type][span][location == 7];
    return SUCCESS;
}

typedef struct {
    unsigned long long l1, l2, device_memory, registers;
} EccCounts;

EXPORT Return nvmlDeviceGetDetailedEccErrors(Device device, unsigned type, unsigned span,
                                             EccCounts *out)
{
    Row *r;
    Return status = ecc_counters(device, type, span, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (EccCounts){.l2 = r->ecc[type][span][1], .device_memory = r->ecc[type][span][0]};
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long sources[5];
    unsigned threshold_exceeded;
} SramStatus;

EXPORT Return nvmlDeviceGetSramEccErrorStatus(Device device, SramStatus *out)
{
    Row *r;
    Return status = look(device, S_ECC | S_SRAM, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(SramStatus, 1)) return ARGUMENT_VERSION_MISMATCH;
    *out = (SramStatus){.version = out->version,
                        .aggregate_corrected = r->ecc[0][1][1],
                        .aggregate_secded = r->ecc[1][1][1],
                        .volatile_corrected = r->ecc[0][0][1],
                        .volatile_secded = r->ecc[1][0][1],
                        .threshold_exceeded = r->sram_threshold};
    memcpy(out->sources, r->sram_sources, sizeof out->sources);
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected,
                                        unsigned *pending, unsigned *failure)
{
    Return status = TWO(S_REMAP, remap_corrected, remap_uncorrected, corrected, uncorrected);
    return status == SUCCESS ? TWO(S_REMAP, remap_pending, remap_failure, pending, failure)
                             : status;
}

EXPORT Return nvmlDeviceGetRowRemapperHistogram(Device device, unsigned *out)
{
    Row *r;
    Return status = look(device, S_REMAP, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    memcpy(out, r->remap_histogram, sizeof r->remap_histogram);
    return SUCCESS;
}

/* --- PCIe ------------------------------------------------------------------------------------ */

GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, S_PCIE, r->pcie_gen)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, S_PCIE, r->pcie_gen_max)
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, S_PCIE, r->pcie_gen_max)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, S_PCIE, r->pcie_width)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, S_PCIE, r->pcie_width_max)
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned, S_PCIE, r->pcie_replays)

EXPORT Return nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *out)
{
    Row *r;
    Return status = look(device, S_PCIE, &r);
    if (status != SUCCESS) return status;
    if (!out || counter >= 2) return INVALID_ARGUMENT;
    *out = counter ? r->pcie_rx_kbps : r->pcie_tx_kbps;
    return SUCCESS;
}
