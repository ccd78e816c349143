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
#undef NDEBUG

/* Buffer pools, of the kind that OVS_IPOIB_POOL names: free frames that
 * threads have at hand, and packets that outlive their pool. */

#include <errno.h>
#include <unistd.h>

#ifdef DPDK_NETDEV
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#endif

#include "dp-packet.h"
#include "ipoib-null-verbs.h"
#include "ipoib-pool.h"
#include "ipoib-pool-eal.h"
#include "ipoib-pool-magazine.h"
#include "ipoib-pool-private.h"
#ifdef HAVE_AF_XDP
#include "netdev-afxdp-pool.h"
#endif
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

#define N_BUFS 1024

static struct null_hca *hca;

static struct ipoib_pool *
pool_open(size_t n)
{
    struct ipoib_pool *pool = ipoib_pool_create(&null_verbs, &hca->pd, n,
                                                2048, -1);

    ovs_assert(pool);
    return pool;
}

static struct ipoib_pool_stats
stats_of(const struct ipoib_pool *pool)
{
    struct ipoib_pool_stats stats;

    ipoib_pool_get_stats(pool, &stats);
    ovs_assert(stats.n_free + stats.n_posted + stats.n_packets
               == stats.n_bufs);
    return stats;
}

/* Takes a buffer and makes it a packet. */
static struct dp_packet *
receive(struct ipoib_pool *pool)
{
    struct ipoib_buf buf;

    if (!ipoib_pool_get(pool, &buf, 1)) {
        return NULL;
    }
    ovs_assert(((uintptr_t) buf.data - pool->data_ofs) % CACHE_LINE_SIZE == 0);
    memset(buf.data, 0x5a, buf.size);
    return ipoib_pool_to_packet(pool, buf.id, 30, 1000);
}

static void
sweep(void)
{
    ipoib_pool_sweep();
    ovsrcu_synchronize();
    ovsrcu_barrier();
}

/* What another thread does, while the main thread waits. */
struct work {
    struct ipoib_pool *pool;
    struct dp_packet *packets[N_BUFS];
    size_t n;
};

static void
run(void *(*function)(void *), struct work *work)
{
    pthread_t thread = ovs_thread_create("worker", function, work);

    xpthread_join(thread, NULL);
}

static void *
free_packets(void *work_)
{
    struct work *work = work_;

    while (work->n) {
        dp_packet_delete(work->packets[--work->n]);
    }
    return NULL;
}

/* Whatever the MTU, buffers and what OVS writes in front of them are apart
 * from each other, and in memory that is registered. */
static void
test_layout(void)
{
    for (size_t mtu = 256; mtu <= 4096; mtu *= 2) {
        struct ipoib_pool *pool = ipoib_pool_create(&null_verbs, &hca->pd,
                                                    64, mtu, -1);
        const char *last = pool->base;
        struct ipoib_buf bufs[64];

        for (size_t i = 0; i < pool->n_frames; i++) {
            uint64_t id = ipoib_pool_id(pool, i);
            const char *packet = (const char *) ipoib_pool_packet(id);

            ovs_assert(packet >= last);
            ovs_assert(ipoib_pool_index(pool, id) == i);
            last = packet + IPOIB_POOL_PACKET_OFS + pool->size;
        }
        ovs_assert(last <= (const char *) pool->base + pool->length);
        ovs_assert(ipoib_pool_get(pool, bufs, 64) == 64);
        for (size_t i = 0; i < 64; i++) {
            memset(bufs[i].data, 0xff, bufs[i].size);
        }
        for (size_t i = 0; i < 64; i++) {
            ipoib_pool_put(pool, bufs[i].id);
        }
        ipoib_pool_detach(pool);
        sweep();
    }
}

