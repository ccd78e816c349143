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
#include "ipoib-msgq.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dp-packet.h"
#include "hash.h"
#include "ipoib-pages.h"
#include "ipoib-stats.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "random.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_msgq);

/* 'head' counts the messages that were pushed, 'tail' those that were popped;
 * both wrap around.  Each side has a cache line of its own, in which it also
 * keeps what it last saw of the other's, so that neither touches the other's
 * line but when the ring seems full or empty. */
struct ipoib_msgq {
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        struct ipoib_msg *ring;
        uint32_t mask;
    );
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        atomic_uint32_t head;   /* Written by the producer. */
        uint32_t tail_seen;
    );
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        atomic_uint32_t tail;   /* Written by the consumer. */
        uint32_t head_seen;
    );
};

struct ipoib_msgq *
ipoib_msgq_create(unsigned int n)
{
    struct ipoib_msgq *q = xzalloc_cacheline(sizeof *q);

    ovs_assert(n && IS_POW2(n));
    /* Most of it takes no memory in most queues. */
    q->ring = ipoib_pages_map(n * sizeof *q->ring);
    q->mask = n - 1;
    atomic_init(&q->head, 0);
    atomic_init(&q->tail, 0);
    return q;
}

size_t
ipoib_msgq_memory(unsigned int n)
{
    return sizeof(struct ipoib_msgq) + n * sizeof(struct ipoib_msg);
}

void
ipoib_msg_drop(struct ipoib_msg *msg, atomic_uint64_t *rx,
               atomic_uint64_t *tx)
{
    if (ipoib_msg_is_received(msg)) {
        ipoib_count(rx, 1);
    } else if (ipoib_msg_is_to_send(msg)) {
        ipoib_count(tx, 1);
    }
    dp_packet_delete(msg->packet);
    msg->packet = NULL;
}

void
ipoib_msgq_destroy(struct ipoib_msgq *q)
{
    struct ipoib_msg msg;

    if (q) {
        while (ipoib_msgq_pop(q, &msg)) {
            dp_packet_delete(msg.packet);
        }
        ipoib_pages_unmap(q->ring, (q->mask + 1) * sizeof *q->ring);
        free_cacheline(q);
    }
}

bool
ipoib_msgq_push(struct ipoib_msgq *q, const struct ipoib_msg *msg)
{
    uint32_t head;

    atomic_read_relaxed(&q->head, &head);
    if (head - q->tail_seen > q->mask) {
        atomic_read_explicit(&q->tail, &q->tail_seen, memory_order_acquire);
        if (head - q->tail_seen > q->mask) {
            return false;
        }
    }
    q->ring[head & q->mask] = *msg;
    atomic_store_explicit(&q->head, head + 1, memory_order_release);
    return true;
}

bool
ipoib_msgq_pop(struct ipoib_msgq *q, struct ipoib_msg *msg)
{
    uint32_t tail;

    atomic_read_relaxed(&q->tail, &tail);
    if (tail == q->head_seen) {
        atomic_read_explicit(&q->head, &q->head_seen, memory_order_acquire);
        if (tail == q->head_seen) {
            return false;
        }
    }
    *msg = q->ring[tail & q->mask];
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
    return true;
}

bool
ipoib_msgq_is_empty(const struct ipoib_msgq *q_)
{
    struct ipoib_msgq *q = CONST_CAST(struct ipoib_msgq *, q_);
    uint32_t head, tail;

    atomic_read_relaxed(&q->tail, &tail);
    atomic_read_explicit(&q->head, &head, memory_order_acquire);
    return head == tail;
}

/* Wakers. */

void
ipoib_waker_init(struct ipoib_waker *waker)
{
    atomic_init(&waker->asleep, false);
    waker->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (waker->fd < 0) {
        VLOG_FATAL("eventfd: %s", ovs_strerror(errno));
    }
}

void
ipoib_waker_destroy(struct ipoib_waker *waker)
{
    close(waker->fd);
    waker->fd = -1;
}

/* The fence orders the message that was pushed before against the look at
 * 'asleep', as the one in ipoib_waker_sleep() orders 'asleep' against the
 * control thread's last look at the rings: one of the two sees the other. */
void
ipoib_waker_wake(struct ipoib_waker *waker)
{
    bool asleep;

    atomic_thread_fence(memory_order_seq_cst);
    atomic_read_relaxed(&waker->asleep, &asleep);
    if (asleep) {
        atomic_store_relaxed(&waker->asleep, false);
        ignore(write(waker->fd, &(uint64_t) { 1 }, sizeof(uint64_t)));
    }
}

void
ipoib_waker_sleep(struct ipoib_waker *waker)
{
    atomic_store_relaxed(&waker->asleep, true);
    atomic_thread_fence(memory_order_seq_cst);
}

void
ipoib_waker_wait(struct ipoib_waker *waker)
{
    poll_fd_wait(waker->fd, POLLIN);
}

void
ipoib_waker_awake(struct ipoib_waker *waker)
{
    uint64_t count;

    atomic_store_relaxed(&waker->asleep, false);
    ignore(read(waker->fd, &count, sizeof count));
}

/* Limits.
 *
 * A bucket counts the packets that were 'taken'; with each millisecond that
 * passes, IPOIB_LIMIT_RATE / 1000 of them are forgotten. */

BUILD_ASSERT_DECL(IPOIB_LIMIT_RATE % 1000 == 0);

BUILD_ASSERT_DECL(IPOIB_LIMIT_PLACE_RATE % 1000 == 0);

static bool
bucket_withdraw(struct ipoib_limiter_bucket *b, uint32_t rate, uint32_t burst,
                long long int now)
{
    uint32_t elapsed = (uint32_t) now - b->last;

    if (elapsed) {
        uint64_t forgotten = (uint64_t) elapsed * (rate / 1000);

        b->taken -= MIN(forgotten, b->taken);
        b->last = now;
    }
    if (b->taken >= burst) {
        return false;
    }
    b->taken++;
    return true;
}

bool
ipoib_limiter_admit(struct ipoib_limiter *limiter, uint32_t source_hash,
                    long long int now)
{
    size_t i = source_hash % ARRAY_SIZE(limiter->bucket);

    return bucket_withdraw(&limiter->bucket[i], IPOIB_LIMIT_RATE,
                           IPOIB_LIMIT_BURST, now);
}

bool
ipoib_limiter_admit_from(struct ipoib_limiter *limiter, uint32_t source_hash,
                         uint32_t place, long long int now)
{
    size_t i = place % (ARRAY_SIZE(limiter->place) - 1);

    if (!limiter->basis) {
        limiter->basis = random_uint32() | 1;
    }
    return (bucket_withdraw(&limiter->place[i], IPOIB_LIMIT_PLACE_RATE,
                            IPOIB_LIMIT_PLACE_BURST, now)
            && ipoib_limiter_admit(limiter,
                                   hash_2words(source_hash ^ limiter->basis,
                                               place), now));
}

bool
ipoib_limiter_admit_beacon(struct ipoib_limiter *limiter, long long int now)
{
    size_t i = ARRAY_SIZE(limiter->place) - 1;

    return bucket_withdraw(&limiter->place[i], IPOIB_LIMIT_PLACE_RATE,
                           IPOIB_LIMIT_PLACE_BURST, now);
}
