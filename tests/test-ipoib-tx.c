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
#include "ipoib-tx.h"

#include <errno.h>

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-mcast.h"
#include "ipoib-ring-private.h"
#include "ipoib-test-gateway.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

/* Tests of the send side of the data path, on a null device. */

static uint64_t
counter(const atomic_uint64_t *c)
{
    return ipoib_counter_read(c);
}

/* A frame with 'len' bytes behind the Ethernet header, which are 'payload', or
 * else counted up. */
static struct dp_packet *
make_frame(struct eth_addr src, struct eth_addr dst, uint16_t type,
           const void *payload, size_t len)
{
    struct dp_packet *packet = dp_packet_new_with_headroom(
        ETH_HEADER_LEN + len, 128);
    struct eth_header *eth = dp_packet_put_zeros(packet, ETH_HEADER_LEN);

    eth->eth_src = src;
    eth->eth_dst = dst;
    eth->eth_type = htons(type);
    if (payload) {
        dp_packet_put(packet, payload, len);
    } else {
        uint8_t *p = dp_packet_put_uninit(packet, len);

        for (size_t i = 0; i < len; i++) {
            p[i] = i;
        }
    }
    return packet;
}

/* IPv4 from host 'i' to neighbour 'j', an IP packet of 'len' bytes, padded
 * with 'pad' bytes. */
static struct dp_packet *
make_ip4(unsigned int i, struct eth_addr dst, ovs_be32 ip_dst, size_t len,
         size_t pad)
{
    uint8_t ip[4096];

    memset(ip, 0xee, sizeof ip);
    gw_ip4(ip, gw_host_ip4(i), ip_dst, len);
    return make_frame(gw_host_mac(i), dst, ETH_TYPE_IP, ip, len + pad);
}

static void
send_frame(struct gw *gw, struct dp_packet *packet)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ipoib_batch_push(&batch, packet);
    ipoib_tx_batch(gw->txq, &batch);
    ipoib_batch_destroy(&batch);
}

/* Sends 'packet', which is dropped, and '*c' goes up by one. */
static void
send_dropped(struct gw *gw, struct dp_packet *packet,
             const atomic_uint64_t *c)
{
    uint64_t before = counter(c);
    uint32_t n_sent = gw->hca->n_sent;

    send_frame(gw, packet);
    ovs_assert(gw->hca->n_sent == n_sent);
    ovs_assert(ipoib_msgq_is_empty(gw->txq->to_control));
    ovs_assert(counter(c) == before + 1);
}

/* Sends 'packet', whose destination 'mac' is nobody's: it is dropped, and the
 * control thread is told of 'dst'. */
static void
check_hint(struct gw *gw, struct dp_packet *packet, struct eth_addr mac,
           ovs_be32 dst)
{
    const atomic_uint64_t *c = &gw->txq->stats.drop_unknown_mac;
    uint64_t before = counter(c);
    struct ipoib_msg msg;

    send_frame(gw, packet);
    ovs_assert(counter(c) == before + 1);
    ovs_assert(ipoib_msgq_pop(gw->txq->to_control, &msg));
    ovs_assert(msg.type == IPOIB_MSG_TX_HINT && !msg.packet);
    ovs_assert(eth_addr_equals(msg.mac, mac));
    ovs_assert(in6_addr_get_mapped_ipv4(&msg.dst) == dst);
    ovs_assert(IN6_IS_ADDR_V4MAPPED(&msg.src));
    ovs_assert(ipoib_msgq_is_empty(gw->txq->to_control));
}

/* Sends 'packet', which goes to the control thread; returns the message. */
static struct ipoib_msg
send_to_control(struct gw *gw, struct dp_packet *packet,
                enum ipoib_msg_type type)
{
    struct ipoib_msg msg;

    send_frame(gw, packet);
    do {
        ovs_assert(ipoib_msgq_pop(gw->txq->to_control, &msg));
    } while (msg.type == IPOIB_MSG_TX_HOST && type != msg.type);
    ovs_assert(msg.type == type);
    return msg;
}

static const struct null_send *
last_sent(const struct gw *gw)
{
    return &gw->hca->sent[(gw->hca->n_sent - 1) % NULL_MAX];
}

static void
drain(struct gw *gw)
{
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
}

