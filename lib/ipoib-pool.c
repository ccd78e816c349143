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
#include "ipoib-pool.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipoib-pool-private.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "unaligned.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_pool);

#define GRH_SPACE 40

/* All pools.  Attached ones are also in 'attached', which RCU readers may
 * look at; there may be more than fit there, whose packets are then copied
 * when they are sent. */
static struct ovs_mutex pools_mutex = OVS_MUTEX_INITIALIZER;
static struct ipoib_pool **detached OVS_GUARDED_BY(pools_mutex);
static size_t n_detached OVS_GUARDED_BY(pools_mutex);
static ATOMIC(struct ipoib_pool *) attached[64];

static const struct ipoib_pool_ops copy_ops;
#ifdef HAVE_AF_XDP
static const struct ipoib_pool_ops afxdp_ops;
#endif

static const struct ipoib_pool_ops *
choose_ops(void)
{
    const char *s = getenv("OVS_IPOIB_POOL");

    if (s && !strcmp(s, "copy")) {
        return &copy_ops;
    }
#ifdef HAVE_AF_XDP
    return &afxdp_ops;
#else
    return &copy_ops;
#endif
}

/* The frames are to come from NUMA node 'numa_id', where it has room. */
static void
prefer_numa_node(void *p, size_t len, int numa_id)
{
    if (numa_id >= 0 && numa_id < 64) {
        unsigned long int mask = 1UL << numa_id;

        syscall(SYS_mbind, p, len, MPOL_PREFERRED, &mask, sizeof mask * 8, 0);
    }
}

