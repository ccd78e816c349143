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

#include <stdlib.h>
#include <unistd.h>
#include "byte-order.h"
#include "csum.h"
#include "ipoib-packet.h"
#include "ipoib-soft.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"

/* Checks of packets, the subnet, multicast, events and sizes. */

/* What a packet brings. */

void
test_packets(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    struct ibv_ah *global = make_ah(B, A->port.lid, &A->gid);
    struct ibv_ah *self = make_ah(A, A->port.lid, NULL);
    int mtu = ib_mtu_bytes(MIN(A->port.active_mtu, B->port.active_mtu));
    struct ib_grh *grh;
    struct ibv_wc wc;
    struct end a, b;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 8);
    check(sent(&b, ah, a.qp->qp_num, QKEY, 11, 100) && poll_one(a.rcq, &wc)
          && wc.opcode == IBV_WC_RECV && !wc.wr_id
          && wc.byte_len == IB_GRH_LEN + 100
          && filled(slot(&a, 0) + IB_GRH_LEN, 11, 100),
          "without a GRH: data at byte 40, which byte_len counts");
    check(!(wc.wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM)),
          "... neither IBV_WC_GRH nor IBV_WC_WITH_IMM");
    check(wc.src_qp == b.qp->qp_num && wc.slid == B->port.lid && wc.sl == 3
          && !wc.dlid_path_bits && !wc.pkey_index
          && wc.qp_num == a.qp->qp_num,
          "... src_qp, slid, sl, dlid_path_bits, pkey_index, qp_num");

    check(sent(&b, global, a.qp->qp_num, QKEY, 12, 101)
          && poll_one(a.rcq, &wc) && wc.wc_flags & IBV_WC_GRH
          && wc.byte_len == IB_GRH_LEN + 101
          && filled(slot(&a, 1) + IB_GRH_LEN, 12, 101),
          "with a GRH: IBV_WC_GRH, data at byte 40");
    grh = ALIGNED_CAST(struct ib_grh *, slot(&a, 1));
    check(ntohl(get_16aligned_be32(&grh->vtf)) == 0x6a554321
          && ntohs(grh->paylen) == 12 + 8 + 104 + 4
          && grh->nxthdr == IB_GRH_NXTHDR && grh->hoplimit == 9
          && !memcmp(&grh->sgid, &B->gid, 16)
          && !memcmp(&grh->dgid, &A->gid, 16), "... all of the GRH");
    check(sent(&b, ah, a.qp->qp_num, QKEY, 13, 0) && poll_one(a.rcq, &wc)
          && wc.byte_len == IB_GRH_LEN, "0 bytes");
    check(sent(&b, ah, a.qp->qp_num, QKEY, 14, mtu) && poll_one(a.rcq, &wc)
          && wc.byte_len == IB_GRH_LEN + mtu
          && filled(slot(&a, 3) + IB_GRH_LEN, 14, mtu), "%d bytes, the MTU",
          mtu);

    check(sent(&b, ah, a.qp->qp_num, QKEY + 1, 15, 30) && poll_none(a.rcq),
          "another Q_Key: sent well, not received");
    check(sent(&b, ah, a.qp->qp_num, 0x80000000, 16, 30)
          && poll_one(a.rcq, &wc), "a Q_Key with bit 31: the QP's own");
    check(sent(&b, ah, 0xfffff0, QKEY, 17, 30) && poll_none(a.rcq),
          "no such QP: sent well");
    B->v->destroy_ah(global);
    global = make_ah(B, 0xbffe, NULL);
    check(sent(&b, global, a.qp->qp_num, QKEY, 18, 30), "no such LID: sent "
          "well");
    set_state(&a, a.qp, IBV_QPS_RESET);
    check(sent(&b, ah, a.qp->qp_num, QKEY, 19, 30), "a QP in RESET: sent "
          "well");
    xnanosleep(100 * 1000 * 1000);
    start(&a, a.qp, 0, QKEY);
    post_recv(&a, 30, 0, IB_GRH_LEN + 50);
    post_recv(&a, 31, 1, SLOT);
    sent(&b, ah, a.qp->qp_num, QKEY, 20, 51);
    if (poll_n(a.rcq, &wc, 1, 100)) {
        check(wc.status == IBV_WC_LOC_LEN_ERR,
              "longer than the receive: a length error");
        start(&a, a.qp, 0, QKEY);
        post_recv(&a, 31, 1, SLOT);
    } else {
        check(sent(&b, ah, a.qp->qp_num, QKEY, 21, 50)
              && poll_one(a.rcq, &wc) && wc.wr_id == 30,
              "longer than the receive: lost, the receive stays");
    }
    check(sent(&a, self, a.qp->qp_num, QKEY, 22, 30) && poll_one(a.rcq, &wc)
          && wc.src_qp == a.qp->qp_num && wc.slid == A->port.lid,
          "to itself, by its own LID");
    post_recvs(&a, 1);
    B->v->destroy_ah(global);
    global = make_ah(B, A->port.lid, NULL);
    check(sent(&b, global, a.qp->qp_num, QKEY, 23, 30)
          && !B->v->destroy_ah(global) && poll_one(a.rcq, &wc),
          "an address handle goes after the completion");
    if (A->v == &ipoib_verbs_soft) {
        check(ipoib_soft_counter(A->ctx, "rx_bad_qkey")
              && ipoib_soft_counter(A->ctx, "rx_no_qp")
              && ipoib_soft_counter(A->ctx, "rx_qp_state")
              && ipoib_soft_counter(A->ctx, "rx_too_long")
              && ipoib_soft_counter(A->ctx, "rx_packets"),
              "what was dropped is counted");
    }
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah) && !A->v->destroy_ah(self));
}

