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
#include "ipoib-ring.h"

#include <errno.h>

#include "dp-packet.h"
#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_ring);

/* Messages to and from the control thread, of each queue. */
#define RING_SIZE 1024

/* What is sent inline: so much is asked for, and the device may give less or
 * more.  What is longer is sent from where it is, wherever that can be:
 * measured with interleaved windows, with buffers in and out of the cache,
 * copying it to a slot takes 1.08 times as long at 128 bytes, 1.2 times at
 * 512 and 1.5 times at 1500, so that there is no size from which on copying
 * would be better. */
#define MAX_INLINE 128

/* Makes a UD QP, started, that receives through 'srq' or else by itself.
 * 'n_recv' is 0 with an SRQ.  NULL and errno on failure.  Stores how much can
 * be sent inline in '*inlinep', if nonnull.  If 'tso', it takes IBV_WR_TSO,
 * whose data may be in two pieces. */
static struct ibv_qp *
create_qp(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
          struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct ibv_srq *srq,
          unsigned int n_send, unsigned int n_recv,
          const struct ipoib_ud_params *ud, uint32_t *inlinep, bool tso)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .srq = srq,
        .cap = {
            .max_send_wr = n_send,
            .max_recv_wr = n_recv,
            .max_send_sge = tso ? 2 : 1,
            .max_recv_sge = n_recv ? 1 : 0,
            .max_inline_data = inlinep ? MAX_INLINE : 0,
        },
        .qp_type = IBV_QPT_UD,
    };
    struct ibv_qp_init_attr asked = attr;
    struct ibv_qp *qp = (tso ? verbs->create_tso_qp(pd, &attr)
                         : verbs->create_qp(pd, &attr, true));
    int error;

    if (!qp && inlinep && !tso) {
        attr = asked;
        attr.cap.max_inline_data = 0;
        qp = verbs->create_qp(pd, &attr, true);
    }
    if (!qp) {
        return NULL;
    }
    error = ipoib_verbs_ud_start(verbs, qp, ud);
    if (error) {
        verbs->destroy_qp(qp);
        errno = error;
        return NULL;
    }
    if (inlinep) {
        *inlinep = attr.cap.max_inline_data;
    }
    return qp;
}

/* Receive queues. */

static int
rxq_init(struct ipoib_rxq *rxq, const struct ipoib_rxq_params *params)
{
    const struct ipoib_verbs *verbs = rxq->shared->verbs;
    struct ipoib_rxq_private *priv = rxq->priv;

    priv->tag = ipoib_pool_tag_alloc(params->pool);
    if (!priv->tag) {
        return ENOSPC;
    }
    rxq->cq = verbs->create_cq(params->pd->context,
                               rxq->n_desc + IPOIB_RX_CHAIN, NULL, NULL, 0);
    if (!rxq->cq) {
        return errno;
    }
    if (params->use_srq) {
        struct ibv_srq_init_attr attr = {
            .attr = { .max_wr = rxq->n_desc, .max_sge = 1 },
        };

        rxq->srq = verbs->create_srq(params->pd, &attr);
        if (!rxq->srq) {
            return errno;
        }
    }
    rxq->base_qp = create_qp(verbs, params->pd,
                             params->send_cq ? params->send_cq : rxq->cq,
                             rxq->cq, rxq->srq, IPOIB_HOST_QP_SENDS,
                             params->use_srq ? 0 : rxq->n_desc, &params->ud,
                             NULL, false);
    if (!rxq->base_qp) {
        return errno;
    }
    return ipoib_rxq_refill(rxq);
}

int
ipoib_rxq_create(struct ipoib_shared *shared,
                 const struct ipoib_rxq_params *params,
                 struct ipoib_rxq **rxqp)
{
    struct ipoib_rxq *rxq = xzalloc_cacheline(sizeof *rxq);
    struct ipoib_rxq_private *priv
        = ipoib_pool_alloc_pages(sizeof *priv, params->numa_id);
    int error;

    *rxqp = NULL;
    rxq->shared = shared;
    rxq->pool = params->pool;
    rxq->id = params->id;
    rxq->n_desc = params->n_desc;
    rxq->to_control = ipoib_msgq_create(RING_SIZE);
    rxq->from_control = ipoib_msgq_create(RING_SIZE);
    atomic_init(&rxq->drained, 0);
    atomic_init(&rxq->suspect, false);

