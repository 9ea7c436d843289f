// stream.cu on the host: launch_X runs kernel X over a grid, as host_launch.cpp does for memory.cu.
#include "host_shim.h"

#include "stream.cu"

template <typename Kernel> static void grid(u64 blocks, u64 threads, Kernel kernel)
{
    gridDim.x = (unsigned)blocks;
    blockDim.x = (unsigned)threads;
    for (u64 b = 0; b < blocks; b++)
        for (u64 t = 0; t < threads; t++) {
            blockIdx.x = (unsigned)b;
            threadIdx.x = (unsigned)t;
            kernel();
        }
}

extern "C" void launch_stream_copy(u64 blocks, u64 threads, u64* to, const u64* from, u64 words)
{
    grid(blocks, threads, [=] { stream_copy(to, from, words); });
}

extern "C" void launch_stream_triad(u64 blocks, u64 threads, u64* a, const u64* b, const u64* c,
                                    u64 words, u64 s)
{
    grid(blocks, threads, [=] { stream_triad(a, b, c, words, s); });
}

extern "C" void launch_triad_differs(u64 blocks, u64 threads, const u64* a, u64 words, u64 s,
                                     u64 b_seed, u64 c_seed, u64* found)
{
    grid(blocks, threads, [=] { triad_differs(a, words, s, b_seed, c_seed, found); });
}

extern "C" u64 host_misaligned()
{
    return host_misaligned_accesses;
}