void
test_scatter(void)
{
    struct ibv_ah *ah = make_ah(B, A->port.lid, &A->gid);
    struct ibv_sge rsge[2], ssge[2];
    struct ibv_recv_wr rwr = { .wr_id = 77, .sg_list = rsge, .num_sge = 2 };
    struct ibv_recv_wr *bad_recv;
    struct ibv_send_wr wr, *bad;
    struct ibv_wc wc;
    struct end a, b;

    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    rsge[0] = (struct ibv_sge) { addr_of(&a, 1), IB_GRH_LEN,
                                 a.mr->lkey };
    rsge[1] = (struct ibv_sge) { addr_of(&a, 2) + 1, 4096,
                                 a.mr->lkey };
    ssge[0] = (struct ibv_sge) { addr_of(&b, 1), 14, b.mr->lkey };
    ssge[1] = (struct ibv_sge) { addr_of(&b, 2) + 3, 500,
                                 b.mr->lkey };
    fill(slot(&b, 1), 0, 14);
    fill(slot(&b, 2) + 3, 2, 500);  /* Goes on where the first piece ends. */
    ud_wr(&wr, ssge, 1, IBV_SEND_SIGNALED, ah, a.qp->qp_num, QKEY);
    wr.num_sge = 2;
    check(!ibv_post_recv(a.qp, &rwr, &bad_recv)
          && !ibv_post_send(b.qp, &wr, &bad) && poll_one(b.scq, &wc)
          && !wc.status && poll_one(a.rcq, &wc) && wc.wr_id == 77
          && wc.byte_len == IB_GRH_LEN + 514
          && slot(&a, 1)[6] == IB_GRH_NXTHDR
          && filled(slot(&a, 2) + 1, 0, 514),
          "gathered of two pieces, scattered with the GRH apart");
    free_end(&a);
    free_end(&b);
    ovs_assert(!B->v->destroy_ah(ah));
}

void
test_path_bits(void)
{
    struct ibv_ah_attr attr;
    struct ibv_ah *ah;
    struct ibv_wc wc;
    struct end a, b;

    if (!control || A == B) {
        skip("path bits", "needs a control command and two devices");
        return;
    }
    subnet("lid %llx 16", guid_of(A));
    subnet("lid %llx 32", guid_of(B));
    subnet("lmc %llx 2", guid_of(A));
    subnet("lmc %llx 2", guid_of(B));
    xnanosleep(300 * 1000 * 1000);
    port_is(A, IBV_PORT_ACTIVE);
    port_is(B, IBV_PORT_ACTIVE);
    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    post_recvs(&a, 2);
    memset(&attr, 0, sizeof attr);
    attr.port_num = 1;
    attr.src_path_bits = 2;
    attr.dlid = A->port.lid + 3;
    ah = B->v->create_ah(B->pd, &attr);
    check(A->port.lmc == 2 && A->port.lid == 16 && B->port.lid == 32
          && sent(&b, ah, a.qp->qp_num, QKEY, 1, 30) && poll_one(a.rcq, &wc)
          && wc.dlid_path_bits == 3 && wc.slid == B->port.lid + 2,
          "LMC 2: path bits of both ends");
    free_end(&a);
    free_end(&b);
    B->v->destroy_ah(ah);
    subnet("lmc %llx 0", guid_of(A));
    subnet("lmc %llx 0", guid_of(B));
    xnanosleep(300 * 1000 * 1000);
    port_is(A, IBV_PORT_ACTIVE);
    port_is(B, IBV_PORT_ACTIVE);
}

static bool
pkeys_pass(struct end *a, struct end *b, struct ibv_ah *ah, int ia, int ib)
{
    struct ibv_wc wc;

    return (!start(a, a->qp, ia, QKEY) && !start(b, b->qp, ib, QKEY)
            && !post_recv(a, 1, 1, SLOT)
            && sent(b, ah, a->qp->qp_num, QKEY, 1, 30)
            && poll_n(a->rcq, &wc, 1, 200) == 1
            && wc.pkey_index == ia);
}