    rxq->priv = priv;
    priv->pd = params->pd;
    priv->chain = MAX(1, MIN(IPOIB_RX_CHAIN, rxq->n_desc / 2));
    priv->spare = xmalloc((rxq->n_desc + IPOIB_RX_CHAIN)
                          * sizeof *priv->spare);
    for (size_t i = 0; i < IPOIB_RX_CHAIN; i++) {
        priv->wr[i].sg_list = &priv->sge[i];
        priv->wr[i].num_sge = 1;
        priv->wr[i].next = i + 1 < IPOIB_RX_CHAIN ? &priv->wr[i + 1] : NULL;
        priv->sge[i].length = ipoib_pool_buf_size(rxq->pool);
        priv->sge[i].lkey = ipoib_pool_lkey(rxq->pool);
    }

    error = rxq_init(rxq, params);
    if (error) {
        ipoib_rxq_destroy(rxq);
        return error;
    }
    *rxqp = rxq;
    return 0;
}

void
ipoib_rxq_drop_waiting(struct ipoib_rxq *rxq)
{
    struct ipoib_rxq_private *priv = rxq->priv;

    ipoib_count(&rxq->stats.drop_gone,
                priv->n_waiting - priv->first_waiting);
    while (priv->n_waiting > priv->first_waiting) {
        dp_packet_delete(priv->waiting[--priv->n_waiting]);
    }
    free(priv->waiting);
    priv->waiting = NULL;
    priv->n_waiting = priv->first_waiting = priv->max_waiting = 0;
}

void
ipoib_rxq_drop(struct ipoib_rxq *rxq)
{
    atomic_uint64_t *counter = &rxq->stats.drop_gone;
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(rxq->to_control, &msg)) {
        ipoib_msg_drop(&msg, counter, counter);
    }
    while (ipoib_msgq_pop(rxq->from_control, &msg)) {
        ipoib_count(counter, 1);
        dp_packet_delete(msg.packet);
    }
    ipoib_rxq_drop_waiting(rxq);
}

void
ipoib_rxq_suspect_loss(struct ipoib_rxq *rxq)
{
    atomic_store_relaxed(&rxq->suspect, true);
}

void
ipoib_rxq_destroy(struct ipoib_rxq *rxq)
{
    const struct ipoib_verbs *verbs;
    int error = 0;

    if (!rxq) {
        return;
    }
    ipoib_rxq_drop_waiting(rxq);
    verbs = rxq->shared->verbs;
    if (rxq->base_qp) {
        error = verbs->destroy_qp(rxq->base_qp);
    }
    if (rxq->srq && !error) {
        error = verbs->destroy_srq(rxq->srq);
    }
    if (rxq->cq && !error) {
        error = verbs->destroy_cq(rxq->cq);
    }
    if (error) {
        /* The device may still write to the buffers: they stay with it. */
        VLOG_ERR("destroying receive queue %u failed (%s)", rxq->id,
                 ovs_strerror(error));
    } else if (rxq->priv->tag) {
        ipoib_pool_reclaim(rxq->pool, rxq->priv->tag);
    }
    ipoib_msgq_destroy(rxq->to_control);
    ipoib_msgq_destroy(rxq->from_control);
    free(rxq->priv->spare);
    ipoib_pool_free_pages(rxq->priv, sizeof *rxq->priv);
    free_cacheline(rxq);
}

size_t
ipoib_rxq_memory(const struct ipoib_rxq *rxq)
{
    return sizeof *rxq + sizeof *rxq->priv
           + (rxq->n_desc + IPOIB_RX_CHAIN) * sizeof *rxq->priv->spare
           + 2 * ipoib_msgq_memory(RING_SIZE);
}

struct ibv_qp *
ipoib_rxq_create_host_qp(struct ipoib_rxq *rxq, struct ibv_cq *send_cq,
                         const struct ipoib_ud_params *ud)
{
    if (!rxq->srq) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return create_qp(rxq->shared->verbs, rxq->priv->pd, send_cq, rxq->cq,
                     rxq->srq, IPOIB_HOST_QP_SENDS, 0, ud, NULL, false);
}

