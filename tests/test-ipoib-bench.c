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

#include <stdlib.h>

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-test-gateway.h"
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* Load for the data path, without a fabric: what is received comes ready from
 * a null device, and what is sent ends there.  tests/ipoib-callgrind counts
 * the instructions, and test_checks() shows that these are those of a data
 * path that looks at its packets. */

#define N_HOSTS 16
#define HOST_QPN 0x100000
#define MIN_IP_LEN 46           /* Frames of 60 bytes, 64 with the FCS. */
#define MAX_INLINE_LEN 124      /* What gw_open()'s device sends inline. */
#define MAX_IP_LEN 1500

/* What the packets are. */
enum traffic {
    MIXED,                      /* One in 16 is IPv6. */
    IPV6,                       /* All are. */
    LONG,                       /* As MIXED; to send: too long for a WR, from
                                 * the pool's own memory. */
};

static struct gw *
open_gateway(size_t n_neighs)
{
    struct gw *gw;

    random_set_seed(1);         /* The same tables each time. */
    gw = gw_open(4096, 1024);
    for (size_t i = 0; i < n_neighs; i++) {
        gw_add_neigh(gw, i);
    }
    for (size_t i = 0; i < N_HOSTS; i++) {
        gw_add_host(gw, i, HOST_QPN + i, false);
    }
    gw->hca->sink = true;
    return gw;
}

static void
discard_messages(struct ipoib_msgq *q)
{
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(q, &msg)) {
        dp_packet_delete(msg.packet);
    }
}

/* Writes the IP packet of 'len' bytes that is number 'i' from 'neigh' to
 * 'host' (or back, if 'sent'), and returns its EtherType. */
static uint16_t
put_ip(uint8_t *ip, enum traffic traffic, size_t i, unsigned int neigh,
       unsigned int host, bool sent, size_t len)
{
    if (traffic == IPV6 || i % 16 == 15) {
        struct in6_addr a = gw_neigh_ip6(neigh), b = gw_host_ip6(host);

        gw_ip6(ip, sent ? &b : &a, sent ? &a : &b, MAX(len, 60));
        return ETH_TYPE_IPV6;
    }
    gw_ip4(ip, sent ? gw_host_ip4(host) : gw_neigh_ip4(neigh),
           sent ? gw_neigh_ip4(neigh) : gw_host_ip4(host), len);
    return ETH_TYPE_IP;
}

/* Transmit. */

static struct dp_packet *
new_packet(struct gw *gw, enum traffic traffic, size_t len)
{
    struct ipoib_buf buf;
    struct dp_packet *packet;

    if (traffic != LONG) {
        packet = dp_packet_new(len);
        dp_packet_put_zeros(packet, len);
    } else {
        ovs_assert(ipoib_pool_get(gw->pool, &buf, 1));
        packet = ipoib_pool_to_packet(gw->pool, buf.id, 30, len);
        memset(dp_packet_data(packet), 0, len);
    }
    return packet;
}

static struct dp_packet *
make_frame(struct gw *gw, enum traffic traffic, size_t i, unsigned int neigh,
           struct eth_addr dst)
{
    size_t span = traffic == LONG ? MAX_IP_LEN : MAX_INLINE_LEN;
    size_t least = traffic == LONG ? MAX_INLINE_LEN + 1 : MIN_IP_LEN;
    size_t len = MAX(60, least + i * 37 % (span - least));
    struct dp_packet *packet = new_packet(gw, traffic, ETH_HEADER_LEN + len);
    struct eth_header *eth = dp_packet_data(packet);

    eth->eth_dst = dst;
    eth->eth_src = gw_host_mac(i / 4 % N_HOSTS);
    eth->eth_type = htons(put_ip((uint8_t *) (eth + 1), traffic, i, neigh,
                                 i / 4 % N_HOSTS, true, len));
    return packet;
}

static struct eth_addr
standin_mac(struct gw *gw, unsigned int neigh)
{
    struct ipoib_addr addr = gw_neigh_addr(neigh);

    return ipoib_neigh_find(gw->shared.neighs, &addr)->mac;
}

static void
send_batch(struct gw *gw, struct dp_packet_batch *batch)
{
    ipoib_tx_batch(gw->txq, batch);
    ipoib_batch_destroy(batch);
    discard_messages(gw->txq->to_control);
}

static void
bench_tx(struct gw *gw, size_t n_neighs, size_t n_packets,
         enum traffic traffic)
{
    struct dp_packet_batch batch;

    for (size_t n = 0; n < n_packets; n += NETDEV_MAX_BURST) {
        ipoib_batch_init(&batch);
        for (size_t i = n; i < n + NETDEV_MAX_BURST; i++) {
            ipoib_batch_push(&batch,
                             make_frame(gw, traffic, i, i % n_neighs,
                                        standin_mac(gw, i % n_neighs)));
        }
        send_batch(gw, &batch);
    }
    ovs_assert(ipoib_counter_read(&gw->txq->stats.packets) >= n_packets);
}

