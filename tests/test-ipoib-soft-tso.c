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
#include "ipoib-proof-private.h"

#include <netinet/in.h>
#include <string.h>
#include "csum.h"
#include "ipoib-packet.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "packets.h"
#include "unaligned.h"
#include "util.h"

/* TCP that a software HCA cuts into segments: what is beyond the trial of
 * ipoib-proof.h, which compares them byte for byte. */

#define HLEN (IPOIB_HEADER_LEN + IP_HEADER_LEN + TCP_HEADER_LEN)
#define MSS 100
#define N_SEGMENTS 70           /* More than go out at a time. */
#define LEN (N_SEGMENTS * MSS - 1)
#define SLOT 256

/* In memory that the device reads and writes. */
struct buffers {
    uint8_t data[LEN];
    uint8_t received[N_SEGMENTS + 1][SLOT];
};

static struct ipoib_proof_params
open_device(const char *name)
{
    const struct ipoib_verbs *verbs = ipoib_verbs_for_device(name);
    struct ipoib_proof_params params = { .verbs = verbs };
    struct ibv_port_attr port;

    params.ctx = verbs->open_device(name, NULL);
    ovs_assert(params.ctx);
    params.pd = verbs->alloc_pd(params.ctx);
    ovs_assert(!verbs->query_port(params.ctx, 1, &port));
    params.lid = port.lid;
    params.ud = (struct ipoib_ud_params) { .port = 1, .qkey = 0xb1b };
    return params;
}

static void
close_device(const struct ipoib_proof_params *params)
{
    ovs_assert(!params->verbs->dealloc_pd(params->pd));
    ovs_assert(!params->verbs->close_device(params->ctx));
}

static struct buffers *
open_loop(struct ipoib_proof_loop *loop,
          const struct ipoib_proof_params *params)
{
    struct buffers *b;

    ovs_assert(!ipoib_proof_loop_open(loop, params, sizeof *b, 4,
                                      N_SEGMENTS + 1, true));
    b = loop->mem;
    for (size_t i = 0; i < LEN; i++) {
        b->data[i] = i * 31 + i / 256;
    }
    for (size_t i = 0; i <= N_SEGMENTS; i++) {
        ovs_assert(!ipoib_proof_loop_recv(loop, i, b->received[i], SLOT));
    }
    return b;
}

static void
make_headers(uint8_t *h)
{
    struct ipoib_header *ipoib = ALIGNED_CAST(struct ipoib_header *, h);
    struct ip_header *nh = ALIGNED_CAST(struct ip_header *, ipoib + 1);
    struct tcp_header *tcp = ALIGNED_CAST(struct tcp_header *, nh + 1);

    memset(h, 0, HLEN);
    ipoib->type = htons(ETH_TYPE_IP);
    nh->ip_ihl_ver = IP_IHL_VER(5, 4);
    nh->ip_ttl = 64;
    nh->ip_proto = IPPROTO_TCP;
    nh->ip_id = htons(7);
    put_16aligned_be32(&nh->ip_src, htonl(0x0a000001));
    put_16aligned_be32(&nh->ip_dst, htonl(0x0a000002));
    put_16aligned_be32(&tcp->tcp_seq, htonl(1000));
    tcp->tcp_ctl = TCP_CTL(TCP_PSH | TCP_ACK | TCP_CWR, 5);
}

/* Posts the data in two pieces, the first one of 'first' bytes. */
static int
post(struct ipoib_proof_loop *loop, uint8_t *headers, size_t hlen, size_t mss,
     size_t first, unsigned int flags)
{
    struct buffers *b = loop->mem;
    struct ibv_sge sges[2] = {
        { (uintptr_t) b->data, first, loop->mr->lkey },
        { (uintptr_t) b->data + first, LEN - first, loop->mr->lkey },
    };
    struct ibv_send_wr wr = {
        .wr_id = 99,
        .sg_list = sges,
        .num_sge = first < LEN ? 2 : 1,
        .opcode = IBV_WR_TSO,
        .send_flags = flags,
        .wr.ud = { loop->ah, loop->qp->qp_num, loop->params.ud.qkey },
        .tso = { headers, hlen, mss },
    };
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(loop->qp, &wr, &bad);

    ovs_assert(bad == (error ? &wr : NULL));
    return error;
}

/* Segment 'i' is right. */
static void
check_segment(const struct buffers *b, size_t i, size_t len)
{
    const uint8_t *h = b->received[i] + IB_GRH_LEN;
    const uint8_t *ip = h + IPOIB_HEADER_LEN, *tcp = ip + IP_HEADER_LEN;
    size_t n = i < N_SEGMENTS - 1 ? MSS : LEN % MSS;
    size_t l4_len = TCP_HEADER_LEN + n;
    uint8_t flags = (TCP_ACK | (i ? 0 : TCP_CWR)
                     | (i < N_SEGMENTS - 1 ? 0 : TCP_PSH));
    uint32_t sum;

    ovs_assert(len == IB_GRH_LEN + HLEN + n);
    ovs_assert(!ip[2] && ip[3] == IP_HEADER_LEN + l4_len);
    ovs_assert(ip[4] == 0 && ip[5] == 7 + i);
    ovs_assert(!csum(ip, IP_HEADER_LEN));
    ovs_assert(get_unaligned_be32(ALIGNED_CAST(const ovs_be32 *, tcp + 4))
               == htonl(1000 + i * MSS));
    ovs_assert(tcp[13] == flags);
    sum = csum_continue(0, ip + 12, 8);
    sum = csum_add16(sum, htons(IPPROTO_TCP));
    sum = csum_add16(sum, htons(l4_len));
    ovs_assert(!csum_finish(csum_continue(sum, tcp, l4_len)));
    ovs_assert(!memcmp(h + HLEN, b->data + i * MSS, n));
}

