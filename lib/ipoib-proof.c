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
#include "ipoib-offload.h"
#include "ipoib-packet.h"
#include "openvswitch/poll-loop.h"
#include "packets.h"
#include "timeval.h"
#include "util.h"

#define MAX_TRIALS 3
#define POLL_INTERVAL 5

/* The packets.  In those to be sent complete, one checksum may be wrong; of
 * the others, the device is to compute them. */
enum wrong { RIGHT, WRONG_IP, WRONG_L4 };
static const struct {
    bool v4;
    uint8_t proto;
    enum wrong wrong;
    bool offload;
} cases[] = {
    { true, IPPROTO_TCP, RIGHT, false },
    { true, IPPROTO_UDP, RIGHT, false },
    { true, IPPROTO_TCP, WRONG_IP, false },
    { true, IPPROTO_TCP, WRONG_L4, false },
    { true, IPPROTO_UDP, WRONG_L4, false },
    { true, IPPROTO_TCP, RIGHT, true },
    { true, IPPROTO_UDP, RIGHT, true },
    { false, IPPROTO_TCP, RIGHT, true },
    { false, IPPROTO_UDP, RIGHT, true },
};
#define N_CASES ARRAY_SIZE(cases)

/* Lengths of data behind the headers: of both parities. */
#define DATA_LEN(I) (64 + (I) % 2)
#define MAX_PAYLOAD 256

/* In memory that the device reads and writes. */
struct trial_buffers {
    uint8_t sent[N_CASES][MAX_PAYLOAD];
    uint8_t received[N_CASES][IB_GRH_LEN + MAX_PAYLOAD];
};

struct ipoib_proof_trial {
    struct ipoib_proof_loop loop;
    struct trial_buffers *buffers; /* 'loop.mem'. */
    uint8_t wanted[N_CASES][MAX_PAYLOAD]; /* What is to come. */
    size_t lens[N_CASES];
    bool refused[N_CASES];      /* The device did not take it. */
    bool arrived[N_CASES];
    bool intact[N_CASES];       /* It is what was wanted. */
    bool found_good[N_CASES];   /* By the device. */
    size_t n_done;              /* Of those that have arrived or were
                                 * refused. */
    long long int deadline;
};


/* Packets. */

static size_t
l4_ofs_of(size_t i)
{
    return (IPOIB_HEADER_LEN
            + (cases[i].v4 ? IP_HEADER_LEN : IPV6_HEADER_LEN));
}

/* Where the checksum of layer 4 is. */
static uint8_t *
l4_csum_of(uint8_t *payload, size_t i)
{
    return (payload + l4_ofs_of(i)
            + (cases[i].proto == IPPROTO_TCP
               ? offsetof(struct tcp_header, tcp_csum)
               : offsetof(struct udp_header, udp_csum)));
}

static void
put_ip(uint8_t *ip, size_t i, size_t l4_len)
{
    if (cases[i].v4) {
        struct ip_header *nh = ALIGNED_CAST(struct ip_header *, ip);

        nh->ip_ihl_ver = IP_IHL_VER(5, 4);
        nh->ip_tot_len = htons(IP_HEADER_LEN + l4_len);
        nh->ip_ttl = 1;
        nh->ip_proto = cases[i].proto;
        put_16aligned_be32(&nh->ip_src, htonl(0xc6120001)); /* RFC 2544. */
        put_16aligned_be32(&nh->ip_dst, htonl(0xc6130002));
        nh->ip_csum = csum(nh, sizeof *nh);
    } else {
        ip[0] = 6 << 4;
        ip[5] = l4_len;
        ip[6] = cases[i].proto;
        ip[7] = 1;
        for (size_t j = 8; j < IPV6_HEADER_LEN; j++) {
            ip[j] = j;
        }
        ip[8] = ip[24] = 0xfd;  /* RFC 4193. */
    }
}