/* Every buffer can be taken, by any one thread, once others have ended. */
static void
test_exhaust(void)
{
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct work work = { .pool = pool };
    bool zero_copy = stats_of(pool).zero_copy;

    for (int round = 0; round < 3; round++) {
        struct dp_packet *packet;
        struct ipoib_buf bufs[8];
        size_t n = 0;

        if (!zero_copy) {
            uint64_t ids[N_BUFS + 1];

            ovs_assert(ipoib_pool_get_ids(pool, 1, ids, N_BUFS + 1)
                       == N_BUFS);
            ovs_assert(!ipoib_pool_get(pool, bufs, 8));
            ovs_assert(ipoib_pool_reclaim(pool, 1) == N_BUFS);
            continue;
        }
        while ((packet = receive(pool))) {
            ovs_assert(n < N_BUFS);
            work.packets[n++] = packet;
        }
        ovs_assert(n == N_BUFS && !ipoib_pool_get(pool, bufs, 8));
        ovs_assert(stats_of(pool).n_packets == N_BUFS);
        work.n = n;
        run(free_packets, &work);
        ovs_assert(stats_of(pool).n_free == N_BUFS);
    }
    ovs_assert(stats_of(pool).n_free == N_BUFS);
    ipoib_pool_detach(pool);
    sweep();
}

static struct ovs_spin *
store_lock(struct ipoib_pool *pool)
{
#ifdef HAVE_AF_XDP
    if (!strcmp(stats_of(pool).kind, "afxdp")) {
        struct dp_packet *packet = receive(pool);
        struct umem_pool *umem
            = CONTAINER_OF(packet, struct dp_packet_afxdp, packet)->mpool;

        dp_packet_delete(packet);
        return &umem->lock;
    }
#endif
    return &pool->lock;
}

/* A thread that receives and frees takes no lock: it does so while somebody
 * has it, and would wait forever. */
static void
test_steady(void)
{
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct ovs_spin *lock = store_lock(pool);
    struct dp_packet *packets[48];

    dp_packet_delete(receive(pool));
    ovs_spin_lock(lock);
    for (size_t i = 0; i < 10000; i++) {
        size_t n = 1 + i % ARRAY_SIZE(packets);

        for (size_t j = 0; j < n; j++) {
            packets[j] = receive(pool);
            ovs_assert(packets[j]);
        }
        for (size_t j = 0; j < n; j++) {
            dp_packet_delete(packets[j]);
        }
    }
    ovs_spin_unlock(lock);
    ipoib_pool_detach(pool);
    sweep();
}

/* One thread receives, another one frees: all buffers go round, and what the
 * threads have at hand is bounded, and back when they end. */
static struct ovs_barrier barrier;

static void *
free_rounds(void *work_)
{
    struct work *work = work_;

    for (;;) {
        ovs_barrier_block(&barrier);
        if (!work->n) {
            return NULL;
        }
        free_packets(work);
        ovs_barrier_block(&barrier);
    }
}

static void
test_threads(void)
{
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct work work = { .pool = pool };
    pthread_t thread;

    ovs_barrier_init(&barrier, 2);
    thread = ovs_thread_create("worker", free_rounds, &work);
    for (size_t i = 0; i < 1000; i++) {
        while (work.n < 32 + i % 200) {
            struct dp_packet *packet = receive(pool);

            ovs_assert(packet);
            work.packets[work.n++] = packet;
        }
        ovs_assert(stats_of(pool).n_packets
                   == (stats_of(pool).zero_copy ? work.n : 0));
        ovs_barrier_block(&barrier);
        ovs_barrier_block(&barrier);
        ovs_assert(stats_of(pool).n_free == N_BUFS);
        ovs_assert(pool->ops->count(pool) >= N_BUFS - 4 * IPOIB_MAGAZINE);
    }
    ovs_barrier_block(&barrier);
    xpthread_join(thread, NULL);
    ovs_assert(pool->ops->count(pool) >= N_BUFS - 2 * IPOIB_MAGAZINE);
    ovs_assert(stats_of(pool).n_free == N_BUFS);
    ovs_barrier_destroy(&barrier);
    ipoib_pool_detach(pool);
    sweep();
}

/* A thread that is idle does not keep frames for ever. */
static void
test_idle(void)
{
    struct ipoib_pool *pool = pool_open(N_BUFS);
    long long int now = time_msec() + IPOIB_MAGAZINE_IDLE;

    dp_packet_delete(receive(pool));
    ovs_assert(ipoib_magazine_count(pool));
    for (int i = 0; i < 2; i++) {
        ipoib_magazine_sweep(now);
        ovsrcu_synchronize();
        ovsrcu_barrier();
        now += IPOIB_MAGAZINE_IDLE;
        ovs_assert((ipoib_magazine_count(pool) != 0) == !i);
    }
    ovs_assert(pool->ops->count(pool) == N_BUFS);

    /* It starts again as if nothing had been. */
    dp_packet_delete(receive(pool));
    ovs_assert(ipoib_magazine_count(pool));
    ovs_assert(stats_of(pool).n_free == N_BUFS);
    ipoib_pool_detach(pool);
    sweep();
}

