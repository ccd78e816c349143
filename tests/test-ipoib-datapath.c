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
#include "ipoib-rx.h"
#include "ipoib-tx.h"

#include <errno.h>
#include <stdlib.h>

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-mcast.h"
#include "ipoib-pool-eal.h"
#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "ipoib-test-gateway.h"
#include "openvswitch/poll-loop.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "random.h"
#include "test-ipoib-clock.h"
#include "timeval.h"
#include "util.h"

/* Tests of the data path: rings, pools, receive and send, on a null device. */

#define HOST_QPN 0x500          /* Of host 0. */

/* Helpers. */

static uint64_t
counter(const atomic_uint64_t *c)
{
    return ipoib_counter_read(c);
}

/* Receives one batch, which must have one frame, and returns it. */
static struct dp_packet *
receive_one(struct gw *gw)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
    ovs_assert(dp_packet_batch_size(&batch) == 1);
    return batch.packets[0];
}

static void
receive_none(struct gw *gw)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ovs_assert(ipoib_rx_batch(gw->rxq, &batch) == EAGAIN);
    ovs_assert(dp_packet_batch_is_empty(&batch));
}

/* Receives nothing, and '*c' goes up by one. */
static void
receive_dropped(struct gw *gw, const atomic_uint64_t *c)
{
    uint64_t before = counter(c);

    receive_none(gw);
    ovs_assert(counter(c) == before + 1);
}

static void
check_frame(struct dp_packet *packet, struct eth_addr dst, uint64_t src,
            uint16_t type, const uint8_t *payload, size_t len)
{
    const struct eth_header *eth = dp_packet_data(packet);
    const uint8_t *p = (const uint8_t *) (eth + 1);

    ovs_assert(dp_packet_size(packet) == MAX(60, len + ETH_HEADER_LEN));
    ovs_assert(eth_addr_equals(eth->eth_dst, dst));
    ovs_assert(eth_addr_to_uint64(eth->eth_src) == src);
    ovs_assert(eth->eth_type == htons(type));
    ovs_assert(!memcmp(p, payload, len));
    for (size_t i = len; i < dp_packet_size(packet) - ETH_HEADER_LEN; i++) {
        ovs_assert(!p[i]);
    }
    ovs_assert(packet->packet_type == htonl(PT_ETH));
    ovs_assert(packet->l3_ofs == UINT16_MAX);
    ovs_assert(!dp_packet_get_cutlen(packet));
    dp_packet_delete(packet);
}

/* Messages. */

static void
test_msgq(void)
{
    struct ipoib_msgq *q = ipoib_msgq_create(4);
    struct ipoib_msg msg = { .type = IPOIB_MSG_RX_ARP };
    uint32_t in = 0, out = 0;

    ovs_assert(ipoib_msgq_is_empty(q));
    for (int round = 0; round < 100; round++) {
        for (int i = random_range(5); i > 0; i--) {
            msg.slot = in;
            if (ipoib_msgq_push(q, &msg)) {
                in++;
            } else {
                ovs_assert(in - out == 4);
            }
        }
        for (int i = random_range(5); i > 0; i--) {
            if (ipoib_msgq_pop(q, &msg)) {
                ovs_assert(msg.slot == out++);
            } else {
                ovs_assert(in == out);
            }
        }
        ovs_assert(ipoib_msgq_is_empty(q) == (in == out));
    }

    /* What is left is deleted. */
    msg.packet = dp_packet_new(100);
    while (ipoib_msgq_push(q, &msg)) {
        msg.packet = dp_packet_new(100);
    }
    dp_packet_delete(msg.packet);
    ipoib_msgq_destroy(q);
}

struct two_threads {
    struct ipoib_msgq *q;
    struct ipoib_waker waker;
    uint32_t n;
};

static void *
producer(void *aux)
{
    struct two_threads *t = aux;
    struct ipoib_msg msg = { .type = IPOIB_MSG_RX_HINT };

    for (uint32_t i = 0; i < t->n; ) {
        msg.slot = i;
        if (ipoib_msgq_push(t->q, &msg)) {
            ipoib_waker_wake(&t->waker);
            i++;
        }
    }
    return NULL;
}

/* A consumer that sleeps never misses the last message. */
static void
test_waker(void)
{
    struct two_threads t = { .q = ipoib_msgq_create(64), .n = 200000 };
    struct ipoib_msg msg;
    pthread_t thread;

    ipoib_waker_init(&t.waker);
    thread = ovs_thread_create("producer", producer, &t);
    for (uint32_t i = 0; i < t.n; ) {
        while (ipoib_msgq_pop(t.q, &msg)) {
            ovs_assert(msg.slot == i++);
        }
        ipoib_waker_sleep(&t.waker);
        if (i < t.n && ipoib_msgq_is_empty(t.q)) {
            ipoib_waker_wait(&t.waker);
            poll_timer_wait(10000);
            long long int start = time_msec();
            poll_block();
            ovs_assert(time_msec() < start + 9000);
        }
        ipoib_waker_awake(&t.waker);
    }
    xpthread_join(thread, NULL);
    ipoib_waker_destroy(&t.waker);
    ipoib_msgq_destroy(t.q);
}

