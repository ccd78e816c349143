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

/* Send work requests of the software HCA.
 *
 * A request is carried out while it is posted: nothing is ever on its way
 * between two calls, except in the state SQD.  The packets of a chain go to
 * the link in batches, whose payload stays where the user has it, and
 * completions follow when the link has taken (or lost) the batch. */

#define SEND_BATCH 32

struct send_batch {
    struct soft_hca *hca;
    struct soft_qp *qp;
    const struct soft_port *port;
    size_t n_packets, n_cqes;
    struct soft_packet packets[SEND_BATCH];
    struct soft_cqe cqes[SEND_BATCH];
};

static bool
lid_is_multicast(uint16_t lid)
{
    return lid >= IB_LID_MULTICAST && lid != IB_LID_PERMISSIVE;
}

static bool
lid_is_own(const struct soft_port *port, uint16_t lid)
{
    return lid >= port->lid && lid - port->lid < 1 << port->lmc;
}

uint16_t
soft_grh_paylen(const struct ib_ud *ud)
{
    return (IB_BTH_LEN + IB_DETH_LEN
            + (ud->opcode == IB_OPCODE_UD_SEND_IMM ? IB_IMM_LEN : 0)
            + ROUND_UP(ud->payload_len, 4) + IB_ICRC_LEN);
}

static void
batch_init(struct send_batch *b, struct soft_qp *qp)
{
    b->hca = soft_hca_cast(qp->qp.context);
    b->qp = qp;
    b->port = soft_port_get(b->hca);
    b->n_packets = b->n_cqes = 0;
}

/* True if 'ud', to our LID, is for another port that shares it. */
static bool
is_for_sharer(const struct soft_port *port, const struct ib_ud *ud)
{
    return (port->grh_required && ud->has_grh
            && !ib_gid_equals(&ud->grh.dgid, &port->gid));
}

/* Keeps the batch's completions until the fault ends. */
static void
batch_stall(struct send_batch *b)
{
    struct soft_qp *qp = b->qp;

    while (qp->n_stalled + b->n_cqes > qp->allocated_stalled) {
        qp->stalled = x2nrealloc(qp->stalled, &qp->allocated_stalled,
                                 sizeof *qp->stalled);
    }
    memcpy(&qp->stalled[qp->n_stalled], b->cqes,
           b->n_cqes * sizeof *b->cqes);
    qp->n_stalled += b->n_cqes;
}

void
soft_send_unstall(struct soft_qp *qp)
{
    soft_cq_push(soft_cq_cast(qp->qp.send_cq), qp->stalled, qp->n_stalled);
    qp->n_stalled = 0;
}

/* Passes the batch's packets on, then its completions. */
static void
batch_flush(struct send_batch *b)
{
    struct soft_packet *remote[SEND_BATCH];
    size_t n = 0;

    for (size_t i = 0; i < b->n_packets; i++) {
        struct soft_packet *p = &b->packets[i];

        if (lid_is_multicast(p->ud.dlid)) {
            if (soft_mcast_find(b->hca, &p->ud.grh.dgid)) {
                soft_deliver(b->hca, p);
            }
            remote[n++] = p;
        } else if (lid_is_own(b->port, p->ud.dlid)
                   && !is_for_sharer(b->port, &p->ud)) {
            soft_deliver(b->hca, p);
        } else {
            remote[n++] = p;
        }
    }
    if (n) {
        b->hca->link->send(b->hca, b->port, remote, n);
    }
    if (OVS_UNLIKELY(soft_qp_fault(b->qp) == SOFT_FAULT_STALL_SEND)) {
        batch_stall(b);
    } else if (b->n_cqes) {
        soft_cq_push(soft_cq_cast(b->qp->qp.send_cq), b->cqes, b->n_cqes);
    }
    b->n_packets = b->n_cqes = 0;
}

/* Room for the payload of packet 'i' of a batch. */
static uint8_t *
csum_space(struct soft_qp *qp, size_t i)
{
    if (!qp->csum_space) {
        qp->csum_space = xmalloc(SEND_BATCH * SOFT_MAX_PAYLOAD);
    }
    return qp->csum_space + i * SOFT_MAX_PAYLOAD;
}

