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
 * option --wrap), which puts the frame into the thread's magazine.
 * netdev-afxdp, once it has sent packets, pushes their frames to the umem_pool
 * itself.  So that is the store, and frames come home both ways. */

#define FRAME_ALIGN 4096

/* By slot, so that a packet's umem_pool tells whether it is one of ours. */
static struct afxdp_store {
    struct umem_pool umem;
} OVS_ALIGNED_VAR(CACHE_LINE_SIZE) stores[IPOIB_MAGAZINE_SLOTS];

#define HEADER_SIZE ROUND_UP(sizeof(struct dp_packet_afxdp), CACHE_LINE_SIZE)

static struct umem_pool *
pool_umem(const struct ipoib_pool *pool)
{
    return &stores[pool->slot].umem;
}

static void
afxdp_init_packets(struct ipoib_pool *pool, uint8_t *xpackets)
{
    for (size_t i = 0; i < pool->n; i++) {
        struct dp_packet_afxdp *xpacket = (void *) (xpackets
                                                    + i * HEADER_SIZE);
        uint8_t *frame = ipoib_pool_frame(pool, i);
        uint8_t *data = (uint8_t *) (uintptr_t) ipoib_pool_id(pool, frame, i);
        uint8_t *base = data - IPOIB_POOL_HEADROOM;
        size_t allocated = pool->stride - (base - frame);

        xpacket->mpool = pool_umem(pool);
        dp_packet_use_afxdp(&xpacket->packet, data, MIN(allocated, UINT16_MAX),
                            IPOIB_POOL_HEADROOM);
    }
}

static int
afxdp_init(struct ipoib_pool *pool, int numa_id)
{
    size_t need = IPOIB_POOL_HEADROOM + pool->size
                  + IPOIB_POOL_COLOURS * CACHE_LINE_SIZE;
    uint8_t *xpackets;
    int error;

    if (pool->slot < 0) {
        return ENOSPC;
    }
    ipoib_pool_set_stride(pool, ROUND_UP_POW2(MAX(need, FRAME_ALIGN)),
                          IPOIB_POOL_HEADROOM);
    error = ipoib_pool_map(pool, MAX(pool->stride, 2 << 20), numa_id);
    if (error) {
        return error;
    }
    error = -umem_pool_init(pool_umem(pool), pool->n);
    if (error) {
        return error;
    }
    xpackets = xzalloc_cacheline(pool->n * HEADER_SIZE);
    pool->aux = xpackets;
    pool->headers = xpackets + offsetof(struct dp_packet_afxdp, packet);
    pool->header_stride = HEADER_SIZE;
    pool->memory += pool->n * (HEADER_SIZE + sizeof(void *));
    afxdp_init_packets(pool, xpackets);
    ipoib_pool_fill(pool);
    return 0;
}

static void
afxdp_uninit(struct ipoib_pool *pool)
{
    if (pool->aux) {
        umem_pool_cleanup(pool_umem(pool));
        free_cacheline(pool->aux);
    }
    ipoib_pool_unmap(pool);
}

/* umem_elem_pop_n() takes all or nothing. */
static size_t
afxdp_get(struct ipoib_pool *pool, void *frames[], size_t n)
{
    struct umem_pool *umem = pool_umem(pool);

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

static void
afxdp_put(struct ipoib_pool *pool, void *frames[], size_t n)
{
    umem_elem_push_n(pool_umem(pool), n, frames);
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
        uintptr_t base = (uintptr_t) dp_packet_base(packet);

        ipoib_magazine_put_one(slot, (void *) ROUND_DOWN(base, FRAME_ALIGN));
    } else {
        __real_free_afxdp_buf(packet);
    }
}

#endif /* HAVE_AF_XDP */