/* Transmit queues. */

/* Tells, after an RCU grace period, that it is over. */
struct ipoib_txq_grace {
    struct ovs_refcount refs;
    atomic_bool over;
    struct ipoib_waker *waker;  /* To wake then.  Under 'grace_mutex'; NULL
                                 * when the queue is gone. */
};
static struct ovs_mutex grace_mutex = OVS_MUTEX_INITIALIZER;

static void
grace_unref(struct ipoib_txq_grace *grace)
{
    if (grace && ovs_refcount_unref(&grace->refs) == 1) {
        free(grace);
    }
}

static void
grace_over(struct ipoib_txq_grace *grace)
{
    atomic_store_explicit(&grace->over, true, memory_order_release);
    ovs_mutex_lock(&grace_mutex);
    if (grace->waker) {
        ipoib_waker_wake(grace->waker);
    }
    ovs_mutex_unlock(&grace_mutex);
    grace_unref(grace);
}

static struct ipoib_txq_grace *
grace_start(struct ipoib_waker *waker)
{
    struct ipoib_txq_grace *grace = xmalloc(sizeof *grace);

    ovs_refcount_init(&grace->refs);
    ovs_refcount_ref(&grace->refs);
    atomic_init(&grace->over, false);
    grace->waker = waker;
    ovsrcu_postpone(grace_over, grace);
    return grace;
}

static int
txq_init(struct ipoib_txq *txq, const struct ipoib_txq_params *params)
{
    const struct ipoib_verbs *verbs = txq->shared->verbs;
    struct ipoib_txq_slots *slots = txq->slots;

    slots->mr = ipoib_pool_reg_mr(verbs, params->pd, slots->mem,
                                  (size_t) txq->n_desc * slots->slot_size, 0);
    if (!slots->mr) {
        return errno;
    }
    slots->lkey = slots->mr->lkey;
    txq->cq = verbs->create_cq(params->pd->context, txq->n_desc, NULL, NULL,
                               0);
    if (!txq->cq) {
        return errno;
    }
    for (int tso = params->tso; tso >= 0 && !txq->qp; tso--) {
        txq->qp = create_qp(verbs, params->pd, txq->cq, txq->cq, NULL,
                            txq->n_desc, 0, &params->ud, &slots->max_inline,
                            tso);
        slots->tso = tso;
    }
    return txq->qp ? 0 : errno;
}

/* What is behind the slots at 'mem'.  All of it takes memory where it is used
 * only, which most of a port's transmit queues hardly are. */
struct txq_pages {
    struct ipoib_tx_wr wrs[NETDEV_MAX_BURST];
    struct ipoib_txq_tables tables;
    struct dp_packet *held[];
};

static size_t
slots_memory(const struct ipoib_txq *txq)
{
    return (size_t) txq->n_desc * txq->slots->slot_size
           + sizeof(struct txq_pages)
           + txq->n_desc * sizeof *txq->slots->held;
}

static void
txq_alloc_pages(struct ipoib_txq *txq, int numa_id)
{
    struct ipoib_txq_slots *slots = txq->slots;
    struct txq_pages *pages;

    slots->mem = ipoib_pool_alloc_pages(slots_memory(txq), numa_id);
    pages = (void *) (slots->mem + (size_t) txq->n_desc * slots->slot_size);
    txq->tables = &pages->tables;
    slots->wrs = pages->wrs;
    slots->held = pages->held;
}

void
ipoib_txq_prepare(struct ipoib_txq *txq, uint32_t qkey)
{
    struct ipoib_txq_slots *slots = txq->slots;

    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        struct ipoib_tx_wr *wr = &slots->wrs[i];

        wr->wr.sg_list = &wr->sge;
        wr->wr.num_sge = 1;
        wr->wr.opcode = IBV_WR_SEND;
        wr->wr.send_flags = IBV_SEND_INLINE;
        wr->wr.next = i + 1 < NETDEV_MAX_BURST ? &wr[1].wr : NULL;
        wr->wr.wr.ud.remote_qkey = qkey;
    }
    slots->qkey = qkey;
}

