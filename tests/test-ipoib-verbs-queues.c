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
#include "test-ipoib-verbs.h"

#include <errno.h>
#include <poll.h>

/* Checks of queue pairs, shared receive queues and completion queues. */

/* Shared receive queues. */

void
test_srq_post(void)
{
    struct ibv_recv_wr wr[80], *bad = NULL;
    struct ibv_srq_init_attr init;
    struct ibv_device_attr dev;
    struct ibv_srq_attr attr;
    struct ibv_sge sge;
    struct end e;
    int error;

    memset(&init, 0, sizeof init);
    init.attr.max_wr = 60;
    init.attr.max_sge = 2;
    make_end(&e, A, A->v->create_srq(A->pd, &init));
    check(e.srq && init.attr.max_wr >= 60 && init.attr.max_sge >= 2
          && !A->v->query_srq(e.srq, &attr)
          && attr.max_wr == init.attr.max_wr && !attr.srq_limit,
          "an SRQ is at least as large as asked for");
    A->v->query_device(A->ctx, &dev);
    init.attr.max_wr = dev.max_srq_wr + 1;
    check(!A->v->create_srq(A->pd, &init), "but not beyond max_srq_wr");

    sge = (struct ibv_sge) { (uintptr_t) e.mem, SLOT, e.mr->lkey };
    for (size_t i = 0; i < ARRAY_SIZE(wr); i++) {
        wr[i] = (struct ibv_recv_wr) { .wr_id = i, .sg_list = &sge,
                                       .num_sge = 1, .next = &wr[i + 1] };
    }
    wr[ARRAY_SIZE(wr) - 1].next = NULL;
    if (attr.max_wr < ARRAY_SIZE(wr)) {
        error = ibv_post_srq_recv(e.srq, wr, &bad);
        check(error == ENOMEM && bad == &wr[attr.max_wr],
              "a full SRQ: ENOMEM, and bad_wr is the first left out");
    } else {
        skip("a full SRQ", "it is larger than the test");
    }
    check(ibv_post_recv(e.qp, wr, &bad) != 0,
          "no receive of its own for a QP with an SRQ");
    check(A->v->destroy_srq(e.srq) == EBUSY, "an SRQ in use stays");
    free_end(&e);
    check(!A->v->destroy_srq(e.srq), "a full SRQ can go");
}

void
test_srq_limit(void)
{
    struct ibv_srq *srq = make_srq(A, 16);
    struct ibv_srq_attr attr;
    struct ibv_wc wc[8];
    struct ibv_qp *second;
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct end a, b;
    bool good = true;
    unsigned int seen = 0;

    make_end(&a, A, srq);
    make_end(&b, B, NULL);
    second = make_qp(&a, 16, 0, false);
    ovs_assert(second && !start(&a, second, 0, QKEY));
    post_recvs(&a, 8);

    memset(&attr, 0, sizeof attr);
    attr.srq_limit = 5;
    check(!A->v->modify_srq(srq, &attr, IBV_SRQ_LIMIT)
          && !A->v->query_srq(srq, &attr) && attr.srq_limit == 5,
          "the limit of an SRQ is armed");
    drop_events(A);
    for (int i = 0; i < 4; i++) {
        good &= sent(&b, ah, (i & 1 ? second : a.qp)->qp_num, QKEY, i, 30);
    }
    good &= poll_n(a.rcq, wc, 4, 3000) == 4;
    for (int i = 0; i < 4 && good; i++) {
        good &= (wc[i].status == IBV_WC_SUCCESS
                 && wc[i].byte_len == IB_GRH_LEN + 30
                 && wc[i].qp_num == (i & 1 ? second : a.qp)->qp_num);
        seen |= 1u << wc[i].wr_id;
    }
    check(good && seen == 0xf, "two QPs share it, wc.qp_num tells which");
    check(wait_event(A, IBV_EVENT_SRQ_LIMIT_REACHED, srq, 1000),
          "IBV_EVENT_SRQ_LIMIT_REACHED");
    sent(&b, ah, second->qp_num, QKEY, 9, 30);
    poll_one(a.rcq, wc);
    check(!wait_event(A, IBV_EVENT_SRQ_LIMIT_REACHED, srq, 150)
          && !A->v->query_srq(srq, &attr) && !attr.srq_limit,
          "... once, then the limit is 0");
    attr.max_wr = 100;
    check(!A->v->modify_srq(srq, &attr, IBV_SRQ_MAX_WR)
          && !A->v->query_srq(srq, &attr) && attr.max_wr >= 100,
          "an SRQ grows with what is in it");
    attr.max_wr = 1;
    check(A->v->modify_srq(srq, &attr, IBV_SRQ_MAX_WR) != 0,
          "... and does not shrink below that");

    ipoib_verbs_ud_to_error(A->v, a.qp);
    check(wait_event(A, IBV_EVENT_QP_LAST_WQE_REACHED, a.qp, 1000)
          && poll_none(a.rcq),
          "a QP in error: IBV_EVENT_QP_LAST_WQE_REACHED, nothing flushed");
    sent(&b, ah, a.qp->qp_num, QKEY, 1, 30);
    check(poll_none(a.rcq) && sent(&b, ah, second->qp_num, QKEY, 2, 30)
          && poll_one(a.rcq, wc) && wc->qp_num == second->qp_num,
          "... the other QP goes on");
    sent(&b, ah, second->qp_num, QKEY, 3, 30);
    xnanosleep(100 * 1000 * 1000);
    check(!A->v->destroy_qp(second) && poll_none(a.rcq),
          "the completions of a QP go with it");
    free_end(&a);
    free_end(&b);
    ovs_assert(!A->v->destroy_srq(srq) && !B->v->destroy_ah(ah));
}

