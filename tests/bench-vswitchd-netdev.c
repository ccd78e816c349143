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
#include "bench-vswitchd.h"

#include <errno.h>

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-pool.h"
#include "netdev-provider.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(bench_netdev);

/* The class "bench": a generator, and a sink, for one PMD thread each.
 *
 * A port receives UDP packets that it makes up: every packet is one of the
 * pool's, and its headers are written anew, for the next flow of a list, with
 * the time at which it was due.  What it is sent is counted and freed.
 *
 *   options:ring=true
 *       Packets come in BENCH_BUFFERS buffers in turn, as a device's do, and
 *       not in those that were freed last.
 *   options:vxlan=VNI,MAC,LOCAL,REMOTE
 *       Packets come in VXLAN, as from IP address REMOTE to LOCAL at MAC. */

#define VXLAN_PORT 4789
#define OUTER_LEN (ETH_HEADER_LEN + IP_HEADER_LEN + UDP_HEADER_LEN          \
                   + sizeof(struct vxlanhdr))
#define MAX_QUEUES 8
#define DEFAULT_FLOWS 1024
#define BENCH_BUFFERS 1024

struct bench_counters {
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        atomic_uint64_t packets;
        atomic_uint64_t bytes;
    );
};

struct netdev_bench {
    struct netdev up;
    struct eth_addr mac;
    int mtu;
    unsigned int n_txq;         /* Wanted. */
    bool vxlan;
    struct smap options;

    /* Generator: PMD thread. */
    struct bench_pace pace;
    OVSRCU_TYPE(struct bench_flows *) flows;
    size_t next_flow;
    uint64_t *ring;             /* BENCH_BUFFERS buffers, once it is full; or
                                 * NULL. */
    size_t n_ring, next_ring;
    uint8_t headers[128];       /* All but addresses and sums. */
    size_t headers_len;
    size_t inner;               /* Offset of the inner Ethernet header. */
    size_t size;                /* Of a frame. */
    uint32_t csum;              /* Of the inner IP header. */

    struct bench_counters rx;
    struct bench_counters tx[MAX_QUEUES];
};

struct bench_flows {
    size_t n;
    struct bench_flow flows[];
};

static const struct netdev_class bench_class;

static struct netdev_bench *
netdev_bench_cast(const struct netdev *netdev)
{
    return CONTAINER_OF(netdev, struct netdev_bench, up);
}

static void
count(atomic_uint64_t *counter, uint64_t n)
{
    uint64_t value;

    atomic_read_relaxed(counter, &value);
    atomic_store_relaxed(counter, value + n);
}

static uint64_t
read_counter(const atomic_uint64_t *counter)
{
    uint64_t value;

    atomic_read_relaxed(CONST_CAST(atomic_uint64_t *, counter), &value);
    return value;
}

/* Life. */

static struct netdev *
netdev_bench_alloc(void)
{
    struct netdev_bench *netdev = xzalloc_cacheline(sizeof *netdev);

    return &netdev->up;
}

static void
netdev_bench_dealloc(struct netdev *netdev)
{
    free_cacheline(netdev_bench_cast(netdev));
}

static void
set_flows(struct netdev_bench *netdev, const struct bench_flow *flows,
          size_t n)
{
    struct bench_flows *old = ovsrcu_get_protected(struct bench_flows *,
                                                   &netdev->flows);
    struct bench_flows *new = NULL;

    if (n) {
        new = xmalloc(sizeof *new + n * sizeof *flows);
        new->n = n;
        memcpy(new->flows, flows, n * sizeof *flows);
    }
    ovsrcu_set(&netdev->flows, new);
    if (old) {
        ovsrcu_postpone(free, old);
    }
}

/* Flows between addresses that nobody has. */
static void
set_default_flows(struct netdev_bench *netdev)
{
    struct bench_flow flows[DEFAULT_FLOWS];

    for (size_t i = 0; i < ARRAY_SIZE(flows); i++) {
        flows[i] = (struct bench_flow) {
            .dst = ETH_ADDR_C(02,00,00,00,20,00),
            .src = ETH_ADDR_C(02,00,00,00,10,00),
            .ip_dst = htonl(0xc6120101 + i),
            .ip_src = htonl(0xc6120001),
            .port = htons(1024 + i),
        };
    }
    set_flows(netdev, flows, ARRAY_SIZE(flows));
}