static void
test_unicast(void)
{
    struct gw *gw = gw_open(64, 32);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    static const size_t sizes[] = { 28, 46, 47, 100, 124, 125, 1500, 2044 };
    uint32_t n_sent = 0;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (int six = 0; six < 2; six++) {
            const struct null_send *send;
            uint8_t ip[2048];

            if (six && sizes[i] < 48) {
                continue;
            }
            if (six) {
                struct in6_addr src = gw_host_ip6(0), dst = gw_neigh_ip6(1);

                gw_ip6(ip, &src, &dst, sizes[i]);
            } else {
                gw_ip4(ip, gw_host_ip4(0), gw_neigh_ip4(1), sizes[i]);
            }
            send_frame(gw, make_frame(gw_host_mac(0), standin,
                                      six ? ETH_TYPE_IPV6 : ETH_TYPE_IP, ip,
                                      MIN(2044, sizes[i] + 18)));
            ovs_assert(gw->hca->n_sent == ++n_sent);
            send = last_sent(gw);
            ovs_assert(send->sqpn == gw->txq->qp->qp_num);
            ovs_assert(send->dqpn == 0x2001 && send->qkey == GW_QKEY);
            ovs_assert(send->ah == gw_ah(1));
            ovs_assert(send->len == sizes[i] + 4);
            ovs_assert(!memcmp(send->data, six ? "\x86\xdd\0\0" : "\x8\0\0\0",
                               4));
            ovs_assert(!memcmp(send->data + 4, ip, sizes[i]));
            ovs_assert(send->flags & IBV_SEND_SIGNALED);
            ovs_assert(!(send->flags & IBV_SEND_INLINE) == (sizes[i] > 124));
        }
    }
    ovs_assert(counter(&gw->txq->stats.packets) == n_sent);

    /* From a neighbour, by way of Ethernet: a loop. */
    struct eth_addr other = gw_add_neigh(gw, 2)->mac;
    uint8_t ip[64];

    gw_ip4(ip, gw_neigh_ip4(2), gw_neigh_ip4(1), 64);
    for (int i = 1; i <= 3; i++) {
        send_frame(gw, make_frame(other, standin, ETH_TYPE_IP, ip, 64));
        ovs_assert(counter(&gw->txq->stats.drop_loop) == i);
        send_frame(gw, make_frame(gw_host_mac(0), standin, ETH_TYPE_IP, ip,
                                  64));
        ovs_assert(counter(&gw->txq->stats.packets) == ++n_sent);
    }
    gw_close(gw);
}

/* Frames with a tag of VLAN 0, which has a priority only, are sent like
 * others, in order between others; with other tags they are dropped. */
static void
test_tags(void)
{
    struct gw *gw = gw_open(64, 32);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct dp_packet_batch batch;
    struct dp_packet *packet;

    ipoib_batch_init(&batch);
    for (size_t i = 0; i < 9; i++) {
        packet = make_ip4(0, standin, gw_neigh_ip4(1), 100 + i, 0);
        if (i % 3 == 1) {
            eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q),
                          htons(6 << VLAN_PCP_SHIFT));
        } else if (i % 3 == 2) {
            eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(7));
        }
        ipoib_batch_push(&batch, packet);
    }
    ipoib_tx_batch(gw->txq, &batch);
    ipoib_batch_destroy(&batch);
    ovs_assert(gw->hca->n_sent == 6);
    for (size_t i = 0; i < 6; i++) {
        ovs_assert(gw->hca->sent[i].len == 104 + i / 2 * 3 + i % 2);
        ovs_assert(!memcmp(gw->hca->sent[i].data, "\x8\0\0\0\x45", 5));
    }
    ovs_assert(counter(&gw->txq->stats.drop_vlan) == 3);
    ovs_assert(counter(&gw->txq->stats.packets) == 6);

    for (int tpid = 0; tpid < 2; tpid++) {
        packet = make_ip4(0, standin, gw_neigh_ip4(1), 100, 0);
        eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(0));
        eth_push_vlan(packet, htons(tpid ? ETH_TYPE_VLAN_8021AD
                                    : ETH_TYPE_VLAN_8021Q), htons(0));
        drain(gw);
        send_dropped(gw, packet, &gw->txq->stats.drop_vlan);
    }
    packet = make_ip4(0, standin, gw_neigh_ip4(1), 100, 0);
    eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(0));
    dp_packet_set_size(packet, ETH_HEADER_LEN + 2);
    send_dropped(gw, packet, &gw->txq->stats.drop_vlan);
    gw_close(gw);
}

/* Sends 'n' packets to 'lost', which is nobody's.  Returns how often the
 * control thread has heard of it. */
