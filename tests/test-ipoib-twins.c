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

/* The data path has a short way for most packets, and a long one for all.
 * Here two gateways get the same random packets, good ones and bad ones, and
 * one of them always takes the long way (and sends by the variant for any
 * CPU): what comes out, and all counters, must be the same. */

#include <stdlib.h>

#include "dp-packet.h"
#include "ipoib-classify.h"
#include "ipoib-compat.h"
#include "ipoib-msgq.h"
#include "ipoib-pool.h"
#include "ipoib-ring-private.h"
#include "ipoib-rx.h"
#include "ipoib-test-gateway.h"
#include "ipoib-tx.h"
#include "ipoib-variant.h"
#include "ovstest.h"
#include "random.h"
#include "util.h"

#define N_ROUNDS 4000
#define N_NEIGHS 4
#define N_HOSTS 3
#define HOST_QPN 0x1001         /* Of the first host; the last has none. */

/* Longest packet that is not too long. */
#define LONGEST (GW_MTU - 100)

/* The short way first. */
static struct gw *twins[2];

static bool
one_in(unsigned int n)
{
    return !random_range(n);
}

static void
open_twins(void)
{
    for (size_t i = 0; i < 2; i++) {
        if (i) {
            setenv("OVS_IPOIB_POOL", "copy", 1);
        }
        twins[i] = gw_open(256, 64);
        atomic_store_relaxed(&twins[i]->shared.group_mtu, LONGEST);
        atomic_store_relaxed(&twins[i]->shared.mtu, LONGEST);
        for (unsigned int j = 0; j < N_NEIGHS; j++) {
            struct ipoib_neigh *neigh = gw_add_neigh(twins[i], j);

            ipoib_neigh_set_ah(twins[i]->shared.neighs, neigh, gw_ah(j),
                               LONGEST + 10 - 10 * j);
        }
        for (unsigned int j = 0; j < N_HOSTS; j++) {
            gw_add_host(twins[i], j, j < N_HOSTS - 1 ? HOST_QPN + j : 0,
                        false);
        }
    }
    ovs_assert(twins[0]->rxq->base_qp->qp_num
               == twins[1]->rxq->base_qp->qp_num);
}

static void
close_twins(void)
{
    for (size_t i = 0; i < 2; i++) {
        gw_close(twins[i]);
    }
}

/* The counters of 'rxq', but for what depends on the time: whether the
 * limiters let something pass to the control thread. */