static void
test_limiter(void)
{
    struct ipoib_limiter limiter;
    int n = 0;

    memset(&limiter, 0, sizeof limiter);
    while (ipoib_limiter_admit(&limiter, 1, 5000)) {
        n++;
    }
    ovs_assert(n == IPOIB_LIMIT_BURST);
    ovs_assert(ipoib_limiter_admit(&limiter, 2, 5000));
    for (n = 0; ipoib_limiter_admit(&limiter, 1, 5010); n++) {
        continue;
    }
    ovs_assert(n == 10 * IPOIB_LIMIT_RATE / 1000);
    for (n = 0; ipoib_limiter_admit(&limiter, 1, 500000); n++) {
        continue;
    }
    ovs_assert(n == IPOIB_LIMIT_BURST);

    /* Who makes up sources empties the bucket of its own place only. */
    memset(&limiter, 0, sizeof limiter);
    n = 0;
    for (uint32_t i = 0; i < 1000000; i++) {
        n += ipoib_limiter_admit_from(&limiter, i * 0x9e3779b9u, 5, 7000);
    }
    ovs_assert(n == IPOIB_LIMIT_PLACE_BURST);
    ovs_assert(ipoib_limiter_admit_from(&limiter, 12345, 6, 7000));
    ovs_assert(!ipoib_limiter_admit_from(&limiter, 12345, 5, 7000));
    ovs_assert(ipoib_limiter_admit_from(&limiter, 12345, 5, 7001));
    /* Place 64 is none of its own. */
    for (uint32_t i = 0; i < 1000000; i++) {
        ipoib_limiter_admit_from(&limiter, i * 0x9e3779b9u, 64, 7000);
    }
    ovs_assert(ipoib_limiter_admit_beacon(&limiter, 7000));

    /* A source at another place is another one, but for those few that share
     * a bucket by chance. */
    memset(&limiter, 0, sizeof limiter);
    while (ipoib_limiter_admit_from(&limiter, 12345, 1, 7000)) {
        continue;
    }
    n = 0;
    for (uint32_t place = 2; place < 62; place++) {
        n += ipoib_limiter_admit_from(&limiter, 12345, place, 7000);
    }
    ovs_assert(n > 50);
}

/* Receive. */

static void
test_rx_unicast(void)
{
    struct gw *gw = gw_open(1024, 256);
    const struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    uint64_t standin = eth_addr_to_uint64(neigh->mac);
    struct ib_gid gid = neigh->addr.gid;
    static const size_t sizes[] = { 28, 45, 46, 47, 100, 576, 1500, 2044 };

    gw_add_host(gw, 0, HOST_QPN, false);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (int grh = 0; grh < 2; grh++) {
            size_t len = sizes[i], pad = MIN(grh * 20, 2044 - len);
            struct null_packet *p;

            p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IP, len + pad);
            memset(gw_payload(p), 0xee, len + pad);
            gw_ip4(gw_payload(p), gw_neigh_ip4(1), gw_host_ip4(0), len);
            p->data[42] = 0x30; /* Reserved, ignored. */
            if (grh) {
                gw_grh(p, &gid, &gw->shared.gid);
            }
            check_frame(receive_one(gw), gw_host_mac(0), standin,
                        ETH_TYPE_IP, gw_payload(p), len);
        }
        if (sizes[i] >= 48) {
            struct in6_addr src = gw_neigh_ip6(1), dst = gw_host_ip6(0);
            struct null_packet *p;

            p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IPV6, sizes[i]);
            gw_ip6(gw_payload(p), &src, &dst, sizes[i]);
            check_frame(receive_one(gw), gw_host_mac(0), standin,
                        ETH_TYPE_IPV6, gw_payload(p), sizes[i]);
        }
    }
    ovs_assert(counter(&gw->rxq->stats.packets) == 8 * 2 + 4);
    gw_close(gw);
}

static struct null_packet *
receive_ip4(struct gw *gw, unsigned int i, uint32_t dqpn, ovs_be32 src,
            ovs_be32 dst)
{
    struct null_packet *p = gw_receive(gw, i, dqpn, ETH_TYPE_IP, 60);

    gw_ip4(gw_payload(p), src, dst, 60);
    return p;
}

/* Receives 'p' and compares the source MAC. */
static void
check_source(struct gw *gw, struct eth_addr mac)
{
    struct dp_packet *packet = receive_one(gw);
    const struct eth_header *eth = dp_packet_data(packet);

    ovs_assert(eth_addr_equals(eth->eth_src, mac));
    dp_packet_delete(packet);
}