/* Packets outlive their pool; threads that have free frames of it at hand give
 * them back when they are asked, even if they do nothing more. */
static void *
free_and_wait(void *work_)
{
    struct work *work = work_;

    free_packets(work);
    ovsrcu_quiesce_start();
    ovs_barrier_block(&barrier);
    ovs_barrier_block(&barrier);
    ovsrcu_quiesce_end();
    return NULL;
}

static void
test_gone(void)
{
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct work work = { .pool = pool };
    struct dp_packet *last;
    pthread_t thread;

    if (!stats_of(pool).zero_copy) {
        ipoib_pool_detach(pool);
        sweep();
        return;
    }
    last = receive(pool);
    for (int i = 0; i < 10; i++) {
        work.packets[work.n++] = receive(pool);
    }
    ovs_barrier_init(&barrier, 2);
    thread = ovs_thread_create("worker", free_and_wait, &work);
    ovs_barrier_block(&barrier);
    ovs_assert(ipoib_magazine_count(pool) > 10);
    ovs_assert(ipoib_pool_region(&hca->pd, last).lkey);

    ipoib_pool_detach(pool);
    ipoib_pool_eal_close(&hca->pd);
    ovs_assert(!ipoib_pool_region(&hca->pd, last).lkey);
    ovs_assert(!hca->n_objects);
    sweep();
    ovs_assert(pool->ops->count(pool) == N_BUFS - 1);

    /* Its other pools are not concerned. */
    struct ipoib_pool *other = pool_open(N_BUFS);
    ovs_assert(other != pool && other->slot != pool->slot);
    dp_packet_delete(receive(other));

    ovs_assert(((uint8_t *) dp_packet_data(last))[999] == 0x5a);
    dp_packet_delete(last);
    ovs_assert(pool->ops->count(pool) == N_BUFS);
    int slot = pool->slot;
    sweep();                    /* 'pool' is gone. */
    pool = pool_open(N_BUFS);
    ovs_assert(pool->slot == slot);
    dp_packet_delete(receive(pool));
    ovs_assert(ipoib_magazine_count(pool));

    ovs_barrier_block(&barrier);
    xpthread_join(thread, NULL);
    ovs_barrier_destroy(&barrier);
    ipoib_pool_detach(pool);
    ipoib_pool_detach(other);
    sweep();
}

/* A pool goes while a grace period is on after which the main thread wants to
 * empty a magazine of it.  Callbacks of two threads come in any order, so that
 * the pool may be gone before that.  (ovs_barrier_block() would quiesce.) */
static atomic_uint32_t step;

static void
wait_for_step(uint32_t wanted)
{
    uint32_t now;

    do {
        usleep(1000);
        atomic_read(&step, &now);
    } while (now < wanted);
}

static void *
detach_pool(void *work_)
{
    struct work *work = work_;

    dp_packet_delete(receive(work->pool));
    atomic_store(&step, 1);
    wait_for_step(2);
    ipoib_pool_detach(work->pool);
    ovsrcu_quiesce_start();
    atomic_store(&step, 3);
    wait_for_step(4);
    ovsrcu_quiesce_end();
    return NULL;
}

static void
test_overtaken(void)
{
    long long int now = time_msec() + 10 * IPOIB_MAGAZINE_IDLE;
    struct work work = { .pool = pool_open(N_BUFS) };
    int slot = work.pool->slot;
    pthread_t thread;

    thread = ovs_thread_create("worker", detach_pool, &work);
    wait_for_step(1);
    for (int i = 0; i < 2; i++) {
        ipoib_magazine_sweep(now);
        now += IPOIB_MAGAZINE_IDLE;
    }
    atomic_store(&step, 2);
    wait_for_step(3);
    usleep(100000);             /* Now the RCU thread waits for this one. */
    sweep();
    atomic_store(&step, 4);
    xpthread_join(thread, NULL);

    work.pool = pool_open(N_BUFS);
    ovs_assert(work.pool->slot == slot);
    ipoib_pool_detach(work.pool);
    sweep();
}

