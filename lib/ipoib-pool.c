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

#include "ipoib-pages.h"
#include "ipoib-pool-eal.h"
#include "ipoib-pool-magazine.h"
#include "ipoib-pool-private.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_pool);

/* All pools.  Attached ones are also in 'attached', which RCU readers may
 * look at; there may be more than fit there, whose packets are then copied
 * when they are sent. */
static struct ovs_mutex pools_mutex = OVS_MUTEX_INITIALIZER;
static struct ipoib_pool **detached OVS_GUARDED_BY(pools_mutex);
static size_t n_detached OVS_GUARDED_BY(pools_mutex);
static ATOMIC(struct ipoib_pool *) attached[64];

/* The kinds that can be, best first. */
static const struct ipoib_pool_ops *const kinds[] = {
#ifdef DPDK_NETDEV
    &ipoib_pool_dpdk_ops,
#endif
#ifdef HAVE_AF_XDP
    &ipoib_pool_afxdp_ops,
#endif
    &ipoib_pool_copy_ops,
};

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
    /* Rather now than in the data path, which touches all of it anyway. */
    madvise(p, len, MADV_POPULATE_WRITE);
    return p;
}

void *
ipoib_pool_alloc_pages(size_t len, int numa_id)
{
    void *p = ipoib_pages_map(len);

    prefer_numa_node(p, len, numa_id);
    return p;
}

void
ipoib_pool_free_pages(void *p, size_t len)
{
    ipoib_pages_unmap(p, len);
}

/* Frees 'pool', all of whose buffers are back and which is detached. */
static void
pool_free(struct ipoib_pool *pool)
{
    pool->ops->uninit(pool);
    ipoib_magazine_detach(pool);
    free_cacheline(pool);
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

void
ipoib_pool_set_stride(struct ipoib_pool *pool, size_t stride, size_t data_ofs)
{
    const uint64_t one = UINT64_C(1) << IPOIB_POOL_DIV_SHIFT;

    pool->stride = stride;
    pool->data_ofs = data_ofs;
    pool->reciprocal = DIV_ROUND_UP(one, stride);
    pool->colour_mask = 0;
}

int
ipoib_pool_map(struct ipoib_pool *pool, size_t align, int numa_id)
{
    pool->length = ROUND_UP(pool->n_frames * pool->stride, 4096);
    pool->base = map_frames(pool->length, align, numa_id);
    if (!pool->base) {
        return ENOMEM;
    }
    pool->frames = (uintptr_t) pool->base;
    pool->memory += pool->length;
    return 0;
}

void
ipoib_pool_unmap(struct ipoib_pool *pool)
{
    if (pool->base) {
        munmap(pool->base, pool->length);
    }
}

void
ipoib_pool_fill(struct ipoib_pool *pool)
{
    for (size_t i = pool->n; i-- > 0; ) {
        uint64_t id = ipoib_pool_id(pool, i);

        pool->ops->put(pool, &id, 1);
    }
}

/* As ipoib_pool_reg_mr(), but failure is logged as 'level' says. */
static struct ibv_mr *
reg_mr(const struct ipoib_verbs *verbs, struct ibv_pd *pd, void *addr,
       size_t len, int access, enum vlog_level level)
{
    const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
    struct ibv_mr *mr;
    int error = 0;

    /* A device may pin what it cannot write as it stands: pages that nobody
     * has touched are all the zero page then, and what is stored there later
     * goes to other pages, that the device does not see. */
    access |= IBV_ACCESS_LOCAL_WRITE;
    mr = verbs->reg_mr(pd, addr, len, access);
    if (!mr) {
        error = errno;
    }
    if ((error == ENOMEM || error == EPERM)
        && !setrlimit(RLIMIT_MEMLOCK, &unlimited)) {
        mr = verbs->reg_mr(pd, addr, len, access);
        error = mr ? 0 : errno;
    }
    if (error) {
        VLOG(level, "registering %"PRIuSIZE" bytes failed (%s); the limit of "
             "locked memory (RLIMIT_MEMLOCK) may be too low",
             len, ovs_strerror(error));
        errno = error;
    }
    return mr;
}

struct ibv_mr *
ipoib_pool_reg_mr(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                  void *addr, size_t len, int access)
{
    return reg_mr(verbs, pd, addr, len, access, VLL_ERR);
}

/* A pool of the kind of 'ops' without memory. */
static struct ipoib_pool *
pool_new(const struct ipoib_pool_ops *ops,
         const struct ipoib_verbs *verbs, struct ibv_pd *pd,
         size_t n, size_t size, int numa_id)
{
    struct ipoib_pool *pool = xzalloc_cacheline(sizeof *pool);

    pool->ops = ops;
    pool->verbs = verbs;
    pool->pd = pd;
    pool->numa_id = numa_id;
    pool->n = pool->n_frames = n;
    pool->size = size;
    atomic_init(&pool->next, NULL);
    atomic_init(&pool->detached, false);
    ipoib_magazine_attach(pool);
    return pool;
}

static int
pool_init(struct ipoib_pool *pool, enum vlog_level level)
{
    int error = pool->ops->init(pool, pool->numa_id);

    if (error) {
        return error;
    }
    if (pool->ops->zero_copy) {
        uint64_t id;

        if (!pool->ops->get(pool, &id, 1)) {
            return EINVAL;
        }
        dp_packet_reserve(ipoib_pool_packet(id), IPOIB_POOL_FRAME_OFS);
        ipoib_pkt_fresh_init(&pool->fresh, ipoib_pool_packet(id));
        pool->ops->put(pool, &id, 1);
    }
    pool->mr = reg_mr(pool->verbs, pool->pd, pool->base, pool->length,
                      IBV_ACCESS_LOCAL_WRITE, level);
    if (!pool->mr) {
        return errno;
    }
    atomic_init(&pool->lkey, pool->mr->lkey);
    return 0;
}

/* Logs that 'only', the value of OVS_IPOIB_POOL, leaves no kind. */
static void
log_impossible(const char *only)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        ds_put_format(&s, "%s%s", i ? ", " : "", kinds[i]->name);
        if (kinds[i]->condition) {
            ds_put_format(&s, " (%s)", kinds[i]->condition);
        }
    }
    VLOG_ERR("OVS_IPOIB_POOL=%s: there are no buffers of this kind; possible "
             "are %s", only, ds_cstr(&s));
    ds_destroy(&s);
}

