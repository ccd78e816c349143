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

#ifndef IPOIB_PACKET_H
#define IPOIB_PACKET_H 1

/* IP over InfiniBand as it stands on the wire (RFC 4391), and its relation to
 * Ethernet: hardware addresses, multicast mapping, ARP and neighbour
 * discovery.  No state and no I/O. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-wire.h"
#include "openvswitch/types.h"
#include "packets.h"

struct dp_packet;
struct ds;

/* The 4-byte header of every IPoIB packet (RFC 4391, 6). */
#define IPOIB_HEADER_LEN 4
struct ipoib_header {
    ovs_be16 type;              /* ETH_TYPE_IP, _ARP, _RARP or _IPV6. */
    ovs_be16 reserved;          /* 0 when sent, ignored when received. */
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_header) == IPOIB_HEADER_LEN);

/* The 20-byte hardware address (RFC 4391, 9.1.1).  'flags_qpn' has flags in
 * the top byte (RFC 4755, 3.1), which are not part of the identity. */
#define IPOIB_ADDR_LEN 20
struct ipoib_addr {
    ovs_16aligned_be32 flags_qpn;
    struct ib_gid gid;
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_addr) == IPOIB_ADDR_LEN);

/* Makes an address with flags 0. */
struct ipoib_addr ipoib_addr_make(uint32_t qpn, const struct ib_gid *);
uint32_t ipoib_addr_qpn(const struct ipoib_addr *);

/* Compares all but the flags. */
bool ipoib_addr_equals(const struct ipoib_addr *, const struct ipoib_addr *);

/* True if 'addr' can be a station's: QPN neither 0, 1 nor 0xffffff, GID
 * neither multicast nor with GUID 0. */
bool ipoib_addr_is_station(const struct ipoib_addr *);

/* As 20 colon-separated hex bytes. */
void ipoib_addr_format(const struct ipoib_addr *, struct ds *);

/* The stand-in MAC of the neighbour 'addr' in partition 'pkey' (host byte
 * order; the membership bit is ignored): locally administered, unicast, by
 * jhash, so that it is the same on every machine.  'attempt' is 0, and counts
 * up to find another MAC after a collision. */
struct eth_addr ipoib_standin_mac(uint16_t pkey, const struct ipoib_addr *addr,
                                  unsigned int attempt);

/* The MAC of the port itself, local, from its port GUID (host byte order) and
 * P_Key. */
struct eth_addr ipoib_port_mac(uint64_t guid, uint16_t pkey);

/* Multicast mapping (RFC 4391, 4).  'scope' is that of the broadcast group (2
 * by default), 'pkey' in host byte order; its full-member bit is set by the
 * functions.  Limited and subnet-directed broadcast are not mapped here: they
 * use ipoib_mgid_broadcast(). */
struct ib_gid ipoib_mgid_broadcast(uint16_t pkey, uint8_t scope);
struct ib_gid ipoib_mgid_ipv4(ovs_be32 group, uint16_t pkey, uint8_t scope);
struct ib_gid ipoib_mgid_ipv6(const struct in6_addr *group, uint16_t pkey,
                              uint8_t scope);
/* The Ethernet destination for an IP group (RFC 1112, RFC 2464). */
struct eth_addr ipoib_group_mac_ipv4(ovs_be32 group);
struct eth_addr ipoib_group_mac_ipv6(const struct in6_addr *group);

/* True if 'ip' (IPv4: v4-mapped) can be a station's: not unspecified,
 * multicast or limited broadcast. */
bool ipoib_ip_is_station(const struct in6_addr *ip);

/* ARP and RARP on IPoIB (RFC 4391, 9.2): 56 bytes. */
#define IPOIB_ARP_HTYPE 32
#define IPOIB_ARP_LEN 56
struct ipoib_arp {
    ovs_be16 htype;             /* 32. */
    ovs_be16 ptype;             /* ETH_TYPE_IP. */
    uint8_t hlen;               /* 20. */
    uint8_t plen;               /* 4. */
    ovs_be16 op;
    struct ipoib_addr sha;
    ovs_16aligned_be32 spa;
    struct ipoib_addr tha;
    ovs_16aligned_be32 tpa;
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_arp) == IPOIB_ARP_LEN);

/* Returns the ARP packet at 'data' if its 'len' bytes hold a well-formed one
 * of IPoIB (longer is padding), otherwise NULL. */