void
test_srq_empty(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_wc wc;
    struct end a, b;

    make_end(&a, A, make_srq(A, 4));
    make_end(&b, B, NULL);
    check(sent(&b, ah, a.qp->qp_num, QKEY, 1, 30) && poll_none(a.rcq)
          && !post_recv(&a, 5, 5, SLOT)
          && sent(&b, ah, a.qp->qp_num, QKEY, 2, 30) && poll_one(a.rcq, &wc)
          && wc.wr_id == 5 && filled(slot(&a, 5) + IB_GRH_LEN, 2, 30),
          "an empty SRQ: that packet is lost, the next one comes");
    free_end(&a);
    free_end(&b);
    ovs_assert(!A->v->destroy_srq(a.srq) && !B->v->destroy_ah(ah));
}

/* Chains of send requests. */

static void
make_chain(struct ibv_send_wr *wr, size_t n, struct ibv_sge *sge,
           struct ibv_ah *ah, uint32_t qpn)
{
    for (size_t i = 0; i < n; i++) {
        ud_wr(&wr[i], sge, i, i == n - 1 ? IBV_SEND_SIGNALED : 0, ah, qpn,
              QKEY);
        wr[i].opcode = IBV_WR_SEND_WITH_IMM;
        wr[i].imm_data = htonl(i + 1000);
        wr[i].next = i < n - 1 ? &wr[i + 1] : NULL;
    }
}

void
test_chain(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_send_wr wr[32], *bad = NULL;
    struct ibv_wc wc[40];
    struct ibv_sge sge;
    struct end a, b;
    bool good;
    int n, error;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 100);
    sge = (struct ibv_sge) { addr_of(&b, SEND_SLOT), 60,
                             b.mr->lkey };
    make_chain(wr, 32, &sge, ah, a.qp->qp_num);
    error = ibv_post_send(b.qp, wr, &bad);
    n = poll_n(a.rcq, wc, 32, 3000);
    good = !error && n == 32;
    for (int i = 0; i < n; i++) {
        good &= (wc[i].wr_id == i && !wc[i].status
                 && wc[i].wc_flags & IBV_WC_WITH_IMM
                 && wc[i].imm_data == htonl(i + 1000));
    }
    check(good, "a chain of 32 arrives in order, each with its immediate");
    check(poll_one(b.scq, wc) && wc->wr_id == 31 && !wc->status
          && poll_none(b.scq), "one completion, of the signalled one");

    wr[31].send_flags = 0;
    error = ibv_post_send(b.qp, wr, &bad) || ibv_post_send(b.qp, wr, &bad);
    xnanosleep(50 * 1000 * 1000);
    bad = NULL;
    n = ibv_post_send(b.qp, wr, &bad);
    check(!error && n == ENOMEM && bad == wr && poll_none(b.scq),
          "a queue full of unsignalled requests stays full");
    start(&b, b.qp, 0, QKEY);
    while (poll_n(a.rcq, wc, 40, 100) > 0) {
        continue;
    }
    wr[31].send_flags = IBV_SEND_SIGNALED;
    good = true;
    for (int i = 0; i < 6; i++) {
        good &= (!ibv_post_send(b.qp, wr, &bad) && poll_one(b.scq, wc)
                 && wc->wr_id == 31 && !wc->status);
    }
    check(good, "one polled completion in 32 keeps it going");

    wr[3].num_sge = 100;
    bad = NULL;
    xnanosleep(100 * 1000 * 1000);
    start(&a, a.qp, 0, QKEY);
    post_recvs(&a, 8);
    error = ibv_post_send(b.qp, wr, &bad);
    check(error == EINVAL && bad && bad <= &wr[3],
          "a bad request in a chain: refused, bad_wr points there");
    if (bad == &wr[3]) {
        check(poll_n(a.rcq, wc, 4, 300) == 3, "... those before it are sent");
    }
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}