/* One request has become all segments, in order, and one completion. */
static void
check_arrived(struct ipoib_proof_loop *loop)
{
    size_t n = 0, n_sent = 0;
    struct ibv_wc wc;

    while (ipoib_proof_loop_poll(loop, &wc)) {
        ovs_assert(wc.status == IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV) {
            ovs_assert(wc.wr_id == n);
            check_segment(loop->mem, n++, wc.byte_len);
        } else {
            ovs_assert(wc.wr_id == 99);
            n_sent++;
        }
    }
    ovs_assert(n == N_SEGMENTS && n_sent == 1);
}

static void
test_pieces(const struct ipoib_proof_params *params, size_t first)
{
    struct ipoib_proof_loop loop;
    uint8_t headers[HLEN];

    open_loop(&loop, params);
    make_headers(headers);
    ovs_assert(!post(&loop, headers, HLEN, MSS, first, IBV_SEND_IP_CSUM));
    check_arrived(&loop);
    ipoib_proof_loop_close(&loop);
}

/* What is posted while the queue drains is sent later, with the headers that
 * were there. */
static void
test_drained(const struct ipoib_proof_params *params)
{
    const struct ipoib_verbs *verbs = params->verbs;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
    struct ipoib_proof_loop loop;
    uint8_t headers[HLEN];
    struct ibv_wc wc;

    open_loop(&loop, params);
    make_headers(headers);
    ovs_assert(!verbs->modify_qp(loop.qp, &attr, IBV_QP_STATE));
    ovs_assert(!post(&loop, headers, HLEN, MSS, LEN, IBV_SEND_IP_CSUM));
    memset(headers, 0xff, sizeof headers);
    ovs_assert(!ipoib_proof_loop_poll(&loop, &wc));
    attr.qp_state = IBV_QPS_RTS;
    ovs_assert(!verbs->modify_qp(loop.qp, &attr, IBV_QP_STATE));
    check_arrived(&loop);
    ipoib_proof_loop_close(&loop);
}

/* Requests that are none, and those that fail. */
static void
test_refused(const struct ipoib_proof_params *params)
{
    struct ipoib_proof_loop loop;
    uint8_t headers[IPOIB_VERBS_TSO_HEADER + 1];
    struct ibv_wc wc;

    for (int i = 0; i < 3; i++) {
        open_loop(&loop, params);
        make_headers(headers);
        ovs_assert(post(&loop, NULL, HLEN, MSS, LEN, 0));
        ovs_assert(post(&loop, headers, 0, MSS, LEN, 0));
        ovs_assert(post(&loop, headers, sizeof headers, MSS, LEN, 0));
        ovs_assert(post(&loop, headers, HLEN, 0, LEN, 0));
        ovs_assert(post(&loop, headers, HLEN, MSS, LEN, IBV_SEND_INLINE));
        ovs_assert(!ipoib_proof_loop_poll(&loop, &wc));

        /* No TCP; other headers than it says; too long for the port. */
        headers[IPOIB_HEADER_LEN + 9] = i == 0 ? IPPROTO_UDP : IPPROTO_TCP;
        ovs_assert(!post(&loop, headers, HLEN + (i == 1),
                         i == 2 ? 5000 : MSS, LEN, 0));
        ovs_assert(ipoib_proof_loop_poll(&loop, &wc));
        ovs_assert(wc.wr_id == 99 && wc.status == IBV_WC_LOC_LEN_ERR);
        ovs_assert(!ipoib_proof_loop_poll(&loop, &wc));
        ipoib_proof_loop_close(&loop);
    }

    ovs_assert(!ipoib_proof_loop_open(&loop, params, sizeof(struct buffers),
                                      4, 4, false));
    make_headers(headers);
    ovs_assert(post(&loop, headers, HLEN, MSS, LEN, 0));
    ipoib_proof_loop_close(&loop);
}

/* A device that does not offer it. */
static void
test_none(void)
{
    struct ipoib_proof_params params = open_device("soft:loop?csum=good");
    struct ipoib_proof_loop loop;

    ovs_assert(!ipoib_verbs_max_tso(params.verbs, params.ctx));
    ovs_assert(ipoib_proof_loop_open(&loop, &params, sizeof(struct buffers),
                                     4, 4, true));
    ipoib_proof_loop_close(&loop);
    close_device(&params);
}

static void
test_ipoib_soft_tso_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct ipoib_proof_params params = open_device("soft:loop?csum=good"
                                                   "&tso=good");

    ovs_assert(ipoib_verbs_max_tso(params.verbs, params.ctx) >= 65536);
    test_pieces(&params, LEN);
    test_pieces(&params, 1);
    test_pieces(&params, 33 * MSS);
    test_pieces(&params, LEN - 50);
    test_drained(&params);
    test_refused(&params);
    close_device(&params);
    test_none();
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-soft-tso", test_ipoib_soft_tso_main);
