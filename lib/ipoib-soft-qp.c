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
#include "hash.h"
#include "util.h"

/* Queue pairs of the software HCA: their life and their states. */

/* The transitions of a UD queue pair that are legal (10.3.1 and table 95 of
 * the specification) with the attributes that each must and may have. */
static const struct qp_transition {
    enum ibv_qp_state from, to;
    int required, optional;
} transitions[] = {
    { IBV_QPS_RESET, IBV_QPS_INIT,
      IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
    { IBV_QPS_INIT, IBV_QPS_INIT, 0,
      IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
    { IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
    { IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY },
    { IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY },
    { IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
    { IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY },
    { IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
    { IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY },
};

static const struct qp_transition *
transition_find(enum ibv_qp_state from, enum ibv_qp_state to)
{
    for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
        if (transitions[i].from == from && transitions[i].to == to) {
            return &transitions[i];
        }
    }
    return NULL;
}

struct soft_qp *
soft_qp_find(struct soft_hca *hca, uint32_t qpn)
{
    struct soft_qp *qp;

    CMAP_FOR_EACH_WITH_HASH (qp, cmap_node, hash_int(qpn, 0), &hca->qps) {
        if (qp->qp.qp_num == qpn) {
            return qp;
        }
    }
    return NULL;
}

/* Returns a QPN that is not in use.  They are given out in order, over all
 * 24 bits, so that one comes again as late as possible. */
static uint32_t
qpn_alloc(struct soft_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    uint32_t qpn;

    do {
        qpn = hca->next_qpn & IB_QPN_MASK;
        hca->next_qpn = qpn + 1;
    } while (qpn <= IB_QPN_GSI || qpn == IB_QPN_MULTICAST
             || soft_qp_find(hca, qpn));
    return qpn;
}

static bool
qp_attr_ok(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
    return (attr->qp_type == IBV_QPT_UD
            && attr->send_cq && attr->send_cq->context == pd->context
            && attr->recv_cq && attr->recv_cq->context == pd->context
            && (!attr->srq || attr->srq->context == pd->context)
            && attr->cap.max_send_wr <= SOFT_MAX_WR
            && attr->cap.max_recv_wr <= SOFT_MAX_WR
            && attr->cap.max_send_sge <= SOFT_MAX_SGE
            && attr->cap.max_recv_sge <= SOFT_MAX_SGE
            && attr->cap.max_inline_data <= SOFT_MAX_INLINE);
}

struct ibv_qp *
soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
               bool block_self_mcast)
{
    struct soft_hca *hca = soft_hca_cast(pd->context);
    struct soft_qp *qp;

    if (!qp_attr_ok(pd, attr)) {
        errno = attr->qp_type == IBV_QPT_UD ? EINVAL : EOPNOTSUPP;
        return NULL;
    }

    qp = xzalloc_cacheline(sizeof *qp);
    qp->qp.context = pd->context;
    qp->qp.qp_context = attr->qp_context;
    qp->qp.pd = pd;
    qp->qp.send_cq = attr->send_cq;
    qp->qp.recv_cq = attr->recv_cq;
    qp->qp.srq = attr->srq;
    qp->qp.qp_type = attr->qp_type;
    qp->qp.state = IBV_QPS_RESET;
    if (attr->srq) {
        attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
    }
    qp->cap = attr->cap;
    qp->sig_all = attr->sq_sig_all;
    qp->block_self = block_self_mcast;
    atomic_init(&qp->state, IBV_QPS_RESET);
    atomic_init(&qp->sq_tail, 0);
    atomic_init(&qp->model_ip, 0);
    ovs_mutex_init_adaptive(&qp->sq_mutex);
    ovs_mutex_init_adaptive(&qp->mutex);
    ovs_list_init(&qp->deferred);
    soft_rq_init(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge);

    ovs_mutex_lock(&hca->mutex);
    if (hca->n_qps >= SOFT_MAX_QP) {
        ovs_mutex_unlock(&hca->mutex);
        soft_rq_destroy(&qp->rq);
        ovs_mutex_destroy(&qp->sq_mutex);
        ovs_mutex_destroy(&qp->mutex);
        free_cacheline(qp);
        errno = ENOMEM;
        return NULL;
    }
    qp->qp.qp_num = qp->qp.handle = qpn_alloc(hca);
    soft_pd_ref(pd);
    soft_cq_cast(attr->send_cq)->n_refs++;
    soft_cq_cast(attr->recv_cq)->n_refs++;
    if (attr->srq) {
        soft_srq_cast(attr->srq)->n_refs++;
    }
    hca->n_qps++;
    ovs_list_push_back(&hca->qp_list, &qp->node);
    cmap_insert(&hca->qps, &qp->cmap_node, hash_int(qp->qp.qp_num, 0));
    soft_model_update_cq(hca, soft_cq_cast(attr->recv_cq));
    ovs_mutex_unlock(&hca->mutex);
    return &qp->qp;
}

static void
qp_set_state(struct soft_qp *qp, enum ibv_qp_state state)
    OVS_REQUIRES(qp->mutex)
{
    atomic_store_relaxed(&qp->state, state);
    qp->qp.state = state;
}

/* Empties all queues of 'qp', without completions. */
static void
qp_reset(struct soft_qp *qp)
    OVS_REQUIRES(qp->sq_mutex, qp->mutex)
{
    struct soft_deferred *d;

    qp_set_state(qp, IBV_QPS_RESET);
    LIST_FOR_EACH_POP (d, node, &qp->deferred) {
        free(d);
    }
    qp->rq.head = qp->rq.tail = qp->rq.n = 0;
    soft_cq_sweep(soft_cq_cast(qp->qp.send_cq), qp);
    if (qp->qp.recv_cq != qp->qp.send_cq) {
        soft_cq_sweep(soft_cq_cast(qp->qp.recv_cq), qp);
    }
    atomic_store_relaxed(&qp->fault, SOFT_FAULT_NONE);
    qp->n_stalled = 0;
    qp->sq_head = 0;
    atomic_store_relaxed(&qp->sq_tail, 0);
    qp->last_wqe = false;
}

static void
qp_flush_deferred(struct soft_qp *qp)
    OVS_REQUIRES(qp->mutex)
{
    struct soft_deferred *d;

    LIST_FOR_EACH_POP (d, node, &qp->deferred) {
        struct soft_cqe cqe = {
            .wc = { .wr_id = d->wr.wr_id, .status = IBV_WC_WR_FLUSH_ERR,
                    .opcode = IBV_WC_SEND, .qp_num = qp->qp.qp_num },
            .qp = qp, .sq_end = d->sq_end, .is_send = true,
        };

        soft_cq_push(soft_cq_cast(qp->qp.send_cq), &cqe, 1);
        free(d);
    }
}

void
soft_qp_error(struct soft_qp *qp)
{
    if (soft_qp_state(qp) == IBV_QPS_ERR) {
        return;
    }
    qp_set_state(qp, IBV_QPS_ERR);
    qp_flush_deferred(qp);
    while (qp->rq.n) {
        struct soft_cqe cqe = {
            .wc = { .wr_id = soft_rq_peek(&qp->rq)->wr_id,
                    .status = IBV_WC_WR_FLUSH_ERR,
                    .opcode = IBV_WC_RECV, .qp_num = qp->qp.qp_num },
            .qp = qp,
        };

        soft_rq_pop(&qp->rq);
        soft_cq_push(soft_cq_cast(qp->qp.recv_cq), &cqe, 1);
    }
    if (qp->qp.srq && !qp->last_wqe) {
        qp->last_wqe = true;
        soft_event_raise(soft_hca_cast(qp->qp.context),
                         IBV_EVENT_QP_LAST_WQE_REACHED, &qp->qp);
    }
}

static int
modify_check(const struct ibv_qp_attr *attr, int mask,
             enum ibv_qp_state from, enum ibv_qp_state to)
{
    const struct qp_transition *t;
    int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);

    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from) {
        return EINVAL;
    }
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return mask & IBV_QP_STATE && !given ? 0 : EINVAL;
    }
    t = transition_find(from, to);
    if (!t || (given & t->required) != t->required
        || given & ~(t->required | t->optional)) {
        return EINVAL;
    }
    if (mask & IBV_QP_PORT && attr->port_num != 1) {
        return EINVAL;
    }
    if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index >= IB_SOFT_MAX_PKEYS) {
        return EINVAL;
    }
    return 0;
}