void
test_pkeys(void)
{
    struct ibv_ah *ah;
    struct end a, b;

    if (!control || A == B) {
        skip("P_Keys", "needs a control command and two devices");
        return;
    }
    subnet("pkeys %llx 0xffff,0x8005,0x0006,0x0007", guid_of(A));
    subnet("pkeys %llx 0xffff,0x8006,0x8005,0x0007", guid_of(B));
    xnanosleep(300 * 1000 * 1000);
    ah = make_ah(B, A->port.lid, NULL);
    make_end(&a, A, NULL);
    make_end(&b, B, NULL);
    check(pkeys_pass(&a, &b, ah, 1, 2), "P_Key 0x8005 at other indices");
    check(pkeys_pass(&a, &b, ah, 2, 1), "0x8006 to a limited 0x0006");
    check(!pkeys_pass(&a, &b, ah, 0, 2), "0x8005 to 0xffff: not received");
    check(!pkeys_pass(&a, &b, ah, 3, 3),
          "0x0007 to 0x0007, both limited: not received");
    check(start(&b, b.qp, B->port.pkey_tbl_len, QKEY) != 0,
          "an index beyond the table is refused");
    free_end(&a);
    free_end(&b);
    B->v->destroy_ah(ah);
    subnet("pkeys %llx 0xffff", guid_of(A));
    subnet("pkeys %llx 0xffff", guid_of(B));
    xnanosleep(300 * 1000 * 1000);
}

void
test_grh_required(void)
{
    long long int end = time_msec() + 2000;

    if (!control || !subnet("grh %llx on", guid_of(A))) {
        skip("a port that needs a GRH", "needs a control command that can");
        return;
    }
    while (!A->v->port_needs_grh(A->ctx, 1) && time_msec() < end) {
        xnanosleep(10 * 1000 * 1000);
    }
    check(A->v->port_needs_grh(A->ctx, 1) && port_is(A, IBV_PORT_ACTIVE)
          && A->port.flags & IBV_QPF_GRH_REQUIRED,
          "a port that needs a GRH says so");
    subnet("grh %llx off", guid_of(A));
}

/* The subnet administrator, asked over a QP of our own. */

static void
make_sa(struct end *e, struct dev *d)
{
    make_end(e, d, NULL);
    ovs_assert(!start(e, e->qp, 0, IB_QKEY_GSI));
    post_recvs(e, 8);
}

/* Asks the SA of 'e''s subnet.  'data' is the attribute, and becomes the
 * answer's.  With 'sgid' nonnull the question has a GRH.  Returns the status,
 * or -1 if there is no answer. */
static int
ask_sa(struct end *e, uint8_t method, uint16_t attr_id, uint32_t mask,
       void *data, size_t data_len, const union ibv_gid *dgid,
       bool *answer_grh)
{
    static uint32_t tid = 0x1000;
    struct ib_sa_mad *m
        = ALIGNED_CAST(struct ib_sa_mad *, slot(e, SEND_SLOT));
    struct ibv_sge sge = { (uintptr_t) m, sizeof *m, e->mr->lkey };
    struct ibv_ah *ah = make_ah(e->d, e->d->port.sm_lid, dgid);
    struct ibv_send_wr wr, *bad;
    struct ibv_wc wc;
    int status = -1;

    memset(m, 0, sizeof *m);
    m->base_version = IB_MAD_BASE_VERSION;
    m->mgmt_class = IB_MGMT_CLASS_SA;
    m->class_version = IB_SA_CLASS_VERSION;
    m->method = method;
    put_32aligned_be64(&m->tid, htonll(++tid));
    m->attr_id = htons(attr_id);
    m->comp_mask[1] = htonl(mask);
    memcpy(m->data, data, data_len);
    ud_wr(&wr, &sge, 1, IBV_SEND_SIGNALED, ah, IB_QPN_GSI, IB_QKEY_GSI);
    if (!ibv_post_send(e->qp, &wr, &bad) && poll_one(e->scq, &wc)
        && !wc.status) {
        while (status < 0 && poll_one(e->rcq, &wc)) {
            const uint8_t *p = slot(e, wc.wr_id);
            const struct ib_sa_mad *r
                = ALIGNED_CAST(const struct ib_sa_mad *, p + IB_GRH_LEN);

            if (!wc.status && wc.byte_len == IB_GRH_LEN + sizeof *r
                && wc.src_qp == IB_QPN_GSI && wc.slid == e->d->port.sm_lid
                && get_32aligned_be64(&r->tid) == htonll(tid)) {
                status = ntohs(r->status);
                memcpy(data, r->data, data_len);
                if (answer_grh) {
                    *answer_grh = (wc.wc_flags & IBV_WC_GRH
                                   && !memcmp(p + 24, &e->d->gid, 16));
                }
            }
            post_recv(e, wc.wr_id, wc.wr_id, SLOT);
        }
    }
    e->d->v->destroy_ah(ah);
    return status;
}

/* Joins a group, or leaves it.  Returns 0 on failure, otherwise the LID of the
 * group that was joined, or 1. */
