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
#include "ipoib-test-gateway.h"

#include "dp-packet.h"
#include "ipoib-mcast.h"
#include "ipoib-pool-eal.h"
#include "ovs-rcu.h"
#include "timeval.h"
#include "util.h"

static void
host_removed(void *aux OVS_UNUSED, struct ipoib_host *host OVS_UNUSED)
{
    /* Nothing is attached to it. */
}

static void
neigh_removed(void *aux OVS_UNUSED, struct ipoib_neigh *neigh OVS_UNUSED)
{
    /* Nothing is attached to it. */
}

static void
group_removed(void *aux OVS_UNUSED,
              struct ipoib_mcast_group *group OVS_UNUSED)
{
    /* Nothing is attached to it. */
}

static const struct ipoib_host_ops host_ops = { .removed = host_removed };
static const struct ipoib_neigh_ops neigh_ops = { .removed = neigh_removed };
static const struct ipoib_mcast_ops mcast_ops = { .removed = group_removed };

static void
shared_init(struct gw *gw)
{
    struct ipoib_shared *shared = &gw->shared;

    shared->verbs = &null_verbs;
    shared->neighs = ipoib_neigh_table_create(GW_PKEY, 2000000, &neigh_ops,
                                              NULL);
    shared->hosts = ipoib_host_table_create(100000, &host_ops, NULL);
    shared->mcast = ipoib_mcast_create(&null_verbs, &gw->hca->pd, NULL, NULL,
                                       &mcast_ops, NULL);
    shared->waker = &gw->waker;
    shared->mac = ipoib_port_mac(GW_GUID, GW_PKEY);
    shared->pkey = GW_PKEY;
    shared->scope = 2;
    shared->own_qpns = ipoib_table_create(16);
    shared->broadcast = ipoib_mgid_broadcast(GW_PKEY, 2);
    shared->gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, GW_GUID);
    atomic_init(&shared->lid, GW_LID);
    atomic_init(&shared->lid_mask, 0xffff);
    atomic_init(&shared->qkey, GW_QKEY);
    atomic_init(&shared->mtu, GW_MTU);
    atomic_init(&shared->group_mtu, GW_MTU);
    atomic_init(&shared->now, time_now());
    atomic_init(&shared->up, true);
}

static struct gw *
gw_open__(size_t n_bufs, unsigned int n_desc, bool use_srq)
{
    struct gw *gw = xzalloc(sizeof *gw);

    gw->hca = null_hca_open();
    ipoib_waker_init(&gw->waker);
    shared_init(gw);
    gw->pool = ipoib_pool_create(&null_verbs, &gw->hca->pd, n_bufs, 2048, -1);
    ovs_assert(gw->pool);

    struct ipoib_rxq_params rx = {
        .pd = &gw->hca->pd,
        .pool = gw->pool,
        .n_desc = n_desc,
        .use_srq = use_srq,
    };
    ovs_assert(!ipoib_rxq_create(&gw->shared, &rx, &gw->rxq));
    gw->hca->rx_cq = gw->rxq->cq;
    ipoib_table_insert(gw->shared.own_qpns, gw->rxq->base_qp->qp_num, 0);

    struct ipoib_txq_params tx = {
        .pd = &gw->hca->pd,
        .n_desc = n_desc,
        .mtu = 2048,
        .tso = true,
    };
    ovs_assert(!ipoib_txq_create(&gw->shared, &tx, &gw->txq));
    ipoib_table_insert(gw->shared.own_qpns, gw->txq->qp->qp_num, 0);
    return gw;
}

void
gw_next_second(struct gw *gw)
{
    uint32_t now;

    atomic_read_relaxed(&gw->shared.now, &now);
    atomic_store_relaxed(&gw->shared.now, now + 1);
}

struct gw *
gw_open(size_t n_bufs, unsigned int n_desc)
{
    return gw_open__(n_bufs, n_desc, true);
}

struct gw *
gw_open_without_srq(size_t n_bufs, unsigned int n_desc)
{
    return gw_open__(n_bufs, n_desc, false);
}

void
gw_close(struct gw *gw)
{
    struct ipoib_pool_stats stats;

    ipoib_txq_destroy(gw->txq);
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(!stats.n_packets);
    ipoib_rxq_destroy(gw->rxq);
    ipoib_pool_get_stats(gw->pool, &stats);
    ovs_assert(stats.n_free == stats.n_bufs && !stats.n_posted);
    ipoib_pool_detach(gw->pool);
    ipoib_pool_sweep();

    ipoib_neigh_table_destroy(gw->shared.neighs);
    ipoib_host_table_destroy(gw->shared.hosts);
    ipoib_mcast_destroy(gw->shared.mcast);
    ipoib_table_destroy(gw->shared.own_qpns);
    ipoib_waker_destroy(&gw->waker);
    ipoib_pool_eal_close(&gw->hca->pd);
    ovs_assert(!gw->hca->n_objects);
    null_hca_close(gw->hca);
    free(gw);
}

/* Hosts. */

struct eth_addr
gw_host_mac(unsigned int i)
{
    struct eth_addr mac;

    eth_addr_from_uint64(UINT64_C(0x020000100000) + i, &mac);
    return mac;
}

ovs_be32
gw_host_ip4(unsigned int i)
{
    return htonl(0x0a000001 + i);
}

