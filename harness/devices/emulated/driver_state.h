/* The state file: one header, a ring of events, one fixed row for each GPU.
 *
 * Python writes it (driver.py, the same fields as a numpy dtype) and this library reads it. The
 * fields stand in X-macros, so that the structs and the table by which Python checks every name,
 * offset and size (rackproofLayout) come from one list. Units are documented in driver.py.
 * Members are ordered so that the compiler adds no padding: numpy's packed dtype has none.
 */
#ifndef RACKPROOF_DRIVER_STATE_H
#define RACKPROOF_DRIVER_STATE_H

#include <stdint.h>

#define STATE_MAGIC "RPNVML\r\n"
#define STATE_VERSION 1u
#define LINKS 18
#define PROFILES 5

#define HEADER_FIELDS(F)             \
    F(char, magic, [8])              \
    F(uint64_t, events_offset, )     \
    F(uint64_t, rows_offset, )       \
    F(uint64_t, events_head, )       \
    F(int64_t, time_us, )            \
    F(uint32_t, version, )           \
    F(uint32_t, header_size, )       \
    F(uint32_t, event_size, )        \
    F(uint32_t, row_size, )          \
    F(uint32_t, link_size, )         \
    F(uint32_t, rows, )              \
    F(uint32_t, events, )            \
    F(uint32_t, cuda_version, )      \
    F(int32_t, view_rack, )          \
    F(int32_t, view_tray, )          \
    F(char, driver_version, [80])    \
    F(char, nvml_version, [80])

#define EVENT_FIELDS(F)    \
    F(uint64_t, sequence, ) \
    F(double, at, )        \
    F(uint32_t, row, )     \
    F(uint32_t, code, )    \
    F(char, text, [232])

#define LINK_FIELDS(F)                  \
    F(uint64_t, replay, )               \
    F(uint64_t, recovery, )             \
    F(uint64_t, crc, )                  \
    F(uint64_t, tx_kib, )               \
    F(uint64_t, rx_kib, )               \
    F(uint64_t, effective_errors, )     \
    F(uint64_t, symbol_errors, )        \
    F(uint64_t, recovered, )            \
    F(uint64_t, unrecovered, )          \
    F(uint64_t, fec_history, [16])      \
    F(uint32_t, state, )                \
    F(uint32_t, speed_mbps, )           \
    F(uint32_t, ber_mantissa, )         \
    F(uint32_t, ber_exponent, )         \
    F(uint32_t, symbol_ber_mantissa, )  \
    F(uint32_t, symbol_ber_exponent, )  \
    F(uint32_t, remote_type, )          \
    F(uint32_t, remote_domain, )        \
    F(uint32_t, remote_bus, )           \
    F(uint32_t, remote_device, )        \
    F(uint32_t, remote_pci_id, )        \
    F(uint32_t, remote_link, )

typedef struct {
#define MEMBER(type, name, suffix) type name suffix;
    HEADER_FIELDS(MEMBER)
} Header;

typedef struct {
    EVENT_FIELDS(MEMBER)
} Event;

typedef struct {
    LINK_FIELDS(MEMBER)
} Link;

