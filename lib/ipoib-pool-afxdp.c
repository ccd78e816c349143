/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "ipoib-pool-private.h"

#ifdef HAVE_AF_XDP

#include <errno.h>

#include "ipoib-pool-magazine.h"
#include "netdev-afxdp.h"
#include "netdev-afxdp-pool.h"
#include "util.h"

/* Pools whose buffers become packets of source DPBUF_AFXDP.
 *
 * OVS frees such a packet by free_afxdp_buf(), which pushes the 4096-byte
 * aligned address below its base to the 'struct umem_pool' that stands before
 * the packet.  All references to that function lead to ours (the linker's
 * option --wrap), which puts the buffer into the thread's magazine.
 * netdev-afxdp, once it has sent packets, pushes their frames to the umem_pool
 * itself.  So that is the store, and frames come home both ways. */

#define FRAME_ALIGN 4096

/* By slot, so that a packet's umem_pool tells whether it is one of ours. */
static struct afxdp_store {
    struct umem_pool umem;
} OVS_ALIGNED_VAR(CACHE_LINE_SIZE) stores[IPOIB_MAGAZINE_SLOTS];

/* Where the first buffer begins: in front of its packet there is a pointer. */
#define DATA_OFS (CACHE_LINE_SIZE + IPOIB_POOL_PACKET_OFS)
BUILD_ASSERT_DECL(offsetof(struct dp_packet_afxdp, packet) <= CACHE_LINE_SIZE);

static struct umem_pool *
pool_umem(const struct ipoib_pool *pool)
{
    return &stores[pool->slot].umem;
}

static void
afxdp_init_packets(struct ipoib_pool *pool)
{
    /* All have as much, whatever their colour. */
    size_t allocated = pool->stride - (DATA_OFS - IPOIB_POOL_HEADROOM)
                       - (IPOIB_POOL_COLOURS - 1) * CACHE_LINE_SIZE;

    for (size_t i = 0; i < pool->n; i++) {
        uint64_t id = ipoib_pool_id(pool, i);
        struct dp_packet_afxdp *xpacket
            = CONTAINER_OF(ipoib_pool_packet(id), struct dp_packet_afxdp,
                           packet);

        xpacket->mpool = pool_umem(pool);
        dp_packet_use_afxdp(&xpacket->packet, (void *) (uintptr_t) id,
                            MIN(allocated, UINT16_MAX), IPOIB_POOL_HEADROOM);
    }
}

static int
afxdp_init(struct ipoib_pool *pool, int numa_id)
{
    size_t need = DATA_OFS + pool->size
                  + IPOIB_POOL_COLOURS * CACHE_LINE_SIZE;
    int error;

    if (pool->slot < 0) {
        return ENOSPC;
    }
    ipoib_pool_set_stride(pool, ROUND_UP_POW2(MAX(need, FRAME_ALIGN)),
                          DATA_OFS);
    pool->colour_mask = IPOIB_POOL_COLOURS - 1;
    error = ipoib_pool_map(pool, MAX(pool->stride, 2 << 20), numa_id);
    if (error) {
        return error;
    }
    error = -umem_pool_init(pool_umem(pool), pool->n);
    if (error) {
        return error;
    }
    pool->aux = pool_umem(pool);
    pool->memory += pool->n * sizeof(void *);
    afxdp_init_packets(pool);
    ipoib_pool_fill(pool);
    return 0;
}

static void
afxdp_uninit(struct ipoib_pool *pool)
{
    if (pool->aux) {
        umem_pool_cleanup(pool->aux);
    }
    ipoib_pool_unmap(pool);
}

/* umem_elem_pop_n() takes all or nothing. */
static size_t
pop_frames(struct umem_pool *umem, void *frames[], size_t n)
{
    if (!umem_elem_pop_n(umem, n, frames)) {
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        frames[i] = umem_elem_pop(umem);
        if (!frames[i]) {
            return i;
        }
    }
    return n;
}

static size_t
afxdp_get(struct ipoib_pool *pool, uint64_t ids[], size_t n)
{
    void *frames[IPOIB_MAGAZINE];
    size_t part, done = 0;

    do {
        part = pop_frames(pool_umem(pool), frames,
                          MIN(n - done, ARRAY_SIZE(frames)));
        for (size_t i = 0; i < part; i++) {
            ids[done++] = ipoib_pool_id(pool, ipoib_pool_index(
                                            pool, (uintptr_t) frames[i]));
        }
    } while (part && done < n);
    return done;
}

static void
afxdp_put(struct ipoib_pool *pool, const uint64_t ids[], size_t n)
{
    void *frames[IPOIB_MAGAZINE];

    for (size_t done = 0; done < n; ) {
        size_t i, part = MIN(n - done, ARRAY_SIZE(frames));

        for (i = 0; i < part; i++) {
            frames[i] = ipoib_pool_frame(pool,
                                         ipoib_pool_index(pool, ids[done++]));
        }
        umem_elem_push_n(pool_umem(pool), part, frames);
    }
}

static size_t
afxdp_count(struct ipoib_pool *pool)
{
    return umem_pool_count(pool_umem(pool));
}

const struct ipoib_pool_ops ipoib_pool_afxdp_ops = {
    .name = "afxdp",
    .zero_copy = true,
    .init = afxdp_init,
    .uninit = afxdp_uninit,
    .get = afxdp_get,
    .put = afxdp_put,
    .count = afxdp_count,
};

void __real_free_afxdp_buf(struct dp_packet *);
void __wrap_free_afxdp_buf(struct dp_packet *);

/* What dp_packet_delete() calls.  The packet's base lies within the first
 * FRAME_ALIGN bytes of its frame. */
void
__wrap_free_afxdp_buf(struct dp_packet *packet)
{
    struct dp_packet_afxdp *xpacket
        = CONTAINER_OF(packet, struct dp_packet_afxdp, packet);
    size_t slot = (((uintptr_t) xpacket->mpool - (uintptr_t) stores)
                   / sizeof stores[0]);

    if (OVS_LIKELY(slot < IPOIB_MAGAZINE_SLOTS)) {
        ipoib_magazine_put_one(slot, ipoib_pool_packet_id(packet));
    } else {
        __real_free_afxdp_buf(packet);
    }
}

#endif /* HAVE_AF_XDP */