const struct ipoib_arp *ipoib_arp_parse(const void *data, size_t len);
/* The same for Ethernet's ARP (hardware type 1, 6 and 4 bytes, IPv4). */
const struct arp_eth_header *ipoib_arp_eth_parse(const void *data, size_t len);

#define PIM_HEADER_LEN 4

/* Result of ipoib_packet_check_ip(). */
enum ipoib_ip_class {
    IPOIB_IP_BAD,               /* Too short, wrong version or lengths. */
    IPOIB_IP_DATA,              /* Nothing that needs translation. */
    IPOIB_IP_ND,                /* RS, RA, NS, NA or Redirect. */
    IPOIB_IP_IGMP,              /* IGMP, whole header there. */
    IPOIB_IP_MLD,               /* ICMPv6 130 to 132, 143, 8 bytes there. */
    IPOIB_IP_PIM,               /* Whole header there. */
    IPOIB_IP_DHCP,              /* UDP to port 67 or 68, IPv4. */
};

/* Checks the IP packet of 'len' bytes at 'ip', whose type is 'type' (host
 * byte order; ETH_TYPE_IP or ETH_TYPE_IPV6).  Looks behind extension headers,
 * never into fragments; more than 16 of those headers are IPOIB_IP_BAD, so
 * that no ND gets past.  Stores the length that the IP header gives in
 * '*ip_len' (at most 'len': what is behind it is padding; 0 if the packet is
 * bad), and the offset of the layer-4 header (0 if there is none to look at)
 * in '*l4_ofs'.
 * 'ip' must be aligned to 2 bytes, here and in all that follows. */
enum ipoib_ip_class ipoib_packet_check_ip(uint16_t type, const void *ip,
                                          size_t len, size_t *ip_len,
                                          size_t *l4_ofs);

/* The extension headers of an IPv6 packet (RFC 8200, 4), one after the other:
 *
 *     struct ipoib_ipv6_walk w = ipoib_ipv6_walk(ip, ip_len);
 *
 *     while (ipoib_ipv6_walk_next(&w)) {
 *         // 'w.proto' is an extension header: the 'w.len' bytes at offset
 *         // 'w.ofs', 8 or more, which are all there.
 *     }
 *     // 'w.broken': a header overruns the packet, or there are more than
 *     // IPOIB_MAX_EXT_HEADERS ('w.n' is greater then).  Else 'w.proto' is the
 *     // upper layer, which begins at 'w.ofs', or what cannot be looked into.
 *
 * 'ip_len' is at least that of an IPv6 header.  A packet with too many headers
 * is malformed: nothing that is sent in earnest has more than a few, and each
 * costs the data path a cache miss. */
#define IPOIB_MAX_EXT_HEADERS 16
struct ipoib_ipv6_walk {
    const uint8_t *ip;
    size_t ip_len;
    uint8_t proto;
    size_t ofs, len;
    unsigned int n;             /* Extension headers so far. */
    bool broken;
};
struct ipoib_ipv6_walk ipoib_ipv6_walk(const uint8_t *ip, size_t ip_len);
bool ipoib_ipv6_walk_next(struct ipoib_ipv6_walk *);

/* Neighbour discovery (RFC 4861; on IPoIB, RFC 4391, 9.3). */
#define IPOIB_ND_OPT_LEN 24     /* Type, length 3, two zero bytes, address. */

/* What an ND message tells.  'lladdr' is that of the source link-layer
 * address option (RS, RA, NS) or of the target one (NA, Redirect). */
struct ipoib_nd_info {
    uint8_t type;               /* ICMPv6 type, 133 to 137. */
    struct in6_addr src, dst;   /* Of the IPv6 header. */
    struct in6_addr target;     /* NS, NA, Redirect; else all zeros. */
    uint8_t na_flags;           /* NA: R 0x80, S 0x40, O 0x20. */
    bool has_lladdr;
    union {
        struct ipoib_addr ib;   /* ipoib_nd_parse_ib(). */
        struct eth_addr mac;    /* ipoib_nd_parse_eth(). */
    } lladdr;
};

/* Parses the ND message at 'l4_ofs' of the IPv6 packet of 'len' bytes at
 * 'ip', which comes from the fabric, or from Ethernet.  Returns false, and the
 * packet is to be dropped, if it is malformed: cut short, a wrong checksum,
 * hop limit other than 255, an option of length 0 or that overruns, more than
 * two link-layer address options, one of the other side's length, or one of
 * the type that the message does not have (so that all that a translation
 * replaces was looked at). */