/* Makes packet 'i': in 'wanted' complete, in 'sent' as it is to be sent. */
static void
trial_compose(struct ipoib_proof_trial *t, size_t i)
{
    size_t hlen = cases[i].proto == IPPROTO_TCP ? TCP_HEADER_LEN
                  : UDP_HEADER_LEN;
    size_t l4_ofs = l4_ofs_of(i), l4_len = hlen + DATA_LEN(i);
    ovs_be16 type = htons(cases[i].v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
    uint8_t *sent = t->buffers->sent[i], *ip = sent + IPOIB_HEADER_LEN;
    struct ipoib_offload o;

    t->lens[i] = l4_ofs + l4_len;
    for (size_t j = l4_ofs; j < t->lens[i]; j++) {
        sent[j] = 7 * j + i;
    }
    memcpy(sent, &type, sizeof type);
    put_ip(ip, i, l4_len);
    sent[l4_ofs] = 0xc0;        /* Port. */
    sent[l4_ofs + 1] = i;
    if (cases[i].proto == IPPROTO_TCP) {
        sent[l4_ofs + 12] = 5 << 4;
    } else {
        sent[l4_ofs + 4] = 0;
        sent[l4_ofs + 5] = l4_len;
    }

    ovs_assert(ipoib_offload_parse_ip(ip, t->lens[i] - IPOIB_HEADER_LEN, type,
                                      &o));
    ipoib_offload_complete(&o);
    memcpy(t->wanted[i], sent, MAX_PAYLOAD);
    if (cases[i].offload) {
        ipoib_offload_prepare(&o);
    } else {
        switch (cases[i].wrong) {
        case RIGHT:
            break;
        case WRONG_IP:
            ip[10] ^= 0x55;
            break;
        case WRONG_L4:
            *l4_csum_of(sent, i) ^= 0x55;
            break;
        }
        memcpy(t->wanted[i], sent, MAX_PAYLOAD);
    }
}


/* The trial. */

static void
trial_destroy(struct ipoib_proof_trial *t)
{
    ipoib_proof_loop_close(&t->loop);
    free(t);
}

static int
trial_post_send(struct ipoib_proof_trial *t, size_t i)
{
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND,
        .send_flags = cases[i].offload ? IBV_SEND_IP_CSUM : 0,
    };

    return ipoib_proof_loop_send(&t->loop, &wr, t->buffers->sent[i],
                                 t->lens[i]);
}

static int
trial_begin(struct ipoib_proof_trial *t,
            const struct ipoib_proof_params *params)
{
    int error = ipoib_proof_loop_open(&t->loop, params, sizeof *t->buffers,
                                      N_CASES, N_CASES, false);

    t->buffers = t->loop.mem;
    for (size_t i = 0; i < N_CASES && !error; i++) {
        error = ipoib_proof_loop_recv(&t->loop, i, t->buffers->received[i],
                                      sizeof t->buffers->received[i]);
    }
    for (size_t i = 0; i < N_CASES && !error; i++) {
        trial_compose(t, i);
        if (trial_post_send(t, i)) {
            t->refused[i] = true;
            t->n_done++;
        }
    }
    t->deadline = time_msec() + IPOIB_PROOF_TIMEOUT;
    return error;
}

static void
trial_receive(struct ipoib_proof_trial *t, const struct ibv_wc *wc)
{
    const uint8_t *payload = t->buffers->received[wc->wr_id] + IB_GRH_LEN;
    size_t len = wc->byte_len - IB_GRH_LEN;
    size_t i;

    for (i = 0; i < N_CASES; i++) {
        if (payload[l4_ofs_of(i) + 1] == i && payload[l4_ofs_of(i)] == 0xc0
            && len == t->lens[i] && !t->arrived[i]) {
            break;
        }
    }
    if (i < N_CASES) {
        t->arrived[i] = true;
        t->intact[i] = !memcmp(payload, t->wanted[i], len);
        t->found_good[i] = (wc->wc_flags & IBV_WC_IP_CSUM_OK) != 0;
        t->n_done++;
    }
}

/* True if all packets that are sent complete ('offload': that are not) have
 * arrived. */
static bool
trial_all_arrived(const struct ipoib_proof_trial *t, bool offload)
{
    for (size_t i = 0; i < N_CASES; i++) {
        if (cases[i].offload == offload && !t->arrived[i]) {
            return false;
        }
    }
    return true;
}

static struct ipoib_proof_verdict
trial_judge_tx(const struct ipoib_proof_trial *t)
{
    struct ipoib_proof_verdict verdict = { .proven = false };

    for (size_t i = 0; i < N_CASES; i++) {
        if (cases[i].offload && t->refused[i]) {
            verdict.reason = "the device refused a packet";
            return verdict;
        } else if (t->arrived[i] && !t->intact[i]) {
            verdict.reason = "the device sent a wrong checksum";
            return verdict;
        }
    }
    if (!trial_all_arrived(t, true)) {
        verdict.reason = "a packet to ourselves did not arrive";
        return verdict;
    }
    verdict.proven = true;
    return verdict;
}