struct ipoib_pool *
ipoib_pool_create(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                  size_t n, size_t mtu, int numa_id)
{
    const char *only = getenv("OVS_IPOIB_POOL");
    struct ipoib_pool *pool = NULL;
    int error = EPROTONOSUPPORT;

    for (size_t i = 0; !pool && i < ARRAY_SIZE(kinds); i++) {
        const struct ipoib_pool_ops *ops = kinds[i];

        if (only && strcmp(only, ops->name)) {
            continue;
        }
        pool = pool_new(ops, verbs, pd, n, IPOIB_GRH_SPACE + mtu, numa_id);
        error = pool_init(pool, VLL_ERR);
        if (error) {
            pool_free(pool);
            pool = NULL;
        }
        if (error && error != EPROTONOSUPPORT) {
            VLOG_INFO("cannot have %"PRIuSIZE" buffers of kind %s (%s)",
                      n, ops->name, ovs_strerror(error));
        }
    }
    if (only && error == EPROTONOSUPPORT) {
        log_impossible(only);
        error = EINVAL;
    }
    if (!pool) {
        errno = error;
        return NULL;
    }
    ipoib_pool_eal_open(verbs, pd);
    publish(pool);
    return pool;
}

/* All of the new pool's inside is there when others come to see it. */
int
ipoib_pool_grow(struct ipoib_pool *first)
{
    size_t max = MIN(IPOIB_POOL_MAX_GROWTH * first->n, IPOIB_POOL_MAX_BUFS);
    struct ipoib_pool *last = first, *pool;
    size_t total = 0;
    int error;

    IPOIB_POOL_FOR_EACH (pool, first) {
        total += pool->n;
        last = pool;
    }
    if (total >= max) {
        return ERANGE;
    }
    pool = pool_new(first->ops, first->verbs, first->pd,
                    MIN(total, max - total), first->size, first->numa_id);
    error = pool_init(pool, VLL_INFO);
    if (error) {
        pool_free(pool);
        return error;
    }
    publish(pool);
    atomic_store_explicit(&last->next, pool, memory_order_release);
    return 0;
}