static void
test_rx_sender(void)
{
    struct gw *gw = gw_open(256, 64);
    struct eth_addr mac1 = gw_add_neigh(gw, 1)->mac;
    struct eth_addr mac2 = gw_add_neigh(gw, 2)->mac;
    struct ib_gid gid1 = gw_neigh_addr(1).gid;
    struct ib_gid gid9 = gw_neigh_addr(9).gid;
    ovs_be32 other = htonl(0xc0000201);
    struct null_packet *p;
    struct ipoib_msg msg;

    gw_add_host(gw, 0, HOST_QPN, false);

    /* (SLID, QPN) decides, not the IP. */
    receive_ip4(gw, 1, HOST_QPN, other, gw_host_ip4(0));
    check_source(gw, mac1);
    receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(2), gw_host_ip4(0));
    check_source(gw, mac1);

    /* Another QPN: by IP, and without it by LID, when alone there. */
    receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0))
        ->wc.src_qp ^= 0x5500;
    check_source(gw, mac1);
    receive_ip4(gw, 1, HOST_QPN, other, gw_host_ip4(0))->wc.src_qp ^= 0x5500;
    check_source(gw, mac1);

    /* A GRH decides over LID and IP.  The neighbour's own QPN came from
     * another LID than it had: that is told, once a second. */
    ovs_assert(!ipoib_msgq_pop(gw->rxq->to_control, &msg));
    for (int i = 0; i < 2; i++) {
        p = receive_ip4(gw, 2, HOST_QPN, gw_neigh_ip4(2), gw_host_ip4(0));
        p->wc.src_qp = 0x2001;
        gw_grh(p, &gid1, &gw->shared.gid);
        check_source(gw, mac1);
    }
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_MOVED && !msg.packet
               && msg.slid == gw_neigh_lid(2) && msg.sqpn == 0x2001
               && ipoib_neigh_of_slot(gw->shared.neighs, msg.slot)
                  == ipoib_neigh_find_mac(gw->shared.neighs, mac1));
    ovs_assert(!ipoib_msgq_pop(gw->rxq->to_control, &msg));
    gw_next_second(gw);
    p = receive_ip4(gw, 2, HOST_QPN, gw_neigh_ip4(2), gw_host_ip4(0));
    p->wc.src_qp = 0x2001;
    gw_grh(p, &gid1, &gw->shared.gid);
    check_source(gw, mac1);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_MOVED);
    p = receive_ip4(gw, 2, HOST_QPN, gw_neigh_ip4(2), gw_host_ip4(0));
    gw_grh(p, &gid9, &gw->shared.gid);
    check_source(gw, gw->shared.mac);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_HINT && !msg.packet && msg.has_grh);
    ovs_assert(ib_gid_equals(&msg.sgid, &gid9) && msg.sqpn == 0x2002);

    /* Nobody. */
    receive_ip4(gw, 7, HOST_QPN, other, gw_host_ip4(0));
    check_source(gw, gw->shared.mac);
    ovs_assert(counter(&gw->rxq->stats.unknown_sender) == 2);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_HINT && msg.slid == gw_neigh_lid(7)
               && msg.sqpn == 0x2007 && !msg.has_grh);
    receive_ip4(gw, 7, HOST_QPN, gw_neigh_ip4(2), gw_host_ip4(0));
    check_source(gw, mac2);

    /* Path bits. */
    atomic_store_relaxed(&gw->shared.lid_mask, 0xfffc);
    receive_ip4(gw, 0, HOST_QPN, other, gw_host_ip4(0))->wc.slid = 103;
    check_source(gw, gw->shared.mac);
    gw_add_neigh(gw, 4);        /* LID 104. */
    p = receive_ip4(gw, 4, HOST_QPN, other, gw_host_ip4(0));
    p->wc.slid = 107;
    check_source(gw, ipoib_neigh_of_slot(gw->shared.neighs, 2)->mac);
    gw_close(gw);
}

static void
test_rx_receiver(void)
{
    struct gw *gw = gw_open(256, 64);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    uint64_t standin = eth_addr_to_uint64(gw_add_neigh(gw, 1)->mac);
    uint32_t base = gw->rxq->base_qp->qp_num;
    ovs_be32 src = gw_neigh_ip4(1), far = htonl(0xc0000299);
    struct ipoib_host *host;
    struct null_packet *p;

    host = gw_add_host(gw, 0, HOST_QPN, false);
    gw_add_host(gw, 1, HOST_QPN + 1, false);
    gw_add_host(gw, 2, base, true);

    /* An unknown IP goes to the QPN's host, another host's does not, but if
     * the QPN's is a router. */
    p = receive_ip4(gw, 1, HOST_QPN, src, far);
    check_frame(receive_one(gw), gw_host_mac(0), standin, ETH_TYPE_IP,
                gw_payload(p), 60);
    for (int i = 0; i < 2; i++) {
        receive_ip4(gw, 1, HOST_QPN, src, gw_host_ip4(1));
        receive_dropped(gw, &stats->drop_other_host);
    }
    ipoib_host_set_router(gw->shared.hosts, host, true);
    p = receive_ip4(gw, 1, HOST_QPN, src, gw_host_ip4(1));
    check_frame(receive_one(gw), gw_host_mac(0), standin, ETH_TYPE_IP,
                gw_payload(p), 60);

    /* A unicast of an IP group. */
    p = receive_ip4(gw, 1, HOST_QPN + 1, src, htonl(0xe0000105));
    check_frame(receive_one(gw), gw_host_mac(1), standin, ETH_TYPE_IP,
                gw_payload(p), 60);

    /* Base QP: by IP. */
    p = receive_ip4(gw, 1, base, src, gw_host_ip4(2));
    check_frame(receive_one(gw), gw_host_mac(2), standin, ETH_TYPE_IP,
                gw_payload(p), 60);
    receive_ip4(gw, 1, base, src, far);
    receive_dropped(gw, &stats->drop_no_host);

    /* Nobody is there. */
    atomic_store_relaxed(&gw->shared.up, false);
    receive_ip4(gw, 1, HOST_QPN, src, gw_host_ip4(0));
    receive_dropped(gw, &stats->drop_not_ready);
    gw_close(gw);
}