static uint16_t
member(struct end *sa, const union ibv_gid *mgid, uint8_t state,
       uint8_t method)
{
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    memcpy(&rec.mgid, mgid, sizeof rec.mgid);
    memcpy(&rec.port_gid, &sa->d->gid, sizeof rec.port_gid);
    rec.qkey = htonl(QKEY);
    rec.pkey = htons(IB_PKEY_DEFAULT);
    rec.scope_join = state;
    if (ask_sa(sa, method, IB_ATTR_MCMEMBER_RECORD,
               method == IB_METHOD_SET
               ? IB_MCM_MGID | IB_MCM_PORT_GID | IB_MCM_QKEY | IB_MCM_TCLASS
                 | IB_MCM_PKEY | IB_MCM_SL | IB_MCM_FLOW | IB_MCM_JOIN
               : IB_MCM_MASK_LEAVE, &rec, sizeof rec, NULL, NULL)) {
        return 0;
    }
    return method == IB_METHOD_SET ? ntohs(rec.mlid) : 1;
}

void
test_sa(void)
{
    struct ib_class_port_info cpi;
    struct ib_path_record pr;
    union ibv_gid gid;
    bool grh = false;
    struct end e;

    make_sa(&e, A);
    memset(&cpi, 0, sizeof cpi);
    check(!ask_sa(&e, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, &cpi,
                  sizeof cpi, NULL, NULL)
          && cpi.class_version == IB_SA_CLASS_VERSION,
          "SA: ClassPortInfo, with Q_Key 0x80010000");
    gid = A->gid;
    gid.global.interface_id = htonll(UINT64_C(0x0200000000000002));
    memset(&cpi, 0, sizeof cpi);
    check(!ask_sa(&e, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, &cpi,
                  sizeof cpi, &gid, &grh) && grh,
          "SA: a question with a GRH has an answer with one");
    memset(&pr, 0, sizeof pr);
    memcpy(&pr.dgid, &B->gid, 16);
    memcpy(&pr.sgid, &A->gid, 16);
    pr.numb_path = 0x80 | 1;
    pr.pkey = htons(IB_PKEY_DEFAULT);
    check(!ask_sa(&e, IB_METHOD_GET, IB_ATTR_PATH_RECORD, IB_PR_MASK_IPOIB
                  | IB_PR_DGID | IB_PR_SGID, &pr, sizeof pr, NULL, NULL)
          && ntohs(pr.dlid) == B->port.lid && ntohs(pr.slid) == A->port.lid,
          "SA: PathRecord");
    memset(&pr, 0, sizeof pr);
    memset(&pr.dgid, 0x77, 16);
    memcpy(&pr.sgid, &A->gid, 16);
    check(ask_sa(&e, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                 IB_PR_DGID | IB_PR_SGID | IB_PR_NUMB_PATH, &pr, sizeof pr,
                 NULL, NULL) > 0, "SA: PathRecord of an unknown GID");
    free_end(&e);
}

/* Multicast. */

/* Counts the multicast packets at 'e'. */
static int
copies(struct end *e)
{
    struct ibv_wc wc;
    int n = 0;

    while (poll_n(e->rcq, &wc, 1, 100) == 1) {
        n += !wc.status && wc.wc_flags & IBV_WC_GRH;
        post_recv(e, wc.wr_id, wc.wr_id, SLOT);
    }
    return n;
}

static void
test_block_self(struct end *b, struct end *a, const union ibv_gid *mgid,
                uint16_t mlid, struct ibv_ah *ah)
{
    B->v->detach_mcast(b->qp, mgid, mlid);
    ovs_assert(!B->v->destroy_qp(b->qp));
    b->qp = make_qp(b, 16, 0, true);
    ovs_assert(b->qp && !start(b, b->qp, 0, QKEY));
    post_recvs(b, 4);
    if (B->v == &ipoib_verbs_hw) {
        skip("block_self_mcast", "depends on the device");
        B->v->attach_mcast(b->qp, mgid, mlid);
        return;
    }
    copies(a);
    check(!B->v->attach_mcast(b->qp, mgid, mlid)
          && sent(b, ah, IB_QPN_MULTICAST, QKEY, 1, 40) && copies(a) == 1
          && !copies(b), "block_self_mcast: its own do not come back");
}

void
test_mcast(void)
{
    union ibv_gid g1 = { .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff,
                                  [12] = 0xe1, [15] = 1 } };
    union ibv_gid g2 = g1, bad = A->gid;
    struct end sa_a, sa_b, a1, a2, b1;
    struct ibv_ah *ah1, *ah2;
    struct ibv_wc wc;
    uint16_t l1, l2;
    int error;

    g1.raw[13] = g2.raw[13] = getpid() >> 8;
    g1.raw[14] = g2.raw[14] = getpid();
    g2.raw[15] = 2;
    make_sa(&sa_a, A);
    make_sa(&sa_b, B);
    l1 = member(&sa_a, &g1, IB_JOIN_FULL, IB_METHOD_SET);
    l2 = member(&sa_a, &g2, IB_JOIN_FULL, IB_METHOD_SET);
    check(l1 >= IB_LID_MULTICAST && l2 >= IB_LID_MULTICAST
          && member(&sa_b, &g1, IB_JOIN_FULL, IB_METHOD_SET) == l1,
          "two groups; both ports join the first");
    make_end(&a1, A, NULL);
    make_end(&a2, A, NULL);
    make_end(&b1, B, NULL);
    post_recvs(&a1, 16);
    post_recvs(&a2, 16);
    post_recvs(&b1, 16);
    ah1 = make_ah(B, l1, &g1);
    ah2 = make_ah(B, l2, &g2);