/* Pools that have grown. */

#define N_SMALL 64
#define N_GROWN (IPOIB_POOL_MAX_GROWTH * N_SMALL)

/* All buffers of all pools, 'n' there are to be, each once, and as far apart
 * as they are long. */
static void
take_all(struct ipoib_pool *pool, uint8_t tag, uint64_t ids[], size_t n)
{
    ovs_assert(ipoib_pool_get_ids(pool, tag, ids, N_GROWN) == n);
    for (size_t i = 0; i < n; i++) {
        memset((void *) (uintptr_t) ids[i], i, pool->size);
    }
    for (size_t i = 0; i < n; i++) {
        const uint8_t *data = (const uint8_t *) (uintptr_t) ids[i];

        ovs_assert(ipoib_pool_tag(ids[i]) == tag);
        ovs_assert(data[0] == (uint8_t) i);
        ovs_assert(data[pool->size - 1] == (uint8_t) i);
    }
}

/* Buffers go back to the pool from which they came, whoever brings them. */
static void
check_whole(struct ipoib_pool *first)
{
    struct ipoib_pool *pool;

    IPOIB_POOL_FOR_EACH (pool, first) {
        ovs_assert(pool->ops->count(pool) + ipoib_magazine_count(pool)
                   == pool->n);
    }
    ovs_assert(stats_of(first).n_free == stats_of(first).n_bufs);
}

/* A packet of a further pool is like one of the first. */
static void
check_packet(struct ipoib_pool *first, struct dp_packet *packet)
{
    struct ipoib_pool *pool = ipoib_pool_find(first, (uintptr_t) packet);
    uint32_t lkey = ipoib_pool_packet_lkey(first, packet);
    const struct ibv_mr *mr = pool->mr;
    uintptr_t data = (uintptr_t) dp_packet_data(packet);

    ovs_assert(lkey && lkey == mr->lkey);
    ovs_assert(data >= (uintptr_t) mr->addr
               && data + dp_packet_size(packet)
                  <= (uintptr_t) mr->addr + mr->length);
    ovs_assert(ipoib_pool_region(&hca->pd, packet).lkey);
    ovs_assert(data == ipoib_pool_packet_id(packet) + 30);
    ovs_assert(dp_packet_headroom(packet) == IPOIB_POOL_HEADROOM + 30);
    ovs_assert(dp_packet_tailroom(packet) >= pool->size - 1030);
    ovs_assert(packet->packet_type == htonl(PT_ETH));
    ovs_assert(!memcmp(&pool->fresh, &first->fresh, sizeof pool->fresh));
#ifdef DPDK_NETDEV
    if (packet->source == DPBUF_DPDK) {
        ovs_assert(packet->mbuf.pool == pool->aux);
        ovs_assert(rte_mbuf_refcnt_read(&packet->mbuf) == 1);
    }
#endif
}

static void
test_grow(void)
{
    struct ipoib_pool *pool = pool_open(N_SMALL);
    bool zero_copy = stats_of(pool).zero_copy;
    size_t memory = stats_of(pool).memory;
    struct work work = { .pool = pool };
    int n_objects = hca->n_objects;
    uint64_t ids[N_GROWN];

    BUILD_ASSERT_DECL(N_GROWN <= N_BUFS);
    for (size_t n = N_SMALL; n <= N_GROWN; n *= 2) {
        uint8_t tag = ipoib_pool_tag_alloc(pool);
        struct dp_packet *packet;

        ovs_assert(stats_of(pool).n_bufs == n);
        take_all(pool, tag, ids, n);
        ovs_assert(stats_of(pool).n_posted == n);
        for (size_t i = 0; i < n; i += 3) {
            ipoib_pool_put(pool, ids[i]);
        }
        ovs_assert(ipoib_pool_reclaim(pool, tag) == n - DIV_ROUND_UP(n, 3));
        check_whole(pool);

        while (zero_copy && (packet = receive(pool))) {
            check_packet(pool, packet);
            work.packets[work.n++] = packet;
        }
        ovs_assert(work.n == (zero_copy ? n : 0));
        ovs_assert(stats_of(pool).n_packets == work.n);
        run(free_packets, &work);
        check_whole(pool);

        /* Without memory it stays as it is. */
        hca->refuse_mr = true;
        ovs_assert(ipoib_pool_grow(pool) == (n < N_GROWN ? ENOMEM : ERANGE));
        hca->refuse_mr = false;
        ovs_assert(stats_of(pool).n_bufs == n);
        ovs_assert(!ipoib_pool_grow(pool) == (n < N_GROWN));
    }
    ovs_assert(stats_of(pool).memory >= IPOIB_POOL_MAX_GROWTH * memory / 2);
    ovs_assert(hca->n_objects > n_objects);
    ipoib_pool_detach(pool);
    sweep();
}