static void
test_rx_group(void)
{
    struct gw *gw = gw_open(256, 64);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    uint64_t standin = eth_addr_to_uint64(gw_add_neigh(gw, 1)->mac);
    uint32_t base = gw->rxq->base_qp->qp_num;
    struct ib_gid gid = gw_neigh_addr(1).gid;
    struct in6_addr src6 = gw_neigh_ip6(1);
    struct in6_addr all_nodes = { .s6_addr = { 0xff, 2, [15] = 1 } };
    static const struct {
        uint32_t dst;           /* IPv4. */
        bool broadcast;         /* MGID: broadcast, or that of 224.1.2.3. */
        uint64_t mac;           /* 0: dropped. */
    } cases[] = {
        { 0xe0010203, false, UINT64_C(0x01005e010203) },
        { 0xef810203, true,  UINT64_C(0x01005e010203) },
        { 0xffffffff, true,  UINT64_C(0xffffffffffff) },
        { 0x0a0000ff, true,  UINT64_C(0xffffffffffff) },
        { 0x0a0000ff, false, 0 },
    };
    struct null_packet *p;
    struct eth_addr mac;

    gw_add_host(gw, 0, HOST_QPN, false);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ib_gid mgid = (cases[i].broadcast ? gw->shared.broadcast
                              : ipoib_mgid_ipv4(htonl(0xe0010203), GW_PKEY,
                                                2));

        p = receive_ip4(gw, 1, base, gw_neigh_ip4(1), htonl(cases[i].dst));
        gw_grh(p, &gid, &mgid);
        eth_addr_from_uint64(cases[i].mac, &mac);
        if (cases[i].mac) {
            check_frame(receive_one(gw), mac, standin, ETH_TYPE_IP,
                        gw_payload(p), 60);
        } else {
            receive_dropped(gw, &stats->drop_no_host);
        }
    }
    ovs_assert(counter(&stats->multicast) == 4);

    struct ib_gid mgid = ipoib_mgid_ipv6(&all_nodes, GW_PKEY, 2);
    p = gw_receive(gw, 1, base, ETH_TYPE_IPV6, 60);
    gw_ip6(gw_payload(p), &src6, &all_nodes, 60);
    gw_grh(p, &gid, &mgid);
    eth_addr_from_uint64(UINT64_C(0x333300000001), &mac);
    check_frame(receive_one(gw), mac, standin, ETH_TYPE_IPV6, gw_payload(p),
                60);

    /* Our own come back: LID, GID and QPN are ours. */
    for (int i = 0; i < 4; i++) {
        p = receive_ip4(gw, 1, base, gw_neigh_ip4(1), htonl(0xffffffff));
        p->wc.slid = i == 1 ? 77 : GW_LID;
        p->wc.src_qp = i == 2 ? 0x77 : gw->txq->qp->qp_num;
        gw_grh(p, i == 3 ? &gid : &gw->shared.gid, &gw->shared.broadcast);
        if (i) {
            dp_packet_delete(receive_one(gw));
        } else {
            receive_dropped(gw, &stats->drop_own);
        }
    }
    gw_close(gw);
}

