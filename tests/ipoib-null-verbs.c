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
#include "ipoib-null-verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk.h"
#include "smap.h"
#include "util.h"

static struct null_hca *
hca_of(struct ibv_context *ctx)
{
    return CONTAINER_OF(ctx, struct null_hca, ctx);
}

/* Data path. */

static int
null_post_recv__(struct null_hca *hca, struct ibv_recv_wr *wr,
                 struct ibv_recv_wr **bad)
{
    for (; wr; wr = wr->next) {
        uint32_t i = hca->posted_head % NULL_MAX;
        uint32_t n = hca->posted_head - hca->posted_tail;

        if (n >= NULL_MAX
            || (hca->post_recv_limit && n >= hca->post_recv_limit)) {
            *bad = wr;
            return ENOMEM;
        }
        hca->posted[i].wr_id = wr->wr_id;
        hca->posted[i].addr = wr->sg_list->addr;
        hca->posted[i].length = wr->sg_list->length;
        hca->posted[i].lkey = wr->sg_list->lkey;
        hca->posted_head++;
    }
    return 0;
}

static int
null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
               struct ibv_recv_wr **bad)
{
    return null_post_recv__(hca_of(qp->context), wr, bad);
}

static int
null_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                   struct ibv_recv_wr **bad)
{
    return null_post_recv__(hca_of(srq->context), wr, bad);
}

static void
note_send(struct null_hca *hca, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
    struct null_send *send = &hca->sent[hca->n_sent++ % NULL_MAX];

    ovs_assert(wr->opcode == IBV_WR_SEND && wr->num_sge == 1);
    send->sqpn = qp->qp_num;
    send->dqpn = wr->wr.ud.remote_qpn;
    send->qkey = wr->wr.ud.remote_qkey;
    send->ah = wr->wr.ud.ah;
    send->len = wr->sg_list->length;
    send->lkey = wr->sg_list->lkey;
    send->addr = wr->sg_list->addr;
    send->flags = wr->send_flags;
    ovs_assert(send->len <= sizeof send->data);
    memcpy(send->data, (void *) (uintptr_t) wr->sg_list->addr, send->len);
}

static void
note_tso(struct null_hca *hca, const struct ibv_send_wr *wr)
{
    struct null_tso *tso = &hca->tso;

    ovs_assert(wr->tso.hdr_sz <= IPOIB_VERBS_TSO_HEADER);
    ovs_assert(!(wr->send_flags & IBV_SEND_INLINE));
    tso->n++;
    tso->dqpn = wr->wr.ud.remote_qpn;
    tso->qkey = wr->wr.ud.remote_qkey;
    tso->ah = wr->wr.ud.ah;
    tso->hdr_sz = tso->len = wr->tso.hdr_sz;
    tso->mss = wr->tso.mss;
    tso->num_sge = wr->num_sge;
    tso->lkey = wr->sg_list->lkey;
    tso->flags = wr->send_flags;
    memcpy(tso->data, wr->tso.hdr, tso->hdr_sz);
    for (int i = 0; i < wr->num_sge; i++) {
        ovs_assert(tso->len + wr->sg_list[i].length <= sizeof tso->data);
        memcpy(tso->data + tso->len,
               (void *) (uintptr_t) wr->sg_list[i].addr,
               wr->sg_list[i].length);
        tso->len += wr->sg_list[i].length;
    }
}

static int
null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
               struct ibv_send_wr **bad)
{
    struct null_hca *hca = hca_of(qp->context);

    for (int i = 0; wr; wr = wr->next, i++) {
        enum ibv_wc_status status = IBV_WC_SUCCESS;

        if (i == hca->refuse_at) {
            *bad = wr;
            return EINVAL;
        }
        if (wr->opcode == IBV_WR_TSO) {
            note_tso(hca, wr);
        } else if (!hca->sink) {
            note_send(hca, qp, wr);
        }
        if (hca->broken) {
            status = IBV_WC_WR_FLUSH_ERR;
        } else if (i == hca->fail_at) {
            hca->broken = true;
            status = IBV_WC_LOC_QP_OP_ERR;
        }
        if (wr->send_flags & IBV_SEND_SIGNALED || status != IBV_WC_SUCCESS) {
            uint32_t done = hca->done_head++ % NULL_MAX;

            hca->done[done].wr_id = wr->wr_id;
            hca->done[done].status = status;
        }
    }
    return 0;
}