/* A pool that is large is not so many times as large after that. */
static void
test_grow_large(void)
{
    struct ipoib_pool *pool = ipoib_pool_create(&null_verbs, &hca->pd,
                                                IPOIB_POOL_MAX_BUFS - 1024,
                                                256, -1);

    if (pool) {                 /* DPDK may have less memory. */
        ovs_assert(!ipoib_pool_grow(pool));
        ovs_assert(stats_of(pool).n_bufs == IPOIB_POOL_MAX_BUFS);
        ovs_assert(ipoib_pool_grow(pool) == ERANGE);
        ipoib_pool_detach(pool);
        sweep();
    }
}

/* The pool grows while it is in use. */
static void *
grow_to_the_end(void *work_)
{
    struct work *work = work_;
    int error;

    do {
        usleep(1000);
        error = ipoib_pool_grow(work->pool);
    } while (!error);
    ovs_assert(error == ERANGE);
    return NULL;
}

static void
test_grow_threads(void)
{
    for (int round = 0; round < 20; round++) {
        struct ipoib_pool *pool = pool_open(N_SMALL);
        uint8_t tag = ipoib_pool_tag_alloc(pool);
        struct work work = { .pool = pool };
        pthread_t thread = ovs_thread_create("grow", grow_to_the_end, &work);
        uint64_t ids[N_GROWN];
        size_t n = 0;

        while (n < N_GROWN) {
            size_t got = ipoib_pool_get_ids(pool, tag, &ids[n],
                                            MIN(32, N_GROWN - n));

            for (size_t i = 0; i < got; i++) {
                ovs_assert(ipoib_pool_lkey(ipoib_pool_find(pool,
                                                           ids[n + i])));
            }
            n += got;
            if (got) {
                ipoib_pool_put(pool, ids[--n]);
            }
            if (n == N_GROWN - 1) {
                n += ipoib_pool_get_ids(pool, tag, &ids[n], 1);
            }
        }
        xpthread_join(thread, NULL);
        ovs_assert(ipoib_pool_reclaim(pool, tag) == N_GROWN);
        check_whole(pool);
        ipoib_pool_detach(pool);
        sweep();
    }
}

/* Packets of all parts outlive it; each part goes when its own are back. */
static void
test_grow_gone(void)
{
    struct ipoib_pool *pool = pool_open(N_SMALL), *p, *pools[5];
    struct dp_packet *packets[N_GROWN], *last[5] = { NULL };
    size_t n = 0, n_pools = 0;

    while (!ipoib_pool_grow(pool)) {
        continue;
    }
    IPOIB_POOL_FOR_EACH (p, pool) {
        pools[n_pools++] = p;
    }
    ovs_assert(n_pools == ARRAY_SIZE(pools));
    while (stats_of(pool).zero_copy && (packets[n] = receive(pool))) {
        for (size_t i = 0; i < n_pools; i++) {
            if (ipoib_pool_has(pools[i], (uintptr_t) packets[n])) {
                last[i] = packets[n];
            }
        }
        if (++n == N_GROWN) {
            break;
        }
    }
    ipoib_pool_detach(pool);
    ipoib_pool_eal_close(&hca->pd);
    ovs_assert(!hca->n_objects);
    while (n) {
        struct dp_packet *packet = packets[--n];
        bool keep = false;

        ovs_assert(!ipoib_pool_region(&hca->pd, packet).lkey);
        ovs_assert(((uint8_t *) dp_packet_data(packet))[999] == 0x5a);
        for (size_t i = 0; i < n_pools; i++) {
            keep |= packet == last[i];
        }
        if (!keep) {
            dp_packet_delete(packet);
        }
    }
    for (size_t i = 0; i < n_pools && last[i]; i++) {
        sweep();
        ovs_assert(pools[i]->ops->count(pools[i]) == pools[i]->n - 1);
        dp_packet_delete(last[i]);
        sweep();                /* That one is gone. */
    }
    sweep();
    pool = pool_open(N_BUFS);
    ovs_assert(pool->slot == 0);
    ipoib_pool_detach(pool);
    sweep();
}