/* Checks the request and collects its payload, of at most 'max' bytes, in
 * 'p'. */
static enum ibv_wc_status
gather(struct send_batch *b, const struct ibv_send_wr *wr, size_t max,
       struct soft_packet *p)
{
    const struct soft_ah *ah = CONTAINER_OF(wr->wr.ud.ah, struct soft_ah, ah);
    size_t len = 0;

    p->n_iov = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];

        if (sge->length) {
            if (!(wr->send_flags & IBV_SEND_INLINE)
                && !soft_mr_check(b->hca, b->qp->qp.pd, sge, 0)) {
                return IBV_WC_LOC_PROT_ERR;
            }
            p->iov[p->n_iov].iov_base = (void *) (uintptr_t) sge->addr;
            p->iov[p->n_iov++].iov_len = sge->length;
            len += sge->length;
        }
    }
    if (len > max) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (lid_is_multicast(ah->attr.dlid)
        && !(ah->attr.is_global && ib_gid_is_multicast(&ah->grh.dgid))) {
        return IBV_WC_LOC_QP_OP_ERR;
    }
    p->ud.payload_len = len;
    return IBV_WC_SUCCESS;
}

/* Adds to the batch its next packet, whose payload is there, with the headers
 * that 'wr' asks for, unless the port cannot send now, in which case it is
 * lost. */
static void
batch_put(struct send_batch *b, const struct ibv_send_wr *wr)
{
    const struct soft_ah *ah = CONTAINER_OF(wr->wr.ud.ah, struct soft_ah, ah);
    struct soft_packet *p = &b->packets[b->n_packets];
    struct soft_qp *qp = b->qp;
    struct ib_ud *ud = &p->ud;
    uint16_t pkey = b->port->pkeys[qp->pkey_index];

    if (b->port->state != IBV_PORT_ACTIVE) {
        soft_count(b->hca, SOFT_C_TX_LINK_DOWN, 1);
        return;
    }
    if (!(pkey & IB_PKEY_MASK)) {
        soft_count(b->hca, SOFT_C_TX_NO_PKEY, 1);
        return;
    }

    p->sender = qp;
    if (b->hca->model && soft_model_has_lid(ah->attr.dlid)) {
        ud->pkey = pkey;
        ud->qkey = wr->wr.ud.remote_qkey;
        soft_model_sink(b->hca, b->port, p);
        qp->n_tx++;
        return;
    }

    ud->slid = b->port->lid | (ah->attr.src_path_bits
                               & ((1 << b->port->lmc) - 1));
    ud->dlid = ah->attr.dlid;
    ud->sl = ah->attr.sl;
    ud->opcode = (wr->opcode == IBV_WR_SEND_WITH_IMM
                  ? IB_OPCODE_UD_SEND_IMM : IB_OPCODE_UD_SEND);
    ud->imm = wr->opcode == IBV_WR_SEND_WITH_IMM ? wr->imm_data : 0;
    ud->solicited = wr->send_flags & IBV_SEND_SOLICITED;
    ud->pkey = pkey;
    ud->dqpn = wr->wr.ud.remote_qpn & IB_QPN_MASK;
    ud->sqpn = qp->qp.qp_num;
    ud->psn = qp->psn++ & 0xffffff;
    ud->qkey = (wr->wr.ud.remote_qkey & 0x80000000 ? qp->qkey
                : wr->wr.ud.remote_qkey);
    ud->has_grh = ah->attr.is_global;
    if (ud->has_grh) {
        ud->grh = ah->grh;
        ud->grh.sgid = b->port->gid;
        ud->grh.paylen = htons(soft_grh_paylen(ud));
    }
    ud->payload = NULL;
    b->n_packets++;
    qp->n_tx++;
}

/* Adds the packet of 'wr' to the batch. */
static enum ibv_wc_status
batch_add(struct send_batch *b, const struct ibv_send_wr *wr)
{
    struct soft_packet *p = &b->packets[b->n_packets];
    enum ibv_wc_status status
        = gather(b, wr, ib_mtu_bytes(b->port->active_mtu), p);

    if (status == IBV_WC_SUCCESS) {
        if (OVS_UNLIKELY(wr->send_flags & IBV_SEND_IP_CSUM)
            && b->hca->name.csum != SOFT_CSUM_LIES_TX) {
            soft_csum_complete(p, csum_space(b->qp, b->n_packets));
        }
        batch_put(b, wr);
    }
    return status;
}