static int
netdev_bench_construct(struct netdev *netdev_)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    eth_addr_random(&netdev->mac);
    netdev->mtu = 9000;
    netdev->n_txq = netdev_->n_txq = netdev_->n_rxq = 1;
    ovsrcu_init(&netdev->flows, NULL);
    smap_init(&netdev->options);
    set_default_flows(netdev);
    return 0;
}

static void
netdev_bench_destruct(struct netdev *netdev_)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    for (size_t i = 0; i < netdev->n_ring; i++) {
        ipoib_pool_put(bench_pool, netdev->ring[i]);
    }
    free(netdev->ring);
    set_flows(netdev, NULL, 0);
    smap_destroy(&netdev->options);
}

/* Headers. */

void
bench_ip_init(uint8_t headers[BENCH_HEADERS_LEN], size_t size, uint32_t *csum)
{
    struct ip_header ip = {
        .ip_ihl_ver = IP_IHL_VER(5, 4), .ip_tot_len = htons(size),
        .ip_ttl = 64, .ip_proto = IPPROTO_UDP,
    };
    struct udp_header udp = {
        .udp_src = htons(1024), .udp_dst = htons(BENCH_UDP_DST),
        .udp_len = htons(size - sizeof ip),
    };

    BUILD_ASSERT_DECL(sizeof ip + sizeof udp == BENCH_HEADERS_LEN);
    memcpy(headers, &ip, sizeof ip);
    memcpy(headers + sizeof ip, &udp, sizeof udp);
    *csum = csum_continue(0, &ip, sizeof ip);
}

/* The headers of VXLAN around a frame of 'size' bytes. */
static int
make_outer(struct netdev_bench *netdev, size_t size)
{
    const char *arg = smap_get_def(&netdev->options, "vxlan", "");
    struct eth_header *eth = ALIGNED_CAST(struct eth_header *,
                                          netdev->headers);
    struct eth_addr mac;
    ovs_be32 local, remote;
    uint32_t vni, csum;
    struct vxlanhdr vxlan;
    uint8_t *ip = netdev->headers + ETH_HEADER_LEN;

    if (!ovs_scan(arg, "%"SCNi32","ETH_ADDR_SCAN_FMT","IP_SCAN_FMT","
                  IP_SCAN_FMT, &vni, ETH_ADDR_SCAN_ARGS(mac),
                  IP_SCAN_ARGS(&local), IP_SCAN_ARGS(&remote))) {
        return EINVAL;
    }
    eth->eth_dst = mac;
    eth->eth_src = (struct eth_addr) ETH_ADDR_C(02,00,00,00,30,00);
    eth->eth_type = htons(ETH_TYPE_IP);
    bench_ip_init(ip, size + OUTER_LEN - ETH_HEADER_LEN, &csum);
    put_unaligned_be32(ALIGNED_CAST(ovs_be32 *, ip + 12), remote);
    put_unaligned_be32(ALIGNED_CAST(ovs_be32 *, ip + 16), local);
    put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, ip + 10),
                       bench_ip_csum(csum, remote, local));
    put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, ip + 22), htons(VXLAN_PORT));
    put_16aligned_be32(&vxlan.vx_flags, htonl(VXLAN_FLAGS));
    put_16aligned_be32(&vxlan.vx_vni, htonl(vni << 8));
    memcpy(netdev->headers + OUTER_LEN - sizeof vxlan, &vxlan, sizeof vxlan);
    return 0;
}