int
ipoib_txq_create(struct ipoib_shared *shared,
                 const struct ipoib_txq_params *params,
                 struct ipoib_txq **txqp)
{
    struct ipoib_txq *txq = xzalloc_cacheline(sizeof *txq);
    struct ipoib_txq_slots *slots = xzalloc_cacheline(sizeof *slots);
    int error;

    *txqp = NULL;
    txq->shared = shared;
    txq->id = params->id;
    txq->n_desc = MAX(IPOIB_TX_MIN_DESC, ROUND_UP_POW2(params->n_desc));
    txq->to_control = ipoib_msgq_create(RING_SIZE);
    atomic_init(&txq->state, IPOIB_TXQ_RUNNING);
    ovs_spin_init(&txq->lock);

    txq->slots = slots;
    slots->pd = params->pd;
    slots->pkey_index = params->ud.pkey_index;
    slots->mask = txq->n_desc - 1;
    slots->slot_size = ROUND_UP(params->mtu, CACHE_LINE_SIZE);
    slots->qkey = UINT64_MAX;
    txq_alloc_pages(txq, params->numa_id);

    error = txq_init(txq, params);
    if (error) {
        ipoib_txq_destroy(txq);
        return error;
    }
    *txqp = txq;
    return 0;
}

void
ipoib_txq_drop(struct ipoib_txq *txq)
{
    atomic_uint64_t *counter = &txq->stats.drop_gone;
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(txq->to_control, &msg)) {
        ipoib_msg_drop(&msg, counter, counter);
    }
}

void
ipoib_txq_destroy(struct ipoib_txq *txq)
{
    const struct ipoib_verbs *verbs;
    struct ipoib_txq_slots *slots;
    int error = 0;

    if (!txq) {
        return;
    }
    verbs = txq->shared->verbs;
    slots = txq->slots;
    if (txq->qp) {
        error = verbs->destroy_qp(txq->qp);
    }
    if (txq->cq && !error) {
        error = verbs->destroy_cq(txq->cq);
    }
    if (slots->mr && !error) {
        error = verbs->dereg_mr(slots->mr);
    }
    for (; slots->held_tail != slots->held_head; slots->held_tail++) {
        dp_packet_delete(slots->held[slots->held_tail & slots->mask]);
    }
    if (error) {
        VLOG_ERR("destroying transmit queue %u failed (%s)", txq->id,
                 ovs_strerror(error));
    } else {
        ipoib_pool_free_pages(slots->mem, slots_memory(txq));
    }
    if (slots->grace) {
        ovs_mutex_lock(&grace_mutex);
        slots->grace->waker = NULL;
        ovs_mutex_unlock(&grace_mutex);
        grace_unref(slots->grace);
    }
    free_cacheline(slots);
    ipoib_msgq_destroy(txq->to_control);
    ovs_spin_destroy(&txq->lock);
    free_cacheline(txq);
}

size_t
ipoib_txq_memory(const struct ipoib_txq *txq)
{
    return sizeof *txq + sizeof *txq->slots + ipoib_msgq_memory(RING_SIZE)
           + slots_memory(txq);
}

/* Replaces state 'from' by 'to'; false if it is another state. */
static bool
txq_change_state(struct ipoib_txq *txq, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&txq->state, &from, to);
}

void
ipoib_txq_stop(struct ipoib_txq *txq)
{
    if (txq_change_state(txq, IPOIB_TXQ_RUNNING, IPOIB_TXQ_STOPPING)
        || txq_change_state(txq, IPOIB_TXQ_RESTARTED, IPOIB_TXQ_STOPPING)) {
        txq->slots->grace = grace_start(txq->shared->waker);
    }
}

bool
ipoib_txq_is_still(struct ipoib_txq *txq)
{
    struct ipoib_txq_slots *slots = txq->slots;
    uint32_t state;

    atomic_read_explicit(&txq->state, &state, memory_order_acquire);
    if (state == IPOIB_TXQ_STOPPING) {
        bool over;

        atomic_read_explicit(&slots->grace->over, &over,
                             memory_order_acquire);
        if (over) {
            grace_unref(slots->grace);
            slots->grace = NULL;
            atomic_store_relaxed(&txq->state, IPOIB_TXQ_STOPPED);
            return true;
        }
    }
    return state == IPOIB_TXQ_ERROR || state == IPOIB_TXQ_STOPPED;
}