/* Maps 'len' bytes aligned to 'align', with huge pages if there are any. */
static void *
map_frames(size_t len, size_t align, int numa_id)
{
    uint8_t *p = mmap(NULL, len + align, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t head, tail;

    if (p == MAP_FAILED) {
        return NULL;
    }
    head = ROUND_UP((uintptr_t) p, align) - (uintptr_t) p;
    tail = align - head;
    if (head) {
        munmap(p, head);
        p += head;
    }
    if (tail) {
        munmap(p + len, tail);
    }
    prefer_numa_node(p, len, numa_id);
    madvise(p, len, MADV_HUGEPAGE);
    return p;
}

/* Frees 'pool', all of whose buffers are back and which is detached. */
static void
pool_free(struct ipoib_pool *pool)
{
    pool->ops->uninit(pool);
    if (pool->frames) {
        munmap((void *) pool->frames, pool->memory);
    }
    free(pool->tags);
    free(pool);
}

static void
publish(struct ipoib_pool *pool)
{
    for (size_t i = 0; i < ARRAY_SIZE(attached); i++) {
        struct ipoib_pool *none = NULL;

        if (atomic_compare_exchange_strong(&attached[i], &none, pool)) {
            return;
        }
    }
}

static void
unpublish(struct ipoib_pool *pool)
{
    for (size_t i = 0; i < ARRAY_SIZE(attached); i++) {
        struct ipoib_pool *p = pool;

        if (atomic_compare_exchange_strong(&attached[i], &p, NULL)) {
            return;
        }
    }
}

/* Makes the frames and their tags, and fills the pool with them. */
static int
pool_init(struct ipoib_pool *pool, int numa_id)
{
    size_t need = ROUND_UP(IPOIB_POOL_HEADROOM + pool->size
                           + IPOIB_POOL_COLOURS * CACHE_LINE_SIZE, 64);
    int error;

    pool->shift = 12;
    while (((size_t) 1 << pool->shift) < need) {
        pool->shift++;
    }
    pool->memory = pool->n << pool->shift;
    pool->frames = (uintptr_t) map_frames(
        pool->memory, MAX((size_t) 1 << pool->shift, 2 << 20), numa_id);
    if (!pool->frames) {
        return ENOMEM;
    }
    pool->tags = xzalloc(pool->n);
    error = pool->ops->init(pool);
    if (error) {
        return error;
    }
    for (size_t i = pool->n; i-- > 0; ) {
        void *frame = (void *) (pool->frames + (i << pool->shift));

        pool->ops->put(pool, &frame, 1);
    }
    pool->mr = ipoib_pool_reg_mr(pool->verbs, pool->pd,
                                 (void *) pool->frames, pool->memory,
                                 IBV_ACCESS_LOCAL_WRITE);
    if (!pool->mr) {
        return errno;
    }
    atomic_init(&pool->lkey, pool->mr->lkey);
    return 0;
}

struct ipoib_pool *
ipoib_pool_create(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                  size_t n, size_t mtu, int numa_id)
{
    struct ipoib_pool *pool = xzalloc(sizeof *pool);
    int error;

    pool->ops = choose_ops();
    pool->verbs = verbs;
    pool->pd = pd;
    pool->n = n;
    pool->size = GRH_SPACE + mtu;
    error = pool_init(pool, numa_id);
    if (error) {
        pool_free(pool);
        errno = error;
        return NULL;
    }
    publish(pool);
    return pool;
}

struct ibv_mr *
ipoib_pool_reg_mr(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                  void *addr, size_t len, int access)
{
    const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
    struct ibv_mr *mr;
    int error;

    /* A device may pin what it cannot write as it stands: pages that nobody
     * has touched are all the zero page then, and what is stored there later
     * goes to other pages, that the device does not see. */
    access |= IBV_ACCESS_LOCAL_WRITE;
    mr = verbs->reg_mr(pd, addr, len, access);
    if (!mr && (errno == ENOMEM || errno == EPERM)
        && !setrlimit(RLIMIT_MEMLOCK, &unlimited)) {
        mr = verbs->reg_mr(pd, addr, len, access);
    }
    if (!mr) {
        error = errno;
        VLOG_ERR("registering %"PRIuSIZE" bytes failed (%s); the limit of "
                 "locked memory (RLIMIT_MEMLOCK) may be too low",
                 len, ovs_strerror(error));
        errno = error;
    }
    return mr;
}

/* Threads that are about to send one of the pool's packets may have its lkey:
 * they are done after a grace period, but what they have posted may not be
 * sent by then.  Such a send fails with an error completion. */
void
ipoib_pool_detach(struct ipoib_pool *pool)
{
    if (!pool) {
        return;
    }
    unpublish(pool);
    atomic_store_relaxed(&pool->lkey, 0);
    if (pool->mr) {
        int error = pool->verbs->dereg_mr(pool->mr);

        if (error) {
            VLOG_ERR("deregistering memory failed (%s)", ovs_strerror(error));
        }
        pool->mr = NULL;
    }

    ovs_mutex_lock(&pools_mutex);
    detached = xrealloc(detached, (n_detached + 1) * sizeof *detached);
    detached[n_detached++] = pool;
    ovs_mutex_unlock(&pools_mutex);
    ipoib_pool_sweep();
}

/* The thread that puts the last buffer back may still hold the lock: it has
 * left it after a grace period. */
void
ipoib_pool_sweep(void)
{
    ovs_mutex_lock(&pools_mutex);
    for (size_t i = 0; i < n_detached; ) {
        struct ipoib_pool *pool = detached[i];

        if (pool->ops->count(pool) == pool->n) {
            detached[i] = detached[--n_detached];
            ovsrcu_postpone(pool_free, pool);
        } else {
            i++;
        }
    }
    ovs_mutex_unlock(&pools_mutex);
}

/* Buffers. */

uint8_t
ipoib_pool_tag_alloc(struct ipoib_pool *pool)
{
    for (uint8_t tag = 1; tag < UINT8_MAX; tag++) {
        if (!pool->tag_used[tag]) {
            pool->tag_used[tag] = true;
            return tag;
        }
    }
    return 0;
}

size_t
ipoib_pool_get_ids(struct ipoib_pool *pool, uint8_t tag, uint64_t ids[],
                   size_t n)
{
    void *frames[64];
    size_t done = 0;

    while (done < n) {
        size_t want = MIN(n - done, ARRAY_SIZE(frames));
        size_t got = pool->ops->get(pool, frames, want);

        for (size_t i = 0; i < got; i++) {
            pool->tags[ipoib_pool_index(pool, (uintptr_t) frames[i])] = tag;
            ids[done++] = ipoib_pool_frame_to_id(pool, frames[i]);
        }
        if (got < want) {
            break;
        }
    }
    return done;
}

size_t
ipoib_pool_get(struct ipoib_pool *pool, struct ipoib_buf bufs[], size_t n)
{
    uint32_t lkey = ipoib_pool_lkey(pool);
    size_t i;

    for (i = 0; i < n; i++) {
        struct ipoib_buf *buf = &bufs[i];

        if (!ipoib_pool_get_ids(pool, UINT8_MAX, &buf->id, 1)) {
            break;
        }
        buf->data = (void *) (uintptr_t) buf->id;
        buf->size = pool->size;
        buf->lkey = lkey;
    }
    return i;
}

void
ipoib_pool_put(struct ipoib_pool *pool, uint64_t id)
{
    size_t index = ipoib_pool_index(pool, id);
    void *frame = (void *) (pool->frames + (index << pool->shift));

    ovs_assert(pool->tags[index]);
    pool->tags[index] = 0;
    pool->ops->put(pool, &frame, 1);
}

size_t
ipoib_pool_reclaim(struct ipoib_pool *pool, uint8_t tag)
{
    size_t n = 0;

    for (size_t i = 0; i < pool->n; i++) {
        if (pool->tags[i] == tag) {
            void *frame = (void *) (pool->frames + (i << pool->shift));

            ipoib_pool_put(pool, ipoib_pool_frame_to_id(pool, frame));
            n++;
        }
    }
    pool->tag_used[tag] = false;
    return n;
}

void *
ipoib_pool_data(const struct ipoib_pool *pool OVS_UNUSED, uint64_t id)
{
    return (void *) (uintptr_t) id;
}

struct dp_packet *
ipoib_pool_to_packet(struct ipoib_pool *pool, uint64_t id, ptrdiff_t ofs,
                     size_t len)
{
    uint8_t *data = (uint8_t *) (uintptr_t) id + ofs;
    struct dp_packet *packet;

    if (pool->ops->zero_copy) {
        size_t index = ipoib_pool_index(pool, id);

        pool->tags[index] = 0;
        return ipoib_pool_wrap(ipoib_pool_header(pool, index), data, len);
    }
    packet = dp_packet_clone_data_with_headroom(data, len,
                                                IPOIB_POOL_HEADROOM);
    ipoib_pool_put(pool, id);
    return packet;
}

uint32_t
ipoib_pool_lkey(const struct ipoib_pool *pool)
{
    uint32_t lkey;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_pool *, pool)->lkey, &lkey);
    return lkey;
}