#define SEND(AH) sent(&b1, AH, IB_QPN_MULTICAST, QKEY, 1, 40)
    check(SEND(ah1) && !copies(&a1) && !copies(&b1),
          "a member port without an attached QP: nothing comes");
    error = (A->v->attach_mcast(a1.qp, &g1, l1)
             || A->v->attach_mcast(a2.qp, &g1, l1)
             || A->v->attach_mcast(a1.qp, &g2, l2)
             || A->v->attach_mcast(a1.qp, &g1, l1));
    check(!error, "attached to several groups; twice is as once");
    check(A->v->attach_mcast(a1.qp, &bad, l1) != 0,
          "no attachment to a GID that is not multicast");
    check(SEND(ah1) && copies(&a1) == 1 && copies(&a2) == 1 && !copies(&b1),
          "a copy to each attached QP");
    check(SEND(ah2) && copies(&a1) == 1 && !copies(&a2),
          "only the group's QPs get one");
    check(SEND(ah1) && poll_one(a1.rcq, &wc) && wc.src_qp == b1.qp->qp_num
          && wc.slid == B->port.lid && wc.wc_flags & IBV_WC_GRH
          && wc.byte_len == IB_GRH_LEN + 40 && !wc.dlid_path_bits
          && !memcmp(slot(&a1, wc.wr_id) + 24, &g1, 16),
          "a copy has a GRH with the group as its DGID");
    post_recv(&a1, wc.wr_id, wc.wr_id, SLOT);
    copies(&a2);
    check(!B->v->attach_mcast(b1.qp, &g1, l1) && SEND(ah1)
          && copies(&a1) == 1 && copies(&b1) == 1,
          "the sender's own QP, attached, gets one, too");
    copies(&a2);
    check(sent(&b1, ah1, IB_QPN_MULTICAST, QKEY + 1, 1, 40)
          && !copies(&a1) && !copies(&b1), "another Q_Key: none");
    check(!A->v->detach_mcast(a1.qp, &g1, l1) && SEND(ah1) && !copies(&a1)
          && copies(&a2) == 1, "detached: none, the others still get it");
    check(A->v->detach_mcast(a1.qp, &g1, l1) != 0,
          "detached again: an error");
    copies(&b1);
    test_block_self(&b1, &a2, &g1, l1, ah1);
    check(member(&sa_a, &g1, IB_JOIN_FULL, IB_METHOD_DELETE)
          && member(&sa_a, &g2, IB_JOIN_FULL, IB_METHOD_DELETE)
          && (A == B || member(&sa_b, &g1, IB_JOIN_FULL, IB_METHOD_DELETE)),
          "all leave");
#undef SEND
    check(A->v->destroy_qp(a1.qp) == EBUSY, "an attached QP stays");
    A->v->detach_mcast(a1.qp, &g2, l2);
    A->v->detach_mcast(a2.qp, &g1, l1);
    B->v->detach_mcast(b1.qp, &g1, l1);
    B->v->destroy_ah(ah1);
    B->v->destroy_ah(ah2);
    free_end(&a1);
    free_end(&a2);
    free_end(&b1);
    free_end(&sa_a);
    free_end(&sa_b);
}

/* Events of the port. */

void
test_events(void)
{
    struct ibv_ah *ah;
    struct end e;
    ovs_be16 pkey;

    if (!control) {
        skip("events of the port", "needs a control command");
        return;
    }
    drop_events(A);
    subnet("lid %llx 77", guid_of(A));
    check(wait_event(A, IBV_EVENT_LID_CHANGE, NULL, 3000)
          && port_is(A, IBV_PORT_ACTIVE) && A->port.lid == 77,
          "IBV_EVENT_LID_CHANGE");
    subnet("smlid 99");
    check(wait_event(A, IBV_EVENT_SM_CHANGE, NULL, 3000)
          && port_is(A, IBV_PORT_ACTIVE) && A->port.sm_lid == 99,
          "IBV_EVENT_SM_CHANGE");
    subnet("smlid 1");
    wait_event(A, IBV_EVENT_SM_CHANGE, NULL, 3000);
    xnanosleep(100 * 1000 * 1000);
    drop_events(A);
    subnet("rereg %llx", guid_of(A));
    check(wait_event(A, IBV_EVENT_CLIENT_REREGISTER, NULL, 3000),
          "IBV_EVENT_CLIENT_REREGISTER");
    subnet("pkeys %llx 0xffff,0x8009", guid_of(A));
    check(wait_event(A, IBV_EVENT_PKEY_CHANGE, NULL, 3000)
          && !A->v->query_pkey(A->ctx, 1, 1, &pkey)
          && pkey == htons(0x8009), "IBV_EVENT_PKEY_CHANGE");
    subnet("pkeys %llx 0xffff", guid_of(A));
    wait_event(A, IBV_EVENT_PKEY_CHANGE, NULL, 3000);
    subnet("prefix fec0000000000000");
    check(wait_event(A, A->v == &ipoib_verbs_hw ? IBV_EVENT_CLIENT_REREGISTER
                     : IBV_EVENT_GID_CHANGE, NULL, 3000),
          "a new GID prefix: an event");
    xnanosleep(100 * 1000 * 1000);
    check(!A->v->query_gid(A->ctx, 1, 0, &A->gid) && A->gid.raw[1] == 0xc0,
          "... and another GID");
    subnet("prefix fe80000000000000");
    wait_event(A, IBV_EVENT_CLIENT_REREGISTER, NULL, 3000);
    subnet("state %llx 1", guid_of(A));
    check(wait_event(A, IBV_EVENT_PORT_ERR, NULL, 3000)
          && port_is(A, IBV_PORT_DOWN), "IBV_EVENT_PORT_ERR");
    make_end(&e, A, NULL);
    ah = make_ah(A, A->port.lid + 1, NULL);
    check(sent(&e, ah, 0x123, QKEY, 1, 30),
          "on a port that is down: lost, but completed well");
    free_end(&e);
    A->v->destroy_ah(ah);
    subnet("state %llx 4", guid_of(A));
    check(wait_event(A, IBV_EVENT_PORT_ACTIVE, NULL, 3000)
          && wait_port(A, IBV_PORT_ACTIVE), "IBV_EVENT_PORT_ACTIVE");
}