/* To the control thread. */
static void
test_rx_control(void)
{
    struct gw *gw = gw_open(256, 64);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    struct ipoib_addr addr = gw_neigh_addr(1);
    struct in6_addr src = gw_neigh_ip6(1), dst = gw_host_ip6(0);
    struct dp_packet *arp = ipoib_compose_arp_ib(1, false, &addr,
                                                 gw_neigh_ip4(1), NULL,
                                                 gw_host_ip4(0));
    struct null_packet *p;
    struct ipoib_msg msg;

    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_ARP, IPOIB_ARP_LEN);
    memcpy(p->data + 40, dp_packet_data(arp), dp_packet_size(arp));
    gw_grh(p, &addr.gid, &gw->shared.broadcast);
    receive_none(gw);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_ARP);
    ovs_assert(msg.slid == gw_neigh_lid(1) && msg.sqpn == 0x2001);
    ovs_assert(msg.dqpn == HOST_QPN && msg.has_grh && msg.multicast);
    ovs_assert(ib_gid_equals(&msg.sgid, &addr.gid));
    ovs_assert(ib_gid_equals(&msg.mgid, &gw->shared.broadcast));
    ovs_assert(dp_packet_equal(msg.packet, arp));
    ovs_assert(msg.packet->source == DPBUF_MALLOC);
    dp_packet_delete(msg.packet);

    /* Malformed. */
    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_ARP, IPOIB_ARP_LEN - 1);
    memcpy(p->data + 40, dp_packet_data(arp), dp_packet_size(arp) - 1);
    receive_dropped(gw, &stats->drop_bad_arp);
    dp_packet_delete(arp);

    /* ND, behind an extension header. */
    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IPV6, 40 + 8 + 48);
    gw_ip6(gw_payload(p), &src, &dst, 40 + 8 + 48);
    gw_payload(p)[6] = IPPROTO_DSTOPTS;
    memset(gw_payload(p) + 40, 0, 56);
    gw_payload(p)[40] = IPPROTO_ICMPV6;
    gw_payload(p)[48] = 135;
    receive_none(gw);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_ND && msg.l4_ofs == 48);
    ovs_assert(dp_packet_size(msg.packet) == 4 + 96 && !msg.multicast);
    dp_packet_delete(msg.packet);

    /* IGMP. */
    p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), htonl(0xe0000001));
    gw_payload(p)[9] = IPPROTO_IGMP;
    receive_none(gw);
    ovs_assert(ipoib_msgq_pop(gw->rxq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_RX_IP && msg.l4_ofs == 20);
    dp_packet_delete(msg.packet);

    /* The limit of a source, and the ring's. */
    test_clock_stop();
    memset(&gw->rxq->priv->limiter, 0, sizeof gw->rxq->priv->limiter);
    for (int i = 0; i < IPOIB_LIMIT_BURST + 3; i++) {
        ovs_assert(counter(&stats->drop_rate)
                   == MAX(i - IPOIB_LIMIT_BURST, 0));
        p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), htonl(0xe0000001));
        gw_payload(p)[9] = IPPROTO_IGMP;
        receive_none(gw);
    }
    for (int i = 0; i < 2000; i++) {
        p = receive_ip4(gw, 2 + i, HOST_QPN, gw_neigh_ip4(1),
                        htonl(0xe0000001));
        gw_payload(p)[9] = IPPROTO_IGMP;
        receive_none(gw);
    }
    ovs_assert(counter(&stats->drop_ring_full) > 0);

    /* The queue is taken down: what is on its way is counted, but for what has
     * no packet, or one of our own. */
    while (ipoib_msgq_pop(gw->rxq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
        ipoib_count(&stats->to_control, -1);
    }
    msg = (struct ipoib_msg) { .type = IPOIB_MSG_RX_HINT };
    ovs_assert(ipoib_msgq_push(gw->rxq->to_control, &msg));
    msg.type = IPOIB_MSG_RX_ERROR;
    msg.packet = dp_packet_new(100);
    ovs_assert(ipoib_msgq_push(gw->rxq->to_control, &msg));
    for (int i = 0; i < 5; i++) {
        msg.type = IPOIB_MSG_RX_IP;
        msg.packet = dp_packet_new(100);
        ovs_assert(ipoib_msgq_push(gw->rxq->to_control, &msg));
        msg.packet = dp_packet_new(100);
        ovs_assert(ipoib_msgq_push(gw->rxq->from_control, &msg));
    }
    ovs_assert(counter(&stats->to_control) == 3);
    ipoib_rxq_drop(gw->rxq);
    ovs_assert(counter(&stats->drop_gone) == 10);
    ovs_assert(ipoib_rx_stats_dropped(stats)
               == 10 + 1 + counter(&stats->drop_rate)
                  + counter(&stats->drop_ring_full));
    gw_close(gw);
}

/* What nobody should send. */
static void
test_rx_malformed(void)
{
    struct gw *gw = gw_open(256, 64);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    struct { size_t at; uint8_t value; } v4[] = {
        { 0, 0x44 }, { 0, 0x4f }, { 0, 0x65 }, { 0, 0x35 }, { 2, 0xff },
        { 3, 19 }, { 3, 0 }, { 3, 61 },
    };
    struct null_packet *p;

    gw_add_neigh(gw, 1);
    gw_add_host(gw, 0, HOST_QPN, false);
    for (size_t i = 0; i < ARRAY_SIZE(v4); i++) {
        p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0));
        gw_payload(p)[v4[i].at] = v4[i].value;
        if (v4[i].at == 0 && v4[i].value == 0x4f) {
            p->len = 44 + 59;   /* A header as long as the packet passes. */
        }
        receive_dropped(gw, &stats->drop_bad_ip);
    }
    for (size_t len = 0; len < 40; len++) {
        struct in6_addr src = gw_neigh_ip6(1), dst = gw_host_ip6(0);

        if (len < 20) {
            p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1),
                            gw_host_ip4(0));
            p->len = 44 + len;
            receive_dropped(gw, &stats->drop_bad_ip);
        }
        p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IPV6, len);
        gw_ip6(gw_payload(p), &src, &dst, 48);
        p->data[44 + 5] = 0;
        receive_dropped(gw, &stats->drop_bad_ip);
    }
    for (size_t len = 40; len < 44; len++) {
        gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IP, 0)->len = len;
        receive_dropped(gw, &stats->drop_short);
    }
    static const uint16_t types[] = { 0, 0x600, 0x8100, 0x8847, 0xffff };
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0));
        p->data[40] = types[i] >> 8;
        p->data[41] = types[i];
        receive_dropped(gw, &stats->drop_type);
    }
    p = receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0));
    p->wc.status = IBV_WC_LOC_LEN_ERR;
    receive_dropped(gw, &stats->drop_error);
    gw_close(gw);
}