/* Errors of sending: the completion, the flush, SQE, and the way back. */
static void
send_error(struct end *b, struct end *a, struct ibv_ah *ah,
           struct ibv_ah *bad_ah, struct ibv_sge *bad_sge,
           enum ibv_wc_status want, const char *what)
{
    struct ibv_sge sge = { addr_of(b, SEND_SLOT), 30, b->mr->lkey };
    struct ibv_send_wr wr[3], *bad;
    struct ibv_wc wc[3];
    bool good;

    for (int i = 0; i < 3; i++) {
        ud_wr(&wr[i], !i && bad_sge ? bad_sge : &sge, 40 + i, 0,
              !i && bad_ah ? bad_ah : ah, a->qp->qp_num, QKEY);
        wr[i].next = i < 2 ? &wr[i + 1] : NULL;
    }
    memset(wc, 0xff, sizeof wc);
    good = (!ibv_post_send(b->qp, wr, &bad)
            && poll_n(b->scq, wc, 3, 3000) == 3);
    for (int i = 0; i < 3; i++) {
        good &= (wc[i].wr_id == 40 + i && wc[i].qp_num == b->qp->qp_num
                 && wc[i].status == (i ? IBV_WC_WR_FLUSH_ERR : want));
    }
    check(good, "%s: an error completion, the rest flushed, all unsignalled",
          what);
    check(state_of(b) == IBV_QPS_SQE && poll_none(a->rcq),
          "... the QP is in SQE");
    check(!set_state(b, b->qp, IBV_QPS_RTS)
          && sent(b, ah, a->qp->qp_num, QKEY, 1, 30) && poll_one(a->rcq, wc),
          "... and sends again after SQE to RTS");
}

void
test_send_errors(void)
{
    static const union ibv_gid mgid = { .raw = { 0xff, 0x12, [15] = 1 } };
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_ah *bare = make_ah(B, IB_LID_MULTICAST, NULL);
    struct ibv_ah *wrong = make_ah(B, IB_LID_MULTICAST, &mgid);
    struct ibv_sge sge;
    struct ibv_mr *mr;
    struct end a, b;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 16);
    sge = (struct ibv_sge) { (uintptr_t) b.mem,
                             ib_mtu_bytes(B->port.active_mtu) + 1,
                             b.mr->lkey };
    send_error(&b, &a, ah, NULL, &sge, IBV_WC_LOC_LEN_ERR, "over the MTU");
    sge.length = 30;
    sge.lkey = b.mr->lkey + 0x7fff00;
    send_error(&b, &a, ah, NULL, &sge, IBV_WC_LOC_PROT_ERR, "a bad lkey");
    sge.lkey = b.mr->lkey;
    sge.addr = (uintptr_t) b.mem + b.size - 29;
    send_error(&b, &a, ah, NULL, &sge, IBV_WC_LOC_PROT_ERR,
               "beyond the region's end");
    sge.addr = (uintptr_t) b.mem - 1;
    send_error(&b, &a, ah, NULL, &sge, IBV_WC_LOC_PROT_ERR,
               "before the region's start");
    mr = B->v->reg_mr(B->pd, b.mem, SLOT, 0);
    sge = (struct ibv_sge) { (uintptr_t) b.mem, 30, mr->lkey };
    ovs_assert(!B->v->dereg_mr(mr));
    mr = B->v->reg_mr(B->pd, b.mem, SLOT, 0);
    send_error(&b, &a, ah, NULL, &sge, IBV_WC_LOC_PROT_ERR,
               "the lkey of a region that is gone");
    ovs_assert(!B->v->dereg_mr(mr));
    send_error(&b, &a, ah, bare, NULL, IBV_WC_LOC_QP_OP_ERR,
               "multicast without a GRH");
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah) && !B->v->destroy_ah(bare)
               && !B->v->destroy_ah(wrong));
}

