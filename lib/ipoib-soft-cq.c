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
#include "ipoib-soft-private.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "ipoib-pages.h"
#include "util.h"

/* Completion queues and completion channels of the software HCA. */

static struct soft_channel *
soft_channel_cast(struct ibv_comp_channel *channel)
{
    return CONTAINER_OF(channel, struct soft_channel, channel);
}

struct ibv_comp_channel *
soft_create_comp_channel(struct ibv_context *ctx)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct soft_channel *ch;

    if (fd < 0) {
        return NULL;
    }
    ch = xzalloc(sizeof *ch);
    ch->channel.context = ctx;
    ch->channel.fd = fd;
    ovs_mutex_init(&ch->mutex);
    xpthread_cond_init(&ch->cond, NULL);
    ovs_list_init(&ch->pending);

    ovs_mutex_lock(&hca->mutex);
    ovs_list_push_back(&hca->channel_list, &ch->node);
    ovs_mutex_unlock(&hca->mutex);
    return &ch->channel;
}

int
soft_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct soft_channel *ch = soft_channel_cast(channel);
    struct soft_hca *hca = soft_hca_cast(channel->context);

    ovs_mutex_lock(&hca->mutex);
    if (channel->refcnt) {
        ovs_mutex_unlock(&hca->mutex);
        return EBUSY;
    }
    ovs_list_remove(&ch->node);
    ovs_mutex_unlock(&hca->mutex);

    close(channel->fd);
    xpthread_cond_destroy(&ch->cond);
    ovs_mutex_destroy(&ch->mutex);
    free(ch);
    return 0;
}

/* Puts one event of 'cq' in its channel.  The channel's file descriptor is
 * readable exactly while events are pending. */
static void
channel_push(struct soft_cq *cq)
{
    struct soft_channel *ch = soft_channel_cast(cq->cq.channel);
    uint64_t one = 1;

    ovs_mutex_lock(&ch->mutex);
    if (ovs_list_is_empty(&ch->pending)) {
        ignore(write(ch->channel.fd, &one, sizeof one));
    }
    if (!cq->n_pending++) {
        ovs_list_push_back(&ch->pending, &cq->pending_node);
    }
    ovs_mutex_unlock(&ch->mutex);
}

static void
channel_drained(struct soft_channel *ch)
    OVS_REQUIRES(ch->mutex)
{
    uint64_t count;

    if (ovs_list_is_empty(&ch->pending)) {
        ignore(read(ch->channel.fd, &count, sizeof count));
    }
}

int
soft_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cqp,
                  void **cq_context)
{
    struct soft_channel *ch = soft_channel_cast(channel);
    struct soft_cq *cq;
    int error = EAGAIN;

    ovs_mutex_lock(&ch->mutex);
    if (!ovs_list_is_empty(&ch->pending)) {
        cq = CONTAINER_OF(ovs_list_pop_front(&ch->pending), struct soft_cq,
                          pending_node);
        if (--cq->n_pending) {
            ovs_list_push_back(&ch->pending, &cq->pending_node);
        }
        cq->n_unacked++;
        channel_drained(ch);
        *cqp = &cq->cq;
        *cq_context = cq->cq.cq_context;
        error = 0;
    }
    ovs_mutex_unlock(&ch->mutex);
    return error;
}

void
soft_ack_cq_events(struct ibv_cq *cq_, unsigned int n)
{
    struct soft_cq *cq = soft_cq_cast(cq_);

    if (cq_->channel) {
        struct soft_channel *ch = soft_channel_cast(cq_->channel);

        ovs_mutex_lock(&ch->mutex);
        cq->n_unacked -= MIN(n, cq->n_unacked);
        xpthread_cond_broadcast(&ch->cond);
        ovs_mutex_unlock(&ch->mutex);
    }
}

/* A ring of up to so many bytes has its memory at once. */
#define SMALL_RING ((size_t) 16 << 10)

/* A ring of zeros.  Of a big one, most queues never use but the beginning. */
static struct soft_cqe *
ring_alloc(uint32_t n)
{
    size_t size = n * sizeof(struct soft_cqe);

    return size <= SMALL_RING ? xzalloc_cacheline(size)
                              : ipoib_pages_map(size);
}

static void
ring_free(struct soft_cqe *ring, uint32_t n)
{
    size_t size = n * sizeof *ring;

    if (size <= SMALL_RING) {
        free_cacheline(ring);
    } else {
        ipoib_pages_unmap(ring, size);
    }
}

struct ibv_cq *
soft_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
               struct ibv_comp_channel *channel, int comp_vector)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    struct soft_cq *cq;
    uint32_t n;

    if (cqe < 1 || cqe > SOFT_MAX_CQE || comp_vector < 0
        || comp_vector >= ctx->num_comp_vectors
        || (channel && channel->context != ctx)) {
        errno = EINVAL;
        return NULL;
    }

    n = ROUND_UP_POW2(cqe);
    cq = xzalloc_cacheline(sizeof *cq);
    cq->cq.context = ctx;
    cq->cq.channel = channel;
    cq->cq.cq_context = cq_context;
    cq->cq.cqe = n;
    cq->ring = ring_alloc(n);
    cq->mask = n - 1;
    atomic_init(&cq->prod, 0);
    atomic_init(&cq->cons, 0);
    ovsrcu_init(&cq->source_qps, NULL);
    ovs_mutex_init_adaptive(&cq->mutex);

    ovs_mutex_lock(&hca->mutex);
    if (channel) {
        channel->refcnt++;
    }
    hca->n_cqs++;
    ovs_list_push_back(&hca->cq_list, &cq->node);
    ovs_mutex_unlock(&hca->mutex);
    return &cq->cq;
}

