// memory.cu and stream.cu on the host: each launch_X runs kernel X over a grid of blocks and threads.
#include "host_shim.h"

#include "memory.cu"
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

extern "C" void launch_fill(u64 blocks, u64 threads, u64* mem, u64 base, u64 words, u64 kind,
                            u64 one, u64 two)
{
    grid(blocks, threads, [=] { fill(mem, base, words, kind, one, two); });
}

extern "C" void launch_verify(u64 blocks, u64 threads, const u64* mem, u64 base, u64 words,
                              u64 kind, u64 one, u64 two, u64* found)
{
    grid(blocks, threads, [=] { verify(mem, base, words, kind, one, two, found); });
}

extern "C" void launch_march(u64 blocks, u64 threads, u64* mem, u64 base, u64 words, u64 chunk,
                             u64 up, u64 expect_kind, u64 expect_one, u64 expect_two,
                             u64 write_kind, u64 write_one, u64 write_two, u64* found)
{
    grid(blocks, threads, [=] {
        march(mem, base, words, chunk, up, expect_kind, expect_one, expect_two, write_kind,
              write_one, write_two, found);
    });
}

extern "C" void launch_copy(u64 blocks, u64 threads, u64* to, const u64* from, u64 words)
{
    grid(blocks, threads, [=] { copy(to, from, words); });
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

// The misaligned accesses so far.
extern "C" u64 host_misaligned()
{
    return host_misaligned_accesses;
}

// Write the address of each word that kernels read from now on to `log`, at most `capacity`.
extern "C" void host_trace(u64* log, u64 capacity)
{
    host_trace_at = log;
    host_trace_end = log + capacity;
}
