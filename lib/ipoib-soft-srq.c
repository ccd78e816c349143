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
#include "util.h"

/* Receive rings, and shared receive queues, of the software HCA. */

void
soft_rq_init(struct soft_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
    memset(rq, 0, sizeof *rq);
    rq->max_wr = max_wr;
    rq->max_sge = max_sge;
    rq->stride = sizeof(struct soft_rwqe) + max_sge * sizeof(struct ibv_sge);
    rq->ring = max_wr ? xmalloc_cacheline(max_wr * rq->stride) : NULL;
}

void
soft_rq_destroy(struct soft_rq *rq)
{
    free_cacheline(rq->ring);
    rq->ring = NULL;
}

/* Adds the chain 'wr' to 'rq'.  On failure '*bad_wr' is the first request
 * that was not added. */
int
soft_rq_post(struct soft_rq *rq, struct ibv_recv_wr *wr,
             struct ibv_recv_wr **bad_wr)
{
    for (; wr; wr = wr->next) {
        struct soft_rwqe *e;

        if (OVS_UNLIKELY(rq->n >= rq->max_wr)) {
            *bad_wr = wr;
            return ENOMEM;
        }
        if (OVS_UNLIKELY(wr->num_sge < 0 || wr->num_sge > rq->max_sge)) {
            *bad_wr = wr;
            return EINVAL;
        }
        e = soft_rq_at(rq, rq->head);
        e->wr_id = wr->wr_id;
        e->num_sge = wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++) {
            e->sge[i] = wr->sg_list[i];
        }
        rq->head = rq->head + 1 == rq->max_wr ? 0 : rq->head + 1;
        rq->n++;
    }
    return 0;
}

/* Makes 'rq' a ring of 'max_wr' requests.  It must hold no more. */
static void
rq_resize(struct soft_rq *rq, uint32_t max_wr)
{
    struct soft_rq new;

    soft_rq_init(&new, max_wr, rq->max_sge);
    while (rq->n) {
        memcpy(soft_rq_at(&new, new.head), soft_rq_peek(rq), rq->stride);
        new.head = new.head + 1 == max_wr ? 0 : new.head + 1;
        new.n++;
        soft_rq_pop(rq);
    }
    soft_rq_destroy(rq);
    *rq = new;
}

struct ibv_srq *
soft_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct soft_hca *hca = soft_hca_cast(pd->context);
    struct soft_srq *srq;
    uint32_t max_sge = MAX(attr->attr.max_sge, 1);

    if (!attr->attr.max_wr || attr->attr.max_wr > SOFT_MAX_WR
        || max_sge > SOFT_MAX_SGE) {
        errno = EINVAL;
        return NULL;
    }
    srq = xzalloc_cacheline(sizeof *srq);
    srq->srq.context = pd->context;
    srq->srq.srq_context = attr->srq_context;
    srq->srq.pd = pd;
    ovs_mutex_init_adaptive(&srq->mutex);
    soft_rq_init(&srq->rq, attr->attr.max_wr, max_sge);
    attr->attr.max_sge = max_sge;

    ovs_mutex_lock(&hca->mutex);
    if (hca->n_srqs >= SOFT_MAX_SRQ) {
        ovs_mutex_unlock(&hca->mutex);
        soft_rq_destroy(&srq->rq);
        ovs_mutex_destroy(&srq->mutex);
        free_cacheline(srq);
        errno = ENOMEM;
        return NULL;
    }
    soft_pd_ref(pd);
    hca->n_srqs++;
    ovs_list_push_back(&hca->srq_list, &srq->node);
    ovs_mutex_unlock(&hca->mutex);
    return &srq->srq;
}

int
soft_modify_srq(struct ibv_srq *srq_, struct ibv_srq_attr *attr, int mask)
{
    struct soft_hca *hca = soft_hca_cast(srq_->context);
    struct soft_srq *srq = soft_srq_cast(srq_);
    bool reached = false;
    int error = 0;

    ovs_mutex_lock(&srq->mutex);
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
        || (mask & IBV_SRQ_MAX_WR
            && (attr->max_wr < MAX(srq->rq.n, 1)
                || attr->max_wr > SOFT_MAX_WR))
        || (mask & IBV_SRQ_LIMIT
            && attr->srq_limit > (mask & IBV_SRQ_MAX_WR ? attr->max_wr
                                  : srq->rq.max_wr))) {
        error = EINVAL;
    } else {
        if (mask & IBV_SRQ_MAX_WR) {
            rq_resize(&srq->rq, attr->max_wr);
        }
        if (mask & IBV_SRQ_LIMIT) {
            srq->limit = attr->srq_limit;
            if (srq->rq.n < srq->limit) {
                srq->limit = 0;
                reached = true;
            }
        }
    }
    ovs_mutex_unlock(&srq->mutex);

    if (reached) {
        soft_event_raise(hca, IBV_EVENT_SRQ_LIMIT_REACHED, srq_);
    }
    return error;
}

int
soft_query_srq(struct ibv_srq *srq_, struct ibv_srq_attr *attr)
{
    struct soft_srq *srq = soft_srq_cast(srq_);

    ovs_mutex_lock(&srq->mutex);
    attr->max_wr = srq->rq.max_wr;
    attr->max_sge = srq->rq.max_sge;
    attr->srq_limit = srq->limit;
    ovs_mutex_unlock(&srq->mutex);
    return 0;
}

int
soft_destroy_srq(struct ibv_srq *srq_)
{
    struct soft_hca *hca = soft_hca_cast(srq_->context);
    struct soft_srq *srq = soft_srq_cast(srq_);

    ovs_mutex_lock(&hca->mutex);
    if (srq->n_refs) {
        ovs_mutex_unlock(&hca->mutex);
        return EBUSY;
    }
    ovs_list_remove(&srq->node);
    hca->n_srqs--;
    soft_pd_unref(srq_->pd);
    ovs_mutex_unlock(&hca->mutex);

    soft_event_forget(hca, srq_, &srq->events);
    soft_rq_destroy(&srq->rq);
    ovs_mutex_destroy(&srq->mutex);
    free_cacheline(srq);
    return 0;
}

int
soft_post_srq_recv(struct ibv_srq *srq_, struct ibv_recv_wr *wr,
                   struct ibv_recv_wr **bad_wr)
{
    struct soft_srq *srq = soft_srq_cast(srq_);
    int error;

    ovs_mutex_lock(&srq->mutex);
    error = soft_rq_post(&srq->rq, wr, bad_wr);
    ovs_mutex_unlock(&srq->mutex);
    return error;
}
