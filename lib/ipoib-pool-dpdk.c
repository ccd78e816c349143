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

#ifdef DPDK_NETDEV

#include <errno.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "dpdk.h"
#include "ipoib-pool-magazine.h"
#include "ovs-thread.h"
#include "util.h"

/* Pools in DPDK's memory, whose buffers become packets of source DPBUF_DPDK,
 * which DPDK's ports can send without a copy.
 *
 * Such a packet is an mbuf, which goes back to its mempool when OVS or a
 * driver frees it.  The mempool's operations are ours, and lead to the
 * thread's magazine: so it needs no caches (1 MB in each mempool), and a
 * thread need not be known to DPDK to free without a lock.
 *
 * All mbufs are in one piece of EAL's memory, 'stride' bytes apart.  Where the
 * device needs physical addresses, those that are in two pages that are not
 * next to each other are not used. */

#define MBUF_SIZE sizeof(struct dp_packet)
BUILD_ASSERT_DECL(MBUF_SIZE == IPOIB_POOL_PACKET_SIZE);
BUILD_ASSERT_DECL(offsetof(struct dp_packet, mbuf) == 0);
BUILD_ASSERT_DECL(CACHE_LINE_SIZE % RTE_MBUF_PRIV_ALIGN == 0);

/* DPDK's header of an mbuf lies before it, at the end of the frame before. */
#define OBJ_HEADER_SIZE ROUND_UP(sizeof(struct rte_mempool_objhdr), 8)

/* Operations of the mempool. */

static int
mp_alloc(struct rte_mempool *mp)
{
    mp->pool_data = mp->pool_config;
    return 0;
}

static void
mp_free(struct rte_mempool *mp OVS_UNUSED)
{
    /* The pool frees the rest. */
}

static int
mp_enqueue(struct rte_mempool *mp, void *const *mbufs, unsigned int n)
{
    struct ipoib_pool *pool = mp->pool_data;

    for (unsigned int i = 0; i < n; i++) {
        uint64_t id = ipoib_pool_packet_id(mbufs[i]);

        if (OVS_LIKELY(pool->slot >= 0)) {
            ipoib_magazine_put_one(pool->slot, id);
        } else {
            pool->ops->put(pool, &id, 1);
        }
    }
    return 0;
}

/* All or nothing.  Not used by the gateway itself. */
static int
mp_dequeue(struct rte_mempool *mp, void **mbufs, unsigned int n)
{
    struct ipoib_pool *pool = mp->pool_data;

    for (unsigned int i = 0; i < n; i++) {
        uint64_t id;

        if (!ipoib_magazine_get(pool, &id, 1)) {
            mp_enqueue(mp, mbufs, i);
            return -ENOBUFS;
        }
        mbufs[i] = ipoib_pool_packet(id);
    }
    return 0;
}

static unsigned int
mp_get_count(const struct rte_mempool *mp)
{
    struct ipoib_pool *pool = mp->pool_data;

    return pool->ops->count(pool) + ipoib_magazine_count(pool);
}

/* True if the device can use the 'size' bytes at 'p' as one piece. */
static bool
is_contiguous(const char *p, size_t size)
{
    return rte_eal_iova_mode() == RTE_IOVA_VA
           || (rte_mem_virt2iova(p + size - 1) - rte_mem_virt2iova(p)
               == size - 1);
}

/* Cuts the 'len' bytes at 'base' into mbufs. */
static int
mp_populate(struct rte_mempool *mp, unsigned int n, void *base,
            rte_iova_t iova OVS_UNUSED, size_t len,
            rte_mempool_populate_obj_cb_t *add, void *aux)
{
    size_t stride = mp->header_size + mp->elt_size + mp->trailer_size;
    unsigned int done = 0;

    for (size_t ofs = 0; ofs + stride <= len && done < n; ofs += stride) {
        char *mbuf = (char *) base + ofs + mp->header_size;

        if (is_contiguous(mbuf, mp->elt_size)) {
            add(mp, aux, mbuf, rte_mem_virt2iova(mbuf));
            done++;
        }
    }
    return done;
}

static bool
mp_set_ops(struct rte_mempool *mp, struct ipoib_pool *pool)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    static const struct rte_mempool_ops ops = {
        .name = "ovs-ipoib",
        .alloc = mp_alloc,
        .free = mp_free,
        .enqueue = mp_enqueue,
        .dequeue = mp_dequeue,
        .get_count = mp_get_count,
        .populate = mp_populate,
    };

    if (ovsthread_once_start(&once)) {
        rte_mempool_register_ops(&ops);
        ovsthread_once_done(&once);
    }
    return !rte_mempool_set_ops_byname(mp, ops.name, pool);
}