int
soft_modify_qp(struct ibv_qp *qp_, struct ibv_qp_attr *attr, int mask)
{
    struct soft_qp *qp = soft_qp_cast(qp_);
    enum ibv_qp_state from, to;
    int error;

    ovs_mutex_lock(&qp->sq_mutex);
    ovs_mutex_lock(&qp->mutex);
    from = soft_qp_state(qp);
    to = mask & IBV_QP_STATE ? attr->qp_state : from;
    error = modify_check(attr, mask, from, to);
    if (!error) {
        if (mask & IBV_QP_PKEY_INDEX) {
            qp->pkey_index = attr->pkey_index;
        }
        if (mask & IBV_QP_QKEY) {
            qp->qkey = attr->qkey;
        }
        if (mask & IBV_QP_SQ_PSN) {
            qp->psn = attr->sq_psn;
        }
        if (to == IBV_QPS_RESET) {
            qp_reset(qp);
        } else if (to == IBV_QPS_ERR) {
            soft_qp_error(qp);
        } else {
            qp_set_state(qp, to);
        }
    }
    ovs_mutex_unlock(&qp->mutex);

    if (!error && from == IBV_QPS_SQD && to == IBV_QPS_RTS) {
        soft_send_deferred(qp);
    }
    ovs_mutex_unlock(&qp->sq_mutex);

    /* Nothing of the send queue is ever on its way between two calls. */
    if (!error && from == IBV_QPS_RTS && to == IBV_QPS_SQD
        && mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify) {
        soft_event_raise(soft_hca_cast(qp_->context), IBV_EVENT_SQ_DRAINED,
                         qp_);
    }
    return error;
}