int
soft_destroy_cq(struct ibv_cq *cq_)
{
    struct soft_hca *hca = soft_hca_cast(cq_->context);
    struct soft_cq *cq = soft_cq_cast(cq_);

    ovs_mutex_lock(&hca->mutex);
    if (cq->n_refs) {
        ovs_mutex_unlock(&hca->mutex);
        return EBUSY;
    }
    ovs_list_remove(&cq->node);
    hca->n_cqs--;
    ovs_mutex_unlock(&hca->mutex);

    if (cq_->channel) {
        struct soft_channel *ch = soft_channel_cast(cq_->channel);

        ovs_mutex_lock(&ch->mutex);
        if (cq->n_pending) {
            ovs_list_remove(&cq->pending_node);
            channel_drained(ch);
        }
        while (cq->n_unacked && !hca->closing) {
            ovs_mutex_cond_wait(&ch->cond, &ch->mutex);
        }
        ovs_mutex_unlock(&ch->mutex);

        ovs_mutex_lock(&hca->mutex);
        cq_->channel->refcnt--;
        ovs_mutex_unlock(&hca->mutex);
    }
    soft_event_forget(hca, cq_, &cq->events);
    ovs_mutex_destroy(&cq->mutex);
    free(ovsrcu_get_protected(struct soft_group_qps *, &cq->source_qps));
    ring_free(cq->ring, cq->mask + 1);
    free_cacheline(cq);
    return 0;
}

/* Adds the 'n' completions 'cqes' to 'cq'.  Those that find no room are lost,
 * which raises IBV_EVENT_CQ_ERR, once. */
void
soft_cq_push(struct soft_cq *cq, const struct soft_cqe *cqes, size_t n)
{
    struct soft_hca *hca = soft_hca_cast(cq->cq.context);
    bool notify = false;
    bool overflow = false;
    uint32_t prod, cons;

    ovs_mutex_lock(&cq->mutex);
    atomic_read_relaxed(&cq->prod, &prod);
    atomic_read_relaxed(&cq->cons, &cons);
    for (size_t i = 0; i < n; i++) {
        if (OVS_UNLIKELY(prod - cons > cq->mask)) {
            soft_count(hca, SOFT_C_CQ_OVERFLOW, n - i);
            overflow = !cq->overflowed;
            cq->overflowed = true;
            break;
        }
        cq->ring[prod++ & cq->mask] = cqes[i];
        if (cq->armed == SOFT_CQ_ANY
            || (cq->armed == SOFT_CQ_SOLICITED
                && (cqes[i].solicited
                    || cqes[i].wc.status != IBV_WC_SUCCESS))) {
            cq->armed = SOFT_CQ_UNARMED;
            notify = true;
        }
    }
    atomic_store_explicit(&cq->prod, prod, memory_order_release);
    if (notify) {
        channel_push(cq);
    }
    ovs_mutex_unlock(&cq->mutex);

    if (overflow) {
        soft_event_raise(hca, IBV_EVENT_CQ_ERR, &cq->cq);
    }
}

int
soft_poll_cq(struct ibv_cq *cq_, int max, struct ibv_wc *wc)
{
    struct soft_cq *cq = soft_cq_cast(cq_);
    uint32_t prod, cons;
    int n = 0;

    /* An empty queue takes no lock.  Who polls after a completion became
     * visible by other means synchronizes by the mutex below. */
    atomic_read_explicit(&cq->prod, &prod, memory_order_acquire);
    atomic_read_relaxed(&cq->cons, &cons);
    if (prod == cons) {
        struct soft_hca *hca = soft_hca_cast(cq_->context);

        return hca->model ? soft_model_poll(hca, cq, max, wc) : 0;
    }

    ovs_mutex_lock(&cq->mutex);
    atomic_read_relaxed(&cq->prod, &prod);
    atomic_read_relaxed(&cq->cons, &cons);
    while (n < max && cons != prod) {
        const struct soft_cqe *e = &cq->ring[cons++ & cq->mask];

        wc[n++] = e->wc;
        if (e->is_send) {
            atomic_store_explicit(&e->qp->sq_tail, e->sq_end,
                                  memory_order_release);
        }
    }
    atomic_store_relaxed(&cq->cons, cons);
    ovs_mutex_unlock(&cq->mutex);
    return n;
}

int
soft_req_notify_cq(struct ibv_cq *cq_, int solicited_only)
{
    struct soft_cq *cq = soft_cq_cast(cq_);

    if (!cq_->channel) {
        return 0;               /* There is nobody to tell. */
    }
    ovs_mutex_lock(&cq->mutex);
    cq->armed = (solicited_only && cq->armed != SOFT_CQ_ANY
                 ? SOFT_CQ_SOLICITED : SOFT_CQ_ANY);
    ovs_mutex_unlock(&cq->mutex);
    return 0;
}

/* Takes the completions of 'qp' out of 'cq', as when a queue pair is reset
 * or destroyed. */
void
soft_cq_sweep(struct soft_cq *cq, const struct soft_qp *qp)
{
    uint32_t prod, cons, to;

    ovs_mutex_lock(&cq->mutex);
    atomic_read_relaxed(&cq->prod, &prod);
    atomic_read_relaxed(&cq->cons, &cons);
    to = cons;
    for (uint32_t i = cons; i != prod; i++) {
        const struct soft_cqe *e = &cq->ring[i & cq->mask];

        if (e->qp != qp) {
            if (to != i) {
                cq->ring[to & cq->mask] = *e;
            }
            to++;
        }
    }
    atomic_store_relaxed(&cq->prod, to);
    ovs_mutex_unlock(&cq->mutex);
}