void
ipoib_txq_continue(struct ipoib_txq *txq)
{
    bool stopped = txq_change_state(txq, IPOIB_TXQ_STOPPED,
                                    IPOIB_TXQ_RUNNING);

    ovs_assert(stopped);
}

bool
ipoib_txq_holds(const struct ipoib_txq *txq)
{
    uint32_t n;

    atomic_read_relaxed(&txq->slots->n_held, &n);
    return n != 0;
}

/* After a failed send, the queue is in SQE; one step brings it back, if all
 * that was posted has completed and its parameters are still right. */
static int
txq_resume(struct ipoib_txq *txq, const struct ipoib_ud_params *ud)
{
    const struct ipoib_txq_slots *slots = txq->slots;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .cur_qp_state = IBV_QPS_SQE,
        .qkey = ud->qkey,
    };
    uint32_t state;

    atomic_read_relaxed(&txq->state, &state);
    if (state != IPOIB_TXQ_ERROR || slots->head != slots->tail
        || slots->pkey_index != ud->pkey_index) {
        return EAGAIN;
    }
    return txq->shared->verbs->modify_qp(txq->qp, &attr,
                                         IBV_QP_STATE | IBV_QP_CUR_STATE
                                         | IBV_QP_QKEY);
}

int
ipoib_txq_restart(struct ipoib_txq *txq, const struct ipoib_ud_params *ud)
{
    int error;

    ovs_assert(ipoib_txq_is_still(txq));
    error = txq_resume(txq, ud);
    if (error) {
        error = ipoib_verbs_ud_restart(txq->shared->verbs, txq->qp, ud);
    }
    if (!error) {
        txq->slots->pkey_index = ud->pkey_index;
        atomic_store_explicit(&txq->state, IPOIB_TXQ_RESTARTED,
                              memory_order_release);
    }
    return error;
}

/* The control thread's send queue.
 *
 * A WR's wr_id is the number of its slot, and in the upper half how often the
 * slot was used before: a completion that ipoib_ctlq_forget() did not expect
 * is told apart. */

struct ctlq_slot {
    uint32_t qpn;               /* 0: free. */
    uint32_t use;
    uint32_t next_free;         /* If free: the next one, or CTLQ_NONE. */
    long long int posted;       /* time_msec(). */
};
#define CTLQ_NONE UINT32_MAX

struct ipoib_ctlq {
    const struct ipoib_verbs *verbs;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *mem;
    size_t slot_size;
    unsigned int n_slots;
    unsigned int n_used;        /* Slots from here on were never used: their
                                 * part of 'mem' takes no memory, and they are
                                 * not in 'slots'. */
    struct ctlq_slot *slots;
    size_t allocated;           /* Of 'slots'. */
    uint32_t free;              /* The first of those that are free again. */
    unsigned int n_posted;
};

struct ipoib_ctlq *
ipoib_ctlq_create(const struct ipoib_verbs *verbs, struct ibv_context *ctx,
                  struct ibv_pd *pd, unsigned int n_slots, size_t mtu)
{
    struct ipoib_ctlq *q = xzalloc(sizeof *q);
    int error;

    q->verbs = verbs;
    q->slot_size = ROUND_UP(mtu, CACHE_LINE_SIZE);
    q->n_slots = n_slots;
    q->mem = ipoib_pool_alloc_pages(n_slots * q->slot_size, -1);
    q->free = CTLQ_NONE;
    q->mr = ipoib_pool_reg_mr(verbs, pd, q->mem, n_slots * q->slot_size, 0);
    if (q->mr) {
        q->cq = verbs->create_cq(ctx, n_slots, NULL, NULL, 0);
    }
    if (!q->cq) {
        error = errno;
        ipoib_ctlq_destroy(q);
        errno = error;
        return NULL;
    }
    return q;
}