/* The kind. */

/* After all else of the mbuf. */
static void
mbuf_ready(struct rte_mempool *mp OVS_UNUSED, void *pool_, void *mbuf,
           unsigned int i OVS_UNUSED)
{
    struct ipoib_pool *pool = pool_;
    uint64_t id = ipoib_pool_packet_id(mbuf);

    dp_packet_init_dpdk(mbuf);
    pool->ops->put(pool, &id, 1);
}

/* Makes a mempool of 'pool''s memory. */
static int
mp_create(struct ipoib_pool *pool, int socket)
{
    static atomic_count n_created = ATOMIC_COUNT_INIT(0);
    struct rte_pktmbuf_pool_private priv = {
        .mbuf_data_room_size = pool->stride - OBJ_HEADER_SIZE - MBUF_SIZE,
        .mbuf_priv_size = MBUF_SIZE - sizeof(struct rte_mbuf),
    };
    char name[RTE_MEMPOOL_NAMESIZE];
    struct rte_mempool *mp;

    snprintf(name, sizeof name, "ovs-ipoib%u", atomic_count_inc(&n_created));
    mp = rte_mempool_create_empty(name, pool->n,
                                  pool->stride - OBJ_HEADER_SIZE, 0,
                                  sizeof priv, socket,
                                  RTE_MEMPOOL_F_NO_CACHE_ALIGN
                                  | RTE_MEMPOOL_F_NO_SPREAD);
    if (!mp) {
        return rte_errno;
    }
    pool->aux = mp;
    if (mp->header_size + mp->elt_size + mp->trailer_size != pool->stride) {
        return EPROTO;          /* DPDK's debugging makes them longer. */
    }
    if (!mp_set_ops(mp, pool)) {
        return EINVAL;
    }
    rte_pktmbuf_pool_init(mp, &priv);
    if (rte_mempool_populate_iova(
            mp, (char *) pool->frames - OBJ_HEADER_SIZE, RTE_BAD_IOVA,
            pool->n_frames * pool->stride, NULL, NULL) < 0
        || mp->populated_size < pool->n) {
        return ENOMEM;
    }
    rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
    rte_mempool_obj_iter(mp, mbuf_ready, pool);
    return 0;
}

static int
dpdk_init_pool(struct ipoib_pool *pool, int numa_id)
{
    int socket = numa_id >= 0 ? numa_id : SOCKET_ID_ANY;

    if (!dpdk_available()) {
        return EPROTONOSUPPORT;
    }
    ipoib_pool_set_stride(pool,
                          ROUND_UP(OBJ_HEADER_SIZE + IPOIB_POOL_PACKET_OFS
                                   + pool->size, CACHE_LINE_SIZE),
                          IPOIB_POOL_PACKET_OFS);
    if (rte_eal_iova_mode() != RTE_IOVA_VA) {
        /* One mbuf a page of 2 MB is lost. */
        pool->n_frames += pool->n * pool->stride / (2 << 20) + 1;
    }
    pool->length = CACHE_LINE_SIZE + pool->n_frames * pool->stride;
    pool->base = rte_zmalloc_socket("ipoib", pool->length, CACHE_LINE_SIZE,
                                    socket);
    if (!pool->base && socket != SOCKET_ID_ANY) {
        socket = SOCKET_ID_ANY;
        pool->base = rte_zmalloc_socket("ipoib", pool->length,
                                        CACHE_LINE_SIZE, socket);
    }
    if (!pool->base) {
        return ENOMEM;
    }
    pool->frames = (uintptr_t) pool->base + CACHE_LINE_SIZE;
    pool->memory += pool->length;
    ipoib_pool_store_init(pool);
    return mp_create(pool, socket);
}

static void
dpdk_uninit_pool(struct ipoib_pool *pool)
{
    rte_mempool_free(pool->aux);
    rte_free(pool->base);
    ipoib_pool_store_uninit(pool);
}

const struct ipoib_pool_ops ipoib_pool_dpdk_ops = {
    .name = "dpdk",
    .condition = "with other_config:dpdk-init=true",
    .zero_copy = true,
    .init = dpdk_init_pool,
    .uninit = dpdk_uninit_pool,
    .get = ipoib_pool_store_get,
    .put = ipoib_pool_store_put,
    .count = ipoib_pool_store_count,
};

#endif /* DPDK_NETDEV */