/* Adds the segments of 'wr', an IBV_WR_TSO.  There may be more of them than
 * there is room for: then the batch goes on its way. */
static enum ibv_wc_status
batch_add_tso(struct send_batch *b, const struct ibv_send_wr *wr)
{
    struct soft_packet data;
    struct soft_tso tso;
    enum ibv_wc_status status = gather(b, wr, SOFT_MAX_TSO, &data);

    if (status != IBV_WC_SUCCESS) {
        return status;
    }
    if (!soft_tso_init(&tso, b->hca, wr, &data,
                       ib_mtu_bytes(b->port->active_mtu))) {
        return IBV_WC_LOC_LEN_ERR;
    }
    while (soft_tso_next(&tso, &b->packets[b->n_packets],
                         csum_space(b->qp, b->n_packets))) {
        batch_put(b, wr);
        if (b->n_packets == SEND_BATCH) {
            batch_flush(b);
        }
    }
    return IBV_WC_SUCCESS;
}

static void
batch_complete(struct send_batch *b, const struct ibv_send_wr *wr,
               enum ibv_wc_status status, uint32_t sq_end)
{
    b->cqes[b->n_cqes++] = (struct soft_cqe) {
        .wc = { .wr_id = wr->wr_id, .status = status, .opcode = IBV_WC_SEND,
                .qp_num = b->qp->qp.qp_num },
        .qp = b->qp, .sq_end = sq_end, .is_send = true,
    };
}

/* Takes 'qp' from RTS to SQE. */
static void
send_error(struct soft_qp *qp)
    OVS_REQUIRES(qp->sq_mutex)
{
    ovs_mutex_lock(&qp->mutex);
    if (soft_qp_state(qp) == IBV_QPS_RTS) {
        atomic_store_relaxed(&qp->state, IBV_QPS_SQE);
        qp->qp.state = IBV_QPS_SQE;
    }
    ovs_mutex_unlock(&qp->mutex);
}

/* Carries out one request that is in the send queue of 'qp', that of 'b'. */
static void
batch_execute(struct send_batch *b, struct soft_qp *qp,
              const struct ibv_send_wr *wr, uint32_t sq_end)
    OVS_REQUIRES(qp->sq_mutex)
{
    enum ibv_wc_status status;

    if (OVS_LIKELY(soft_qp_state(qp) == IBV_QPS_RTS)) {
        if (OVS_UNLIKELY(soft_qp_fault(qp) == SOFT_FAULT_SQE)) {
            atomic_store_relaxed(&qp->fault, SOFT_FAULT_NONE);
            status = IBV_WC_LOC_PROT_ERR;
        } else {
            status = (OVS_UNLIKELY(wr->opcode == IBV_WR_TSO)
                      ? batch_add_tso(b, wr) : batch_add(b, wr));
        }
        if (OVS_UNLIKELY(status != IBV_WC_SUCCESS)) {
            send_error(qp);
        }
    } else {
        status = IBV_WC_WR_FLUSH_ERR;
    }
    if (status != IBV_WC_SUCCESS || qp->sig_all
        || wr->send_flags & IBV_SEND_SIGNALED) {
        batch_complete(b, wr, status, sq_end);
    }
    if (b->n_packets == SEND_BATCH || b->n_cqes == SEND_BATCH) {
        batch_flush(b);
    }
}

static bool
takes_opcode(const struct soft_qp *qp, const struct ibv_send_wr *wr)
{
    return (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM
            || (wr->opcode == IBV_WR_TSO && qp->tso
                && soft_tso_is_valid(wr)));
}