/* The return ring, in turn with the CQ. */
static void
test_rx_return(void)
{
    struct gw *gw = gw_open(256, 64);
    struct ipoib_msg msg = { .type = IPOIB_MSG_RX_IP };
    struct dp_packet_batch batch;

    gw_add_neigh(gw, 1);
    gw_add_host(gw, 0, HOST_QPN, false);
    for (int i = 0; i < 40; i++) {
        msg.packet = dp_packet_new(60);
        dp_packet_put_zeros(msg.packet, 60);
        ovs_assert(ipoib_msgq_push(gw->rxq->from_control, &msg));
    }
    receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0));
    static const size_t expected[] = { 32, 1, 8 };
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        ipoib_batch_init(&batch);
        ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
        ovs_assert(dp_packet_batch_size(&batch) == expected[i]);
        dp_packet_delete_batch(&batch, true);
    }
    receive_none(gw);
    receive_none(gw);
    ovs_assert(counter(&gw->rxq->stats.packets) == 41);
    gw_close(gw);
}

/* Buffers whose completions are gone are posted again. */
static void
test_rx_lost(void)
{
    static const unsigned int lost[] = { 0, 1, 40, 127, 128 };

    for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
        for (int room = 0; room < 2; room++) {
            struct gw *gw = gw_open(400, 128);
            struct ipoib_pool_stats stats;

            gw_add_neigh(gw, 1);
            gw_add_host(gw, 0, HOST_QPN, false);
            gw->hca->post_recv_limit = 128 + room * 64;
            gw->hca->posted_tail += lost[i];
            ipoib_rxq_suspect_loss(gw->rxq);
            receive_none(gw);
            ovs_assert(gw->hca->posted_head - gw->hca->posted_tail >= 32);
            for (int j = 0; j < 1000; j++) {
                receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1),
                            gw_host_ip4(0));
                dp_packet_delete(receive_one(gw));
            }
            ipoib_rxq_refill(gw->rxq);
            unsigned int n = gw->hca->posted_head - gw->hca->posted_tail;
            ovs_assert(n >= 128 && n <= 128 + 32);
            ovs_assert(gw->rxq->n_posted == n);
            ipoib_pool_get_stats(gw->pool, &stats);
            ovs_assert(stats.n_posted <= 128 + 32 + 128);
            ovs_assert(stats.n_free + stats.n_posted == 400);
            gw_close(gw);
        }
    }
}

/* What is posted has the lkey of its memory. */
static void
check_posted(struct gw *gw)
{
    for (uint32_t i = gw->hca->posted_tail; i != gw->hca->posted_head; i++) {
        uint64_t id = gw->hca->posted[i % NULL_MAX].wr_id;
        struct ipoib_pool *pool = ipoib_pool_find(gw->pool, id);

        ovs_assert(gw->hca->posted[i % NULL_MAX].lkey == pool->mr->lkey);
    }
}

/* Receives 'n' packets and adds them to 'held'; returns how many of them are
 * copies. */
static size_t
hold(struct gw *gw, struct dp_packet *held[], size_t n)
{
    size_t n_copies = 0;

    for (size_t i = 0; i < n; i++) {
        receive_ip4(gw, 1, HOST_QPN, gw_neigh_ip4(1), gw_host_ip4(0));
        held[i] = receive_one(gw);
        n_copies += held[i]->source == DPBUF_MALLOC;
        check_posted(gw);
    }
    return n_copies;
}

/* Somebody holds more packets than the pool has buffers: they are copied,
 * until the pool has grown. */
static void
test_rx_grow(void)
{
    struct gw *gw = gw_open(128, 64);
    const atomic_uint64_t *no_buffer = &gw->rxq->stats.no_buffer;
    struct ipoib_pool_stats stats;
    struct dp_packet *held[701];
    uint64_t before;

    gw_add_neigh(gw, 1);
    gw_add_host(gw, 0, HOST_QPN, false);
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(hold(gw, held, 200));
    ovs_assert(counter(no_buffer) || !stats.zero_copy);
    ovs_assert(!ipoib_pool_grow(gw->pool) && !ipoib_pool_grow(gw->pool));
    ovs_assert(!ipoib_rxq_refill(gw->rxq) && gw->rxq->n_posted == 64);
    check_posted(gw);
    before = counter(no_buffer);
    ovs_assert(hold(gw, &held[200], 200) == (stats.zero_copy ? 0 : 200));
    ovs_assert(counter(no_buffer) == before);

    /* That is too much again, and copied again. */
    hold(gw, &held[400], 300);
    ovs_assert(counter(no_buffer) > before || !stats.zero_copy);

    /* Buffers of further pools that were lost. */
    ovs_assert(!ipoib_pool_grow(gw->pool));
    ovs_assert(!ipoib_rxq_refill(gw->rxq) && gw->rxq->n_posted == 64);
    gw->hca->posted_tail += 40;
    ipoib_rxq_suspect_loss(gw->rxq);
    for (int i = 0; i < 500; i++) {
        hold(gw, &held[700], 1);
        dp_packet_delete(held[700]);
    }
    ipoib_rxq_refill(gw->rxq);
    check_posted(gw);
    for (int i = 0; i < 700; i++) {
        dp_packet_delete(held[i]);
    }
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(stats.n_bufs == 1024 && !stats.n_packets);
    ovs_assert(stats.n_posted >= 64 && stats.n_posted <= 64 + 64 + 64);
    gw_close(gw);
}

