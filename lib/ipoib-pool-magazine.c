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
#include "ipoib-pool-magazine.h"

#include <stdlib.h>

#include "ipoib-pool-private.h"
#include "openvswitch/list.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "util.h"

_Thread_local ATOMIC(struct ipoib_magazine *)
    ipoib_magazines[IPOIB_MAGAZINE_SLOTS];

/* A thread that has magazines. */
struct owner {
    struct ovs_list node;
    ATOMIC(struct ipoib_magazine *) *magazines; /* Its ipoib_magazines. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list owners OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&owners);

/* Read without the mutex by those who have a buffer of the pool. */
static struct ipoib_pool *pools[IPOIB_MAGAZINE_SLOTS];

/* A grace period is on, after which those that are 'closing' are emptied. */
static bool emptying OVS_GUARDED_BY(mutex);
static long long int next_idle OVS_GUARDED_BY(mutex);

static _Thread_local bool is_owner;
static pthread_key_t owner_key;

/* Pools. */

static uint32_t
magazine_chunk(const struct ipoib_pool *pool)
{
    return MAX(1, MIN(IPOIB_MAGAZINE, pool->n / 16));
}

void
ipoib_magazine_attach(struct ipoib_pool *pool)
{
    struct owner *owner;

    pool->slot = -1;
    ovs_mutex_lock(&mutex);
    for (int i = 0; i < IPOIB_MAGAZINE_SLOTS; i++) {
        if (!pools[i]) {
            pools[i] = pool;
            pool->slot = i;
            break;
        }
    }
    LIST_FOR_EACH (owner, node, &owners) {
        struct ipoib_magazine *m = NULL;

        if (pool->slot >= 0) {
            atomic_read_relaxed(&owner->magazines[pool->slot], &m);
        }
        if (m) {
            m->chunk = magazine_chunk(pool);
            m->last_n = 0;
            atomic_store_explicit(&m->closed, false, memory_order_release);
        }
    }
    ovs_mutex_unlock(&mutex);
}

/* A sweep may have wanted to empty magazines that the threads have emptied
 * themselves since: the pool can go before the sweep comes to that. */
void
ipoib_magazine_detach(struct ipoib_pool *pool)
{
    struct owner *owner;

    if (pool->slot < 0) {
        return;
    }
    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH (owner, node, &owners) {
        struct ipoib_magazine *m;

        atomic_read_relaxed(&owner->magazines[pool->slot], &m);
        if (m) {
            m->closing = false;
        }
    }
    pools[pool->slot] = NULL;
    ovs_mutex_unlock(&mutex);
}

/* Threads. */

/* Moves all buffers of 'm' to the store of the pool that has 'slot'. */
static void
magazine_empty(struct ipoib_magazine *m, unsigned int slot)
    OVS_REQUIRES(mutex)
{
    uint32_t n;

    atomic_read_relaxed(&m->n, &n);
    if (n) {
        pools[slot]->ops->put(pools[slot], m->ids, n);
        atomic_store_relaxed(&m->n, 0);
    }
}

/* The thread ends. */
static void
owner_end(void *owner_)
{
    struct owner *owner = owner_;

    ovs_mutex_lock(&mutex);
    for (unsigned int i = 0; i < IPOIB_MAGAZINE_SLOTS; i++) {
        struct ipoib_magazine *m;

        atomic_read_relaxed(&owner->magazines[i], &m);
        if (m) {
            magazine_empty(m, i);
            atomic_store_relaxed(&owner->magazines[i], NULL);
            free_cacheline(m);
        }
    }
    ovs_list_remove(&owner->node);
    ovs_mutex_unlock(&mutex);
    free(owner);
    is_owner = false;
}

/* This thread's magazine for the pool of 'slot', which it does not have. */
static struct ipoib_magazine *
magazine_create(unsigned int slot)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct ipoib_magazine *m = xzalloc_cacheline(sizeof *m);
    bool detached;

    if (ovsthread_once_start(&once)) {
        xpthread_key_create(&owner_key, owner_end);
        ovsthread_once_done(&once);
    }
    ovs_mutex_lock(&mutex);
    if (!is_owner) {
        struct owner *owner = xzalloc(sizeof *owner);

        owner->magazines = ipoib_magazines;
        ovs_list_push_back(&owners, &owner->node);
        xpthread_setspecific(owner_key, owner);
        is_owner = true;
    }
    m->chunk = magazine_chunk(pools[slot]);
    atomic_read_relaxed(&pools[slot]->detached, &detached);
    atomic_init(&m->closed, detached);
    atomic_init(&m->n, 0);
    atomic_store_relaxed(&ipoib_magazines[slot], m);
    ovs_mutex_unlock(&mutex);
    return m;
}

/* This thread's magazine for 'slot', or NULL if it is closed. */
static struct ipoib_magazine *
magazine_open(unsigned int slot)
{
    struct ipoib_magazine *m;
    bool closed;

    atomic_read_relaxed(&ipoib_magazines[slot], &m);
    if (OVS_UNLIKELY(!m)) {
        m = magazine_create(slot);
    }
    atomic_read_explicit(&m->closed, &closed, memory_order_acquire);
    return closed ? NULL : m;
}

