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

#ifndef IPOIB_POOL_MAGAZINE_H
#define IPOIB_POOL_MAGAZINE_H 1

/* Magazines: free buffers that a thread has at hand.
 *
 * A thread takes buffers from a magazine of its own and puts them there,
 * without a lock and without touching what other threads write.  Only when it
 * is empty or full, IPOIB_MAGAZINE buffers (less, for a small pool) move
 * between it and the pool's store.  So a thread that receives packets and also
 * frees them is by itself, and one that frees what another one receives goes
 * to the store once a magazine.
 *
 * What a thread has at hand comes back to the store when it ends, when the
 * pool is detached, and when the thread has been idle for a while; all but the
 * first is done by ipoib_magazine_sweep().  It closes the magazine, whose
 * owner then goes to the store directly; after an RCU grace period the owner
 * is sure to have noticed, and the buffers are taken out.  So whoever frees
 * packets must not be quiescent meanwhile, which OVS asks of those who have
 * packets anyway. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/compiler.h"
#include "ovs-atomic.h"
#include "util.h"

struct ipoib_pool;

/* Frames that move at a time. */
#define IPOIB_MAGAZINE 64

/* A thread that has not moved a buffer for so long, in ms, is idle. */
#define IPOIB_MAGAZINE_IDLE 10000

/* Pools that can have magazines. */
#define IPOIB_MAGAZINE_SLOTS 256

/* One thread's, for the pool of one slot. */
struct ipoib_magazine {
    atomic_bool closed;         /* By the sweep. */
    uint32_t chunk;             /* Frames to move: IPOIB_MAGAZINE at most. */
    atomic_uint32_t n;          /* In 'ids'; written by the thread. */
    uint32_t last_n;            /* The sweep's. */
    bool closing;               /* The sweep's: since before the grace
                                 * period that is on. */
    uint64_t ids[2 * IPOIB_MAGAZINE];
};

extern _Thread_local ATOMIC(struct ipoib_magazine *)
    ipoib_magazines[IPOIB_MAGAZINE_SLOTS];

/* Gives 'pool' a slot, if there is one. */
void ipoib_magazine_attach(struct ipoib_pool *);
/* Ends that.  All buffers must be in the store. */
void ipoib_magazine_detach(struct ipoib_pool *);

/* Takes up to 'n' buffers, and puts 'n' buffers.  Any thread. */
size_t ipoib_magazine_get(struct ipoib_pool *, uint64_t ids[], size_t n);
void ipoib_magazine_put(struct ipoib_pool *, const uint64_t ids[], size_t n);
void ipoib_magazine_put_slot(unsigned int slot, uint64_t id);

/* Puts what this thread has at hand into the store. */
void ipoib_magazine_flush(struct ipoib_pool *);

/* Frames in magazines; they may move meanwhile. */
size_t ipoib_magazine_count(const struct ipoib_pool *);

/* Now and then, by one thread.  'now' is time_msec(). */
void ipoib_magazine_sweep(long long int now);

/* Puts one buffer, of the pool that has 'slot'. */
static inline void
ipoib_magazine_put_one(unsigned int slot, uint64_t id)
{
    struct ipoib_magazine *m;
    bool closed;
    uint32_t n;

    atomic_read_relaxed(&ipoib_magazines[slot], &m);
    if (OVS_LIKELY(m)) {
        atomic_read_explicit(&m->closed, &closed, memory_order_acquire);
        atomic_read_relaxed(&m->n, &n);
        if (OVS_LIKELY(!closed && n < 2 * m->chunk)) {
            m->ids[n] = id;
            atomic_store_relaxed(&m->n, n + 1);
            return;
        }
    }
    ipoib_magazine_put_slot(slot, id);
}

#endif /* ipoib-pool-magazine.h */