/* Without an SRQ, all receives go with the base QP's reset: they are posted
 * again at once, however often that happens, and nothing else is needed to
 * find their buffers than one packet. */
static void
test_rx_reset(void)
{
    for (int n_resets = 0; n_resets <= 5; n_resets++) {
        for (int n_before = 0; n_before < 100; n_before += 33) {
            struct gw *gw = gw_open_without_srq(500, 128);
            struct null_hca *hca = gw->hca;
            struct ipoib_pool_stats stats;

            gw_add_neigh(gw, 1);
            gw_add_host(gw, 0, gw->rxq->base_qp->qp_num, true);
            hca->post_recv_limit = 128;
            for (int i = 0; i < n_before; i++) {
                receive_ip4(gw, 1, gw->rxq->base_qp->qp_num, gw_neigh_ip4(1),
                            gw_host_ip4(0));
                dp_packet_delete(receive_one(gw));
            }
            for (int i = 0; i < n_resets; i++) {
                hca->posted_tail = hca->posted_head;
                ipoib_rxq_suspect_loss(gw->rxq);
                receive_none(gw);
                ovs_assert(hca->posted_head - hca->posted_tail == 128);
            }
            receive_ip4(gw, 1, gw->rxq->base_qp->qp_num, gw_neigh_ip4(1),
                        gw_host_ip4(0));
            dp_packet_delete(receive_one(gw));
            ipoib_rxq_refill(gw->rxq);
            ovs_assert(hca->posted_head - hca->posted_tail == 128);
            ovs_assert(gw->rxq->n_posted == 128);
            ipoib_pool_get_stats(gw->pool, &stats);
            ovs_assert(stats.n_posted <= 128 + 128 + 32);
            ovs_assert(stats.n_free + stats.n_posted == 500);
            gw_close(gw);
        }
    }
}

/* Random packets, good and bad, in bursts, while OVS holds some of them: every
 * buffer stays accounted for.  What leaves the receive side goes back into the
 * send side. */
static void
test_random(void)
{
    struct gw *gw = gw_open(400, 128);
    struct dp_packet *kept[500];
    struct ipoib_pool_stats stats;
    struct dp_packet_batch batch;
    uint64_t total = 0;
    size_t n_kept = 0;
    struct ipoib_msg msg;

    for (int i = 0; i < 20; i++) {
        gw_add_neigh(gw, i);
        gw_add_host(gw, i, HOST_QPN + i, false);
    }
    for (int round = 0; round < 5000; round++) {
        for (int n = random_range(40); n > 0; n--) {
            uint32_t i = random_range(20), host = random_range(20);
            struct null_packet *p;

            p = receive_ip4(gw, i, HOST_QPN + host, gw_neigh_ip4(i),
                            gw_host_ip4(random_range(8) ? host : i));
            for (int m = random_range(8); m > 4; m--) {
                p->data[random_range(100)] = random_uint8();
            }
            p->len = random_range(4) ? p->len : random_range(2089);
            p->wc.wc_flags = random_range(3) ? 0 : IBV_WC_GRH;
            p->wc.status = random_range(50) ? IBV_WC_SUCCESS
                                            : IBV_WC_WR_FLUSH_ERR;
        }
        gw->hca->post_recv_limit = random_range(10) ? 0 : 64;
        ipoib_rxq_refill(gw->rxq);
        while (gw->hca->rx_head != gw->hca->rx_tail
               && gw->hca->posted_head != gw->hca->posted_tail) {
            gw->hca->rx_head = MIN(gw->hca->rx_head, gw->hca->rx_tail
                                   + gw->hca->posted_head
                                   - gw->hca->posted_tail);
            ipoib_batch_init(&batch);
            ipoib_rx_batch(gw->rxq, &batch);
            total += dp_packet_batch_size(&batch);
            for (size_t i = 0; i < dp_packet_batch_size(&batch); i++) {
                if (n_kept < ARRAY_SIZE(kept)) {
                    kept[n_kept++] = batch.packets[i];
                } else {
                    dp_packet_delete(batch.packets[i]);
                }
            }
        }
        while (ipoib_msgq_pop(gw->rxq->to_control, &msg)) {
            dp_packet_delete(msg.packet);
        }

        /* Back out, in one batch. */
        gw->hca->hold = !random_range(4);
        gw->hca->refuse_at = random_range(20) ? -1 : random_range(8);
        ipoib_batch_init(&batch);
        for (int n = random_range(33); n > 0 && n_kept; n--) {
            size_t i = random_range(n_kept);
            uint8_t *data = dp_packet_data(kept[i]);

            memcpy(data, &ipoib_neigh_of_slot(gw->shared.neighs,
                                              random_range(20))->mac, 6);
            for (int m = random_range(8); m > 4; m--) {
                data[random_range(60)] = random_uint8();
            }
            ipoib_batch_push(&batch, kept[i]);
            kept[i] = kept[--n_kept];
        }
        ipoib_tx_batch(gw->txq, &batch);
        while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
            dp_packet_delete(msg.packet);
        }
    }
    ovs_assert(total > 10000);

    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(stats.n_free + stats.n_posted + stats.n_packets == 400);
    ovs_assert(stats.n_posted >= gw->rxq->n_posted);
    while (n_kept) {
        dp_packet_delete(kept[--n_kept]);
    }
    gw->hca->hold = false;
    gw->hca->post_recv_limit = 0;
    ipoib_tx_reap(gw->txq);
    ipoib_rxq_refill(gw->rxq);
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(stats.n_posted == 128 && gw->rxq->n_posted == 128);
    gw_close(gw);
}