/* Makes 'headers' for IP packets of 'size' bytes. */
static int
make_headers(struct netdev_bench *netdev, size_t size)
{
    uint8_t *eth;
    int error = 0;

    memset(netdev->headers, 0, sizeof netdev->headers);
    netdev->inner = 0;
    if (netdev->vxlan) {
        error = make_outer(netdev, ETH_HEADER_LEN + size);
        netdev->inner = OUTER_LEN;
    }
    eth = netdev->headers + netdev->inner;
    eth[12] = ETH_TYPE_IP >> 8;
    eth[13] = ETH_TYPE_IP & 0xff;
    bench_ip_init(eth + ETH_HEADER_LEN, size, &netdev->csum);
    netdev->headers_len = netdev->inner + ETH_HEADER_LEN + BENCH_HEADERS_LEN;
    netdev->size = netdev->inner + ETH_HEADER_LEN + size;
    return error;
}

bool
bench_netdev_set_load(struct netdev *netdev_, const struct bench_load *load)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    if (netdev_->netdev_class != &bench_class) {
        return false;
    }
    make_headers(netdev, load->size);
    netdev->pace.interval = load->interval;
    netdev->pace.next = 0;
    return true;
}

uint64_t
bench_netdev_dropped(const struct netdev *netdev)
{
    return (netdev->netdev_class == &bench_class
            ? netdev_bench_cast(netdev)->pace.dropped : 0);
}

char *
bench_netdev_set_flows(const char *name, const struct bench_flow *flows,
                       size_t n)
{
    struct netdev *netdev = netdev_from_name(name);
    char *error = NULL;

    if (!netdev || netdev->netdev_class != &bench_class) {
        error = xasprintf("%s: no port of type bench", name);
    } else {
        set_flows(netdev_bench_cast(netdev), flows, n);
    }
    netdev_close(netdev);
    return error;
}

/* Configuration. */

static int
netdev_bench_set_config(struct netdev *netdev_, const struct smap *args,
                        char **errp)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    smap_destroy(&netdev->options);
    smap_clone(&netdev->options, args);
    netdev->vxlan = smap_get(args, "vxlan") != NULL;
    if (!netdev->ring && smap_get_bool(args, "ring", false)) {
        netdev->ring = xcalloc(BENCH_BUFFERS, sizeof *netdev->ring);
    }
    if (make_headers(netdev, 64)) {
        *errp = xasprintf("options:vxlan is not VNI,MAC,LOCAL,REMOTE");
        return EINVAL;
    }
    return 0;
}

static int
netdev_bench_get_config(const struct netdev *netdev, struct smap *args)
{
    struct smap *options = &netdev_bench_cast(netdev)->options;

    smap_destroy(args);
    smap_clone(args, options);
    return 0;
}

static int
netdev_bench_set_tx_multiq(struct netdev *netdev_, unsigned int n)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    netdev->n_txq = MIN(n, MAX_QUEUES);
    if (netdev->n_txq != netdev_->n_txq) {
        netdev_request_reconfigure(netdev_);
    }
    return 0;
}

static int
netdev_bench_reconfigure(struct netdev *netdev)
{
    netdev->n_txq = netdev_bench_cast(netdev)->n_txq;
    return 0;
}

static int
netdev_bench_get_numa_id(const struct netdev *netdev OVS_UNUSED)
{
    return 0;
}

static int
netdev_bench_set_etheraddr(struct netdev *netdev, const struct eth_addr mac)
{
    netdev_bench_cast(netdev)->mac = mac;
    netdev_change_seq_changed(netdev);
    return 0;
}

static int
netdev_bench_get_etheraddr(const struct netdev *netdev, struct eth_addr *mac)
{
    *mac = netdev_bench_cast(netdev)->mac;
    return 0;
}

static int
netdev_bench_get_mtu(const struct netdev *netdev, int *mtu)
{
    *mtu = netdev_bench_cast(netdev)->mtu;
    return 0;
}

static int
netdev_bench_set_mtu(struct netdev *netdev, int mtu)
{
    netdev_bench_cast(netdev)->mtu = mtu;
    return 0;
}

static int
netdev_bench_update_flags(struct netdev *netdev OVS_UNUSED,
                          enum netdev_flags off OVS_UNUSED,
                          enum netdev_flags on OVS_UNUSED,
                          enum netdev_flags *old)
{
    *old = NETDEV_UP | NETDEV_PROMISC;
    return 0;
}