int
soft_query_qp(struct ibv_qp *qp_, struct ibv_qp_attr *attr,
              int mask OVS_UNUSED, struct ibv_qp_init_attr *init)
{
    struct soft_qp *qp = soft_qp_cast(qp_);

    memset(attr, 0, sizeof *attr);
    ovs_mutex_lock(&qp->sq_mutex);
    ovs_mutex_lock(&qp->mutex);
    attr->qp_state = attr->cur_qp_state = soft_qp_state(qp);
    attr->qkey = qp->qkey;
    attr->pkey_index = qp->pkey_index;
    attr->port_num = 1;
    attr->sq_psn = qp->psn & 0xffffff;
    attr->cap = qp->cap;
    ovs_mutex_unlock(&qp->mutex);
    ovs_mutex_unlock(&qp->sq_mutex);

    if (init) {
        memset(init, 0, sizeof *init);
        init->qp_context = qp_->qp_context;
        init->send_cq = qp_->send_cq;
        init->recv_cq = qp_->recv_cq;
        init->srq = qp_->srq;
        init->cap = qp->cap;
        init->qp_type = qp_->qp_type;
        init->sq_sig_all = qp->sig_all;
    }
    return 0;
}

static void
qp_free(struct soft_qp *qp)
{
    soft_rq_destroy(&qp->rq);
    ovs_mutex_destroy(&qp->sq_mutex);
    ovs_mutex_destroy(&qp->mutex);
    free(qp->csum_space);
    free(qp->stalled);
    free_cacheline(qp);
}

int
soft_destroy_qp(struct ibv_qp *qp_)
{
    struct soft_hca *hca = soft_hca_cast(qp_->context);
    struct soft_qp *qp = soft_qp_cast(qp_);

    ovs_mutex_lock(&hca->mutex);
    if (hca->closing) {
        soft_mcast_detach_all(hca, qp);
    } else if (qp->n_attached) {
        ovs_mutex_unlock(&hca->mutex);
        return EBUSY;           /* As the kernel. */
    }
    cmap_remove(&hca->qps, &qp->cmap_node, hash_int(qp_->qp_num, 0));
    ovs_list_remove(&qp->node);
    soft_model_update_cq(hca, soft_cq_cast(qp_->recv_cq));

    /* Who found the QP before sees that it is in RESET. */
    ovs_mutex_lock(&qp->sq_mutex);
    ovs_mutex_lock(&qp->mutex);
    qp_reset(qp);
    hca->old_tx += qp->n_tx;
    hca->old_rx += qp->n_rx;
    hca->old_sink += qp->n_sink;
    ovs_mutex_unlock(&qp->mutex);
    ovs_mutex_unlock(&qp->sq_mutex);

    soft_pd_unref(qp_->pd);
    soft_cq_cast(qp_->send_cq)->n_refs--;
    soft_cq_cast(qp_->recv_cq)->n_refs--;
    if (qp_->srq) {
        soft_srq_cast(qp_->srq)->n_refs--;
    }
    hca->n_qps--;
    ovs_mutex_unlock(&hca->mutex);

    soft_event_forget(hca, qp_, &qp->events);
    ovsrcu_postpone(qp_free, qp);
    return 0;
}