static int
poll_sent(struct null_hca *hca, int n, struct ibv_wc wc[])
{
    int i;

    if (hca->hold_polls) {
        hca->hold_polls--;
        return 0;
    }
    for (i = 0; i < n && hca->done_tail != hca->done_head && !hca->hold; i++) {
        uint32_t done = hca->done_tail++ % NULL_MAX;

        memset(&wc[i], 0, sizeof wc[i]);
        wc[i].wr_id = hca->done[done].wr_id;
        wc[i].status = hca->done[done].status;
        wc[i].opcode = IBV_WC_SEND;
    }
    return i;
}

static int
poll_source(struct null_hca *hca, int n, struct ibv_wc wc[])
{
    int i;

    for (i = 0; i < n && hca->posted_tail != hca->posted_head; i++) {
        uint32_t posted = hca->posted_tail++ % NULL_MAX;
        const struct null_packet *packet = &hca->source[hca->source_pos];

        if (++hca->source_pos == hca->n_source) {
            hca->source_pos = 0;
        }
        memcpy((void *) (uintptr_t) hca->posted[posted].addr, packet->data,
               128);
        wc[i] = packet->wc;
        wc[i].wr_id = hca->posted[posted].wr_id;
        wc[i].byte_len = packet->len;
    }
    return i;
}

static int
poll_received(struct null_hca *hca, int n, struct ibv_wc wc[])
{
    int i;

    for (i = 0; i < n && hca->rx_tail != hca->rx_head; i++) {
        const struct null_packet *packet;
        uint32_t posted;

        ovs_assert(hca->posted_tail != hca->posted_head);
        posted = hca->posted_tail++ % NULL_MAX;
        packet = &hca->rx[hca->rx_tail++ % NULL_MAX];
        ovs_assert(packet->len <= hca->posted[posted].length);
        memcpy((void *) (uintptr_t) hca->posted[posted].addr, packet->data,
               packet->len);
        wc[i] = packet->wc;
        wc[i].wr_id = hca->posted[posted].wr_id;
        wc[i].byte_len = packet->len;
    }
    return i;
}

static int
null_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc wc[])
{
    struct null_hca *hca = hca_of(cq->context);

    return (cq != hca->rx_cq ? poll_sent(hca, n, wc)
            : hca->source ? poll_source(hca, n, wc)
            : poll_received(hca, n, wc));
}

/* Control path. */

static struct ibv_mr *
null_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
            int access OVS_UNUSED)
{
    struct ibv_mr *mr;

    if (hca_of(pd->context)->refuse_mr) {
        errno = ENOMEM;
        return NULL;
    }
    mr = xzalloc(sizeof *mr);
    mr->pd = pd;
    mr->context = pd->context;
    mr->addr = addr;
    mr->length = length;
    mr->lkey = 100 + hca_of(pd->context)->n_objects++;
    return mr;
}

static int
null_dereg_mr(struct ibv_mr *mr)
{
    hca_of(mr->context)->n_objects--;
    free(mr);
    return 0;
}

static struct ibv_cq *
null_create_cq(struct ibv_context *ctx, int cqe, void *aux OVS_UNUSED,
               struct ibv_comp_channel *channel OVS_UNUSED,
               int vector OVS_UNUSED)
{
    struct ibv_cq *cq = xzalloc(sizeof *cq);

    cq->context = ctx;
    cq->cqe = cqe;
    hca_of(ctx)->n_objects++;
    return cq;
}

static int
null_destroy_cq(struct ibv_cq *cq)
{
    hca_of(cq->context)->n_objects--;
    free(cq);
    return 0;
}