static size_t
send_lost(struct gw *gw, struct eth_addr lost, size_t n)
{
    struct ipoib_msg msg;
    size_t n_told = 0;

    for (size_t i = 0; i < n; i++) {
        send_frame(gw, make_ip4(0, lost, gw_neigh_ip4(1), 100, 0));
        while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
            ovs_assert(msg.type == IPOIB_MSG_TX_HINT && !msg.packet);
            n_told++;
        }
    }
    return n_told;
}

/* Much traffic to a MAC that is nobody's: the control thread hears of it once
 * a second, and of the host's ARP as ever. */
static void
test_lost(void)
{
    struct gw *gw = gw_open(64, 32);
    struct eth_addr lost = ETH_ADDR_C(52,54,00,ff,ff,01);
    struct ipoib_msg msg;

    ovs_assert(send_lost(gw, lost, IPOIB_LIMIT_BURST) == 1);
    gw_next_second(gw);
    ovs_assert(send_lost(gw, lost, IPOIB_LIMIT_BURST) == 1);
    ovs_assert(counter(&gw->txq->stats.drop_unknown_mac)
               == 2 * IPOIB_LIMIT_BURST);
    msg = send_to_control(
        gw, ipoib_compose_arp_eth(ARP_OP_REQUEST, false, gw_host_mac(0),
                                  eth_addr_broadcast, gw_host_mac(0),
                                  gw_host_ip4(0), eth_addr_zero,
                                  gw_neigh_ip4(1)),
        IPOIB_MSG_TX_ARP);
    dp_packet_delete(msg.packet);
    ovs_assert(!counter(&gw->txq->stats.drop_rate));
    gw_close(gw);
}

static void
test_dropped(void)
{
    struct gw *gw = gw_open(64, 32);
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct eth_addr standin = neigh->mac, mac = gw_host_mac(0);
    struct eth_addr stp = ETH_ADDR_C(01,80,c2,00,00,00);
    struct eth_addr cluster = ETH_ADDR_C(03,bf,0a,00,00,01);
    struct eth_addr unknown = ETH_ADDR_C(52,54,00,ff,ff,01);
    static const uint16_t types[] = { 30, 0x88b5, 0x88cc, 0x8847, 0x9000 };
    struct dp_packet *packet;

    send_frame(gw, make_ip4(0, standin, gw_neigh_ip4(1), 100, 0));
    drain(gw);                  /* The source has been told now. */

    check_hint(gw, make_ip4(0, unknown, gw_neigh_ip4(1), 100, 0), unknown,
               gw_neigh_ip4(1));
    send_dropped(gw, make_ip4(0, eth_addr_zero, gw_neigh_ip4(1), 100, 0),
                 &stats->drop_unknown_mac);
    send_dropped(gw, make_ip4(0, cluster, gw_neigh_ip4(1), 100, 0),
                 &stats->drop_unknown_mac);
    /* What is too long is looked at closely: it has no checksum. */
    send_dropped(gw, make_ip4(0, standin, gw_neigh_ip4(1), 2045, 0),
                 &stats->drop_bad_ip);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 1500);
    send_dropped(gw, make_ip4(0, standin, gw_neigh_ip4(1), 1501, 0),
                 &stats->drop_bad_ip);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        send_dropped(gw, make_frame(mac, standin, types[i], NULL, 46),
                     &stats->drop_type);
        send_dropped(gw, make_frame(mac, stp, types[i], NULL, 46),
                     &stats->drop_type);
        send_dropped(gw, make_frame(mac, eth_addr_broadcast, types[i], NULL,
                                    46), &stats->drop_type);
    }
    packet = make_ip4(0, standin, gw_neigh_ip4(1), 100, 0);
    eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(5));
    send_dropped(gw, packet, &stats->drop_vlan);
    for (size_t len = 0; len < ETH_HEADER_LEN; len++) {
        packet = make_ip4(0, standin, gw_neigh_ip4(1), 100, 0);
        dp_packet_set_size(packet, len);
        send_dropped(gw, packet, &stats->drop_short);
    }
    for (int dst = 0; dst < 2; dst++) {
        struct eth_addr to = dst ? eth_addr_broadcast : standin;
        static const struct { size_t at; uint8_t value; } bad[] = {
            { 0, 0x44 }, { 0, 0x65 }, { 0, 0x35 }, { 2, 0xff }, { 3, 19 },
            { 3, 0 }, { 3, 61 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
            packet = make_ip4(0, to, gw_neigh_ip4(1), 60, 0);
            ((uint8_t *) dp_packet_data(packet))[14 + bad[i].at]
                = bad[i].value;
            send_dropped(gw, packet, &stats->drop_bad_ip);
        }
        for (size_t len = 0; len < 20; len++) {
            packet = make_ip4(0, to, gw_neigh_ip4(1), 60, 0);
            dp_packet_set_size(packet, ETH_HEADER_LEN + len);
            send_dropped(gw, packet, &stats->drop_bad_ip);
        }
        for (size_t len = 0; len < 40; len++) {
            send_dropped(gw, make_frame(mac, to, ETH_TYPE_IPV6, "\x60\0\0\0\0",
                                        len ? 5 : 0), &stats->drop_bad_ip);
        }
        send_dropped(gw, make_frame(mac, to, ETH_TYPE_ARP, NULL, 28),
                     &stats->drop_bad_arp);
    }

    atomic_store_relaxed(&gw->shared.up, false);
    send_dropped(gw, make_ip4(0, standin, gw_neigh_ip4(1), 100, 0),
                 &stats->drop_down);
    gw_close(gw);
}