bool ipoib_nd_parse_ib(const void *ip, size_t len, size_t l4_ofs,
                       struct ipoib_nd_info *);
bool ipoib_nd_parse_eth(const void *ip, size_t len, size_t l4_ofs,
                        struct ipoib_nd_info *);

/* Rewrites the ND message at offset 'ip_ofs' + 'l4_ofs' of 'packet' (an IPv6
 * packet that passed the function above): each link-layer address option of
 * 24 bytes becomes one of 8 with 'mac' (to_eth), or each of 8 becomes one of
 * 24 with 'addr' (to_ib).  Payload length and checksum are made right; other
 * options and extension headers stay as they are.  'ip_ofs' counts from
 * dp_packet_data().  What is behind the IP packet (padding) goes.
 *
 * Growing takes tailroom, then headroom, 32 bytes at most: offsets from
 * dp_packet_data() stay right, pointers do not.  Only a packet with neither is
 * reallocated, which DPDK's and AF_XDP's cannot be (they have headroom). */
void ipoib_nd_to_eth(struct dp_packet *packet, size_t ip_ofs, size_t l4_ofs,
                     struct eth_addr mac);
void ipoib_nd_to_ib(struct dp_packet *packet, size_t ip_ofs, size_t l4_ofs,
                    const struct ipoib_addr *addr);

/* Compose whole packets.  The _ib ones begin with the IPoIB header, the _eth
 * ones with the Ethernet header and have at least 60 bytes.  Each returns a
 * new packet with room for headers in front; the caller owns it. */
struct dp_packet *ipoib_compose_arp_ib(uint16_t op, bool rarp,
                                       const struct ipoib_addr *sha,
                                       ovs_be32 spa, /* 'tha' NULL: 0. */
                                       const struct ipoib_addr *tha,
                                       ovs_be32 tpa);
struct dp_packet *ipoib_compose_arp_eth(uint16_t op, bool rarp,
                                        struct eth_addr eth_src,
                                        struct eth_addr eth_dst,
                                        struct eth_addr sha, ovs_be32 spa,
                                        struct eth_addr tha, ovs_be32 tpa);
/* A neighbour advertisement of 'target', from 'target' to 'dst'. */
struct dp_packet *ipoib_compose_na_ib(const struct in6_addr *target,
                                      const struct in6_addr *dst,
                                      uint8_t na_flags,
                                      const struct ipoib_addr *lladdr);
struct dp_packet *ipoib_compose_na_eth(const struct in6_addr *target,
                                       const struct in6_addr *dst,
                                       uint8_t na_flags,
                                       struct eth_addr lladdr,
                                       struct eth_addr eth_dst);
/* A neighbour solicitation for 'target' to its solicited-node group. */
struct dp_packet *ipoib_compose_ns_ib(const struct in6_addr *src,
                                      const struct in6_addr *target,
                                      const struct ipoib_addr *lladdr);

/* Solicited-node group of 'addr'. */
struct in6_addr ipoib_solicited_node(const struct in6_addr *addr);

/* Takes the tag, which is there, off an Ethernet frame.  (OVS's eth_pop_vlan()
 * does nothing with a packet that was not parsed.) */
void ipoib_packet_pop_tag(struct dp_packet *);

/* MAC addresses in frames. */

/* As ntohll() and htonll(), in one instruction instead of two swaps of 32 bits
 * and what puts them together. */
static inline uint64_t
ipoib_swap64(uint64_t x)
{
#ifdef WORDS_BIGENDIAN
    return x;
#else
    return __builtin_bswap64(x);
#endif
}

/* The MAC at 'p', as eth_addr_to_uint64(), where 8 bytes are readable. */
static inline uint64_t
ipoib_get_mac(const uint8_t *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof x);
    return ipoib_swap64(x) >> 16;
}

/* A MAC, as eth_addr_to_uint64(), such that its first six bytes in memory are
 * those of the MAC, and the other two 0. */
static inline uint64_t
ipoib_frame_mac(uint64_t mac)
{
    return ipoib_swap64(mac << 16);
}

/* The MAC at 'p', as ipoib_frame_mac(), where 8 bytes are readable. */
static inline uint64_t
ipoib_get_frame_mac(const uint8_t *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof x);
    return x & ipoib_swap64(~UINT64_C(0xffff));
}

#endif /* ipoib-packet.h */