static struct ibv_srq *
null_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr OVS_UNUSED)
{
    struct ibv_srq *srq = xzalloc(sizeof *srq);

    srq->context = pd->context;
    hca_of(pd->context)->n_objects++;
    return srq;
}

static int
null_destroy_srq(struct ibv_srq *srq)
{
    hca_of(srq->context)->n_objects--;
    free(srq);
    return 0;
}

static struct ibv_qp *
null_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
               bool block_self_mcast OVS_UNUSED)
{
    struct ibv_qp *qp = xzalloc(sizeof *qp);

    ovs_assert(attr->qp_type == IBV_QPT_UD && attr->send_cq && attr->recv_cq);
    qp->context = pd->context;
    qp->pd = pd;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    qp->srq = attr->srq;
    qp->qp_num = hca_of(pd->context)->next_qpn++;
    hca_of(pd->context)->n_objects++;
    return qp;
}

static struct ibv_qp *
null_create_tso_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    return null_create_qp(pd, attr, true);
}

static int
null_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_STATE) {
        if (mask & IBV_QP_CUR_STATE) {
            /* After a failed send. */
            if (!hca_of(qp->context)->broken) {
                return EINVAL;
            }
            hca_of(qp->context)->broken = false;
        }
        qp->state = attr->qp_state;
        if (attr->qp_state == IBV_QPS_RESET) {
            struct null_hca *hca = hca_of(qp->context);

            hca->broken = false;
            hca->done_tail = hca->done_head;
        }
    }
    return 0;
}

static int
null_destroy_qp(struct ibv_qp *qp)
{
    hca_of(qp->context)->n_objects--;
    free(qp);
    return 0;
}

const struct ipoib_verbs null_verbs = {
    .name = "null",
    .reg_mr = null_reg_mr,
    .dereg_mr = null_dereg_mr,
    .create_cq = null_create_cq,
    .destroy_cq = null_destroy_cq,
    .create_srq = null_create_srq,
    .destroy_srq = null_destroy_srq,
    .create_qp = null_create_qp,
    .create_tso_qp = null_create_tso_qp,
    .modify_qp = null_modify_qp,
    .destroy_qp = null_destroy_qp,
};

/* If that is what buffers are to be made of, DPDK's memory, of the kind that
 * OVS_IPOIB_EAL has arguments for. */
static void
init_dpdk(void)
{
#ifdef DPDK_NETDEV
    const char *kind = getenv("OVS_IPOIB_POOL");
    const char *memory = getenv("OVS_IPOIB_EAL");

    if (kind && !strcmp(kind, "dpdk") && !dpdk_available()) {
        struct smap config = SMAP_INITIALIZER(&config);

        smap_add(&config, "dpdk-init", "true");
        smap_add_format(&config, "dpdk-extra", "%s --no-pci --no-telemetry",
                        memory ? memory : "--no-huge --legacy-mem -m 128");
        dpdk_init(&config);
        smap_destroy(&config);
    }
#endif
}

struct null_hca *
null_hca_open(void)
{
    struct null_hca *hca = xzalloc(sizeof *hca);

    init_dpdk();
    hca->ctx.ops.poll_cq = null_poll_cq;
    hca->ctx.ops.post_send = null_post_send;
    hca->ctx.ops.post_recv = null_post_recv;
    hca->ctx.ops.post_srq_recv = null_post_srq_recv;
    hca->pd.context = &hca->ctx;
    hca->next_qpn = 0x100;
    hca->rx = xcalloc(NULL_MAX, sizeof *hca->rx);
    hca->sent = xcalloc(NULL_MAX, sizeof *hca->sent);
    hca->refuse_at = hca->fail_at = -1;
    return hca;
}

void
null_hca_close(struct null_hca *hca)
{
    free(hca->rx);
    free(hca->sent);
    free(hca);
}

struct null_packet *
null_hca_receive(struct null_hca *hca)
{
    struct null_packet *packet = &hca->rx[hca->rx_head++ % NULL_MAX];

    memset(packet, 0, sizeof *packet);
    packet->wc.status = IBV_WC_SUCCESS;
    packet->wc.opcode = IBV_WC_RECV;
    return packet;
}