static void
test_control(void)
{
    struct gw *gw = gw_open(64, 32);
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct eth_addr mac = gw_host_mac(0);
    struct in6_addr src6 = gw_host_ip6(0), dst6 = gw_neigh_ip6(1);
    struct eth_addr groups[] = {
        ETH_ADDR_C(01,00,5e,01,02,03), /* Of another group: it does not
                                        * count. */
        ETH_ADDR_C(ff,ff,ff,ff,ff,ff),
    };
    struct ib_gid mgid;
    struct dp_packet *packet, *arp;
    struct ipoib_msg msg;
    uint8_t ip[200];

    /* ARP. */
    arp = ipoib_compose_arp_eth(1, false, mac, eth_addr_broadcast, mac,
                                gw_host_ip4(0), eth_addr_zero,
                                gw_neigh_ip4(1));
    msg = send_to_control(gw, dp_packet_clone(arp), IPOIB_MSG_TX_ARP);
    ovs_assert(dp_packet_equal(msg.packet, arp));
    dp_packet_delete(arp);
    dp_packet_delete(msg.packet);

    /* ND, with padding. */
    gw_ip6(ip, &src6, &dst6, 72);
    memset(ip + 40, 0, 32);
    ip[6] = IPPROTO_ICMPV6;
    ip[40] = 135;
    msg = send_to_control(gw, make_frame(mac, neigh->mac, ETH_TYPE_IPV6, ip,
                                         90), IPOIB_MSG_TX_ND);
    ovs_assert(msg.l4_ofs == 40 && dp_packet_size(msg.packet) == 14 + 72);
    dp_packet_delete(msg.packet);

    /* Broadcast. */
    msg = send_to_control(gw, make_ip4(0, eth_addr_broadcast,
                                       htonl(0x0a0000ff), 40, 6),
                          IPOIB_MSG_TX_BROADCAST);
    ovs_assert(dp_packet_size(msg.packet) == 14 + 40);
    dp_packet_delete(msg.packet);

    /* A group, by its IP address; first not joined. */
    mgid = ipoib_mgid_ipv4(htonl(0xe0050607), GW_PKEY, 2);
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        struct ipoib_mcast_group *group;
        const struct null_send *send;

        packet = make_ip4(0, groups[i], htonl(0xe0050607), 40, 6);
        if (!i) {
            msg = send_to_control(gw, packet, IPOIB_MSG_TX_GROUP);
            ovs_assert(ib_gid_equals(&msg.mgid, &mgid) && !msg.l4_ofs);
            dp_packet_delete(msg.packet);

            group = ipoib_mcast_want(gw->shared.mcast, &mgid,
                                     IPOIB_MCAST_SEND);
            atomic_store_relaxed(&ipoib_mcast_fast(gw->shared.mcast,
                                                   group->slot)->ah,
                                 gw_ah(77));
            packet = make_ip4(0, groups[i], htonl(0xe0050607), 40, 6);
        }
        send_frame(gw, packet);
        ovs_assert(gw->hca->n_sent == i + 1);
        send = last_sent(gw);
        ovs_assert(send->ah == gw_ah(77) && send->dqpn == 0xffffff);
        ovs_assert(send->len == 44);
    }
    ovs_assert(counter(&gw->txq->stats.multicast) == 2);

    /* IGMP, also to a group that is joined. */
    packet = make_ip4(0, groups[0], htonl(0xe0050607), 40, 6);
    ((uint8_t *) dp_packet_data(packet))[14 + 9] = IPPROTO_IGMP;
    msg = send_to_control(gw, packet, IPOIB_MSG_TX_GROUP);
    ovs_assert(msg.l4_ofs == 20 && ib_gid_equals(&msg.mgid, &mgid));
    dp_packet_delete(msg.packet);

    /* No path. */
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, NULL, 0);
    msg = send_to_control(gw, make_ip4(0, neigh->mac, gw_neigh_ip4(1), 40, 6),
                          IPOIB_MSG_TX_NO_PATH);
    ovs_assert(msg.slot == neigh->slot);
    ovs_assert(dp_packet_size(msg.packet) == 14 + 40);
    dp_packet_delete(msg.packet);
    ovs_assert(gw->hca->n_sent == 2);
    gw_close(gw);
}

