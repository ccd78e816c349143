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
#include "ipoib-proof-private.h"

#include <netinet/in.h>
#include <string.h>
#include "csum.h"
#include "dp-packet.h"
#include "ipoib-offload.h"
#include "ipoib-packet.h"
#include "packets.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

/* The long packets.  What counts up from segment to segment passes the end of
 * its numbers, and the flags are those that not all segments have. */
static const struct {
    bool v4;
    uint8_t tcp_hlen;
    uint16_t len;               /* Behind TCP's header. */
} cases[] = {
    { true, TCP_HEADER_LEN, 1400 },
    { true, 60, 2048 },
    { false, TCP_HEADER_LEN + 12, 1401 },
    { false, 60, 513 },
};
#define N_CASES ARRAY_SIZE(cases)
#define MSS 512
#define MAX_SEGMENTS 4          /* Of a packet. */
#define MAX_LEN (IPV6_HEADER_LEN + 60 + MAX_SEGMENTS * MSS)
#define MAX_RECEIVES (N_CASES * MAX_SEGMENTS)

/* In memory that the device reads and writes. */
struct tso_buffers {
    uint8_t sent[N_CASES][IPOIB_HEADER_LEN + MAX_LEN];
    uint8_t received[MAX_RECEIVES][IB_GRH_LEN + IPOIB_VERBS_TSO_HEADER + MSS];
};

struct ipoib_proof_tso {
    struct ipoib_proof_loop loop;
    struct tso_buffers *buffers; /* 'loop.mem'. */
    struct wanted {
        struct dp_packet *segment; /* From the IPoIB header on. */
        bool arrived;
    } wanted[MAX_RECEIVES];
    size_t n_wanted, n_arrived;
    bool refused;               /* The device did not take a packet. */
    bool wrong;                 /* What has arrived is not what is wanted. */
    long long int deadline;
};

/* Makes packet 'i' at 'ip', complete but for its checksums.  Returns its
 * length. */
static size_t
compose(uint8_t *ip, size_t i)
{
    size_t l4_ofs = cases[i].v4 ? IP_HEADER_LEN : IPV6_HEADER_LEN;
    size_t l4_len = cases[i].tcp_hlen + cases[i].len;
    struct tcp_header *tcp = ALIGNED_CAST(struct tcp_header *, ip + l4_ofs);

    for (size_t j = 0; j < l4_len; j++) {
        ip[l4_ofs + j] = 7 * j + j / MSS + i;
    }
    if (cases[i].v4) {
        struct ip_header *nh = ALIGNED_CAST(struct ip_header *, ip);

        nh->ip_ihl_ver = IP_IHL_VER(5, 4);
        nh->ip_tot_len = htons(IP_HEADER_LEN + l4_len);
        nh->ip_id = htons(0xfffe);
        nh->ip_frag_off = htons(IP_DONT_FRAGMENT);
        nh->ip_ttl = 1;
        nh->ip_proto = IPPROTO_TCP;
        put_16aligned_be32(&nh->ip_src, htonl(0xc6120001)); /* RFC 2544. */
        put_16aligned_be32(&nh->ip_dst, htonl(0xc6130002));
        nh->ip_csum = csum(nh, sizeof *nh);
    } else {
        ip[0] = 6 << 4;
        put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, ip + 4), htons(l4_len));
        ip[6] = IPPROTO_TCP;
        ip[7] = 1;
        for (size_t j = 8; j < IPV6_HEADER_LEN; j++) {
            ip[j] = j;
        }
        ip[8] = ip[24] = 0xfd;  /* RFC 4193. */
    }
    put_16aligned_be32(&tcp->tcp_seq, htonl(UINT32_MAX - MSS / 2));
    tcp->tcp_ctl = TCP_CTL(TCP_FIN | TCP_PSH | TCP_ACK | TCP_CWR,
                           cases[i].tcp_hlen / 4);
    memset(tcp + 1, 1, cases[i].tcp_hlen - TCP_HEADER_LEN); /* No-ops. */
    return l4_ofs + l4_len;
}

/* Makes the segments that are to come of 'packet', an Ethernet frame whose
 * parts are 'o'. */