void
test_receive_error(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_recv_wr wr = { .wr_id = 70, .num_sge = 1 }, *bad;
    struct ibv_sge sge;
    struct ibv_wc wc[2];
    struct ibv_mr *mr;
    struct end a, b;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    mr = A->v->reg_mr(A->pd, a.mem, SLOT, 0);
    sge = (struct ibv_sge) { (uintptr_t) a.mem, SLOT, mr->lkey };
    wr.sg_list = &sge;
    check(!ibv_post_recv(a.qp, &wr, &bad) && !post_recv(&a, 71, 1, SLOT)
          && sent(&b, ah, a.qp->qp_num, QKEY, 1, 30)
          && poll_n(a.rcq, wc, 2, 3000) == 2 && wc[0].wr_id == 70
          && wc[0].status == IBV_WC_LOC_PROT_ERR && wc[1].wr_id == 71
          && wc[1].status == IBV_WC_WR_FLUSH_ERR
          && state_of(&a) == IBV_QPS_ERR,
          "a receive into a read-only region: protection error, QP in ERR");
    ovs_assert(!A->v->dereg_mr(mr));
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}

/* States. */

void
test_states(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct ibv_wc wc[2];
    struct end a, b;
    bool good;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 8);
    set_state(&b, b.qp, IBV_QPS_RESET);
#define POST() post(&b, ah, a.qp->qp_num, QKEY, 1, 30, 0)
    check(POST() == EINVAL && post_recv(&b, 1, 1, SLOT) == EINVAL,
          "RESET: nothing can be posted");
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_INIT;
    check(B->v->modify_qp(b.qp, &attr, IBV_QP_STATE) != 0
          && set_state(&b, b.qp, IBV_QPS_RTR) != 0
          && set_state(&b, b.qp, IBV_QPS_RTS) != 0
          && state_of(&b) == IBV_QPS_RESET,
          "no INIT without its attributes, no RTR or RTS before it");
    set_state(&b, b.qp, IBV_QPS_INIT);
    check(POST() == EINVAL && !post_recv(&b, 50, 1, SLOT),
          "INIT: receives only");
    set_state(&b, b.qp, IBV_QPS_RTR);
    check(POST() == EINVAL && !post_recv(&b, 51, 2, SLOT),
          "RTR: receives only");
    attr.qp_state = IBV_QPS_RTS;
    ovs_assert(!B->v->modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    set_state(&b, b.qp, IBV_QPS_ERR);
    good = poll_n(b.rcq, wc, 2, 2000) == 2;
    for (int i = 0; i < 2; i++) {
        good &= (wc[i].status == IBV_WC_WR_FLUSH_ERR
                 && wc[i].wr_id == 50 + i && wc[i].qp_num == b.qp->qp_num);
    }
    check(good, "ERR: receives are flushed, in order");
    check(!POST() && poll_one(b.scq, wc) && wc->wr_id == 1
          && wc->status == IBV_WC_WR_FLUSH_ERR
          && !post_recv(&b, 61, 1, SLOT) && poll_one(b.rcq, wc)
          && wc->wr_id == 61 && wc->status == IBV_WC_WR_FLUSH_ERR,
          "... and so is what is posted then");
#undef POST
    check(set_state(&b, b.qp, IBV_QPS_RTS) != 0 && !start(&b, b.qp, 0, QKEY)
          && sent(&b, ah, a.qp->qp_num, QKEY, 1, 30) && poll_one(a.rcq, wc)
          && wc->src_qp == b.qp->qp_num,
          "from ERR only by RESET; the QPN stays");

    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    check(!B->v->modify_qp(b.qp, &attr, (IBV_QP_STATE
                                         | IBV_QP_EN_SQD_ASYNC_NOTIFY))
          && wait_event(B, IBV_EVENT_SQ_DRAINED, b.qp, 2000),
          "SQD: IBV_EVENT_SQ_DRAINED");
    check(!post(&b, ah, a.qp->qp_num, QKEY, 5, 30, IBV_SEND_SIGNALED)
          && poll_none(b.scq) && !set_state(&b, b.qp, IBV_QPS_RTS)
          && poll_one(b.scq, wc) && wc->wr_id == 5 && !wc->status
          && poll_one(a.rcq, wc), "... what is posted waits for RTS");
    attr.qp_state = IBV_QPS_RTS;
    attr.qkey = 0x22222222;
    check(!B->v->modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY)
          && !B->v->query_qp(b.qp, &attr, (IBV_QP_QKEY | IBV_QP_STATE
                                           | IBV_QP_CAP), &init)
          && attr.qp_state == IBV_QPS_RTS && attr.qkey == 0x22222222
          && init.cap.max_send_wr >= 64 && init.cap.max_recv_wr >= N_SLOTS
          && !init.sq_sig_all, "the Q_Key changes in RTS; query_qp tells");
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}

