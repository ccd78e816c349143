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
#include "bench-micro.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "util.h"

/* A device of which all is there that a processor sees of a real one:
 * descriptors are written where a device would read them, doorbells are rung,
 * and completions are read from where a device would write them.  What the
 * device itself does (it sends at once, and the wire brings what
 * bench_device_receive() says) takes no time of the windows. */

static struct bench_device *
device_of(struct ibv_context *ctx)
{
    return CONTAINER_OF(ctx, struct bench_device, ctx);
}

static struct bench_doorbell *
doorbell_create(void)
{
    return xzalloc_cacheline(sizeof(struct bench_doorbell));
}

/* Sends. */

/* Copies 'n' bytes, in few steps as they are few. */
static inline ALWAYS_INLINE void
copy_inline(uint8_t *dst, const uint8_t *src, size_t n)
{
    if (n > 32) {
        memcpy(dst, src, 32);
        memcpy(dst + n - 32, src + n - 32, 32);
    } else if (n > 16) {
        memcpy(dst, src, 16);
        memcpy(dst + n - 16, src + n - 16, 16);
    } else {
        memcpy(dst, src, n);
    }
}

/* Writes 'wqe', number 'index' of the queue of 'qpn'. */
static inline ALWAYS_INLINE void
write_wqe(struct bench_wqe *wqe, uint32_t index, uint32_t qpn,
          const struct ibv_send_wr *wr)
{
    const struct bench_ah *ah = CONTAINER_OF(wr->wr.ud.ah, struct bench_ah,
                                             ibv);
    const struct ibv_sge *sge = wr->sg_list;
    unsigned int n_segs = 5;

    wqe->av = ah->av;
    wqe->av.qkey = htonl(wr->wr.ud.remote_qkey);
    wqe->av.dqpn = htonl(wr->wr.ud.remote_qpn | BENCH_AV_EXT);
    if (wr->send_flags & IBV_SEND_INLINE) {
        size_t length = MIN(sge->length, sizeof wqe->in.bytes);

        n_segs = 4 + (length + 4 + 15) / 16;
        wqe->in.length = htonl(length | BENCH_INLINE);
        copy_inline(wqe->in.bytes, (const uint8_t *) (uintptr_t) sge->addr,
                    length);
    } else {
        wqe->data.length = htonl(sge->length);
        wqe->data.lkey = htonl(sge->lkey);
        wqe->data.addr = htobe64(sge->addr);
    }
    wqe->ctrl[0] = htonl(index << 8 | BENCH_OP_SEND);
    wqe->ctrl[1] = htonl(qpn << 8 | n_segs);
    wqe->ctrl[2] = htonl(wr->send_flags & IBV_SEND_SIGNALED
                         ? BENCH_CTRL_SIGNALED : 0);
    wqe->ctrl[3] = 0;
}

static BENCH_FAST int
bench_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr,
                struct ibv_send_wr **bad)
{
    struct bench_qp *qp = CONTAINER_OF(ibv, struct bench_qp, ibv);
    struct bench_cq *cq = CONTAINER_OF(ibv->send_cq, struct bench_cq, ibv);
    const uint32_t qpn = ibv->qp_num, mask = qp->mask;
    const uint32_t end = qp->tail + mask + 1;
    struct bench_wqe *sq = qp->sq;
    uint32_t head = qp->head;
    uint64_t ctrl;
    int error = 0;

    for (; wr; wr = wr->next) {
        if (OVS_UNLIKELY(head == end)) {
            *bad = wr;
            error = ENOMEM;
            break;
        }
        write_wqe(&sq[head & mask], head, qpn, wr);
        head++;
        if (wr->send_flags & IBV_SEND_SIGNALED) {
            uint32_t i = cq->pi++ & cq->mask;

            cq->done[i].wr_id = wr->wr_id;
            cq->done[i].tail = head;
        }
    }
    memcpy(&ctrl, sq[qp->head & mask].ctrl, sizeof ctrl);
    qp->head = head;
    bench_ring(qp->doorbell, head, ctrl);
    return error;
}

static inline ALWAYS_INLINE int
poll_sent(struct bench_cq *cq, int n, struct ibv_wc wc[])
{
    int i;

    for (i = 0; i < n && cq->ci != cq->pi; i++) {
        const struct bench_cqe *cqe = &cq->cqes[cq->ci & cq->mask];
        uint32_t done = cq->ci++ & cq->mask;

        wc[i].status = cqe->op_own >> 4; /* 0. */
        wc[i].opcode = IBV_WC_SEND;
        wc[i].wc_flags = 0;
        wc[i].qp_num = ntohl(cqe->qpn);
        wc[i].wr_id = cq->done[done].wr_id;
        cq->qp->tail = cq->done[done].tail;
    }
    if (i) {
        cq->doorbell->record = cq->ci;
    }
    return i;
}

/* Receives. */