void
ipoib_ctlq_destroy(struct ipoib_ctlq *q)
{
    int error = 0;

    if (!q) {
        return;
    }
    if (q->cq) {
        error = q->verbs->destroy_cq(q->cq);
    }
    if (q->mr && !error) {
        error = q->verbs->dereg_mr(q->mr);
    }
    if (error) {
        VLOG_ERR("destroying the control thread's send queue failed (%s)",
                 ovs_strerror(error));
    } else {
        ipoib_pool_free_pages(q->mem, q->n_slots * q->slot_size);
    }
    free(q->slots);
    free(q);
}

struct ibv_cq *
ipoib_ctlq_cq(struct ipoib_ctlq *q)
{
    return q->cq;
}

/* Returns a free slot, or CTLQ_NONE. */
static uint32_t
ctlq_take(struct ipoib_ctlq *q)
{
    uint32_t slot = q->free;

    if (slot != CTLQ_NONE) {
        q->free = q->slots[slot].next_free;
    } else if (q->n_used < q->n_slots) {
        if (q->n_used == q->allocated) {
            q->slots = x2nrealloc(q->slots, &q->allocated, sizeof *q->slots);
        }
        slot = q->n_used++;
        q->slots[slot].use = 0;
    } else {
        return CTLQ_NONE;
    }
    q->n_posted++;
    return slot;
}

static void
ctlq_release(struct ipoib_ctlq *q, uint32_t slot)
{
    q->slots[slot].qpn = 0;
    q->slots[slot].use++;
    q->slots[slot].next_free = q->free;
    q->free = slot;
    q->n_posted--;
}

int
ipoib_ctlq_send(struct ipoib_ctlq *q, struct ibv_qp *qp,
                const struct dp_packet *packet, struct ibv_ah *ah,
                uint32_t qpn, uint32_t qkey)
{
    size_t len = dp_packet_size(packet);
    struct ibv_send_wr *bad;
    uint32_t slot;
    int error;

    if (len > q->slot_size) {
        return EMSGSIZE;
    }
    slot = ctlq_take(q);
    if (slot == CTLQ_NONE) {
        return EAGAIN;
    }
    q->slots[slot].qpn = qp->qp_num;
    q->slots[slot].posted = time_msec();
    memcpy(q->mem + slot * q->slot_size, dp_packet_data(packet), len);

    struct ibv_sge sge = {
        .addr = (uintptr_t) (q->mem + slot * q->slot_size),
        .length = len,
        .lkey = q->mr->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = ((uint64_t) q->slots[slot].use << 32) | slot,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = qkey },
    };
    error = ibv_post_send(qp, &wr, &bad);
    if (error) {
        ctlq_release(q, slot);
    }
    return error == ENOMEM ? EAGAIN : error;
}

void
ipoib_ctlq_forget(struct ipoib_ctlq *q, uint32_t qpn)
{
    for (uint32_t i = 0; qpn && q->n_posted && i < q->n_used; i++) {
        if (q->slots[i].qpn == qpn) {
            ctlq_release(q, i);
        }
    }
}

uint32_t
ipoib_ctlq_stalled(const struct ipoib_ctlq *q, long long int when)
{
    for (uint32_t i = 0; q->n_posted && i < q->n_used; i++) {
        if (q->slots[i].qpn && q->slots[i].posted < when) {
            return q->slots[i].qpn;
        }
    }
    return 0;
}

void
ipoib_ctlq_run(struct ipoib_ctlq *q,
               void (*error)(void *aux, uint32_t qpn, enum ibv_wc_status),
               void *aux)
{
    struct ibv_wc wc[NETDEV_MAX_BURST];
    int n;

    do {
        n = ibv_poll_cq(q->cq, ARRAY_SIZE(wc), wc);
        for (int i = 0; i < n; i++) {
            uint32_t slot = wc[i].wr_id;
            uint32_t use = wc[i].wr_id >> 32;

            if (slot < q->n_used && q->slots[slot].qpn
                && q->slots[slot].use == use) {
                uint32_t qpn = q->slots[slot].qpn;

                ctlq_release(q, slot);
                if (wc[i].status != IBV_WC_SUCCESS && error) {
                    error(aux, qpn, wc[i].status);
                }
            }
        }
    } while (n == ARRAY_SIZE(wc));
}