/* Threads that are about to send one of the pool's packets may have its lkey:
 * they are done after a grace period, but what they have posted may not be
 * sent by then.  Such a send fails with an error completion. */
static void
pool_detach(struct ipoib_pool *pool)
{
    unpublish(pool);
    atomic_store_relaxed(&pool->detached, true);
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
    ipoib_magazine_flush(pool);
}

/* Those by which 'pool' has grown go by themselves from now on, each when its
 * last buffer is back. */
void
ipoib_pool_detach(struct ipoib_pool *pool)
{
    while (pool) {
        struct ipoib_pool *next = ipoib_pool_next(pool);

        atomic_store_relaxed(&pool->next, NULL);
        pool_detach(pool);
        pool = next;
    }
    ipoib_pool_sweep();
}

/* The thread that puts the last buffer back may still hold the lock: it has
 * left it after a grace period. */
void
ipoib_pool_sweep(void)
{
    ipoib_magazine_sweep(time_msec());
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
ipoib_pool_get_further(struct ipoib_pool *pool, uint64_t ids[], size_t n)
{
    size_t n_got = 0;

    while (n_got < n && (pool = ipoib_pool_next(pool)) != NULL) {
        n_got += ipoib_magazine_get(pool, &ids[n_got], n - n_got);
    }
    return n_got;
}

size_t
ipoib_pool_get_ids(struct ipoib_pool *pool, uint8_t tag, uint64_t ids[],
                   size_t n)
{
    size_t n_first = ipoib_magazine_get(pool, ids, n);

    n = n_first + ipoib_pool_get_further(pool, &ids[n_first], n - n_first);
    for (size_t i = 0; i < n; i++) {
        ipoib_pool_set_tag(ids[i], tag);
    }
    return n;
}

size_t
ipoib_pool_get(struct ipoib_pool *pool, struct ipoib_buf bufs[], size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        struct ipoib_buf *buf = &bufs[i];

        if (!ipoib_pool_get_ids(pool, UINT8_MAX, &buf->id, 1)) {
            break;
        }
        buf->data = (void *) (uintptr_t) buf->id;
        buf->size = pool->size;
        buf->lkey = ipoib_pool_lkey(ipoib_pool_find(pool, buf->id));
    }
    return i;
}

void
ipoib_pool_put(struct ipoib_pool *pool, uint64_t id)
{
    ovs_assert(ipoib_pool_tag(id));
    ipoib_pool_packet(id)->packet_type = htonl(PT_ETH);
    ipoib_magazine_put(ipoib_pool_find(pool, id), &id, 1);
}

