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

/* The receiving side of the software HCA: from a packet to the completion of
 * a receive.  Whoever has the packet brings it here: the thread of a link, or
 * the sender itself when both are in this process. */

/* Takes a receive that has room for 'len' bytes (with the 40 of the GRH) out
 * of 'rq'.  One that is too short stays. */
static bool
rq_take(struct soft_hca *hca, struct soft_rq *rq, size_t len,
        struct soft_rwqe *to)
{
    const struct soft_rwqe *e;
    size_t room = 0;

    if (!rq->n) {
        soft_count(hca, SOFT_C_RX_NO_RECEIVE, 1);
        return false;
    }
    e = soft_rq_peek(rq);
    for (int i = 0; i < e->num_sge; i++) {
        room += e->sge[i].length;
    }
    if (room < len) {
        soft_count(hca, SOFT_C_RX_TOO_LONG, 1);
        return false;
    }
    memcpy(to, e, sizeof *e + e->num_sge * sizeof e->sge[0]);
    soft_rq_pop(rq);
    return true;
}

static bool
take_receive(struct soft_hca *hca, struct soft_qp *qp, size_t len,
             struct soft_rwqe *to)
    OVS_REQUIRES(qp->mutex)
{
    if (qp->qp.srq) {
        struct soft_srq *srq = soft_srq_cast(qp->qp.srq);
        bool reached = false;
        bool ok;

        ovs_mutex_lock(&srq->mutex);
        ok = rq_take(hca, &srq->rq, len, to);
        if (ok && srq->rq.n < srq->limit) {
            srq->limit = 0;
            reached = true;
        }
        ovs_mutex_unlock(&srq->mutex);
        if (OVS_UNLIKELY(reached)) {
            soft_event_raise(hca, IBV_EVENT_SRQ_LIMIT_REACHED, qp->qp.srq);
        }
        return ok;
    }
    return rq_take(hca, &qp->rq, len, to);
}

/* A place in a scatter list. */
struct scatter {
    const struct ibv_sge *sge;
    size_t ofs;                 /* In '*sge'. */
};

/* Copies 'len' bytes, or leaves them out if 'src' is NULL.  There is room. */
static void
scatter(struct scatter *s, const uint8_t *src, size_t len)
{
    while (len) {
        size_t n = MIN(len, s->sge->length - s->ofs);

        if (src) {
            memcpy((uint8_t *) (uintptr_t) s->sge->addr + s->ofs, src, n);
            src += n;
        }
        s->ofs += n;
        len -= n;
        if (s->ofs == s->sge->length && len) {
            s->sge++;
            s->ofs = 0;
        }
    }
}

/* Writes GRH and payload to the receive 'e', whose regions are checked
 * first. */
static bool
place(struct soft_hca *hca, struct soft_qp *qp,
      const struct soft_packet *p, const struct soft_rwqe *e)
    OVS_REQUIRES(qp->mutex)
{
    struct scatter s = { .sge = e->sge };
    size_t left = IB_GRH_LEN + p->ud.payload_len;

    for (int i = 0; i < e->num_sge && left; i++) {
        if (e->sge[i].length
            && !soft_mr_check(hca, qp->qp.pd, &e->sge[i],
                              IBV_ACCESS_LOCAL_WRITE)) {
            return false;
        }
        left -= MIN(left, e->sge[i].length);
    }
    scatter(&s, p->ud.has_grh ? (const uint8_t *) &p->ud.grh : NULL,
            IB_GRH_LEN);
    for (size_t i = 0; i < p->n_iov; i++) {
        scatter(&s, p->iov[i].iov_base, p->iov[i].iov_len);
    }
    return true;
}

/* The checks that the queue pair itself makes. */
static bool
qp_accepts(struct soft_hca *hca, const struct soft_port *port,
           struct soft_qp *qp, const struct ib_ud *ud)
    OVS_REQUIRES(qp->mutex)
{
    enum ibv_qp_state state = soft_qp_state(qp);

    if (state != IBV_QPS_RTS && state != IBV_QPS_RTR
        && state != IBV_QPS_SQD && state != IBV_QPS_SQE) {
        soft_count(hca, SOFT_C_RX_QP_STATE, 1);
    } else if (!ib_pkey_match(port->pkeys[qp->pkey_index], ud->pkey)) {
        soft_count(hca, SOFT_C_RX_BAD_PKEY, 1);
    } else if (ud->qkey != qp->qkey) {
        soft_count(hca, SOFT_C_RX_BAD_QKEY, 1);
    } else {
        return true;
    }
    return false;
}