/* What makes a request not even enter the queue. */
static int
check_wr(struct soft_qp *qp, const struct ibv_send_wr *wr)
    OVS_REQUIRES(qp->sq_mutex)
{
    enum ibv_qp_state state = soft_qp_state(qp);
    uint32_t tail;

    if (OVS_UNLIKELY(state == IBV_QPS_RESET || state == IBV_QPS_INIT
                     || state == IBV_QPS_RTR
                     || !takes_opcode(qp, wr)
                     || (wr->send_flags & IBV_SEND_IP_CSUM
                         && !soft_hca_cast(qp->qp.context)->name.csum)
                     || wr->num_sge < 0
                     || wr->num_sge > qp->cap.max_send_sge
                     || !wr->wr.ud.ah || wr->wr.ud.ah->pd != qp->qp.pd)) {
        return EINVAL;
    }
    if (wr->send_flags & IBV_SEND_INLINE) {
        size_t len = 0;

        for (int i = 0; i < wr->num_sge; i++) {
            len += wr->sg_list[i].length;
        }
        if (len > qp->cap.max_inline_data) {
            return EINVAL;
        }
    }
    atomic_read_explicit(&qp->sq_tail, &tail, memory_order_acquire);
    return qp->sq_head - tail >= qp->cap.max_send_wr ? ENOMEM : 0;
}

/* Keeps 'wr' until the queue pair leaves SQD.  Returns false if it has left
 * meanwhile. */
static bool
defer(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t sq_end)
    OVS_REQUIRES(qp->sq_mutex)
{
    bool is_inline = wr->send_flags & IBV_SEND_INLINE;
    struct soft_deferred *d;
    uint8_t *data;
    bool ok;

    d = xzalloc(sizeof *d + (is_inline ? qp->cap.max_inline_data : 0));
    d->wr = *wr;
    d->wr.next = NULL;
    d->wr.sg_list = d->sge;
    d->sq_end = sq_end;
    if (wr->opcode == IBV_WR_TSO) {
        memcpy(d->tso_header, wr->tso.hdr, wr->tso.hdr_sz);
        d->wr.tso.hdr = d->tso_header;
    }
    data = d->data;
    for (int i = 0; i < wr->num_sge; i++) {
        d->sge[i] = wr->sg_list[i];
        if (is_inline) {
            memcpy(data, (void *) (uintptr_t) d->sge[i].addr,
                   d->sge[i].length);
            d->sge[i].addr = (uintptr_t) data;
            data += d->sge[i].length;
        }
    }

    ovs_mutex_lock(&qp->mutex);
    ok = soft_qp_state(qp) == IBV_QPS_SQD;
    if (ok) {
        ovs_list_push_back(&qp->deferred, &d->node);
    }
    ovs_mutex_unlock(&qp->mutex);
    if (!ok) {
        free(d);
    }
    return ok;
}

int
soft_post_send(struct ibv_qp *qp_, struct ibv_send_wr *wr,
               struct ibv_send_wr **bad_wr)
{
    struct soft_qp *qp = soft_qp_cast(qp_);
    struct send_batch b;
    int error = 0;

    ovs_mutex_lock(&qp->sq_mutex);
    batch_init(&b, qp);
    for (; wr; wr = wr->next) {
        error = check_wr(qp, wr);
        if (error) {
            *bad_wr = wr;
            break;
        }
        qp->sq_head++;
        if (OVS_LIKELY(soft_qp_state(qp) != IBV_QPS_SQD)
            || !defer(qp, wr, qp->sq_head)) {
            batch_execute(&b, qp, wr, qp->sq_head);
        }
    }
    batch_flush(&b);
    ovs_mutex_unlock(&qp->sq_mutex);
    return error;
}

void
soft_send_deferred(struct soft_qp *qp)
{
    struct ovs_list list = OVS_LIST_INITIALIZER(&list);
    struct soft_deferred *d;
    struct send_batch b;

    ovs_mutex_lock(&qp->mutex);
    ovs_list_push_back_all(&list, &qp->deferred);
    ovs_mutex_unlock(&qp->mutex);

    batch_init(&b, qp);
    LIST_FOR_EACH (d, node, &list) {
        batch_execute(&b, qp, &d->wr, d->sq_end);
    }
    batch_flush(&b);
    LIST_FOR_EACH_POP (d, node, &list) {
        free(d);
    }
}