static BENCH_FAST int
bench_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr,
                    struct ibv_recv_wr **bad)
{
    struct bench_srq *srq = CONTAINER_OF(ibv, struct bench_srq, ibv);

    for (; wr; wr = wr->next) {
        uint32_t i = srq->head & srq->mask;
        struct bench_data_seg *seg = &srq->rq[i];

        if (OVS_UNLIKELY(srq->head - srq->filled > srq->mask)) {
            *bad = wr;
            return ENOMEM;
        }
        seg->length = htonl(wr->sg_list->length);
        seg->lkey = htonl(wr->sg_list->lkey);
        seg->addr = htobe64(wr->sg_list->addr);
        srq->wr_ids[i] = wr->wr_id;
        srq->head++;
    }
    bench_barrier();
    srq->doorbell->record = srq->head;
    return 0;
}

static inline ALWAYS_INLINE int
poll_received(struct bench_cq *cq, int n, struct ibv_wc wc[])
{
    const struct bench_srq *srq = cq->srq;
    int i;

    for (i = 0; i < n; i++) {
        const struct bench_cqe *cqe = &cq->cqes[cq->ci & cq->mask];
        uint32_t flags_rqpn;

        if ((cqe->op_own & 1) != !!(cq->ci & (cq->mask + 1))) {
            break;
        }
        flags_rqpn = ntohl(cqe->flags_rqpn);
        wc[i].status = IBV_WC_SUCCESS;
        wc[i].opcode = IBV_WC_RECV;
        wc[i].wc_flags = flags_rqpn >> 28 ? IBV_WC_GRH : 0;
        wc[i].wr_id = srq->wr_ids[ntohs(cqe->wqe_counter) & srq->mask];
        wc[i].byte_len = ntohl(cqe->byte_cnt);
        wc[i].qp_num = ntohl(cqe->qpn);
        wc[i].src_qp = flags_rqpn & 0xffffff;
        wc[i].slid = ntohs(cqe->slid);
        wc[i].sl = 0;
        wc[i].dlid_path_bits = 0;
        wc[i].pkey_index = 0;
        cq->ci++;
    }
    if (i) {
        cq->doorbell->record = cq->ci;
    }
    return i;
}

void
bench_cqe_write(struct bench_cqe *cqe, uint32_t index, uint32_t mask,
                uint16_t slid, uint32_t src_qp, uint32_t qpn, uint32_t len)
{
    cqe->slid = htons(slid);
    cqe->flags_rqpn = htonl(src_qp);
    cqe->byte_cnt = htonl(len);
    cqe->qpn = htonl(qpn);
    cqe->wqe_counter = htons(index);
    cqe->op_own = !!(index & (mask + 1));
}

uint8_t *
bench_device_receive(struct bench_cq *cq, uint16_t slid, uint32_t src_qp,
                     uint32_t qpn, uint32_t len)
{
    struct bench_srq *srq = cq->srq;
    uint32_t i = srq->filled;

    /* Indexes are those of WQEs, which CQEs tell by 16 bits. */
    BUILD_ASSERT(sizeof cq->cqes->wqe_counter == 2);
    if (i == srq->head || cq->pi - cq->ci > cq->mask) {
        return NULL;
    }
    bench_cqe_write(&cq->cqes[cq->pi & cq->mask], cq->pi, cq->mask, slid,
                    src_qp, qpn, len);
    srq->filled++;
    cq->pi++;
    return (uint8_t *) (uintptr_t) be64toh(srq->rq[i & srq->mask].addr);
}

static BENCH_FAST int
bench_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc wc[])
{
    struct bench_cq *cq = CONTAINER_OF(ibv, struct bench_cq, ibv);

    return cq->srq ? poll_received(cq, n, wc) : poll_sent(cq, n, wc);
}

/* Control path. */

static struct ibv_mr *
bench_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
             int access OVS_UNUSED)
{
    struct ibv_mr *mr = xzalloc(sizeof *mr);

    mr->pd = pd;
    mr->context = pd->context;
    mr->addr = addr;
    mr->length = length;
    mr->lkey = 100 + atomic_count_inc(&device_of(pd->context)->n_objects);
    return mr;
}

static int
bench_dereg_mr(struct ibv_mr *mr)
{
    atomic_count_dec(&device_of(mr->context)->n_objects);
    free(mr);
    return 0;
}

static struct ibv_cq *
bench_create_cq(struct ibv_context *ctx, int cqe, void *aux OVS_UNUSED,
                struct ibv_comp_channel *channel OVS_UNUSED,
                int vector OVS_UNUSED)
{
    struct bench_cq *cq = xzalloc_cacheline(sizeof *cq);
    size_t n = ROUND_UP_POW2(cqe);

    cq->ibv.context = ctx;
    cq->ibv.cqe = cqe;
    cq->mask = n - 1;
    cq->cqes = xzalloc_cacheline(n * sizeof *cq->cqes);
    for (size_t i = 0; i < n; i++) {
        cq->cqes[i].op_own = 1; /* None of the first lap. */
    }
    cq->done = xcalloc(n, sizeof *cq->done);
    cq->doorbell = doorbell_create();
    atomic_count_inc(&device_of(ctx)->n_objects);
    return &cq->ibv;
}