static void
deliver_qp(struct soft_hca *hca, const struct soft_port *port,
           const struct soft_packet *p, struct soft_qp *qp)
{
    const struct ib_ud *ud = &p->ud;
    uint64_t space[(sizeof(struct soft_rwqe)
                    + SOFT_MAX_SGE * sizeof(struct ibv_sge)) / 8];
    struct soft_rwqe *e = (struct soft_rwqe *) space;

    ovs_mutex_lock(&qp->mutex);
    if (OVS_LIKELY(soft_qp_fault(qp) != SOFT_FAULT_STALL_RECV)
        && qp_accepts(hca, port, qp, ud)
        && take_receive(hca, qp, IB_GRH_LEN + ud->payload_len, e)) {
        bool ok = place(hca, qp, p, e);
        bool imm = ud->opcode == IB_OPCODE_UD_SEND_IMM;
        bool csum_ok = OVS_UNLIKELY(hca->name.csum)
                       && (hca->name.csum == SOFT_CSUM_LIES_RX
                           || soft_csum_is_good(p));
        struct soft_cqe cqe = {
            .wc = {
                .wr_id = e->wr_id,
                .status = ok ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR,
                .opcode = IBV_WC_RECV,
                .byte_len = IB_GRH_LEN + ud->payload_len,
                .imm_data = imm ? ud->imm : 0,
                .qp_num = qp->qp.qp_num,
                .src_qp = ud->sqpn,
                .wc_flags = ((ud->has_grh ? IBV_WC_GRH : 0)
                             | (imm ? IBV_WC_WITH_IMM : 0)
                             | (csum_ok ? IBV_WC_IP_CSUM_OK : 0)),
                .pkey_index = qp->pkey_index,
                .slid = ud->slid,
                .sl = ud->sl,
                .dlid_path_bits = (ud->dlid >= IB_LID_MULTICAST ? 0
                                   : ud->dlid & ((1 << port->lmc) - 1)),
            },
            .qp = qp,
            .solicited = ud->solicited,
        };

        soft_cq_push(soft_cq_cast(qp->qp.recv_cq), &cqe, 1);
        if (OVS_LIKELY(ok)) {
            qp->n_rx++;
        } else {
            soft_count(hca, SOFT_C_RX_PROT, 1);
            soft_qp_error(qp);
        }
    }
    ovs_mutex_unlock(&qp->mutex);
}

static void
deliver_multicast(struct soft_hca *hca, const struct soft_port *port,
                  const struct soft_packet *p)
{
    const struct soft_group_qps *qps;

    if (!p->ud.has_grh || !ib_gid_is_multicast(&p->ud.grh.dgid)
        || p->ud.dqpn != IB_QPN_MULTICAST) {
        soft_count(hca, SOFT_C_RX_NO_GRH, 1);
        return;
    }
    qps = soft_mcast_find(hca, &p->ud.grh.dgid);
    if (!qps) {
        soft_count(hca, SOFT_C_RX_NO_GROUP, 1);
        return;
    }
    for (size_t i = 0; i < qps->n; i++) {
        if (qps->qps[i] != p->sender || !p->sender->block_self) {
            deliver_qp(hca, port, p, qps->qps[i]);
        }
    }
}

void
soft_deliver(struct soft_hca *hca, const struct soft_packet *p)
{
    const struct soft_port *port = soft_port_get(hca);
    const struct ib_ud *ud = &p->ud;
    struct soft_qp *qp;

    if (port->state != IBV_PORT_ACTIVE) {
        soft_count(hca, SOFT_C_RX_PORT_DOWN, 1);
    } else if (ud->dlid >= IB_LID_MULTICAST) {
        deliver_multicast(hca, port, p);
    } else if (ud->dlid < port->lid
               || ud->dlid - port->lid >= 1 << port->lmc) {
        soft_count(hca, SOFT_C_RX_WRONG_LID, 1);
    } else if (ud->has_grh && !ib_gid_equals(&ud->grh.dgid, &port->gid)) {
        soft_count(hca, SOFT_C_RX_WRONG_GID, 1);
    } else {
        qp = soft_qp_find(hca, ud->dqpn);
        if (qp) {
            deliver_qp(hca, port, p, qp);
        } else {
            soft_count(hca, SOFT_C_RX_NO_QP, 1);
        }
    }
}

int
soft_post_recv(struct ibv_qp *qp_, struct ibv_recv_wr *wr,
               struct ibv_recv_wr **bad_wr)
{
    struct soft_qp *qp = soft_qp_cast(qp_);
    enum ibv_qp_state state;
    int error = 0;

    ovs_mutex_lock(&qp->mutex);
    state = soft_qp_state(qp);
    if (qp_->srq || state == IBV_QPS_RESET) {
        *bad_wr = wr;
        error = EINVAL;
    } else if (state == IBV_QPS_ERR) {
        for (; wr; wr = wr->next) {
            struct soft_cqe cqe = {
                .wc = { .wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR,
                        .opcode = IBV_WC_RECV, .qp_num = qp_->qp_num },
                .qp = qp,
            };

            soft_cq_push(soft_cq_cast(qp_->recv_cq), &cqe, 1);
        }
    } else {
        error = soft_rq_post(&qp->rq, wr, bad_wr);
    }
    ovs_mutex_unlock(&qp->mutex);
    return error;
}