static struct ipoib_proof_verdict
trial_judge_rx(const struct ipoib_proof_trial *t)
{
    struct ipoib_proof_verdict verdict = { .proven = false };

    for (size_t i = 0; i < N_CASES; i++) {
        if (!cases[i].offload && t->arrived[i]
            && t->found_good[i] != (cases[i].wrong == RIGHT)) {
            verdict.reason = (t->found_good[i]
                              ? "the device took a wrong checksum for good"
                              : "the device did not find a checksum good");
            return verdict;
        }
    }
    if (!trial_all_arrived(t, false)) {
        verdict.reason = "a packet to ourselves did not arrive";
        return verdict;
    }
    verdict.proven = true;
    return verdict;
}


/* For others. */

void
ipoib_proof_init(struct ipoib_proof *proof, const char *reason)
{
    proof->trial = NULL;
    proof->tso_trial = NULL;
    proof->n_trials = 0;
    proof->tx = (struct ipoib_proof_verdict) { .reason = reason };
    proof->rx = proof->tso = proof->tx;
}

void
ipoib_proof_destroy(struct ipoib_proof *proof)
{
    if (proof->trial) {
        trial_destroy(proof->trial);
        proof->trial = NULL;
    }
    ipoib_proof_tso_destroy(proof->tso_trial);
    proof->tso_trial = NULL;
}

static void
proof_try(struct ipoib_proof *proof, const struct ipoib_proof_params *params)
{
    struct ipoib_proof_trial *t = xzalloc(sizeof *t);

    if (trial_begin(t, params)) {
        trial_destroy(t);
        ipoib_proof_init(proof, "a queue pair could not be made");
    } else {
        proof->trial = t;
        proof->n_trials++;
    }
}

void
ipoib_proof_start(struct ipoib_proof *proof,
                  const struct ipoib_proof_params *params)
{
    ipoib_proof_destroy(proof);
    ipoib_proof_init(proof, "being tried");
    proof_try(proof, params);
}

bool
ipoib_proof_is_running(const struct ipoib_proof *proof)
{
    return proof->trial || proof->tso_trial;
}

static void
proof_try_tso(struct ipoib_proof *proof,
              const struct ipoib_proof_params *params)
{
    proof->tso_trial = ipoib_proof_tso_create(params);
    proof->n_trials++;
    if (!proof->tso_trial) {
        proof->tso.reason = "a queue pair could not be made";
    }
}

/* The trial of checksums is over: that of segmentation follows, which needs
 * them. */
static void
proof_judge(struct ipoib_proof *proof)
{
    const struct ipoib_proof_params params = proof->trial->loop.params;

    proof->tx = trial_judge_tx(proof->trial);
    proof->rx = trial_judge_rx(proof->trial);
    ipoib_proof_destroy(proof);
    if (!params.max_tso) {
        proof->tso.reason = "the device does not offer it";
    } else if (!proof->tx.proven) {
        proof->tso.reason = "the device does not compute checksums";
    } else {
        proof->n_trials = 0;
        proof_try_tso(proof, &params);
    }
}

/* Returns true when the trial of checksums is over. */
static bool
proof_run_csum(struct ipoib_proof *proof)
{
    struct ipoib_proof_trial *t = proof->trial;
    struct ibv_wc wc;

    while (ipoib_proof_loop_poll(&t->loop, &wc)) {
        if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV) {
            trial_receive(t, &wc);
        }
    }
    if (t->n_done < N_CASES) {
        if (time_msec() < t->deadline) {
            return false;
        } else if (proof->n_trials < MAX_TRIALS) {
            struct ipoib_proof_params params = t->loop.params;

            ipoib_proof_destroy(proof);
            proof_try(proof, &params);
            return !proof->trial;
        }
    }
    proof_judge(proof);
    return true;
}

/* Returns true when the trial of segmentation is over. */
static bool
proof_run_tso(struct ipoib_proof *proof)
{
    struct ipoib_proof_verdict verdict;
    struct ipoib_proof_params params;
    bool lost;

    if (!ipoib_proof_tso_run(proof->tso_trial, &params, &verdict, &lost)) {
        return false;
    }
    ipoib_proof_destroy(proof);
    if (lost && proof->n_trials < MAX_TRIALS) {
        proof_try_tso(proof, &params);
        return !proof->tso_trial;
    }
    proof->tso = verdict;
    return true;
}

bool
ipoib_proof_run(struct ipoib_proof *proof)
{
    return ((!proof->trial || proof_run_csum(proof))
            && (!proof->tso_trial || proof_run_tso(proof)));
}

void
ipoib_proof_wait(const struct ipoib_proof *proof)
{
    if (ipoib_proof_is_running(proof)) {
        poll_timer_wait(POLL_INTERVAL);
    }
}