static void
make_wanted(struct ipoib_proof_tso *t, const struct dp_packet *packet,
            const struct ipoib_offload *o)
{
    struct ipoib_segments segs;
    struct dp_packet *segment;
    size_t hlen = o->l4_ofs + TCP_HEADER_LEN;
    bool ok;

    ok = ipoib_segments_init(&segs, packet, o, hlen + 40 + MSS, MSS);
    ovs_assert(ok);
    while ((segment = ipoib_segments_next(&segs))) {
        struct ipoib_header *header;

        dp_packet_pull(segment, ETH_HEADER_LEN);
        header = dp_packet_push_zeros(segment, sizeof *header);
        header->type = htons(o->v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
        ovs_assert(t->n_wanted < MAX_RECEIVES);
        t->wanted[t->n_wanted++].segment = segment;
    }
}

/* Makes packet 'i' in 'sent', as it is to be sent, and what is to come of it.
 * Returns the length of its headers. */
static size_t
prepare(struct ipoib_proof_tso *t, size_t i)
{
    struct ipoib_header *header
        = ALIGNED_CAST(struct ipoib_header *, t->buffers->sent[i]);
    struct dp_packet *packet = dp_packet_new(ETH_HEADER_LEN + MAX_LEN);
    struct eth_header *eth = dp_packet_put_zeros(packet, sizeof *eth);
    uint8_t *ip = dp_packet_put_zeros(packet, MAX_LEN);
    struct ipoib_offload o;
    size_t len = compose(ip, i);
    bool ok;

    eth->eth_type = htons(cases[i].v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
    dp_packet_set_size(packet, ETH_HEADER_LEN + len);
    ok = ipoib_offload_parse(packet, &o);
    ovs_assert(ok);
    make_wanted(t, packet, &o);
    ipoib_offload_prepare(&o);
    header->type = eth->eth_type;
    memcpy(header + 1, ip, len);
    dp_packet_delete(packet);
    return IPOIB_HEADER_LEN + o.l4_ofs + cases[i].tcp_hlen;
}

static int
post_send(struct ipoib_proof_tso *t, size_t i, size_t hlen)
{
    uint8_t *sent = t->buffers->sent[i];
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_TSO,
        .send_flags = IBV_SEND_IP_CSUM,
        .tso = { .hdr = sent, .hdr_sz = hlen, .mss = MSS },
    };

    return ipoib_proof_loop_send(&t->loop, &wr, sent + hlen, cases[i].len);
}

struct ipoib_proof_tso *
ipoib_proof_tso_create(const struct ipoib_proof_params *params)
{
    struct ipoib_proof_tso *t = xzalloc(sizeof *t);
    int error = ipoib_proof_loop_open(&t->loop, params, sizeof *t->buffers,
                                      N_CASES, MAX_RECEIVES, true);

    t->buffers = t->loop.mem;
    for (size_t i = 0; i < MAX_RECEIVES && !error; i++) {
        error = ipoib_proof_loop_recv(&t->loop, i, t->buffers->received[i],
                                      sizeof t->buffers->received[i]);
    }
    if (error) {
        ipoib_proof_tso_destroy(t);
        return NULL;
    }
    for (size_t i = 0; i < N_CASES; i++) {
        t->refused |= post_send(t, i, prepare(t, i)) != 0;
    }
    t->deadline = time_msec() + IPOIB_PROOF_TIMEOUT;
    return t;
}

void
ipoib_proof_tso_destroy(struct ipoib_proof_tso *t)
{
    if (t) {
        ipoib_proof_loop_close(&t->loop);
        for (size_t i = 0; i < t->n_wanted; i++) {
            dp_packet_delete(t->wanted[i].segment);
        }
        free(t);
    }
}

static void
receive(struct ipoib_proof_tso *t, const struct ibv_wc *wc)
{
    const uint8_t *payload = t->buffers->received[wc->wr_id] + IB_GRH_LEN;
    size_t len = wc->byte_len - IB_GRH_LEN;

    for (size_t i = 0; i < t->n_wanted; i++) {
        struct wanted *w = &t->wanted[i];

        if (!w->arrived && dp_packet_size(w->segment) == len
            && !memcmp(dp_packet_data(w->segment), payload, len)) {
            w->arrived = true;
            t->n_arrived++;
            return;
        }
    }
    t->wrong = true;
}

bool
ipoib_proof_tso_run(struct ipoib_proof_tso *t,
                    struct ipoib_proof_params *params,
                    struct ipoib_proof_verdict *verdict, bool *lost)
{
    struct ibv_wc wc;

    while (ipoib_proof_loop_poll(&t->loop, &wc)) {
        if (wc.status != IBV_WC_SUCCESS) {
            t->refused = true;
        } else if (wc.opcode == IBV_WC_RECV) {
            receive(t, &wc);
        }
    }
    *params = t->loop.params;
    *lost = false;
    *verdict = (struct ipoib_proof_verdict) { .proven = false };
    if (t->refused) {
        verdict->reason = "the device refused a long packet";
    } else if (t->wrong) {
        verdict->reason = "the device sent a wrong segment";
    } else if (t->n_arrived == t->n_wanted) {
        verdict->proven = true;
    } else if (time_msec() < t->deadline) {
        return false;
    } else {
        verdict->reason = "a segment to ourselves did not arrive";
        *lost = true;
    }
    return true;
}