static int
netdev_bench_get_stats(const struct netdev *netdev_,
                       struct netdev_stats *stats)
{
    const struct netdev_bench *netdev = netdev_bench_cast(netdev_);

    stats->rx_packets = read_counter(&netdev->rx.packets);
    stats->rx_bytes = read_counter(&netdev->rx.bytes);
    stats->tx_packets = stats->tx_bytes = 0;
    for (size_t i = 0; i < MAX_QUEUES; i++) {
        stats->tx_packets += read_counter(&netdev->tx[i].packets);
        stats->tx_bytes += read_counter(&netdev->tx[i].bytes);
    }
    return 0;
}

/* Generator. */

size_t
bench_pace_due(struct bench_pace *pace, size_t max, uint64_t *due)
{
    uint64_t now = bench_now();
    uint64_t n;

    if (!pace->interval) {
        *due = now;
        return max;
    }
    if (!pace->next) {
        pace->next = now;
    }
    if (now < pace->next) {
        return 0;
    }
    n = (now - pace->next) / pace->interval + 1;
    if (n > BENCH_RING) {
        pace->dropped += n - BENCH_RING;
        pace->next += (n - BENCH_RING) * pace->interval;
        n = BENCH_RING;
    }
    n = MIN(n, max);
    *due = pace->next;
    pace->next += n * pace->interval;
    return n;
}

/* Writes a frame of flow 'f', due at 'due', to 'frame'. */
static inline void
make_frame(const struct netdev_bench *netdev, const struct bench_flow *f,
           uint64_t due, uint8_t *frame)
{
    uint8_t *eth = frame + netdev->inner;
    uint8_t *ip = eth + ETH_HEADER_LEN;
    ovs_be16 csum = bench_ip_csum(netdev->csum, f->ip_src, f->ip_dst);

    if (netdev->inner) {
        memcpy(frame, netdev->headers, 128);
        memcpy(frame + ETH_HEADER_LEN + IP_HEADER_LEN, &f->port,
               sizeof f->port);
    } else {
        memcpy(frame, netdev->headers, 64);
    }
    memcpy(eth, &f->dst, 2 * ETH_ADDR_LEN);
    memcpy(ip + 10, &csum, sizeof csum);
    memcpy(ip + 12, &f->ip_src, sizeof f->ip_src);
    memcpy(ip + 16, &f->ip_dst, sizeof f->ip_dst);
    memcpy(ip + 20, &f->port, sizeof f->port);
    memcpy(ip + BENCH_HEADERS_LEN, &due, sizeof due);
}

/* Takes 'n' buffers. */
static size_t
take_buffers(struct netdev_bench *netdev, uint64_t ids[], size_t n)
{
    if (OVS_UNLIKELY(netdev->ring && netdev->n_ring < BENCH_BUFFERS)) {
        netdev->n_ring += ipoib_pool_get_ids(bench_pool, bench_pool_tag,
                                             netdev->ring + netdev->n_ring,
                                             BENCH_BUFFERS - netdev->n_ring);
    }
    n = ipoib_pool_get_ids(bench_pool, bench_pool_tag, ids, n);
    if (netdev->ring && netdev->n_ring == BENCH_BUFFERS) {
        /* The new ones go where the oldest were. */
        for (size_t i = 0; i < n; i++) {
            uint64_t *oldest = &netdev->ring[netdev->next_ring++
                                             % BENCH_BUFFERS];
            uint64_t id = ids[i];

            ids[i] = *oldest;
            *oldest = id;
        }
    }
    return n;
}