/* netdev-afxdp puts frames into the umem_pool itself. */
static void
test_routes(void)
{
#ifdef HAVE_AF_XDP
    struct ipoib_pool *pool = pool_open(N_BUFS);

    for (int i = 0; i < 3 && !strcmp(stats_of(pool).kind, "afxdp"); i++) {
        size_t n = 0;

        for (struct dp_packet *p; (p = receive(pool)); n++) {
            struct umem_pool *umem
                = CONTAINER_OF(p, struct dp_packet_afxdp, packet)->mpool;
            uintptr_t base = (uintptr_t) dp_packet_base(p);

            dp_packet_push_zeros(p, 100);
            if (n % 3) {
                umem_elem_push(umem, (void *) ROUND_DOWN(base, 4096));
            } else {
                dp_packet_delete(p);
            }
            if (n == 100 * N_BUFS) {
                break;
            }
        }
        ovs_assert(stats_of(pool).n_free == N_BUFS);
    }
    ipoib_pool_detach(pool);
    sweep();
#endif
}

/* Packets of DPDK's ports have an lkey of each domain, and others have not. */
static void
test_eal(void)
{
#ifdef DPDK_NETDEV
    struct null_hca *other_hca = null_hca_open();
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct dp_packet *packet, *others[100];
    struct rte_mempool *mp;
    struct ibv_pd *pd = &hca->pd;

    if (strcmp(stats_of(pool).kind, "dpdk")) {
        ipoib_pool_detach(pool);
        null_hca_close(other_hca);
        return;
    }
    mp = rte_pktmbuf_pool_create("other", 1000, 32,
                                 sizeof(struct dp_packet)
                                 - sizeof(struct rte_mbuf), 2048,
                                 SOCKET_ID_ANY);
    ovs_assert(mp);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        others[i] = (struct dp_packet *) rte_pktmbuf_alloc(mp);
        dp_packet_init_dpdk(others[i]);
        dp_packet_set_size(others[i], 2000);
        ovs_assert(ipoib_pool_region(pd, others[i]).lkey);
        ovs_assert(!ipoib_pool_region(&other_hca->pd, others[i]).lkey);
    }
    ipoib_pool_eal_open(&null_verbs, &other_hca->pd);
    ipoib_pool_eal_open(&null_verbs, &other_hca->pd);
    ovs_assert(ipoib_pool_region(&other_hca->pd, others[0]).lkey);
    packet = receive(pool);
    ovs_assert(ipoib_pool_region(&other_hca->pd, packet).lkey);

    /* As mbufs are freed by DPDK's drivers. */
    for (int i = 0; i < 3 * N_BUFS; i++) {
        rte_pktmbuf_free_bulk((struct rte_mbuf **) &packet, 1);
        packet = receive(pool);
    }
    dp_packet_delete(packet);
    ovs_assert(stats_of(pool).n_free == N_BUFS);

    /* Memory that is not EAL's, and what begins in it and ends outside. */
    packet = dp_packet_new(2000);
    ovs_assert(!ipoib_pool_region(pd, packet).lkey);
    ovs_assert(!ipoib_pool_eal_region(pd, dp_packet_data(packet), 1).lkey);
    dp_packet_delete(packet);
    ovs_assert(!ipoib_pool_eal_region(pd, dp_packet_data(others[0]),
                                      SIZE_MAX / 2).lkey);

    ipoib_pool_eal_close(pd);
    ovs_assert(!ipoib_pool_region(pd, others[0]).lkey);
    ovs_assert(ipoib_pool_region(&other_hca->pd, others[0]).lkey);
    ipoib_pool_eal_close(&other_hca->pd);
    ovs_assert(!other_hca->n_objects);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        dp_packet_delete(others[i]);
    }
    rte_mempool_free(mp);
    ipoib_pool_detach(pool);
    sweep();
    null_hca_close(other_hca);
#endif
}