/* A pool lives on until the last packet is back. */
static void
test_pool(void)
{
    struct null_hca *hca = null_hca_open();
    struct ipoib_pool *pool;
    struct ipoib_buf bufs[70];
    struct dp_packet *packets[70];
    struct ipoib_pool_stats stats;

    pool = ipoib_pool_create(&null_verbs, &hca->pd, 64, 4096, 0);
    ovs_assert(ipoib_pool_get(pool, bufs, 70) == 64);
    for (int i = 0; i < 64; i++) {
        ovs_assert(bufs[i].size == 4096 + 40);
        ovs_assert(ipoib_pool_data(pool, bufs[i].id) == bufs[i].data);
        memset(bufs[i].data, i, bufs[i].size);
    }
    for (int i = 0; i < 32; i++) {
        packets[i] = ipoib_pool_to_packet(pool, bufs[i].id, 30, 100);
        ovs_assert(dp_packet_size(packets[i]) == 100);
        ovs_assert(dp_packet_headroom(packets[i]) >= 128);
        ovs_assert(*(uint8_t *) dp_packet_data(packets[i]) == i);
        dp_packet_push_zeros(packets[i], 120);
        dp_packet_pull(packets[i], 120);
    }
    ipoib_pool_get_stats(pool, &stats);
    ovs_assert(stats.n_posted == 32);
    ovs_assert(stats.n_packets == (stats.zero_copy ? 32 : 0));
    if (stats.zero_copy) {
        struct ibv_pd other_pd;
        uint32_t lkey = ipoib_pool_packet_lkey(pool, packets[0]);

        ovs_assert(lkey && lkey == ipoib_pool_lkey(pool));
        ovs_assert(ipoib_pool_region(&hca->pd, packets[0]).lkey);
        ovs_assert(!ipoib_pool_region(&other_pd, packets[0]).lkey);
    }
    for (int i = 32; i < 64; i++) {
        ipoib_pool_put(pool, bufs[i].id);
    }

    ipoib_pool_detach(pool);
    ipoib_pool_eal_close(&hca->pd);
    ovs_assert(!hca->n_objects);
    ipoib_pool_sweep();
    ovsrcu_quiesce();
    for (int i = 0; i < 32; i++) {
        ovs_assert(((uint8_t *) dp_packet_data(packets[i]))[99] == i);
        ovs_assert(!ipoib_pool_region(&hca->pd, packets[i]).lkey);
        dp_packet_delete(packets[i]);
    }
    ipoib_pool_sweep();
    null_hca_close(hca);
}

static void
test_ipoib_datapath_main(int argc, char *argv[])
{
    struct { const char *name; void (*function)(void); } tests[] = {
        { "msgq", test_msgq },
        { "waker", test_waker },
        { "limiter", test_limiter },
        { "pool", test_pool },
        { "rx-unicast", test_rx_unicast },
        { "rx-sender", test_rx_sender },
        { "rx-receiver", test_rx_receiver },
        { "rx-group", test_rx_group },
        { "rx-control", test_rx_control },
        { "rx-malformed", test_rx_malformed },
        { "rx-return", test_rx_return },
        { "rx-lost", test_rx_lost },
        { "rx-grow", test_rx_grow },
        { "rx-reset", test_rx_reset },
        { "random", test_random },
    };

    size_t n_run = 0;

    random_set_seed(argc > 2 ? atoi(argv[2]) : 1);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        if (argc < 2 || !strcmp(argv[1], tests[i].name)) {
            tests[i].function();
            n_run++;
        }
    }
    if (!n_run) {
        ovs_fatal(0, "no test \"%s\"", argv[1]);
    }
}

OVSTEST_REGISTER("test-ipoib-datapath", test_ipoib_datapath_main);
