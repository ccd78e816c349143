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

#ifndef IPOIB_TEST_GATEWAY_H
#define IPOIB_TEST_GATEWAY_H 1

/* The data path of a port on a null device, without a control thread: tests
 * put hosts and neighbours into its tables themselves. */

#include "ipoib-null-verbs.h"
#include "ipoib-ring.h"

/* The first host and neighbour that gw_add_host() and gw_add_neigh() make; the
 * others count up from there. */
#define GW_LID 5
#define GW_GUID UINT64_C(0x0002c90300001001)
#define GW_PKEY 0xffff
#define GW_QKEY 0xb1b
#define GW_MTU 2044

struct gw {
    struct null_hca *hca;
    struct ipoib_shared shared;
    struct ipoib_waker waker;
    struct ipoib_pool *pool;
    struct ipoib_rxq *rxq;
    struct ipoib_txq *txq;
};

struct gw *gw_open(size_t n_bufs, unsigned int n_desc);
/* Of a device that has none. */
struct gw *gw_open_without_srq(size_t n_bufs, unsigned int n_desc);
/* All buffers must be back in the end. */
void gw_close(struct gw *);
/* It is a second later. */
void gw_next_second(struct gw *);

/* Host 'i' has MAC 02:00:00:10:xx:xx, IPs 10.0.x.x and fd00::1:x; its QPN is
 * 'qpn', 0: it has none. */
struct eth_addr gw_host_mac(unsigned int i);
ovs_be32 gw_host_ip4(unsigned int i);
struct in6_addr gw_host_ip6(unsigned int i);
struct ipoib_host *gw_add_host(struct gw *, unsigned int i, uint32_t qpn,
                               bool shares);

/* Neighbour 'i' has LID 100 + i % 10000, QPN 0x2000 + i, GUID ...2000 + i, IPs
 * 10.1.x.x and fd00::2:x, and the AH gw_ah(i). */
struct ipoib_addr gw_neigh_addr(unsigned int i);
uint16_t gw_neigh_lid(unsigned int i);
ovs_be32 gw_neigh_ip4(unsigned int i);
struct in6_addr gw_neigh_ip6(unsigned int i);
struct ibv_ah *gw_ah(unsigned int i);
struct ipoib_neigh *gw_add_neigh(struct gw *, unsigned int i);

/* Writes an IPv4 UDP packet of 'len' bytes in all. */
void gw_ip4(uint8_t *ip, ovs_be32 src, ovs_be32 dst, size_t len);
void gw_ip6(uint8_t *ip, const struct in6_addr *src,
            const struct in6_addr *dst, size_t len);

/* A packet to be received from neighbour 'i', for QPN 'dqpn', with 'len' bytes
 * behind the IPoIB header, which the caller writes to gw_payload(). */
struct null_packet *gw_receive(struct gw *, unsigned int i, uint32_t dqpn,
                               uint16_t type, size_t len);
void gw_fill(struct null_packet *, unsigned int i, uint32_t dqpn,
             uint16_t type, size_t len);
static inline uint8_t *
gw_payload(struct null_packet *packet)
{
    return packet->data + 44;
}
/* Gives it a GRH. */
void gw_grh(struct null_packet *, const struct ib_gid *sgid,
            const struct ib_gid *dgid);

#endif /* ipoib-test-gateway.h */