/* Each source of unicasts is told once a second. */
static void
test_sources(void)
{
    struct gw *gw = gw_open(64, 32);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_msg msg;
    int told[8] = { 0 };

    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 8; i++) {
            send_frame(gw, make_ip4(i, standin, gw_neigh_ip4(1), 40, 6));
        }
    }
    while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
        uint64_t i = (eth_addr_to_uint64(msg.mac)
                      - eth_addr_to_uint64(gw_host_mac(0)));

        ovs_assert(msg.type == IPOIB_MSG_TX_HOST && i < 8 && !msg.packet);
        told[i]++;
    }
    for (int i = 0; i < 8; i++) {
        ovs_assert(told[i] == 1);
    }
    gw_close(gw);
}

static void
fill_batch(struct dp_packet_batch *batch, struct eth_addr dst, size_t n)
{
    ipoib_batch_init(batch);
    for (size_t i = 0; i < n; i++) {
        ipoib_batch_push(batch, make_ip4(0, dst, gw_neigh_ip4(1), 500, 0));
    }
}

/* One signalled WR a burst; and a queue that fills up, and empties. */
static void
test_full(void)
{
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct dp_packet_batch batch;
    uint32_t n = gw->txq->n_desc;

    gw->hca->hold = true;
    for (size_t i = 0; i < n / 32; i++) {
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(gw->txq, &batch);
    }
    ovs_assert(gw->hca->n_sent == n);
    ovs_assert(gw->hca->done_head == n / 32);
    fill_batch(&batch, standin, 32);
    ipoib_tx_batch(gw->txq, &batch);
    ovs_assert(gw->hca->n_sent == n);
    ovs_assert(counter(&gw->txq->stats.drop_queue_full) == 32);

    gw->hca->hold = false;
    for (int i = 0; i < 100; i++) {
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(gw->txq, &batch);
    }
    ovs_assert(gw->hca->n_sent == n + 3200);
    ovs_assert(counter(&gw->txq->stats.drop_queue_full) == 32);
    ovs_assert(counter(&gw->txq->stats.packets) == n + 3200);
    ovs_assert(counter(&gw->txq->stats.bytes) == (n + 3200) * 514);
    gw_close(gw);
}

/* What the device refuses. */
static void
test_refused(void)
{
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct dp_packet_batch batch;

    gw->hca->refuse_at = 10;
    fill_batch(&batch, standin, 32);
    ipoib_tx_batch(txq, &batch);
    ovs_assert(counter(&txq->stats.drop_post) == 22);
    ovs_assert(counter(&txq->stats.packets) == 10);
    ovs_assert(counter(&txq->stats.bytes) == 10 * 514);
    gw->hca->refuse_at = -1;
    for (int i = 0; i < 20; i++) {
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
    }
    ovs_assert(counter(&txq->stats.packets) == 10 + 20 * 32);
    ovs_assert(!counter(&txq->stats.drop_queue_full));
    ovs_assert(!ipoib_txq_is_still(txq));

    /* All of it, again and again: the queue is to be restarted. */
    gw->hca->refuse_at = 0;
    for (int i = 0; i < 8; i++) {
        ovs_assert(!ipoib_txq_is_still(txq));
        fill_batch(&batch, standin, 1);
        ipoib_tx_batch(txq, &batch);
    }
    ovs_assert(ipoib_txq_is_still(txq));
    gw_close(gw);
}

/* A send that fails: all that follow are flushed, until the control thread
 * restarts the queue.  In every other round, another burst is posted before
 * the completions come. */