struct in6_addr
gw_host_ip6(unsigned int i)
{
    struct in6_addr ip = { .s6_addr = { 0xfd, 0, [13] = 1,
                                        [14] = i >> 8, [15] = i } };

    return ip;
}

struct ipoib_host *
gw_add_host(struct gw *gw, unsigned int i, uint32_t qpn, bool shares)
{
    struct in6_addr ip4 = in6_addr_mapped_ipv4(gw_host_ip4(i));
    struct in6_addr ip6 = gw_host_ip6(i);
    struct ipoib_host *host;
    unsigned int changes;

    ipoib_host_learn(gw->shared.hosts, gw_host_mac(i), 0, &ip4, time_msec(),
                     &changes);
    host = ipoib_host_learn(gw->shared.hosts, gw_host_mac(i), 0, &ip6,
                            time_msec(), &changes);
    if (qpn) {
        ipoib_host_set_qpn(gw->shared.hosts, host, qpn, shares);
    }
    return host;
}

/* Neighbours. */

struct ipoib_addr
gw_neigh_addr(unsigned int i)
{
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT,
                                    UINT64_C(0x0002c90300002000) + i);

    return ipoib_addr_make(0x2000 + i, &gid);
}

uint16_t
gw_neigh_lid(unsigned int i)
{
    return 100 + i % 10000;
}

ovs_be32
gw_neigh_ip4(unsigned int i)
{
    return htonl(0x0a400001 + i);
}

struct in6_addr
gw_neigh_ip6(unsigned int i)
{
    struct in6_addr ip = { .s6_addr = { 0xfd, 0, [13] = 2,
                                        [14] = i >> 8, [15] = i } };

    return ip;
}

struct ibv_ah *
gw_ah(unsigned int i)
{
    return (struct ibv_ah *) (uintptr_t) (0x1000 + i * 16);
}

struct ipoib_neigh *
gw_add_neigh(struct gw *gw, unsigned int i)
{
    struct in6_addr ip4 = in6_addr_mapped_ipv4(gw_neigh_ip4(i));
    struct in6_addr ip6 = gw_neigh_ip6(i);
    struct ipoib_addr addr = gw_neigh_addr(i);
    struct ipoib_neigh *neigh;
    unsigned int changes;

    ipoib_neigh_learn(gw->shared.neighs, &addr, &ip4, gw_neigh_lid(i),
                      time_msec(), &changes);
    neigh = ipoib_neigh_learn(gw->shared.neighs, &addr, &ip6,
                              gw_neigh_lid(i), time_msec(), &changes);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(i), GW_MTU);
    return neigh;
}

/* Packets. */

void
gw_ip4(uint8_t *p, ovs_be32 src, ovs_be32 dst, size_t len)
{
    struct ip_header *ip = (void *) p;

    ovs_assert(len >= IP_HEADER_LEN + UDP_HEADER_LEN);
    for (size_t i = 0; i < len; i++) {
        p[i] = i;
    }
    memset(ip, 0, sizeof *ip);
    ip->ip_ihl_ver = IP_IHL_VER(5, 4);
    ip->ip_tot_len = htons(len);
    ip->ip_ttl = 64;
    ip->ip_proto = IPPROTO_UDP;
    put_16aligned_be32(&ip->ip_src, src);
    put_16aligned_be32(&ip->ip_dst, dst);
}

void
gw_ip6(uint8_t *p, const struct in6_addr *src, const struct in6_addr *dst,
       size_t len)
{
    struct ovs_16aligned_ip6_hdr *ip6 = (void *) p;

    ovs_assert(len >= IPV6_HEADER_LEN + UDP_HEADER_LEN);
    for (size_t i = 0; i < len; i++) {
        p[i] = i;
    }
    memset(ip6, 0, sizeof *ip6);
    p[0] = 0x60;
    p[4] = (len - IPV6_HEADER_LEN) >> 8;
    p[5] = len - IPV6_HEADER_LEN;
    p[6] = IPPROTO_UDP;
    p[7] = 64;
    memcpy(&ip6->ip6_src, src, sizeof *src);
    memcpy(&ip6->ip6_dst, dst, sizeof *dst);
}

void
gw_fill(struct null_packet *packet, unsigned int i, uint32_t dqpn,
        uint16_t type, size_t len)
{
    ovs_be16 be_type = htons(type);

    packet->wc.status = IBV_WC_SUCCESS;
    packet->wc.slid = gw_neigh_lid(i);
    packet->wc.src_qp = 0x2000 + i;
    packet->wc.qp_num = dqpn;
    packet->len = 44 + len;
    memcpy(packet->data + 40, &be_type, sizeof be_type);
}

struct null_packet *
gw_receive(struct gw *gw, unsigned int i, uint32_t dqpn, uint16_t type,
           size_t len)
{
    struct null_packet *packet = null_hca_receive(gw->hca);

    gw_fill(packet, i, dqpn, type, len);
    /* What is no GRH must not be taken for one. */
    memset(packet->data, 0xff, 40);
    return packet;
}

void
gw_grh(struct null_packet *packet, const struct ib_gid *sgid,
       const struct ib_gid *dgid)
{
    struct ib_grh *grh = (void *) packet->data;

    packet->wc.wc_flags |= IBV_WC_GRH;
    memset(grh, 0, sizeof *grh);
    grh->nxthdr = IB_GRH_NXTHDR;
    grh->sgid = *sgid;
    grh->dgid = *dgid;
}