static struct ipoib_rx_stats
stats_of(struct ipoib_rxq *rxq)
{
    struct ipoib_rx_stats stats;
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(rxq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
    memcpy(&stats, &rxq->stats, sizeof stats);
    ipoib_count(&stats.drop_rate, ipoib_counter_read(&stats.to_control));
    atomic_init(&stats.to_control, 0);
    atomic_init(&stats.pmtu_suppressed, 0);
    return stats;
}

/* Bytes that matter to IP and below are made wrong now and then. */
static void
spoil(uint8_t *ip, size_t len)
{
    static const uint8_t values[] = {
        0, 1, 2, 4, 5, 0x44, 0x45, 0x46, 0x4f, 0x60, 0x7f, 0x80, 0xff
    };
    static const uint8_t places[] = { 0, 2, 3, 4, 5, 6, 7, 9, 12, 16, 19, 20 };

    while (!one_in(3)) {
        size_t place = places[random_range(ARRAY_SIZE(places))];

        if (place < len) {
            ip[place] = (one_in(2) ? random_uint32()
                         : values[random_range(ARRAY_SIZE(values))]);
        }
    }
}

static size_t
random_len(void)
{
    return (one_in(2) ? 28 + random_range(40)
            : one_in(2) ? LONGEST - 20 + random_range(40)
            : 28 + random_range(LONGEST));
}

/* Receiving. */

static void
random_receive(struct null_packet *p)
{
    unsigned int neigh = random_range(N_NEIGHS), host = random_range(N_HOSTS);
    uint32_t base_qpn = twins[0]->rxq->base_qp->qp_num;
    uint32_t qpn = one_in(4) ? base_qpn : HOST_QPN + host;
    uint8_t *ip = gw_payload(p);
    bool v4 = !one_in(5);
    size_t len = random_len();

    memset(p, 0, sizeof *p);
    memset(p->data, 0xff, 40);
    if (v4) {
        gw_ip4(ip, gw_neigh_ip4(neigh), gw_host_ip4(host), len);
    } else {
        struct in6_addr src = gw_neigh_ip6(neigh), dst = gw_host_ip6(host);

        len += 20;
        gw_ip6(ip, &src, &dst, len);
    }
    gw_fill(p, neigh, qpn, v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6, len);
    if (one_in(4)) {
        struct ipoib_addr addr = gw_neigh_addr(one_in(2) ? neigh
                                               : random_range(N_NEIGHS + 1));
        struct ib_gid dgid = twins[0]->shared.gid;

        if (one_in(2)) {
            dgid = twins[0]->shared.broadcast;
        }
        gw_grh(p, &addr.gid, &dgid);
    }
    if (one_in(8)) {
        p->wc.slid = one_in(2) ? GW_LID : random_range(200);
    }
    if (one_in(8)) {
        p->wc.src_qp = one_in(2) ? base_qpn : 0x2000 + random_range(8);
    }
    if (one_in(20)) {
        p->data[40 + random_range(4)] = random_uint32();
    }
    if (one_in(3)) {
        spoil(ip, len);
    }
    if (one_in(8)) {
        p->len = one_in(2) ? 40 + random_range(30)
                 : p->len - random_range(MIN(p->len, 10));
    }
    if (one_in(40)) {
        p->wc.status = IBV_WC_LOC_LEN_ERR;
    }
    if (one_in(3)) {
        p->wc.wc_flags |= IBV_WC_IP_CSUM_OK;
    }
}

static void
compare_frames(struct dp_packet_batch batches[2])
{
    size_t n = dp_packet_batch_size(&batches[0]);

    ovs_assert(n == dp_packet_batch_size(&batches[1]));
    for (size_t i = 0; i < n; i++) {
        struct dp_packet *a = batches[0].packets[i];
        struct dp_packet *b = batches[1].packets[i];

        ovs_assert(dp_packet_size(a) == dp_packet_size(b));
        ovs_assert(!memcmp(dp_packet_data(a), dp_packet_data(b),
                           dp_packet_size(a)));
        ovs_assert(a->packet_type == b->packet_type);
        ovs_assert(dp_packet_ip_checksum_valid(a)
                   == dp_packet_ip_checksum_valid(b));
        ovs_assert(dp_packet_l4_checksum_valid(a)
                   == dp_packet_l4_checksum_valid(b));
        ovs_assert(a->l3_ofs == UINT16_MAX && a->l4_ofs == UINT16_MAX);
        ovs_assert(!dp_packet_l2_pad_size(a) && !dp_packet_get_cutlen(a));
        /* As OVS may leave it. */
        a->l3_ofs = 14;
        a->l4_ofs = 34;
        dp_packet_set_l2_pad_size(a, 3);
        dp_packet_set_cutlen(a, 20);
        a->packet_type = htonl(PT_NSH);
        dp_packet_push_zeros(a, 50);
    }
}

static void
test_receive(void)
{
    uint64_t n_frames = 0;

    for (size_t round = 0; round < N_ROUNDS; round++) {
        unsigned int n = 1 + random_range(NETDEV_MAX_BURST);
        uint32_t eth_mtu = round % 16 ? 0 : 1500;
        struct dp_packet_batch batches[2];
        struct ipoib_rx_stats a, b;

        for (unsigned int i = 0; i < n; i++) {
            struct null_packet *p = null_hca_receive(twins[0]->hca);

            random_receive(p);
            *null_hca_receive(twins[1]->hca) = *p;
        }
        for (size_t i = 0; i < 2; i++) {
            atomic_store_relaxed(&twins[i]->shared.eth_mtu, eth_mtu);
            atomic_store_relaxed(&twins[i]->shared.rx_csum, round % 2);
            atomic_store_relaxed(&twins[i]->shared.clamp_mss, !(round % 5));
        }
        do {
            for (size_t i = 0; i < 2; i++) {
                ipoib_batch_init(&batches[i]);
                ipoib_rx_batch(twins[i]->rxq, &batches[i]);
            }
            n_frames += dp_packet_batch_size(&batches[0]);
            compare_frames(batches);
            for (size_t i = 0; i < 2; i++) {
                dp_packet_delete_batch(&batches[i], true);
                ipoib_batch_destroy(&batches[i]);
            }
        } while (twins[0]->rxq->priv->n_waiting);
        a = stats_of(twins[0]->rxq);
        b = stats_of(twins[1]->rxq);
        ovs_assert(!memcmp(&a, &b, sizeof a));
    }
    ovs_assert(n_frames > N_ROUNDS);
}

/* Sending: a queue takes the short way with what it sends inline, which is
 * all in one gateway and nothing in the other. */

static struct dp_packet *
random_frame(void)
{
    unsigned int i = random_range(N_NEIGHS), host = random_range(N_HOSTS);
    struct dp_packet *packet = dp_packet_new(2200);
    struct ipoib_addr addr = gw_neigh_addr(i);
    struct eth_header *eth = dp_packet_put_zeros(packet, sizeof *eth);
    size_t len = one_in(3) ? random_len() : 28 + random_range(100);
    bool v4 = !one_in(5);

    eth->eth_dst = ipoib_neigh_find(twins[0]->shared.neighs, &addr)->mac;
    eth->eth_src = gw_host_mac(host);
    eth->eth_type = htons(v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
    len += v4 ? 0 : 20;
    dp_packet_put_zeros(packet, len);
    eth = dp_packet_data(packet);
    if (v4) {
        gw_ip4((uint8_t *) (eth + 1), gw_host_ip4(host), gw_neigh_ip4(i), len);
    } else {
        struct in6_addr src = gw_host_ip6(host), dst = gw_neigh_ip6(i);

        gw_ip6((uint8_t *) (eth + 1), &src, &dst, len);
    }
    if (one_in(8)) {
        eth->eth_dst.ea[random_range(6)] ^= 1 << random_range(8);
    }
    if (one_in(8)) {
        memcpy(&eth->eth_src, &eth->eth_dst, sizeof eth->eth_src);
    }
    if (one_in(20)) {
        eth->eth_type = htons(one_in(2) ? ETH_TYPE_ARP : random_uint32());
    }
    if (one_in(3)) {
        spoil((uint8_t *) (eth + 1), len);
    }
    if (one_in(8)) {
        dp_packet_set_size(packet, (one_in(2) ? random_range(60)
                                    : dp_packet_size(packet) - 1));
    } else if (one_in(4)) {
        dp_packet_put_zeros(packet, random_range(20));
    }
    return packet;
}

static void
compare_sent(const struct null_hca *a, const struct null_hca *b)
{
    ovs_assert(a->n_sent == b->n_sent);
    for (size_t i = 0; i < a->n_sent; i++) {
        const struct null_send *x = &a->sent[i], *y = &b->sent[i];

        ovs_assert(x->dqpn == y->dqpn && x->qkey == y->qkey && x->ah == y->ah
                   && x->len == y->len && !memcmp(x->data, y->data, x->len));
    }
}

static struct ipoib_tx_stats
tx_stats_of(struct ipoib_txq *txq)
{
    struct ipoib_tx_stats stats;
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(txq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
    memcpy(&stats, &txq->stats, sizeof stats);
    ipoib_count(&stats.drop_rate, ipoib_counter_read(&stats.to_control));
    atomic_init(&stats.to_control, 0);
    atomic_init(&stats.pmtu_suppressed, 0);
    atomic_init(&stats.copied, 0);
    return stats;
}

static void
test_send(void)
{
    uint64_t n_sent = 0;

    twins[0]->txq->slots->max_inline = 2 * GW_MTU;
    twins[1]->txq->slots->max_inline = 0;
    for (size_t round = 0; round < N_ROUNDS; round++) {
        unsigned int n = 1 + random_range(NETDEV_MAX_BURST);
        struct dp_packet_batch batches[2];
        struct ipoib_tx_stats a, b;

        for (size_t i = 0; i < 2; i++) {
            atomic_store_relaxed(&twins[i]->shared.clamp_mss, !(round % 5));
            twins[i]->hca->n_sent = 0;
            ipoib_batch_init(&batches[i]);
        }
        for (unsigned int i = 0; i < n; i++) {
            struct dp_packet *packet = random_frame();

            ipoib_batch_push(&batches[0], packet);
            ipoib_batch_push(&batches[1], dp_packet_clone(packet));
        }
        ipoib_tx_batch(twins[0]->txq, &batches[0]);
        ipoib_tx_batch_any(twins[1]->txq, &batches[1], 0);
        for (size_t i = 0; i < 2; i++) {
            ipoib_batch_destroy(&batches[i]);
        }
        compare_sent(twins[0]->hca, twins[1]->hca);
        n_sent += twins[0]->hca->n_sent;
        a = tx_stats_of(twins[0]->txq);
        b = tx_stats_of(twins[1]->txq);
        ovs_assert(!memcmp(&a, &b, sizeof a));
    }
    ovs_assert(n_sent > N_ROUNDS);
}

/* The long way alone must make the same of each packet that the short one
 * takes. */
static void
test_classify(void)
{
    uint64_t n_plain = 0;

    for (size_t i = 0; i < 100 * N_ROUNDS; i++) {
        size_t len = 28 + random_range(40), ip_len, any_ip_len;
        struct dp_packet *packet = dp_packet_new(200);
        uint8_t *eth = dp_packet_put_zeros(packet, ETH_HEADER_LEN + len);
        uint8_t *ip = eth + ETH_HEADER_LEN;
        uint64_t key;

        for (size_t j = 0; j < 12; j++) {
            eth[j] = random_uint32();
        }
        eth[12] = one_in(20) ? 0x86 : 0x08;
        eth[13] = one_in(20) ? 0xdd : 0;
        gw_ip4(ip, gw_host_ip4(1), gw_neigh_ip4(1), len);
        if (one_in(2)) {
            spoil(ip, len);
        }
        if (one_in(4)) {
            dp_packet_set_size(packet, random_range(ETH_HEADER_LEN + len));
        }
        key = ipoib_classify_plain(packet, eth, &ip_len);
        if (key != IPOIB_NEIGH_NO_KEY && !(eth[0] & 1)) {
            ovs_assert(key == ipoib_classify_any(packet, eth, &any_ip_len));
            ovs_assert(ip_len == any_ip_len);
            n_plain++;
        } else if (key == IPOIB_NEIGH_NO_KEY
                   && ipoib_classify_any(packet, eth, &any_ip_len) != key) {
            ovs_assert(ip[0] != 0x45);
        }
        dp_packet_delete(packet);
    }
    ovs_assert(n_plain > N_ROUNDS);
}

static void
test_ipoib_twins_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    random_set_seed(getenv("SEED") ? atoi(getenv("SEED")) : 1);
    open_twins();
    test_receive();
    test_send();
    test_classify();
    close_twins();
}

OVSTEST_REGISTER("test-ipoib-twins", test_ipoib_twins_main);