/* Size. */

static int
compare_u32(const void *a_, const void *b_)
{
    const uint32_t *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

void
test_many(int n)
{
    struct ibv_qp **qps = xcalloc(n, sizeof *qps);
    uint32_t *qpns = xcalloc(n, sizeof *qpns);
    struct ibv_ah *ah = make_ah(B, A->port.lid, NULL);
    int made, got = 0, dups = 0;
    struct end a, b;
    struct ibv_wc wc;
    uint32_t first;

    make_end(&a, A, make_srq(A, 1024));
    make_end(&b, B, NULL);
    post_recvs(&a, N_SLOTS);
    for (made = 0; made < n; made++) {
        qps[made] = make_qp(&a, 16, 0, false);
        if (!qps[made] || start(&a, qps[made], 0, QKEY)) {
            break;
        }
        qpns[made] = qps[made]->qp_num;
    }
    check(made == n, "%d QPs on one SRQ", made);
    for (int i = 0; i < made; i++) {
        if (sent(&b, ah, qpns[i], QKEY, i, 30) && poll_one(a.rcq, &wc)) {
            got += !wc.status && wc.qp_num == qpns[i];
            post_recv(&a, wc.wr_id, wc.wr_id, SLOT);
        }
    }
    check(got == made, "... each gets what is sent to it");
    first = made ? qpns[0] : 0;
    qsort(qpns, made, sizeof *qpns, compare_u32);
    for (int i = 1; i < made; i++) {
        dups += qpns[i] == qpns[i - 1];
    }
    check(!dups, "... and has a QPN of its own");
    for (int i = 0; i < made; i++) {
        ovs_assert(!A->v->destroy_qp(qps[i]));
    }
    if (A->v == &ipoib_verbs_soft && made) {
        qps[0] = make_qp(&a, 16, 0, false);
        check(qps[0] && qps[0]->qp_num != first
              && !bsearch(&qps[0]->qp_num, qpns, made, sizeof *qpns,
                          compare_u32), "a QPN is not soon used again");
        A->v->destroy_qp(qps[0]);
    }
    free_end(&a);
    free_end(&b);
    ovs_assert(!A->v->destroy_srq(a.srq) && !B->v->destroy_ah(ah));
    free(qps);
    free(qpns);
}

/* Several threads at once, each with QPs of its own, and QPs that come and go
 * meanwhile. */

#define N_THREADS 4

struct worker {
    pthread_t thread;
    struct end a, b;
    struct ibv_ah *ah;
    int n, got;
};

static void *
worker_main(void *w_)
{
    struct worker *w = w_;
    struct ibv_wc wc;

    for (int i = 0; i < w->n; i++) {
        struct ibv_qp *qp = i % 16 ? NULL : make_qp(&w->b, 4, 0, false);

        if (sent(&w->b, w->ah, w->a.qp->qp_num, QKEY, i, 200)
            && poll_one(w->a.rcq, &wc) && !wc.status
            && filled(slot(&w->a, wc.wr_id) + IB_GRH_LEN, i, 200)) {
            w->got++;
            post_recv(&w->a, wc.wr_id, wc.wr_id, SLOT);
        }
        if (qp) {
            B->v->destroy_qp(qp);
        }
        ovsrcu_quiesce();
    }
    return NULL;
}

void
test_threads(void)
{
    struct worker workers[N_THREADS];
    bool good = true;

    for (int i = 0; i < N_THREADS; i++) {
        struct worker *w = &workers[i];

        make_end(&w->a, A, NULL);
        make_end(&w->b, B, NULL);
        post_recvs(&w->a, 8);
        w->ah = make_ah(B, A->port.lid, NULL);
        w->n = 500;
        w->got = 0;
        w->thread = ovs_thread_create("worker", worker_main, w);
    }
    for (int i = 0; i < N_THREADS; i++) {
        struct worker *w = &workers[i];

        xpthread_join(w->thread, NULL);
        good &= w->got == w->n;
        free_end(&w->a);
        free_end(&w->b);
        B->v->destroy_ah(w->ah);
    }
    check(good, "%d threads at once", N_THREADS);
}

/* Neighbours that are made up: soft:loop?source&sink. */

/* Sends 'len' bytes at slot 0 of 'e' to 'gid' or 'lid'. */
static bool
send_slot(struct end *e, uint16_t lid, const union ibv_gid *gid,
          uint32_t qpn, uint32_t len)
{
    struct ibv_ah *ah = make_ah(e->d, lid, gid);
    struct ibv_sge sge = { addr_of(e, SEND_SLOT), len, e->mr->lkey };
    struct ibv_send_wr wr, *bad;
    struct ibv_wc wc;
    bool ok;

    ud_wr(&wr, &sge, 7, IBV_SEND_SIGNALED, ah, qpn, QKEY);
    ok = (!ibv_post_send(e->qp, &wr, &bad) && poll_one(e->scq, &wc)
          && !wc.status);
    e->d->v->destroy_ah(ah);
    return ok;
}

static void
put_arp_request(struct end *e, ovs_be32 spa, ovs_be32 tpa)
{
    struct ipoib_header *h
        = ALIGNED_CAST(struct ipoib_header *, slot(e, SEND_SLOT));
    struct ipoib_arp *arp = (struct ipoib_arp *) (h + 1);
    struct ib_gid gid;

    memcpy(&gid, &e->d->gid, sizeof gid);
    memset(h, 0, sizeof *h + sizeof *arp);
    h->type = htons(ETH_TYPE_ARP);
    arp->htype = htons(IPOIB_ARP_HTYPE);
    arp->ptype = htons(ETH_TYPE_IP);
    arp->hlen = IPOIB_ADDR_LEN;
    arp->plen = 4;
    arp->op = htons(ARP_OP_REQUEST);
    arp->sha = ipoib_addr_make(e->qp->qp_num, &gid);
    put_16aligned_be32(&arp->spa, spa);
    put_16aligned_be32(&arp->tpa, tpa);
}

/* Polls until a packet of 'type' comes, and returns it, or NULL. */
static const struct ipoib_header *
poll_type(struct end *e, uint16_t type, struct ibv_wc *wc)
{
    for (int i = 0; i < 1000; i++) {
        const struct ipoib_header *h;

        if (!poll_one(e->rcq, wc)) {
            return NULL;
        }
        h = ALIGNED_CAST(const struct ipoib_header *,
                         slot(e, wc->wr_id) + IB_GRH_LEN);
        post_recv(e, wc->wr_id, wc->wr_id, SLOT);
        if (h->type == htons(type)) {
            return h;
        }
    }
    return NULL;
}

static void
test_model_sink(struct end *e)
{
    const ovs_be32 spa = htonl(0x0a000001), tpa = htonl(0xc6130002);
    const struct ipoib_arp *arp = NULL;
    const struct ipoib_header *h;
    union ibv_gid mgid = { .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff } };
    struct ib_path_record pr;
    uint64_t sunk;
    struct ibv_wc wc;
    struct end sa;
    bool ok;

    memset(&mgid.raw[12], 0xff, 4);
    put_arp_request(e, spa, tpa);
    ok = send_slot(e, 0xc000, &mgid, IB_QPN_MULTICAST, 60);
    for (int i = 0; ok && i < 10; i++) {
        h = poll_type(e, ETH_TYPE_ARP, &wc);
        arp = h ? ipoib_arp_parse(h + 1, wc.byte_len - 44) : NULL;
        if (!arp || arp->op == htons(ARP_OP_REPLY)) {
            break;
        }
    }
    check(arp && arp->op == htons(ARP_OP_REPLY)
          && get_16aligned_be32(&arp->spa) == tpa
          && get_16aligned_be32(&arp->tpa) == spa
          && ipoib_addr_qpn(&arp->sha) == wc.src_qp,
          "sink: a made-up neighbour answers ARP");
    make_sa(&sa, e->d);
    memset(&pr, 0, sizeof pr);
    if (arp) {
        memcpy(&pr.dgid, &arp->sha.gid, 16);
    }
    memcpy(&pr.sgid, &e->d->gid, 16);
    pr.numb_path = 1;
    check(!ask_sa(&sa, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                  IB_PR_DGID | IB_PR_SGID | IB_PR_NUMB_PATH, &pr, sizeof pr,
                  NULL, NULL) && ntohs(pr.dlid) == wc.slid,
          "sink: its path is known");
    free_end(&sa);
    sunk = ipoib_soft_counter(e->d->ctx, "sink_packets");
    h = ALIGNED_CAST(const struct ipoib_header *, slot(e, SEND_SLOT));
    memset(slot(e, SEND_SLOT), 0, 100);
    CONST_CAST(struct ipoib_header *, h)->type = htons(ETH_TYPE_IP);
    check(send_slot(e, ntohs(pr.dlid), NULL, wc.src_qp, 100)
          && ipoib_soft_counter(e->d->ctx, "sink_packets") == sunk + 1,
          "sink: it takes a packet");
}