static void
test_failed(void)
{
    const struct ipoib_ud_params ud = { .port = 1 };
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct ipoib_tx_stats *stats = &txq->stats;
    struct dp_packet_batch batch;
    uint64_t n_lost = 0;

    for (int round = 1; round < 10; round++) {
        uint64_t n = counter(&stats->packets);
        bool late = round % 2 == 0;
        struct ipoib_msg msg;
        int n_held;

        gw->hca->fail_at = 5;
        gw->hca->hold = late;
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
        gw->hca->fail_at = -1;
        gw->hca->hold = false;
        n += 32;
        n_lost += 27;
        if (late) {
            ovs_assert(!ipoib_txq_is_still(txq));
            fill_batch(&batch, standin, 32);
            ipoib_tx_batch(txq, &batch);
            n += 32;
            n_lost += 32;
        }
        ovs_assert(ipoib_txq_is_still(txq));
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
        ovs_assert(counter(&stats->packets) == n);
        ovs_assert(counter(&stats->drop_error) == n_lost);
        ovs_assert(txq->slots->head == txq->slots->tail);
        /* Only what was posted is lost; the control thread gets the rest. */
        ovs_assert(counter(&stats->drop_post) == 0);
        ovs_assert(counter(&stats->to_control) == round * 32);
        for (n_held = 0; ipoib_msgq_pop(txq->to_control, &msg); ) {
            n_held += msg.type == IPOIB_MSG_TX_NO_PATH;
            dp_packet_delete(msg.packet);
        }
        ovs_assert(n_held == 32);
        ovs_assert(!ipoib_txq_restart(txq, &ud));

        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
        ovs_assert(counter(&stats->packets) == n + 32);
        ovs_assert(counter(&stats->to_control) == round * 32);
    }
    gw_close(gw);
}

/* The same, where a packet in the middle of a burst has a tag, and so is
 * worked on by itself: completions are taken once, behind the burst, since
 * nothing may be posted after a failure was noticed. */
static void
test_failed_tagged(void)
{
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct dp_packet_batch batch;

    gw->hca->fail_at = 5;
    gw->hca->hold = true;
    fill_batch(&batch, standin, 32);
    ipoib_tx_batch(txq, &batch);
    gw->hca->hold = false;
    gw->hca->hold_polls = 1;
    fill_batch(&batch, standin, 31);
    eth_push_vlan(batch.packets[1], htons(ETH_TYPE_VLAN_8021Q), 0);
    ipoib_tx_batch(txq, &batch);
    ovs_assert(!gw->hca->hold_polls);
    ovs_assert(gw->hca->n_sent == 32 + 31);
    ovs_assert(!ipoib_txq_is_still(txq));
    fill_batch(&batch, standin, 1);
    ipoib_tx_batch(txq, &batch);
    ovs_assert(ipoib_txq_is_still(txq));
    ovs_assert(txq->slots->head == txq->slots->tail);
    gw_close(gw);
}

/* A failure that is noticed in the middle of a burst: from then on the queue
 * pair is the control thread's. */
static void
test_failed_late(void)
{
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct dp_packet_batch batch;
    uint32_t n = txq->n_desc;

    gw->hca->hold = true;
    gw->hca->fail_at = 5;
    for (size_t i = 0; i < n / 32; i++) {
        fill_batch(&batch, standin, i ? 32 : 16);
        ipoib_tx_batch(txq, &batch);
        gw->hca->fail_at = -1;
    }
    ovs_assert(gw->hca->n_sent == n - 16);

    gw->hca->hold = false;
    gw->hca->hold_polls = 1;
    fill_batch(&batch, standin, 32);
    ipoib_tx_batch(txq, &batch);
    ovs_assert(ipoib_txq_is_still(txq));
    ovs_assert(gw->hca->n_sent == n - 16);
    /* Those for which there was room at first, and the one that found out. */
    ovs_assert(counter(&txq->stats.drop_post) == 17);
    ovs_assert(counter(&txq->stats.to_control) == 15);
    ovs_assert(counter(&txq->stats.packets) == n - 16);
    gw_close(gw);
}

/* A failure that is noticed between two packets that are cut into fragments,
 * whose bursts are posted by themselves: the same. */