size_t
ipoib_pool_reclaim(struct ipoib_pool *first, uint8_t tag)
{
    struct ipoib_pool *pool;
    size_t n = 0;

    IPOIB_POOL_FOR_EACH (pool, first) {
        for (size_t i = 0; i < pool->n_frames; i++) {
            uint64_t id = ipoib_pool_id(pool, i);

            if ((ipoib_pool_tag(id) & ~IPOIB_POOL_TAG_MARK) == tag) {
                ipoib_pool_put(pool, id);
                n++;
            }
        }
    }
    first->tag_used[tag] = false;
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
        packet = ipoib_pool_wrap(id, len, &pool->fresh);
        dp_packet_set_data(packet, data);
        return packet;
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
ipoib_pool_packet_lkey(const struct ipoib_pool *first,
                       const struct dp_packet *packet)
{
    const struct ipoib_pool *pool
        = ipoib_pool_find(CONST_CAST(struct ipoib_pool *, first),
                          (uintptr_t) packet);

    return pool ? ipoib_pool_lkey(pool) : 0;
}

struct ipoib_region
ipoib_pool_region(const struct ibv_pd *pd, const struct dp_packet *packet)
{
    const struct ipoib_region none = { .lkey = 0 };

#ifdef DPDK_NETDEV
    if (OVS_LIKELY(packet->source == DPBUF_DPDK)) {
        return ipoib_pool_eal_region(pd, dp_packet_data(packet),
                                     dp_packet_size(packet));
    }
#endif
    if (packet->source != DPBUF_AFXDP) {
        return none;
    }
    for (size_t i = 0; i < ARRAY_SIZE(attached); i++) {
        struct ipoib_pool *pool;

        atomic_read_explicit(&attached[i], &pool, memory_order_acquire);
        if (pool && pool->pd == pd
            && ipoib_pool_has(pool, (uintptr_t) packet)) {
            uint32_t lkey = ipoib_pool_lkey(pool);

            return lkey ? (struct ipoib_region) {
                .start = pool->frames,
                .end = pool->frames + pool->n_frames * pool->stride,
                .lkey = lkey,
            } : none;
        }
    }
    return none;
}

/* Adds those of 'pool' itself to 'stats'. */
static void
pool_add_stats(struct ipoib_pool *pool, struct ipoib_pool_stats *stats)
{
    size_t n_free = pool->ops->count(pool) + ipoib_magazine_count(pool);
    size_t n_own = 0;

    for (size_t i = 0; i < pool->n_frames; i++) {
        n_own += ipoib_pool_tag(ipoib_pool_id(pool, i)) != 0;
    }
    stats->n_bufs += pool->n;
    stats->n_free += n_free;
    stats->n_posted += n_own;
    /* The counters move while they are read. */
    stats->n_packets += pool->n - MIN(pool->n, n_free + n_own);
    stats->memory += pool->memory;
}

void
ipoib_pool_get_stats(const struct ipoib_pool *first,
                     struct ipoib_pool_stats *stats)
{
    struct ipoib_pool *pool;

    *stats = (struct ipoib_pool_stats) {
        .kind = first->ops->name,
        .zero_copy = first->ops->zero_copy,
    };
    IPOIB_POOL_FOR_EACH (pool, CONST_CAST(struct ipoib_pool *, first)) {
        pool_add_stats(pool, stats);
    }
}

/* The store. */

void
ipoib_pool_store_init(struct ipoib_pool *pool)
{
    ovs_spin_init(&pool->lock);
    pool->free = xcalloc(pool->n, sizeof *pool->free);
    pool->memory += pool->n * sizeof *pool->free;
}

void
ipoib_pool_store_uninit(struct ipoib_pool *pool)
{
    if (pool->free) {
        free(pool->free);
        ovs_spin_destroy(&pool->lock);
    }
}

size_t
ipoib_pool_store_get(struct ipoib_pool *pool, uint64_t ids[], size_t n)
{
    ovs_spin_lock(&pool->lock);
    n = MIN(n, pool->n_free);
    pool->n_free -= n;
    memcpy(ids, &pool->free[pool->n_free], n * sizeof *ids);
    ovs_spin_unlock(&pool->lock);
    return n;
}

void
ipoib_pool_store_put(struct ipoib_pool *pool, const uint64_t ids[], size_t n)
{
    ovs_spin_lock(&pool->lock);
    ovs_assert(pool->n_free + n <= pool->n);
    memcpy(&pool->free[pool->n_free], ids, n * sizeof *ids);
    pool->n_free += n;
    ovs_spin_unlock(&pool->lock);
}

size_t
ipoib_pool_store_count(struct ipoib_pool *pool)
{
    size_t n;

    ovs_spin_lock(&pool->lock);
    n = pool->n_free;
    ovs_spin_unlock(&pool->lock);
    return n;
}