void
test_model(void)
{
    const struct ipoib_header *h;
    const struct ip_header *ip;
    unsigned int seen = 0;
    bool good = true;
    struct ibv_wc wc;
    struct dev d;
    struct end e;

    memset(&d, 0, sizeof d);
    open_dev(&d, "soft:loop?source&sink&neighbours=5&size=100&dst=10.9.8.7");
    wait_port(&d, IBV_PORT_ACTIVE);
    make_end(&e, &d, make_srq(&d, 64));
    post_recvs(&e, 64);
    for (int i = 0; i < 50; i++) {
        h = poll_type(&e, ETH_TYPE_IP, &wc);
        ip = h ? (const struct ip_header *) (h + 1) : NULL;
        good &= (ip && wc.byte_len == IB_GRH_LEN + 104
                 && ntohs(ip->ip_tot_len) == 100
                 && !csum(ip, sizeof *ip)
                 && get_16aligned_be32(&ip->ip_dst) == htonl(0x0a090807));
        if (ip) {
            seen |= 1u << (ntohl(get_16aligned_be32(&ip->ip_src))
                           - 0xc6130001);
        }
    }
    check(good && seen == 0x1f, "source: packets of all neighbours, in turn");
    test_model_sink(&e);
    h = poll_type(&e, ETH_TYPE_IP, &wc);
    ip = h ? (const struct ip_header *) (h + 1) : NULL;
    check(ip && get_16aligned_be32(&ip->ip_dst) == htonl(0x0a000001),
          "source: packets go to the address that was announced");
    free_end(&e);
    d.v->destroy_srq(e.srq);
    d.v->dealloc_pd(d.pd);
    d.v->close_device(d.ctx);
}