#define ROW_FIELDS(F)                        \
    F(uint64_t, memory_total, )              \
    F(uint64_t, memory_used, )               \
    F(uint64_t, memory_reserved, )           \
    F(uint64_t, bar1_total, )                \
    F(uint64_t, bar1_used, )                 \
    F(uint64_t, energy_mj, )                 \
    F(uint64_t, event_reasons, )             \
    F(uint64_t, throttled_power_ns, )        \
    F(uint64_t, throttled_thermal_ns, )      \
    F(uint64_t, throttled_sync_ns, )         \
    F(uint64_t, throttled_board_ns, )        \
    F(uint64_t, throttled_idle_ns, )         \
    F(uint64_t, throttled_reliability_ns, )  \
    F(uint64_t, throttled_hw_thermal_ns, )   \
    F(uint64_t, throttled_brake_ns, )        \
    F(uint64_t, ecc, [2][2][2])              \
    F(uint64_t, sram_sources, [5])           \
    F(uint32_t, flags, )                     \
    F(uint32_t, missing, )                   \
    F(uint32_t, unsupported, )               \
    F(uint32_t, rack, )                      \
    F(uint32_t, tray, )                      \
    F(uint32_t, index, )                     \
    F(uint32_t, module_id, )                 \
    F(uint32_t, slot, )                      \
    F(uint32_t, host_id, )                   \
    F(uint32_t, peer_type, )                 \
    F(uint32_t, pci_domain, )                \
    F(uint32_t, pci_bus, )                   \
    F(uint32_t, pci_device, )                \
    F(uint32_t, pci_id, )                    \
    F(uint32_t, pci_subsystem, )             \
    F(uint32_t, brand, )                     \
    F(uint32_t, architecture, )              \
    F(uint32_t, capability_major, )          \
    F(uint32_t, capability_minor, )          \
    F(uint32_t, cores, )                     \
    F(uint32_t, memory_bus_bits, )           \
    F(uint32_t, power_average_mw, )          \
    F(uint32_t, power_instant_mw, )          \
    F(uint32_t, limit_min_mw, )              \
    F(uint32_t, limit_max_mw, )              \
    F(uint32_t, limit_default_mw, )          \
    F(uint32_t, limit_requested_mw, )        \
    F(uint32_t, limit_out_of_band_mw, )      \
    F(int32_t, temperature_c, )              \
    F(int32_t, memory_temperature_c, )       \
    F(int32_t, margin_c, )                   \
    F(int32_t, shutdown_c, )                 \
    F(int32_t, slowdown_c, )                 \
    F(int32_t, memory_max_c, )               \
    F(int32_t, gpu_max_c, )                  \
    F(int32_t, shutdown_offset_c, )          \
    F(int32_t, slowdown_offset_c, )          \
    F(int32_t, memory_max_offset_c, )        \
    F(int32_t, gpu_max_offset_c, )           \
    F(uint32_t, clock_mhz, [4])              \
    F(uint32_t, clock_max_mhz, [4])          \
    F(uint32_t, clock_app_mhz, [4])          \
    F(uint32_t, clock_locked_min_mhz, )      \
    F(uint32_t, clock_locked_max_mhz, )      \
    F(uint32_t, pstate, )                    \
    F(uint32_t, util_gpu, )                  \
    F(uint32_t, util_memory, )               \
    F(uint32_t, util_encoder, )              \
    F(uint32_t, util_decoder, )              \
    F(uint32_t, compute_mode, )              \
    F(uint32_t, persistence, )               \
    F(uint32_t, ecc_enabled, )               \
    F(uint32_t, sram_threshold, )            \
    F(uint32_t, remap_corrected, )           \
    F(uint32_t, remap_uncorrected, )         \
    F(uint32_t, remap_pending, )             \
    F(uint32_t, remap_failure, )             \
    F(uint32_t, remap_histogram, [5])        \
    F(uint32_t, recovery_action, )           \
    F(uint32_t, pcie_gen, )                  \
    F(uint32_t, pcie_gen_max, )              \
    F(uint32_t, pcie_width, )                \
    F(uint32_t, pcie_width_max, )            \
    F(uint32_t, pcie_replays, )              \
    F(uint32_t, pcie_tx_kbps, )              \
    F(uint32_t, pcie_rx_kbps, )              \
    F(uint32_t, nvlink_count, )              \
    F(uint32_t, nvlink_version, )            \
    F(uint32_t, fabric_state, )              \
    F(uint32_t, fabric_status, )             \
    F(uint32_t, fabric_clique, )             \
    F(uint32_t, fabric_health_mask, )        \
    F(uint32_t, fabric_health_summary, )     \
    F(uint32_t, smoothing_supported, )       \
    F(uint32_t, smoothing_enabled, )         \
    F(uint32_t, smoothing_profile, )         \
    F(uint32_t, smoothing_lifetime, )        \
    F(uint32_t, smoothing_floor_min, )       \
    F(uint32_t, smoothing_floor_max, )       \
    F(uint32_t, smoothing_ceiling_mw, )      \
    F(uint32_t, smoothing_floor_mw, )        \
    F(uint32_t, smoothing_profiles, [PROFILES][4]) \
    F(uint8_t, fabric_uuid, [16])            \
    F(uint8_t, rack_guid, [16])              \
    F(uint8_t, ib_guid, [16])                \
    F(char, chassis_serial, [16])            \
    F(char, name, [96])                      \
    F(char, uuid, [48])                      \
    F(char, serial, [32])                    \
    F(char, part_number, [32])               \
    F(char, vbios, [32])                     \
    F(char, inforom, [16])                   \
    F(Link, links, [LINKS])

typedef struct {
    ROW_FIELDS(MEMBER)
} Row;

/* Row.flags */
enum { FLAG_LOST = 1, FLAG_ABSENT = 2, FLAG_NO_PERMISSION = 4, FLAG_HUNG = 8 };

/* Bits of Row.missing (answers UNKNOWN) and Row.unsupported (answers NOT_SUPPORTED). */
enum {
    S_TEMPERATURE = 1 << 0,
    S_POWER = 1 << 1,
    S_ECC = 1 << 2,
    S_REMAP = 1 << 3,
    S_FABRIC = 1 << 4,
    S_NVLINK = 1 << 5,
    S_MARGIN = 1 << 6,
    S_ENERGY = 1 << 7,
    S_CLOCK = 1 << 8,
    S_REASONS = 1 << 9,
    S_MEMORY = 1 << 10,
    S_PCIE = 1 << 11,
    S_UTILISATION = 1 << 12,
    S_RECOVERY = 1 << 13,
    S_SRAM = 1 << 14,
    S_NAME = 1 << 15,
    S_VBIOS = 1 << 16,
    S_PLATFORM = 1 << 17,
    S_SERIAL = 1 << 18,
};

#endif
