/* What is not about one GPU's sensors: versions, error strings, and who a GPU is. */
#include "driver_nvml.h"

EXPORT Return nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    State *s = current_state();
    if (!s) return UNINITIALIZED;
    return copy_text(s->header->driver_version, sizeof s->header->driver_version, out, length);
}

EXPORT Return nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    State *s = current_state();
    if (!s) return UNINITIALIZED;
    return copy_text(s->header->nvml_version, sizeof s->header->nvml_version, out, length);
}

EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    State *s = current_state();
    if (!s) return UNINITIALIZED;
    if (!out) return INVALID_ARGUMENT;
    *out = (int)s->header->cuda_version;
    return SUCCESS;
}

EXPORT Return nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

EXPORT const char *nvmlErrorString(Return status)
{
    switch (status) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case MEMORY: return "Insufficient Memory";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

TEXT_GETTER(nvmlDeviceGetName, S_NAME, name)
TEXT_GETTER(nvmlDeviceGetUUID, 0, uuid)
TEXT_GETTER(nvmlDeviceGetSerial, S_SERIAL, serial)
TEXT_GETTER(nvmlDeviceGetBoardPartNumber, 0, part_number)
TEXT_GETTER(nvmlDeviceGetVbiosVersion, S_VBIOS, vbios)
TEXT_GETTER(nvmlDeviceGetInforomImageVersion, 0, inforom)

GETTER(nvmlDeviceGetIndex, unsigned, 0, visible_index(device))
GETTER(nvmlDeviceGetMinorNumber, unsigned, 0, visible_index(device))
GETTER(nvmlDeviceGetModuleId, unsigned, S_PLATFORM, r->module_id)
GETTER(nvmlDeviceGetBrand, unsigned, 0, r->brand)
GETTER(nvmlDeviceGetArchitecture, unsigned, 0, r->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned, 0, r->cores)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, 0, r->memory_bus_bits)
GETTER(nvmlDeviceGetBusType, unsigned, 0, 2 /* PCIe */)
GETTER(nvmlDeviceGetComputeMode, unsigned, 0, r->compute_mode)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, 0, r->persistence)
GETTER(nvmlDeviceIsMigDeviceHandle, unsigned, 0, 0)
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 0, 0)
GETTER(nvmlDeviceGetDisplayActive, unsigned, 0, 0)
GETTER(nvmlDeviceGetDisplayMode, unsigned, 0, 0)
GETTER(nvmlDeviceGetMultiGpuBoard, unsigned, 0, 0)
GETTER(nvmlDeviceGetNumFans, unsigned, 0, 0 /* liquid, or the chassis' own */)

EXPORT Return nvmlDeviceGetInforomVersion(Device device, unsigned object, char *out,
                                          unsigned length)
{
    (void)object;
    return nvmlDeviceGetInforomImageVersion(device, out, length);
}

EXPORT Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!major || !minor) return INVALID_ARGUMENT;
    *major = (int)r->capability_major;
    *minor = (int)r->capability_minor;
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!now || !pending) return INVALID_ARGUMENT;
    *now = *pending = 0;
    return SUCCESS;
}

static void write_bus_id(const Row *r, char *out, size_t length, const char *format)
{
    snprintf(out, length, format, r->pci_domain, r->pci_bus, r->pci_device);
}

EXPORT Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (PciInfo){.domain = r->pci_domain, .bus = r->pci_bus, .device = r->pci_device,
                     .pci_device_id = r->pci_id, .pci_subsystem_id = r->pci_subsystem};
    write_bus_id(r, out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0");
    write_bus_id(r, out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0");
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetPciInfo_v2(Device device, PciInfoV2 *out)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    *out = (PciInfoV2){.domain = r->pci_domain, .bus = r->pci_bus, .device = r->pci_device,
                       .pci_device_id = r->pci_id, .pci_subsystem_id = r->pci_subsystem};
    write_bus_id(r, out->bus_id, sizeof out->bus_id, "%04X:%02X:%02X.0");
    return SUCCESS;
}

EXPORT Return nvmlDeviceGetPciInfoExt(Device device, PciInfoExt *out)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(PciInfoExt, 1)) return ARGUMENT_VERSION_MISMATCH;
    *out = (PciInfoExt){.version = out->version, .domain = r->pci_domain, .bus = r->pci_bus,
                        .device = r->pci_device, .pci_device_id = r->pci_id,
                        .pci_subsystem_id = r->pci_subsystem, .base_class = 3, .sub_class = 2};
    write_bus_id(r, out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0");
    return SUCCESS;
}

/* Versions 1 and 2 have one layout; 1 calls the second member the rack's GUID. */
typedef struct {
    unsigned version;
    uint8_t ib_guid[16], chassis[16];
    uint8_t slot, tray_index, host_id, peer_type, module_id;
} PlatformInfo;

EXPORT Return nvmlDeviceGetPlatformInfo(Device device, PlatformInfo *out)
{
    Row *r;
    Return status = look(device, S_PLATFORM, &r);
    if (status != SUCCESS) return status;
    if (!out) return INVALID_ARGUMENT;
    if (out->version != VERSIONED(PlatformInfo, 1) && out->version != VERSIONED(PlatformInfo, 2))
        return ARGUMENT_VERSION_MISMATCH;
    memcpy(out->ib_guid, r->ib_guid, sizeof out->ib_guid);
    if (out->version == VERSIONED(PlatformInfo, 1))
        memcpy(out->chassis, r->rack_guid, sizeof out->chassis);
    else
        memcpy(out->chassis, r->chassis_serial, sizeof out->chassis);
    out->slot = (uint8_t)r->slot;
    out->tray_index = (uint8_t)r->tray;
    out->host_id = (uint8_t)r->host_id;
    out->peer_type = (uint8_t)r->peer_type;
    out->module_id = (uint8_t)r->module_id;
    return SUCCESS;
}

/* No program runs on an emulated GPU. */
static Return no_processes(Device device, unsigned *count)
{
    Row *r;
    Return status = look(device, 0, &r);
    if (status != SUCCESS) return status;
    if (!count) return INVALID_ARGUMENT;
    *count = 0;
    return SUCCESS;
}

#define NO_PROCESSES(NAME)                                           \
    EXPORT Return NAME(Device device, unsigned *count, void *out)    \
    {                                                                \
        (void)out;                                                   \
        return no_processes(device, count);                          \
    }
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

EXPORT Return nvmlDeviceGetProcessUtilization(Device device, void *out, unsigned *count,
                                              unsigned long long since)
{
    (void)out, (void)since;
    Return status = no_processes(device, count);
    return status == SUCCESS ? NOT_FOUND : status;
}

/* nvitop takes the absence of these for another layout of its structs. */
REFUSAL(nvmlDeviceGetRunningProcessDetailList)
REFUSAL(nvmlDeviceGetDriverModel)
REFUSAL(nvmlDeviceGetDriverModel_v2)
REFUSAL(nvmlDeviceGetMigDeviceHandleByIndex)
REFUSAL(nvmlDeviceGetGpuInstanceId)
REFUSAL(nvmlDeviceGetComputeInstanceId)
REFUSAL(nvmlDeviceGetConfComputeMemSizeInfo)
REFUSAL(nvmlDeviceGetFanSpeed)
REFUSAL(nvmlDeviceGetFanSpeed_v2)
REFUSAL(nvmlDeviceGetRetiredPages)
REFUSAL(nvmlDeviceGetRetiredPages_v2)
REFUSAL(nvmlDeviceGetRetiredPagesPendingStatus)
