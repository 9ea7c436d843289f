// Enough of CUDA's C++ for memory.cu to be compiled by g++ and run on host memory: a grid becomes
// two loops (host_launch.cpp). No kernel there synchronises threads, so one after the other is a
// legal schedule. What host memory forgives and a GPU does not, a misaligned 16-byte access, is
// counted, and the addresses that kernels read can be traced.
#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __forceinline__ inline

struct dim {
    unsigned x;
};

static thread_local dim gridDim, blockDim, blockIdx, threadIdx;

static unsigned long long host_misaligned_accesses = 0;
static unsigned long long* host_trace_at = nullptr;
static unsigned long long* host_trace_end = nullptr;

static inline void host_check(const void* at, unsigned long long size)
{
    if ((uintptr_t)at % size) host_misaligned_accesses++;
}

struct ulonglong2 {
    unsigned long long x, y;

    ulonglong2() = default;
    ulonglong2(const ulonglong2&) = default;
    // A store of 16 bytes to memory. The copies in registers of a GPU are constructed instead.
    ulonglong2& operator=(const ulonglong2& from)
    {
        host_check(this, 16);
        x = from.x;
        y = from.y;
        return *this;
    }
};

static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long by)
{
    return __atomic_fetch_add(at, by, __ATOMIC_RELAXED);
}

template <typename T> static inline T __ldcv(const T* at)
{
    host_check(at, sizeof(T));
    for (unsigned i = 0; i < sizeof(T) / 8; i++)
        if (host_trace_at != host_trace_end) *host_trace_at++ = (uintptr_t)at + 8 * i;
    return *at;
}