void
test_inline(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct ibv_send_wr wr, *bad;
    uint8_t text[64];
    struct ibv_sge sge = { (uintptr_t) text, sizeof text, 0 };
    struct ibv_wc wc;
    struct end a, b;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 4);
    ud_wr(&wr, &sge, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE, ah,
          a.qp->qp_num, QKEY);
    check(ibv_post_send(b.qp, &wr, &bad) != 0,
          "inline is refused where the QP has none");
    B->v->destroy_qp(b.qp);
    b.qp = make_qp(&b, 16, 64, false);
    ovs_assert(b.qp && !start(&b, b.qp, 0, QKEY));
    fill(text, 3, sizeof text);
    B->v->query_qp(b.qp, &attr, IBV_QP_CAP, &init);
    check(init.cap.max_inline_data >= 64 && !ibv_post_send(b.qp, &wr, &bad),
          "inline needs no memory region");
    memset(text, 0, sizeof text);
    check(poll_one(b.scq, &wc) && !wc.status && poll_one(a.rcq, &wc)
          && filled(slot(&a, 0) + IB_GRH_LEN, 3, 64),
          "... and takes the data as it is posted");
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}

/* Completion queues and channels. */

static bool
channel_event(struct dev *d, struct ibv_comp_channel *ch, struct ibv_cq *cq,
              int ms)
{
    struct pollfd pfd = { .fd = ch->fd, .events = POLLIN };
    struct ibv_cq *which = NULL;
    void *context = NULL;

    if (poll(&pfd, 1, ms) != 1 || d->v->get_cq_event(ch, &which, &context)) {
        return false;
    }
    d->v->ack_cq_events(which, 1);
    return which == cq && context == d;
}

void
test_cq(void)
{
    struct ibv_comp_channel *ch = A->v->create_comp_channel(A->ctx);
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_wc wc[8];
    struct ibv_cq *cq, *which;
    struct end a, b;
    void *context;
    int n;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    cq = A->v->create_cq(A->ctx, 6, A, ch, 0);
    check(ch && cq && cq->cqe >= 6, "a CQ is at least as large as asked for");
    check(A->v->get_cq_event(ch, &which, &context) == EAGAIN,
          "a channel without an event: EAGAIN");
    A->v->destroy_qp(a.qp);
    A->v->destroy_cq(a.rcq);
    a.rcq = cq;
    a.qp = make_qp(&a, 16, 0, false);
    ovs_assert(a.qp && !start(&a, a.qp, 0, QKEY));
    post_recvs(&a, 100);
#define SEND(FLAGS) post(&b, ah, a.qp->qp_num, QKEY, 1, 30, FLAGS)
    SEND(0);
    check(!channel_event(A, ch, cq, 150), "not armed: no event");
    check(!ibv_req_notify_cq(cq, 0) && !channel_event(A, ch, cq, 100),
          "arming says nothing of what is there");
    SEND(0);
    check(channel_event(A, ch, cq, 2000), "armed: an event");
    SEND(0);
    check(!channel_event(A, ch, cq, 150) && poll_n(cq, wc, 3, 1000) == 3,
          "... one");
    ibv_req_notify_cq(cq, 1);
    SEND(0);
    check(!channel_event(A, ch, cq, 150), "solicited only: none for others");
    SEND(IBV_SEND_SOLICITED);
    check(channel_event(A, ch, cq, 2000), "... one for a solicited one");
    check(A->v->destroy_comp_channel(ch) == EBUSY, "a channel in use stays");
    poll_n(cq, wc, 2, 1000);
    drop_events(A);
    for (n = 0; n < cq->cqe + 2; n++) {
        SEND(n % 8 == 7 ? IBV_SEND_SIGNALED : 0);
        if (n % 8 == 7) {
            poll_one(b.scq, wc);
        }
    }
    check(wait_event(A, IBV_EVENT_CQ_ERR, cq, 2000),
          "a CQ that overflows: IBV_EVENT_CQ_ERR");
#undef SEND
    free_end(&a);
    check(!A->v->destroy_comp_channel(ch), "a channel goes after its CQs");
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}