static int
netdev_bench_rxq_recv(struct netdev_rxq *rxq, struct dp_packet_batch *batch,
                      int *qfill)
{
    struct netdev_bench *netdev = netdev_bench_cast(rxq->netdev);
    const struct bench_flows *flows = ovsrcu_get(struct bench_flows *,
                                                 &netdev->flows);
    struct bench_pace *pace = &netdev->pace;
    struct dp_packet *packets[NETDEV_MAX_BURST];
    uint64_t ids[NETDEV_MAX_BURST];
    size_t next = netdev->next_flow;
    uint64_t begin, due;
    size_t n;

    if (qfill) {
        *qfill = -ENOTSUP;
    }
    n = bench_pool ? bench_pace_due(pace, NETDEV_MAX_BURST, &due) : 0;
    n = n ? take_buffers(netdev, ids, n) : 0;
    if (!n) {
        return EAGAIN;
    }
    begin = bench_apart_begin();
    for (size_t i = 0; i < n; i++) {
        uint8_t *frame = ipoib_pool_data(bench_pool, ids[i]);

        if (next >= flows->n) {
            next = 0;
        }
        make_frame(netdev, &flows->flows[next++], due, frame);
        due += pace->interval;
    }
    netdev->next_flow = next;
    bench_apart_end(begin);

    for (size_t i = 0; i < n; i++) {
        packets[i] = ipoib_pool_to_packet(bench_pool, ids[i], 0,
                                          netdev->size);
    }
    ipoib_batch_push_all(batch, packets, n);
    count(&netdev->rx.packets, n);
    count(&netdev->rx.bytes, n * netdev->size);
    return 0;
}

static struct netdev_rxq *
netdev_bench_rxq_alloc(void)
{
    return xzalloc(sizeof(struct netdev_rxq));
}

static int
netdev_bench_rxq_construct(struct netdev_rxq *rxq OVS_UNUSED)
{
    return 0;
}

static void
netdev_bench_rxq_destruct(struct netdev_rxq *rxq OVS_UNUSED)
{
    /* Nothing. */
}

static void
netdev_bench_rxq_dealloc(struct netdev_rxq *rxq)
{
    free(rxq);
}

/* Sink. */

static int
netdev_bench_send(struct netdev *netdev_, int qid,
                  struct dp_packet_batch *batch,
                  bool concurrent_txq OVS_UNUSED)
{
    struct netdev_bench *netdev = netdev_bench_cast(netdev_);
    struct bench_counters *tx = &netdev->tx[qid % MAX_QUEUES];
    struct dp_packet *packet;
    uint64_t bytes = 0;

    if (OVS_UNLIKELY(bench_hist)) {
        uint64_t now = bench_now();

        DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
            const uint8_t *eth = dp_packet_data(packet);

            if (dp_packet_size(packet) >= ETH_HEADER_LEN + BENCH_MIN_SIZE) {
                bench_arrived(eth + ETH_HEADER_LEN + BENCH_HEADERS_LEN, now);
            }
        }
    }
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        bytes += dp_packet_size(packet);
    }
    count(&tx->packets, dp_packet_batch_size(batch));
    count(&tx->bytes, bytes);
    dp_packet_delete_batch(batch, true);
    return 0;
}

static const struct netdev_class bench_class = {
    .type = "bench",
    .is_pmd = true,
    .alloc = netdev_bench_alloc,
    .construct = netdev_bench_construct,
    .destruct = netdev_bench_destruct,
    .dealloc = netdev_bench_dealloc,
    .get_config = netdev_bench_get_config,
    .set_config = netdev_bench_set_config,
    .get_numa_id = netdev_bench_get_numa_id,
    .set_tx_multiq = netdev_bench_set_tx_multiq,
    .reconfigure = netdev_bench_reconfigure,
    .send = netdev_bench_send,
    .set_etheraddr = netdev_bench_set_etheraddr,
    .get_etheraddr = netdev_bench_get_etheraddr,
    .get_mtu = netdev_bench_get_mtu,
    .set_mtu = netdev_bench_set_mtu,
    .update_flags = netdev_bench_update_flags,
    .get_stats = netdev_bench_get_stats,
    .rxq_alloc = netdev_bench_rxq_alloc,
    .rxq_construct = netdev_bench_rxq_construct,
    .rxq_destruct = netdev_bench_rxq_destruct,
    .rxq_dealloc = netdev_bench_rxq_dealloc,
    .rxq_recv = netdev_bench_rxq_recv,
};

void
bench_netdev_register(void)
{
    int error = netdev_register_provider(&bench_class);

    if (error) {
        VLOG_ERR("registering the class bench failed (%s)",
                 ovs_strerror(error));
    }
}