size_t
ipoib_pool_buf_size(const struct ipoib_pool *pool)
{
    return pool->size;
}

uint32_t
ipoib_pool_packet_lkey(const struct ipoib_pool *pool OVS_UNUSED,
                       const struct dp_packet *packet OVS_UNUSED)
{
#ifdef HAVE_AF_XDP
    if (packet->source == DPBUF_AFXDP
        && CONTAINER_OF(packet, struct dp_packet_afxdp, packet)->mpool
           == &pool->umem) {
        return ipoib_pool_lkey(pool);
    }
#endif
    return 0;
}

uint32_t
ipoib_pool_pd_lkey(const struct ibv_pd *pd, const struct dp_packet *packet)
{
#ifdef HAVE_AF_XDP
    if (OVS_UNLIKELY(packet->source == DPBUF_AFXDP)) {
        for (size_t i = 0; i < ARRAY_SIZE(attached); i++) {
            struct ipoib_pool *pool;
            uint32_t lkey;

            atomic_read_explicit(&attached[i], &pool, memory_order_acquire);
            if (pool && pool->pd == pd) {
                lkey = ipoib_pool_packet_lkey(pool, packet);
                if (lkey) {
                    return lkey;
                }
            }
        }
    }
#else
    ignore(pd);
    ignore(packet);
#endif
    return 0;
}

void
ipoib_pool_get_stats(const struct ipoib_pool *pool_,
                     struct ipoib_pool_stats *stats)
{
    struct ipoib_pool *pool = CONST_CAST(struct ipoib_pool *, pool_);
    size_t n_own = 0;

    for (size_t i = 0; i < pool->n; i++) {
        n_own += pool->tags[i] != 0;
    }
    stats->n_bufs = pool->n;
    stats->n_free = pool->ops->count(pool);
    stats->n_posted = n_own;
    /* The counters move while they are read. */
    stats->n_packets = pool->n - MIN(pool->n, stats->n_free + n_own);
    stats->memory = pool->memory + pool->n;
    if (pool->headers) {
        stats->memory += pool->n * IPOIB_POOL_HEADER_SIZE;
    }
    stats->zero_copy = pool->ops->zero_copy;
}