/* Sends good packets, and in their midst one that 'spoil' has changed:
 * 'counter' counts that one, and the others are sent. */
static void
check_tx(struct gw *gw, atomic_uint64_t *counter,
         void (*spoil)(struct dp_packet *))
{
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    uint64_t before = ipoib_counter_read(&stats->packets);
    uint64_t bytes = ipoib_counter_read(&stats->bytes), expected = 0;
    uint64_t count = ipoib_counter_read(counter);
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        struct dp_packet *packet = make_frame(gw, MIXED, i, i,
                                              standin_mac(gw, i));

        if (i == NETDEV_MAX_BURST / 2) {
            spoil(packet);
        } else {
            expected += dp_packet_size(packet);
        }
        ipoib_batch_push(&batch, packet);
    }
    send_batch(gw, &batch);
    ovs_assert(ipoib_counter_read(counter) == count + 1);
    ovs_assert(ipoib_counter_read(&stats->packets)
               == before + NETDEV_MAX_BURST - 1);
    ovs_assert(ipoib_counter_read(&stats->bytes) == bytes + expected);
}

static struct eth_header *
frame_eth(struct dp_packet *packet)
{
    return dp_packet_data(packet);
}

static void
spoil_tag(struct dp_packet *packet)
{
    frame_eth(packet)->eth_type = htons(ETH_TYPE_VLAN_8021Q);
    ((uint8_t *) dp_packet_data(packet))[15] = 5;
}

static void
spoil_version(struct dp_packet *packet)
{
    ((uint8_t *) dp_packet_data(packet))[14] = 0x55;
}

static void
spoil_length(struct dp_packet *packet)
{
    ((uint8_t *) dp_packet_data(packet))[16] = 0x10;
}

static void
spoil_mac(struct dp_packet *packet)
{
    frame_eth(packet)->eth_dst.ea[5] ^= 0xff;
}

static void
spoil_type(struct dp_packet *packet)
{
    frame_eth(packet)->eth_type = htons(0x8863);
}

static void
spoil_size(struct dp_packet *packet)
{
    dp_packet_set_size(packet, 13);
}

/* More than the fabric takes, and not to be cut (DF). */
static void
spoil_mtu(struct dp_packet *packet)
{
    size_t len = GW_MTU + 1;
    struct ip_header *nh;

    dp_packet_put_zeros(packet,
                        ETH_HEADER_LEN + len - dp_packet_size(packet));
    nh = (void *) (frame_eth(packet) + 1);
    gw_ip4((uint8_t *) nh, gw_host_ip4(0), gw_neigh_ip4(16), len);
    nh->ip_frag_off = htons(0x4000);
    nh->ip_csum = 0;
    nh->ip_csum = csum(nh, sizeof *nh);
}

/* From a neighbour's stand-in MAC: a loop. */
static void
spoil_source(struct dp_packet *packet)
{
    frame_eth(packet)->eth_src = frame_eth(packet)->eth_dst;
}

static void
checks_tx(struct gw *gw)
{
    struct ipoib_tx_stats *stats = &gw->txq->stats;

    check_tx(gw, &stats->drop_vlan, spoil_tag);
    check_tx(gw, &stats->drop_bad_ip, spoil_version);
    check_tx(gw, &stats->drop_bad_ip, spoil_length);
    check_tx(gw, &stats->drop_unknown_mac, spoil_mac);
    check_tx(gw, &stats->drop_type, spoil_type);
    check_tx(gw, &stats->drop_short, spoil_size);
    check_tx(gw, &stats->drop_too_long, spoil_mtu);
    check_tx(gw, &stats->drop_loop, spoil_source);
}

/* Receive. */

static void
receive_batch(struct gw *gw)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ipoib_rx_batch(gw->rxq, &batch);
    dp_packet_delete_batch(&batch, true);
    ipoib_batch_destroy(&batch);
    discard_messages(gw->rxq->to_control);
}

static void
fill_packet(struct null_packet *packet, enum traffic traffic, size_t i,
            unsigned int neigh)
{
    size_t len = MAX(60, MIN_IP_LEN + i * 37 % (MAX_IP_LEN - MIN_IP_LEN));
    uint16_t type = put_ip(gw_payload(packet), traffic, i, neigh, i % N_HOSTS,
                           false, len);

    gw_fill(packet, neigh, HOST_QPN + i % N_HOSTS, type, len);
}

static void
bench_rx(struct gw *gw, size_t n_neighs, size_t n_packets,
         enum traffic traffic)
{
    /* As many as there are hosts for each neighbour, and kinds of packets. */
    size_t n_source = MAX(n_neighs, 512);

    gw->hca->n_source = n_source;
    gw->hca->source = xcalloc(n_source, sizeof *gw->hca->source);
    for (size_t i = 0; i < n_source; i++) {
        fill_packet(&gw->hca->source[i], traffic, i, i % n_neighs);
    }
    for (size_t n = 0; n < n_packets; n += NETDEV_MAX_BURST) {
        receive_batch(gw);
    }
    ovs_assert(ipoib_counter_read(&gw->rxq->stats.packets) >= n_packets);
    free(gw->hca->source);
    gw->hca->source = NULL;
}

