/* NVLink and the fabric: the state of each link, its counters, its far end, and the registration
 * with the fabric manager.
 */
#include "driver_nvml.h"

static Return link_of(Device device, unsigned number, Row **row, Link **link)
{
    Return status = look(device, S_NVLINK, row);
    if (status != SUCCESS) return status;
    if (number >= 36) return INVALID_ARGUMENT;
    if (number >= (*row)->nvlink_count || number >= LINKS) return NOT_SUPPORTED;
    *link = &(*row)->links[number];
    return SUCCESS;
}

#define LINK_GETTER(NAME, EXPRESSION)                                  \
    EXPORT Return NAME(Device device, unsigned number, unsigned *out)  \
    {                                                                  \
        Row *r;                                                        \
        Link *link;                                                    \
        Return status = link_of(device, number, &r, &link);            \
        if (status != SUCCESS) return status;                          \
        if (!out) return INVALID_ARGUMENT;                             \
        *out = (EXPRESSION);                                           \
        return SUCCESS;                                                \
    }
LINK_GETTER(nvmlDeviceGetNvLinkState, link->state != 0)
LINK_GETTER(nvmlDeviceGetNvLinkVersion, r->nvlink_version)
LINK_GETTER(nvmlDeviceGetNvLinkRemoteDeviceType, link->remote_type)

EXPORT Return nvmlDeviceGetNvLinkCapability(Device device, unsigned number, unsigned capability,
                                            unsigned *out)
{
    Row *r;
    Link *link;
    Return status = link_of(device, number, &r, &link);
    if (status != SUCCESS) return status;
    if (!out || capability >= 6) return INVALID_ARGUMENT;
    *out = capability != 4; /* all but the SLI bridge */
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned number, unsigned counter,
                                              unsigned long long *out)
{
    Row *r;
    Link *link;
    Return status = link_of(device, number, &r, &link);
    if (status != SUCCESS) return status;
    if (!out || counter >= 5) return INVALID_ARGUMENT;
    if (counter > 2) return NOT_SUPPORTED; /* CRC and ECC of the data packets */
    const uint64_t values[] = {link->replay, link->recovery, link->crc};
    *out = values[counter];
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned number, PciInfo *out)
{
    Row *r;
    Link *link;
    Return status = link_of(device, number, &r, &link);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (PciInfo){.domain = link->remote_domain, .bus = link->remote_bus,
                     .device = link->remote_device, .pci_device_id = link->remote_pci_id};
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0",
             link->remote_domain & 0xffff, link->remote_bus & 0xff, link->remote_device & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", link->remote_domain,
             link->remote_bus, link->remote_device);
    return SUCCESS;
}

typedef struct {
    uint8_t cluster[16];
    Return status;
    uint32_t clique;
    unsigned state;
} FabricInfo;

/* Versions 2 and 3 share all members but the last. */
typedef struct {
    unsigned version;
    uint8_t cluster[16];
    Return status;
    uint32_t clique;
    unsigned state;
    uint32_t health_mask;
} FabricInfoV2;

typedef struct {
    FabricInfoV2 common;
    uint8_t health_summary;
} FabricInfoV3;

EXPORT Return nvmlDeviceGetGpuFabricInfo(Device device, FabricInfo *out)
{
    Row *r;
    Return status = look(device, S_FABRIC, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (FabricInfo){.status = r->fabric_status, .clique = r->fabric_clique,
                        .state = r->fabric_state};
    memcpy(out->cluster, r->fabric_uuid, sizeof out->cluster);
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfoV2 *out)
{
    Row *r;
    Return status = look(device, S_FABRIC, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    unsigned version = out->version;
    if (version != VERSIONED(FabricInfoV2, 2) && version != VERSIONED(FabricInfoV3, 3))
        return ARGUMENT_VERSION_MISMATCH;
    *out = (FabricInfoV2){.version = version, .status = r->fabric_status,
                          .clique = r->fabric_clique, .state = r->fabric_state,
                          .health_mask = r->fabric_health_mask};
    memcpy(out->cluster, r->fabric_uuid, sizeof out->cluster);
    if (version == VERSIONED(FabricInfoV3, 3))
        ((FabricInfoV3 *)out)->health_summary = (uint8_t)r->fabric_health_summary;
    return SUCCESS;
}