/* Pools that copy. */

static int
copy_init(struct ipoib_pool *pool)
{
    ovs_spin_init(&pool->lock);
    pool->free = xcalloc(pool->n, sizeof *pool->free);
    return 0;
}

static void
copy_uninit(struct ipoib_pool *pool)
{
    if (pool->free) {
        free(pool->free);
        ovs_spin_destroy(&pool->lock);
    }
}

static size_t
copy_get(struct ipoib_pool *pool, void *frames[], size_t n)
{
    ovs_spin_lock(&pool->lock);
    n = MIN(n, pool->n_free);
    pool->n_free -= n;
    memcpy(frames, &pool->free[pool->n_free], n * sizeof *frames);
    ovs_spin_unlock(&pool->lock);
    return n;
}

static void
copy_put(struct ipoib_pool *pool, void *frames[], size_t n)
{
    ovs_spin_lock(&pool->lock);
    ovs_assert(pool->n_free + n <= pool->n);
    memcpy(&pool->free[pool->n_free], frames, n * sizeof *frames);
    pool->n_free += n;
    ovs_spin_unlock(&pool->lock);
}

static size_t
copy_count(struct ipoib_pool *pool)
{
    size_t n;

    ovs_spin_lock(&pool->lock);
    n = pool->n_free;
    ovs_spin_unlock(&pool->lock);
    return n;
}

static const struct ipoib_pool_ops copy_ops = {
    .name = "copy",
    .init = copy_init,
    .uninit = copy_uninit,
    .get = copy_get,
    .put = copy_put,
    .count = copy_count,
};

/* Pools whose buffers become packets.
 *
 * OVS frees a packet of source DPBUF_AFXDP by pushing the 4096-byte aligned
 * address below its base to the 'struct umem_pool' that stands before the
 * packet; so does netdev-afxdp once it has sent one.  So the free frames are
 * in such a pool, whose functions are OVS's own. */

#ifdef HAVE_AF_XDP
static int
afxdp_init(struct ipoib_pool *pool)
{
    int error = umem_pool_init(&pool->umem, pool->n);

    if (error) {
        return -error;
    }

    pool->headers = xzalloc_cacheline(pool->n * IPOIB_POOL_HEADER_SIZE);
    for (size_t i = 0; i < pool->n; i++) {
        struct dp_packet_afxdp *xpacket = ipoib_pool_header(pool, i);
        void *frame = (void *) (pool->frames + (i << pool->shift));
        uint8_t *data = (uint8_t *) (uintptr_t)
                        ipoib_pool_frame_to_id(pool, frame);
        uint8_t *base = data - IPOIB_POOL_HEADROOM;
        size_t allocated = ((size_t) 1 << pool->shift)
                           - (base - (uint8_t *) frame);

        xpacket->mpool = &pool->umem;
        dp_packet_use_afxdp(&xpacket->packet, data, MIN(allocated, UINT16_MAX),
                            IPOIB_POOL_HEADROOM);
    }
    return 0;
}

static void
afxdp_uninit(struct ipoib_pool *pool)
{
    if (pool->umem.array) {
        umem_pool_cleanup(&pool->umem);
    }
    free_cacheline(pool->headers);
}

/* umem_elem_pop_n() takes all or nothing. */
static size_t
afxdp_get(struct ipoib_pool *pool, void *frames[], size_t n)
{
    if (!umem_elem_pop_n(&pool->umem, n, frames)) {
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        frames[i] = umem_elem_pop(&pool->umem);
        if (!frames[i]) {
            return i;
        }
    }
    return n;
}

static void
afxdp_put(struct ipoib_pool *pool, void *frames[], size_t n)
{
    umem_elem_push_n(&pool->umem, n, frames);
}

static size_t
afxdp_count(struct ipoib_pool *pool)
{
    return umem_pool_count(&pool->umem);
}

static const struct ipoib_pool_ops afxdp_ops = {
    .name = "afxdp",
    .zero_copy = true,
    .init = afxdp_init,
    .uninit = afxdp_uninit,
    .get = afxdp_get,
    .put = afxdp_put,
    .count = afxdp_count,
};
#endif