/* A fabric that comes late, goes away, and comes again. */

static bool
run(const char *command)
{
    return !system(command);
}

static bool
wait_state(struct dev *d, enum ibv_port_state state, int ms)
{
    long long int end = time_msec() + ms;

    while (!port_is(d, state)) {
        if (time_msec() > end) {
            return false;
        }
        ovsrcu_quiesce();
        xnanosleep(10 * 1000 * 1000);
    }
    return true;
}

/* 'd' is opened and there is no fabric.  The shell commands 'start_fabric' and
 * 'stop_fabric' start it and end it. */
void
test_attach(struct dev *d, const char *start_fabric, const char *stop_fabric)
{
    bool udp = strstr(d->name, "udp:");
    uint16_t lid;
    struct ibv_ah *ah;
    struct ibv_wc wc;
    struct end e;

    check(port_is(d, IBV_PORT_DOWN) && d->port.active_mtu,
          "no fabric: the device opens, its port is down");
    make_end(&e, d, NULL);
    post_recvs(&e, 8);
    ah = make_ah(d, 1, NULL);
    check(sent(&e, ah, 1, QKEY, 1, 30), "... sends complete well");
    d->v->destroy_ah(ah);
    drop_events(d);
    check(run(start_fabric) && wait_event(d, IBV_EVENT_PORT_ACTIVE, NULL, 1500)
          && wait_event(d, IBV_EVENT_CLIENT_REREGISTER, NULL, 500)
          && port_is(d, IBV_PORT_ACTIVE) && d->port.lid,
          "it starts: PORT_ACTIVE, and CLIENT_REREGISTER");
    lid = d->port.lid;
    ah = make_ah(d, lid, NULL);
    check(sent(&e, ah, e.qp->qp_num, QKEY, 2, 30) && poll_one(e.rcq, &wc),
          "... packets pass");
    check(run(stop_fabric)
          && (udp || (wait_event(d, IBV_EVENT_PORT_ERR, NULL, 1500)
                      && wait_state(d, IBV_PORT_DOWN, 100))),
          "it ends: PORT_ERR");
    d->v->destroy_ah(ah);
    ah = make_ah(d, lid + 1, NULL);
    for (int i = 0; i < 4; i++) {
        sent(&e, ah, e.qp->qp_num, QKEY, 2, 30);
        xnanosleep(20 * 1000 * 1000);
    }
    drop_events(d);
    check(run(start_fabric)
          && (udp || wait_event(d, IBV_EVENT_PORT_ACTIVE, NULL, 1500))
          && wait_event(d, IBV_EVENT_CLIENT_REREGISTER, NULL, 1500)
          && wait_state(d, IBV_PORT_ACTIVE, 100),
          "it starts again: PORT_ACTIVE, and CLIENT_REREGISTER");
    d->v->destroy_ah(ah);
    ah = make_ah(d, d->port.lid, NULL);
    check(sent(&e, ah, e.qp->qp_num, QKEY, 3, 30) && poll_one(e.rcq, &wc)
          && wc.src_qp == e.qp->qp_num,
          "... packets pass, through the same QP");
    d->v->destroy_ah(ah);
    free_end(&e);
}