static void
test_failed_between(void)
{
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct dp_packet_batch batch;
    uint8_t ip[3000];
    ovs_be16 sum;

    gw_ip4(ip, gw_host_ip4(0), gw_neigh_ip4(1), sizeof ip);
    sum = csum(ip, IP_HEADER_LEN);
    memcpy(ip + offsetof(struct ip_header, ip_csum), &sum, sizeof sum);
    ipoib_batch_init(&batch);
    for (size_t i = 0; i < 16; i++) {
        ipoib_batch_push(&batch, make_frame(gw_host_mac(0), standin,
                                            ETH_TYPE_IP, ip, sizeof ip));
    }
    gw->hca->refuse_at = 0;
    ipoib_tx_batch(txq, &batch);
    gw->hca->refuse_at = -1;
    ovs_assert(ipoib_txq_is_still(txq));
    ovs_assert(counter(&txq->stats.fragments) == 32);
    ovs_assert(counter(&txq->stats.drop_post) == 16);
    ovs_assert(counter(&txq->stats.to_control) == 16);
    ovs_assert(!counter(&txq->stats.packets));
    ovs_assert(!counter(&txq->stats.bytes));
    drain(gw);
    gw_close(gw);
}

/* A queue that is stopped on purpose, with sends outstanding. */
static void
test_stopped(void)
{
    const struct ipoib_ud_params ud = { .port = 1 };
    struct gw *gw = gw_open(64, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_txq *txq = gw->txq;
    struct dp_packet_batch batch;

    for (int round = 1; round < 5; round++) {
        gw->hca->hold = true;
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
        ipoib_txq_stop(txq);
        for (int i = 0; !ipoib_txq_is_still(txq); i++) {
            ovs_assert(i < 1000);
            fill_batch(&batch, standin, 1);
            ipoib_tx_batch(txq, &batch);
            ovsrcu_quiesce();
            xnanosleep(1000 * 1000);
        }
        ovs_assert(!ipoib_txq_restart(txq, &ud));
        gw->hca->hold = false;
        fill_batch(&batch, standin, 32);
        ipoib_tx_batch(txq, &batch);
        ovs_assert(counter(&txq->stats.packets) == round * 64);
    }
    ipoib_txq_stop(txq);        /* Destroyed in the middle of it. */
    gw_close(gw);
}

/* What lies in registered memory is sent from there and held meanwhile. */
static void
test_zero_copy(void)
{
    struct gw *gw = gw_open(128, 64);
    struct eth_addr standin = gw_add_neigh(gw, 1)->mac;
    struct ipoib_pool_stats stats;
    struct ipoib_buf bufs[8];

    ipoib_pool_get_stats(gw->pool, &stats);
    if (!stats.zero_copy) {
        gw_close(gw);
        return;
    }
    ovs_assert(ipoib_pool_get(gw->pool, bufs, 8) == 8);
    gw->hca->hold = true;
    for (int i = 0; i < 8; i++) {
        struct dp_packet *packet;
        uint8_t *eth = (uint8_t *) bufs[i].data + 30;

        gw_ip4(eth + 14, gw_host_ip4(0), gw_neigh_ip4(1), 60 + i * 20);
        memcpy(eth, &standin, 6);
        memcpy(eth + 12, "\x8\0", 2);
        packet = ipoib_pool_to_packet(gw->pool, bufs[i].id, 30, 74 + i * 20);
        uint32_t lkey = ipoib_pool_region(&gw->hca->pd, packet).lkey;
        ovs_assert(lkey);
        send_frame(gw, packet);
        const struct null_send *send = last_sent(gw);
        bool held = 64 + i * 20 > 128;
        ovs_assert(!(send->flags & IBV_SEND_INLINE) == held);
        if (held) {
            ovs_assert(send->lkey == lkey);
            ovs_assert(send->addr == (uintptr_t) (eth + 10));
        }
        ipoib_pool_get_stats(gw->pool, &stats);
        ovs_assert(stats.n_packets == (held ? i - 3 : 0));
    }
    ovs_assert(ipoib_txq_holds(gw->txq));

    /* The control thread releases what an idle queue holds. */
    gw->hca->hold = false;
    ipoib_txq_stop(gw->txq);
    for (int i = 0; !ipoib_txq_is_still(gw->txq); i++) {
        ovs_assert(i < 1000);
        ovsrcu_quiesce();
        xnanosleep(1000 * 1000);
    }
    ovs_assert(ipoib_tx_reap(gw->txq));
    ipoib_txq_continue(gw->txq);
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(!stats.n_packets && !ipoib_txq_holds(gw->txq));
    uint64_t n_sent = counter(&gw->txq->stats.packets);
    send_frame(gw, make_ip4(0, standin, gw_neigh_ip4(1), 500, 0));
    ovs_assert(counter(&gw->txq->stats.packets) == n_sent + 1);

    /* The control thread gets a copy. */
    ovs_assert(ipoib_pool_get(gw->pool, bufs, 1) == 1);
    uint8_t *eth = (uint8_t *) bufs[0].data + 30;
    gw_ip4(eth + 14, gw_host_ip4(0), htonl(0xffffffff), 60);
    memset(eth, 0xff, 6);
    memcpy(eth + 12, "\x8\0", 2);
    struct ipoib_msg msg = send_to_control(
        gw, ipoib_pool_to_packet(gw->pool, bufs[0].id, 30, 74),
        IPOIB_MSG_TX_BROADCAST);
    ovs_assert(msg.packet->source == DPBUF_MALLOC);
    dp_packet_delete(msg.packet);
    gw_close(gw);
}

/* The control thread's queue. */

static uint32_t failed_qpn;

static void
send_failed(void *aux OVS_UNUSED, uint32_t qpn,
            enum ibv_wc_status status OVS_UNUSED)
{
    failed_qpn = qpn;
}

static void
test_ctlq(void)
{
    const struct ipoib_ud_params ud = { .port = 1, .qkey = GW_QKEY };
    struct gw *gw = gw_open(64, 64);
    struct ipoib_ctlq *q = ipoib_ctlq_create(&null_verbs, &gw->hca->ctx,
                                             &gw->hca->pd, 8, 2048);
    struct ibv_qp *qp = ipoib_rxq_create_host_qp(gw->rxq, ipoib_ctlq_cq(q),
                                                 &ud);
    struct dp_packet *packet = dp_packet_new(2048);

    dp_packet_put_zeros(packet, 1000);
    ovs_assert(qp && qp->send_cq == ipoib_ctlq_cq(q));
    ovs_assert(qp->recv_cq == gw->rxq->cq && qp->srq == gw->rxq->srq);
    for (int round = 0; round < 3; round++) {
        gw->hca->hold = true;
        for (int i = 0; i < 8; i++) {
            ovs_assert(!ipoib_ctlq_send(q, qp, packet, gw_ah(1), 77,
                                        GW_QKEY));
        }
        ovs_assert(ipoib_ctlq_send(q, qp, packet, gw_ah(1), 77, GW_QKEY)
                   == EAGAIN);
        ovs_assert(last_sent(gw)->sqpn == qp->qp_num
                   && last_sent(gw)->len == 1000
                   && last_sent(gw)->dqpn == 77);
        gw->hca->hold = false;
        if (round == 1) {
            /* Completions that come all the same change nothing. */
            ipoib_ctlq_forget(q, qp->qp_num);
        }
        ipoib_ctlq_run(q, send_failed, NULL);
        ovs_assert(!failed_qpn);
    }
    gw->hca->fail_at = 0;
    ovs_assert(!ipoib_ctlq_send(q, qp, packet, gw_ah(1), 77, GW_QKEY));
    ipoib_ctlq_run(q, send_failed, NULL);
    ovs_assert(failed_qpn == qp->qp_num);
    dp_packet_put_zeros(packet, 1048);
    dp_packet_put_zeros(packet, 1);
    ovs_assert(ipoib_ctlq_send(q, qp, packet, gw_ah(1), 77, GW_QKEY)
               == EMSGSIZE);
    dp_packet_delete(packet);
    null_verbs.destroy_qp(qp);
    ipoib_ctlq_destroy(q);
    gw_close(gw);
}

static void
test_ipoib_tx_main(int argc, char *argv[])
{
    struct { const char *name; void (*function)(void); } tests[] = {
        { "tx-unicast", test_unicast },
        { "tx-dropped", test_dropped },
        { "tx-lost", test_lost },
        { "tx-tags", test_tags },
        { "tx-control", test_control },
        { "tx-sources", test_sources },
        { "tx-full", test_full },
        { "tx-refused", test_refused },
        { "tx-failed", test_failed },
        { "tx-failed-tagged", test_failed_tagged },
        { "tx-failed-late", test_failed_late },
        { "tx-failed-between", test_failed_between },
        { "tx-stopped", test_stopped },
        { "tx-zero-copy", test_zero_copy },
        { "ctlq", test_ctlq },
    };

    size_t n_run = 0;

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

OVSTEST_REGISTER("test-ipoib-tx", test_ipoib_tx_main);