static int
bench_destroy_cq(struct ibv_cq *ibv)
{
    struct bench_cq *cq = CONTAINER_OF(ibv, struct bench_cq, ibv);

    atomic_count_dec(&device_of(ibv->context)->n_objects);
    free_cacheline(cq->cqes);
    free(cq->done);
    free_cacheline(cq->doorbell);
    free_cacheline(cq);
    return 0;
}

static struct ibv_srq *
bench_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct bench_srq *srq = xzalloc_cacheline(sizeof *srq);
    size_t n = ROUND_UP_POW2(attr->attr.max_wr);

    ovs_assert(n <= UINT16_MAX + 1);
    srq->ibv.context = pd->context;
    srq->ibv.pd = pd;
    srq->mask = n - 1;
    srq->rq = xzalloc_cacheline(n * sizeof *srq->rq);
    srq->wr_ids = xcalloc(n, sizeof *srq->wr_ids);
    srq->doorbell = doorbell_create();
    atomic_count_inc(&device_of(pd->context)->n_objects);
    return &srq->ibv;
}

static int
bench_destroy_srq(struct ibv_srq *ibv)
{
    struct bench_srq *srq = CONTAINER_OF(ibv, struct bench_srq, ibv);

    atomic_count_dec(&device_of(ibv->context)->n_objects);
    free_cacheline(srq->rq);
    free(srq->wr_ids);
    free_cacheline(srq->doorbell);
    free_cacheline(srq);
    return 0;
}

static struct ibv_qp *
bench_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
                bool block_self_mcast OVS_UNUSED)
{
    struct bench_qp *qp = xzalloc_cacheline(sizeof *qp);
    struct bench_cq *cq = CONTAINER_OF(attr->send_cq, struct bench_cq, ibv);
    size_t n = ROUND_UP_POW2(attr->cap.max_send_wr);

    ovs_assert(attr->qp_type == IBV_QPT_UD && attr->recv_cq);
    qp->ibv.context = pd->context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.srq = attr->srq;
    qp->ibv.qp_num = 0x100 + atomic_count_inc(
        &device_of(pd->context)->n_objects);
    qp->mask = n - 1;
    qp->sq = xzalloc_cacheline(n * sizeof *qp->sq);
    qp->doorbell = doorbell_create();
    if (attr->srq) {
        CONTAINER_OF(attr->recv_cq, struct bench_cq, ibv)->srq
            = CONTAINER_OF(attr->srq, struct bench_srq, ibv);
    } else {
        cq->qp = qp;
    }
    attr->cap.max_inline_data = MIN(attr->cap.max_inline_data,
                                    BENCH_MAX_INLINE);
    return &qp->ibv;
}

static int
bench_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_STATE) {
        qp->state = attr->qp_state;
    }
    return 0;
}

static int
bench_destroy_qp(struct ibv_qp *ibv)
{
    struct bench_qp *qp = CONTAINER_OF(ibv, struct bench_qp, ibv);

    atomic_count_dec(&device_of(ibv->context)->n_objects);
    free_cacheline(qp->sq);
    free_cacheline(qp->doorbell);
    free_cacheline(qp);
    return 0;
}

/* As a driver has it: an object of its own for each. */
struct ibv_ah *
bench_ah_create(struct ibv_pd *pd, uint16_t lid)
{
    struct bench_ah *ah = xzalloc(sizeof *ah);

    ah->ibv.context = pd->context;
    ah->ibv.pd = pd;
    ah->av.path[2] = lid >> 8;
    ah->av.path[3] = lid;
    return &ah->ibv;
}

const struct ipoib_verbs bench_verbs = {
    .name = "bench",
    .reg_mr = bench_reg_mr,
    .dereg_mr = bench_dereg_mr,
    .create_cq = bench_create_cq,
    .destroy_cq = bench_destroy_cq,
    .create_srq = bench_create_srq,
    .destroy_srq = bench_destroy_srq,
    .create_qp = bench_create_qp,
    .modify_qp = bench_modify_qp,
    .destroy_qp = bench_destroy_qp,
};

struct bench_device *
bench_device_open(void)
{
    struct bench_device *device = xzalloc(sizeof *device);

    device->ctx.ops.poll_cq = bench_poll_cq;
    device->ctx.ops.post_send = bench_post_send;
    device->ctx.ops.post_srq_recv = bench_post_srq_recv;
    device->pd.context = &device->ctx;
    atomic_count_init(&device->n_objects, 0);
    return device;
}

void
bench_device_close(struct bench_device *device)
{
    ovs_assert(!atomic_count_get(&device->n_objects));
    free(device);
}