/* As check_tx(); 'dropped' says whether the changed one is not delivered. */
static void
check_rx(struct gw *gw, atomic_uint64_t *counter, bool dropped,
         void (*spoil)(struct gw *, struct null_packet *))
{
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    uint64_t before = ipoib_counter_read(&stats->packets);
    uint64_t count = ipoib_counter_read(counter);
    uint64_t bytes = ipoib_counter_read(&stats->bytes), expected = 0;

    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        struct null_packet *packet = null_hca_receive(gw->hca);

        fill_packet(packet, MIXED, i, i);
        if (i == NETDEV_MAX_BURST / 2) {
            spoil(gw, packet);
        }
        if (i != NETDEV_MAX_BURST / 2 || !dropped) {
            expected += ETH_HEADER_LEN + packet->len - 44;
        }
    }
    receive_batch(gw);
    ovs_assert(ipoib_counter_read(counter) == count + 1);
    ovs_assert(ipoib_counter_read(&stats->packets)
               == before + NETDEV_MAX_BURST - dropped);
    ovs_assert(ipoib_counter_read(&stats->bytes) == bytes + expected);
}

static void
spoil_rx_version(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    gw_payload(packet)[0] = 0x55;
}

static void
spoil_rx_length(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    gw_payload(packet)[2] = 0x10;
}

static void
spoil_rx_type(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    packet->data[40] ^= 0x77;
}

static void
spoil_rx_size(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    packet->len = 43;
}

static void
spoil_rx_mtu(struct gw *gw, struct null_packet *packet)
{
    atomic_store_relaxed(&gw->shared.group_mtu, GW_MTU - 10);
    packet->len = 44 + GW_MTU - 9;
}

static void
spoil_rx_host(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    packet->wc.qp_num = HOST_QPN + N_HOSTS;
    gw_payload(packet)[19] ^= 0xff;
}

static void
spoil_rx_sender(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    packet->wc.slid ^= 0x4000;
    packet->wc.src_qp ^= 0x400000;
    gw_payload(packet)[12] ^= 0xff;
}

/* To a group, from ourselves. */
static void
spoil_rx_own(struct gw *gw, struct null_packet *packet)
{
    gw_grh(packet, &gw->shared.gid, &gw->shared.broadcast);
    packet->wc.slid = GW_LID;
    packet->wc.src_qp = gw->txq->qp->qp_num;
}

static void
spoil_rx_status(struct gw *gw OVS_UNUSED, struct null_packet *packet)
{
    packet->wc.status = IBV_WC_LOC_LEN_ERR;
}

static void
checks_rx(struct gw *gw)
{
    struct ipoib_rx_stats *stats = &gw->rxq->stats;

    check_rx(gw, &stats->drop_bad_ip, true, spoil_rx_version);
    check_rx(gw, &stats->drop_bad_ip, true, spoil_rx_length);
    check_rx(gw, &stats->drop_type, true, spoil_rx_type);
    check_rx(gw, &stats->drop_short, true, spoil_rx_size);
    check_rx(gw, &stats->drop_too_long, true, spoil_rx_mtu);
    check_rx(gw, &stats->drop_no_host, true, spoil_rx_host);
    check_rx(gw, &stats->unknown_sender, false, spoil_rx_sender);
    check_rx(gw, &stats->drop_own, true, spoil_rx_own);
    check_rx(gw, &stats->drop_error, true, spoil_rx_status);
}

static const struct load {
    const char *name;
    bool tx, checks;
    enum traffic traffic;
} loads[] = {
    { "tx", true, false, MIXED },
    { "rx", false, false, MIXED },
    { "tx-ipv6", true, false, IPV6 },
    { "rx-ipv6", false, false, IPV6 },
    { "tx-long", true, false, LONG },
    { "tx-checks", true, true, MIXED },
    { "rx-checks", false, true, MIXED },
};

static void
test_ipoib_bench_main(int argc, char *argv[])
{
    if (argc != 4) {
        ovs_fatal(0, "usage: %s LOAD NEIGHBOURS PACKETS", argv[0]);
    }

    size_t n_neighs = strtoul(argv[2], NULL, 0);
    size_t n_packets = strtoul(argv[3], NULL, 0);
    if (!n_neighs || !n_packets) {
        ovs_fatal(0, "NEIGHBOURS and PACKETS must not be 0");
    }
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        const struct load *load = &loads[i];

        if (!strcmp(argv[1], load->name)) {
            struct gw *gw = open_gateway(n_neighs);

            (load->tx ? bench_tx : bench_rx)(gw, n_neighs, n_packets,
                                             load->traffic);
            if (load->checks) {
                (load->tx ? checks_tx : checks_rx)(gw);
            }
            gw_close(gw);
            return;
        }
    }
    ovs_fatal(0, "%s: no such load", argv[1]);
}

OVSTEST_REGISTER("test-ipoib-bench", test_ipoib_bench_main);