size_t
ipoib_magazine_get(struct ipoib_pool *pool, uint64_t ids[], size_t n)
{
    struct ipoib_magazine *m = NULL;
    size_t done = 0;
    uint32_t have;

    if (pool->slot >= 0) {
        m = magazine_open(pool->slot);
    }
    if (!m) {
        return pool->ops->get(pool, ids, n);
    }

    atomic_read_relaxed(&m->n, &have);
    for (;;) {
        size_t take = MIN(n - done, have);

        have -= take;
        memcpy(&ids[done], &m->ids[have], take * sizeof *ids);
        done += take;
        if (done == n) {
            break;
        }
        have = pool->ops->get(pool, m->ids, m->chunk);
        if (!have) {
            break;
        }
    }
    atomic_store_relaxed(&m->n, have);
    return done;
}

void
ipoib_magazine_put(struct ipoib_pool *pool, const uint64_t ids[], size_t n)
{
    if (pool->slot < 0) {
        pool->ops->put(pool, ids, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        ipoib_magazine_put_one(pool->slot, ids[i]);
    }
}

/* What ipoib_magazine_put_one() does not do.  A full magazine gives away the
 * buffers that have been in it for longest. */
void
ipoib_magazine_put_slot(unsigned int slot, uint64_t id)
{
    struct ipoib_magazine *m = magazine_open(slot);
    struct ipoib_pool *pool = pools[slot];
    uint32_t n;

    if (!m) {
        pool->ops->put(pool, &id, 1);
        return;
    }
    atomic_read_relaxed(&m->n, &n);
    if (n >= 2 * m->chunk) {
        pool->ops->put(pool, m->ids, m->chunk);
        n -= m->chunk;
        memmove(m->ids, &m->ids[m->chunk], n * sizeof *m->ids);
    }
    m->ids[n] = id;
    atomic_store_relaxed(&m->n, n + 1);
}

void
ipoib_magazine_flush(struct ipoib_pool *pool)
{
    struct ipoib_magazine *m = NULL;

    if (pool->slot >= 0) {
        ovs_mutex_lock(&mutex);
        atomic_read_relaxed(&ipoib_magazines[pool->slot], &m);
        if (m) {
            magazine_empty(m, pool->slot);
        }
        ovs_mutex_unlock(&mutex);
    }
}

size_t
ipoib_magazine_count(const struct ipoib_pool *pool)
{
    struct owner *owner;
    size_t count = 0;

    if (pool->slot < 0) {
        return 0;
    }
    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH (owner, node, &owners) {
        struct ipoib_magazine *m;
        uint32_t n;

        atomic_read_relaxed(&owner->magazines[pool->slot], &m);
        if (m) {
            atomic_read_relaxed(&m->n, &n);
            count += n;
        }
    }
    ovs_mutex_unlock(&mutex);
    return count;
}

/* The sweep. */

/* Runs after a grace period. */
static void
empty_closed(struct ovs_list *list)
{
    struct owner *owner;

    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH (owner, node, list) {
        for (unsigned int i = 0; i < IPOIB_MAGAZINE_SLOTS; i++) {
            struct ipoib_magazine *m;
            bool detached;

            atomic_read_relaxed(&owner->magazines[i], &m);
            if (!m || !m->closing) {
                continue;
            }
            m->closing = false;
            magazine_empty(m, i);
            atomic_read_relaxed(&pools[i]->detached, &detached);
            if (!detached) {
                atomic_store_explicit(&m->closed, false,
                                      memory_order_release);
            }
        }
    }
    emptying = false;
    ovs_mutex_unlock(&mutex);
}

/* Closes what is to be emptied in 'm'.  'idle': it is time to look who is
 * idle. */
static bool
sweep_magazine(struct ipoib_magazine *m, const struct ipoib_pool *pool,
               bool idle)
{
    bool detached, closed;
    uint32_t n;

    atomic_read_relaxed(&pool->detached, &detached);
    atomic_read_relaxed(&m->closed, &closed);
    atomic_read_relaxed(&m->n, &n);
    m->closing = n && (detached || (idle && n == m->last_n));
    if (idle) {
        m->last_n = n;
    }
    if (m->closing || (detached && !closed)) {
        atomic_store_relaxed(&m->closed, true);
    }
    return m->closing;
}

static bool
any_detached(void)
    OVS_REQUIRES(mutex)
{
    for (size_t i = 0; i < IPOIB_MAGAZINE_SLOTS; i++) {
        bool detached = false;

        if (pools[i]) {
            atomic_read_relaxed(&pools[i]->detached, &detached);
        }
        if (detached) {
            return true;
        }
    }
    return false;
}

/* To look at a magazine takes its cache line away from its owner, and so is
 * done only when there may be something to do. */
void
ipoib_magazine_sweep(long long int now)
{
    struct owner *owner;
    bool found = false;

    ovs_mutex_lock(&mutex);
    bool idle = now >= next_idle;
    if (!emptying && (idle || any_detached())) {
        LIST_FOR_EACH (owner, node, &owners) {
            for (unsigned int i = 0; i < IPOIB_MAGAZINE_SLOTS; i++) {
                struct ipoib_magazine *m;

                atomic_read_relaxed(&owner->magazines[i], &m);
                if (m && pools[i]) {
                    found |= sweep_magazine(m, pools[i], idle);
                }
            }
        }
        if (idle) {
            next_idle = now + IPOIB_MAGAZINE_IDLE;
        }
        emptying = found;
    }
    ovs_mutex_unlock(&mutex);
    if (found) {
        ovsrcu_postpone(empty_closed, &owners);
    }
}