/* Memory that DPDK gets and returns is registered for so long.  Only huge
 * pages come and go, so that this is for who has set OVS_IPOIB_EAL. */
#ifdef DPDK_NETDEV
#define ZONE_SIZE (8u << 20)
#define MAX_PAGE (2u << 20)

struct lookups {
    const struct dp_packet *packet; /* Its memory stays. */
    uint32_t lkey;
    atomic_bool stop;
    size_t n_found;
};

/* While memory comes and goes, a packet's key is found, or not, but no other
 * one. */
static void *
look_up(void *lookups_)
{
    struct lookups *lookups = lookups_;
    bool stop;

    do {
        uint32_t lkey = ipoib_pool_region(&hca->pd, lookups->packet).lkey;

        ovs_assert(!lkey || lkey == lookups->lkey);
        lookups->n_found += lkey != 0;
        atomic_read(&lookups->stop, &stop);
    } while (!stop);
    return NULL;
}

static char *
zone_get(int n_before)
{
    char *zone = rte_malloc("zone", ZONE_SIZE, 0);

    ovs_assert(zone && hca->n_objects >= n_before + 4);
    for (size_t i = 0; i < ZONE_SIZE; i += MAX_PAGE) {
        ovs_assert(ipoib_pool_eal_region(&hca->pd, zone + i, 1).lkey);
    }
    ovs_assert(ipoib_pool_eal_region(&hca->pd, zone + ZONE_SIZE - 1, 1).lkey);
    return zone;
}
#endif

static void
test_events(void)
{
#ifdef DPDK_NETDEV
    struct null_hca *other_hca = null_hca_open();
    struct ipoib_pool *pool = pool_open(N_BUFS);
    struct dp_packet *packet = receive(pool);
    struct lookups lookups = {
        .packet = packet,
        .lkey = ipoib_pool_region(&hca->pd, packet).lkey,
    };
    int n = hca->n_objects;

    if (getenv("OVS_IPOIB_EAL")) {
        pthread_t thread = ovs_thread_create("lookups", look_up, &lookups);
        char *zone;

        ovs_assert(!strcmp(stats_of(pool).kind, "dpdk") && lookups.lkey);
        for (int i = 0; i < 100; i++) {
            zone = zone_get(n);
            rte_free(zone);
            ovs_assert(hca->n_objects == n);
            ovs_assert(!ipoib_pool_eal_region(&hca->pd, zone + MAX_PAGE,
                                              1).lkey);
        }
        atomic_store(&lookups.stop, true);
        xpthread_join(thread, NULL);
        ovs_assert(lookups.n_found);

        /* A domain that comes later, and goes earlier. */
        zone = zone_get(n);
        ipoib_pool_eal_open(&null_verbs, &other_hca->pd);
        ovs_assert(other_hca->n_objects == hca->n_objects - 1);
        ovs_assert(ipoib_pool_eal_region(&other_hca->pd, zone, 1).lkey);
        rte_free(zone);
        ovs_assert(!ipoib_pool_eal_region(&other_hca->pd, zone + MAX_PAGE,
                                          1).lkey);
        ipoib_pool_eal_close(&other_hca->pd);
        rte_free(zone_get(n));
        ovs_assert(!other_hca->n_objects);
    }
    dp_packet_delete(packet);
    ipoib_pool_detach(pool);
    sweep();
    null_hca_close(other_hca);
#endif
}

static void
test_ipoib_pool_main(int argc, char *argv[])
{
    struct { const char *name; void (*function)(void); } tests[] = {
        { "layout", test_layout },
        { "exhaust", test_exhaust },
        { "steady", test_steady },
        { "threads", test_threads },
        { "idle", test_idle },
        { "gone", test_gone },
        { "overtaken", test_overtaken },
        { "grow", test_grow },
        { "grow-large", test_grow_large },
        { "grow-threads", test_grow_threads },
        { "grow-gone", test_grow_gone },
        { "routes", test_routes },
        { "eal", test_eal },
        { "events", test_events },
    };

    alarm(60);
    hca = null_hca_open();
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        if (argc < 2 || !strcmp(argv[1], tests[i].name)) {
            tests[i].function();
        }
    }
    null_hca_close(hca);
}

OVSTEST_REGISTER("test-ipoib-pool", test_ipoib_pool_main);
