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
#include "ipoib-packet.h"

#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <string.h>

#include "csum.h"
#include "dp-packet.h"
#include "jhash.h"
#include "openvswitch/dynamic-string.h"
#include "unaligned.h"
#include "util.h"

/* Room in front of a composed packet, for whoever adds headers: as much as
 * dpif-netdev leaves in front of its own. */
#define COMPOSE_HEADROOM 128

/* Link-layer address options of one ND message.  Each type is useful once;
 * the limit bounds how much a message grows on its way to the fabric. */
#define MAX_LLADDR_OPTIONS 2

/* How much longer an option with an IPoIB address is than one with a MAC. */
#define ND_OPT_DIFF (IPOIB_ND_OPT_LEN - ND_LLA_OPT_LEN)

/* Hardware addresses. */

struct ipoib_addr
ipoib_addr_make(uint32_t qpn, const struct ib_gid *gid)
{
    struct ipoib_addr addr;

    put_16aligned_be32(&addr.flags_qpn, htonl(qpn & IB_QPN_MASK));
    addr.gid = *gid;
    return addr;
}

uint32_t
ipoib_addr_qpn(const struct ipoib_addr *addr)
{
    return ntohl(get_16aligned_be32(&addr->flags_qpn)) & IB_QPN_MASK;
}

bool
ipoib_addr_equals(const struct ipoib_addr *a, const struct ipoib_addr *b)
{
    return ipoib_addr_qpn(a) == ipoib_addr_qpn(b)
           && ib_gid_equals(&a->gid, &b->gid);
}

bool
ipoib_addr_is_station(const struct ipoib_addr *addr)
{
    uint32_t qpn = ipoib_addr_qpn(addr);

    return qpn > IB_QPN_GSI && qpn < IB_QPN_MULTICAST
           && !ib_gid_is_multicast(&addr->gid) && ib_gid_guid(&addr->gid);
}

void
ipoib_addr_format(const struct ipoib_addr *addr, struct ds *ds)
{
    const uint8_t *bytes = (const uint8_t *) addr;

    for (size_t i = 0; i < sizeof *addr; i++) {
        ds_put_format(ds, "%s%02x", i ? ":" : "", bytes[i]);
    }
}

/* A local unicast MAC out of the four words of identity, which says the same
 * on each machine: jhash works on values, not on bytes. */
static struct eth_addr
identity_mac(uint16_t pkey, uint32_t qpn, uint64_t guid, unsigned int attempt)
{
    const uint32_t key[] = { pkey & IB_PKEY_MASK, qpn, guid >> 32, guid };
    uint64_t high = jhash_words(key, ARRAY_SIZE(key), attempt * 2);
    uint64_t low = jhash_words(key, ARRAY_SIZE(key), attempt * 2 + 1);
    struct eth_addr mac;

    eth_addr_from_uint64((high << 32 | low) & UINT64_C(0xffffffffffff), &mac);
    mac.ea[0] = (mac.ea[0] & ~3) | 2;
    return mac;
}

struct eth_addr
ipoib_standin_mac(uint16_t pkey, const struct ipoib_addr *addr,
                  unsigned int attempt)
{
    return identity_mac(pkey, ipoib_addr_qpn(addr), ib_gid_guid(&addr->gid),
                        attempt);
}

/* The port takes QPN 0 as its own, which no neighbour has. */
struct eth_addr
ipoib_port_mac(uint64_t guid, uint16_t pkey)
{
    return identity_mac(pkey, 0, guid, 0);
}

/* Multicast. */

/* The first six bytes of an MGID; the rest is zero. */
static struct ib_gid
mgid_make(uint16_t signature, uint16_t pkey, uint8_t scope)
{
    struct ib_gid mgid;

    memset(&mgid, 0, sizeof mgid);
    pkey |= IB_PKEY_FULL;
    mgid.raw[0] = 0xff;
    mgid.raw[1] = 0x10 | (scope & 0xf);     /* Transient. */
    mgid.raw[2] = signature >> 8;
    mgid.raw[3] = signature;
    mgid.raw[4] = pkey >> 8;
    mgid.raw[5] = pkey;
    return mgid;
}

struct ib_gid
ipoib_mgid_broadcast(uint16_t pkey, uint8_t scope)
{
    struct ib_gid mgid = mgid_make(0x401b, pkey, scope);

    memset(&mgid.raw[12], 0xff, 4);
    return mgid;
}

struct ib_gid
ipoib_mgid_ipv4(ovs_be32 group, uint16_t pkey, uint8_t scope)
{
    struct ib_gid mgid = mgid_make(0x401b, pkey, scope);
    ovs_be32 low = group & htonl(0x0fffffff);

    memcpy(&mgid.raw[12], &low, sizeof low);
    return mgid;
}

struct ib_gid
ipoib_mgid_ipv6(const struct in6_addr *group, uint16_t pkey, uint8_t scope)
{
    struct ib_gid mgid = mgid_make(0x601b, pkey, scope);

    memcpy(&mgid.raw[6], &group->s6_addr[6], 10);
    return mgid;
}

struct eth_addr
ipoib_group_mac_ipv4(ovs_be32 group)
{
    uint32_t low = ntohl(group) & 0x7fffff;
    struct eth_addr mac;

    eth_addr_from_uint64(UINT64_C(0x01005e000000) | low, &mac);
    return mac;
}

struct eth_addr
ipoib_group_mac_ipv6(const struct in6_addr *group)
{
    struct eth_addr mac;

    mac.ea[0] = mac.ea[1] = 0x33;
    memcpy(&mac.ea[2], &group->s6_addr[12], 4);
    return mac;
}

struct in6_addr
ipoib_solicited_node(const struct in6_addr *addr)
{
    struct in6_addr group;

    in6_addr_solicited_node(&group, addr);
    return group;
}

bool
ipoib_ip_is_station(const struct in6_addr *ip)
{
    if (IN6_IS_ADDR_V4MAPPED(ip)) {
        ovs_be32 ip4 = in6_addr_get_mapped_ipv4(ip);

        return ip4 && !ip_is_multicast(ip4) && ip4 != OVS_BE32_MAX;
    }
    return !IN6_IS_ADDR_UNSPECIFIED(ip) && !IN6_IS_ADDR_MULTICAST(ip);
}

/* ARP. */

const struct ipoib_arp *
ipoib_arp_parse(const void *data, size_t len)
{
    const struct ipoib_arp *arp = data;

    return (len >= IPOIB_ARP_LEN
            && arp->htype == htons(IPOIB_ARP_HTYPE)
            && arp->ptype == htons(ETH_TYPE_IP)
            && arp->hlen == IPOIB_ADDR_LEN
            && arp->plen == 4) ? arp : NULL;
}

const struct arp_eth_header *
ipoib_arp_eth_parse(const void *data, size_t len)
{
    const struct arp_eth_header *arp = data;

    return (len >= ARP_ETH_HEADER_LEN
            && arp->ar_hrd == htons(ARP_HRD_ETHERNET)
            && arp->ar_pro == htons(ARP_PRO_IP)
            && arp->ar_hln == ETH_ADDR_LEN
            && arp->ar_pln == 4) ? arp : NULL;
}

/* IP. */

static enum ipoib_ip_class
check_ipv4(const uint8_t *ip, size_t len, size_t *ip_len, size_t *l4_ofs)
{
    const struct ip_header *nh = ALIGNED_CAST(const struct ip_header *, ip);

    if (len < IP_HEADER_LEN || IP_VER(nh->ip_ihl_ver) != 4) {
        return IPOIB_IP_BAD;
    }

    size_t hlen = IP_IHL(nh->ip_ihl_ver) * 4;
    size_t total = ntohs(nh->ip_tot_len);
    if (hlen < IP_HEADER_LEN || total < hlen || total > len) {
        return IPOIB_IP_BAD;
    }
    *ip_len = total;

    size_t l4_len = total - hlen;
    if (!l4_len || IP_IS_FRAGMENT(nh->ip_frag_off)) {
        return IPOIB_IP_DATA;
    }
    *l4_ofs = hlen;

    if (nh->ip_proto == IPPROTO_IGMP) {
        return l4_len >= IGMP_HEADER_LEN ? IPOIB_IP_IGMP : IPOIB_IP_DATA;
    } else if (nh->ip_proto == IPPROTO_PIM) {
        return l4_len >= PIM_HEADER_LEN ? IPOIB_IP_PIM : IPOIB_IP_DATA;
    } else if (nh->ip_proto == IPPROTO_UDP && l4_len >= UDP_HEADER_LEN) {
        const struct udp_header *udp = (const void *) (ip + hlen);
        uint16_t dst = ntohs(udp->udp_dst);

        if (dst == 67 || dst == 68) {
            return IPOIB_IP_DHCP;
        }
    }
    return IPOIB_IP_DATA;
}

/* Classifies the ICMPv6 message of 'len' bytes, which is not empty. */
static enum ipoib_ip_class
classify_icmp6(const uint8_t *icmp, size_t len)
{
    switch (icmp[0]) {
    case ND_ROUTER_SOLICIT:
    case ND_ROUTER_ADVERT:
    case ND_NEIGHBOR_SOLICIT:
    case ND_NEIGHBOR_ADVERT:
    case ND_REDIRECT:
        return IPOIB_IP_ND;

    case MLD_QUERY:
    case MLD_REPORT:
    case MLD_DONE:
    case MLD2_REPORT:
        return len >= ICMP6_DATA_HEADER_LEN ? IPOIB_IP_MLD : IPOIB_IP_DATA;

    default:
        return IPOIB_IP_DATA;
    }
}

struct ipoib_ipv6_walk
ipoib_ipv6_walk(const uint8_t *ip, size_t ip_len)
{
    return (struct ipoib_ipv6_walk) {
        .ip = ip,
        .ip_len = ip_len,
        .proto = ip[6],
        .ofs = IPV6_HEADER_LEN,
    };
}

bool
ipoib_ipv6_walk_next(struct ipoib_ipv6_walk *w)
{
    size_t unit = 8, extra = 1;

    if (w->len) {
        w->proto = w->ip[w->ofs];
        w->ofs += w->len;
        w->len = 0;
    }
    switch (w->proto) {
    case IPPROTO_HOPOPTS:
    case IPPROTO_ROUTING:
    case IPPROTO_DSTOPTS:
    case 135:                   /* Mobility. */
    case 139:                   /* Host identity protocol. */
    case 140:                   /* Shim6. */
        break;

    case IPPROTO_AH:
        unit = 4;
        extra = 2;
        break;

    case IPPROTO_FRAGMENT:      /* The byte of the length is reserved. */
        unit = 0;
        break;

    default:
        return false;
    }

    size_t left = w->ip_len - w->ofs;
    size_t len = left < 8 || !unit ? 8 : (w->ip[w->ofs + 1] + extra) * unit;
    if (++w->n > IPOIB_MAX_EXT_HEADERS || len > left) {
        w->broken = true;
        return false;
    }
    w->len = len;
    return true;
}

/* Finds the upper layer of the IPv6 packet of 'ip_len' bytes at 'ip': stores
 * its offset in '*ofs', and returns its protocol number; or IPPROTO_NONE if
 * there is none that can be looked into: a fragment, something encrypted, a
 * header that overruns the packet; or -1 if there are too many headers. */
static int
find_upper_layer(const uint8_t *ip, size_t ip_len, size_t *ofs)
{
    struct ipoib_ipv6_walk w = ipoib_ipv6_walk(ip, ip_len);

    while (ipoib_ipv6_walk_next(&w)) {
        if (w.proto == IPPROTO_FRAGMENT) {
            return IPPROTO_NONE;
        }
    }
    if (w.n > IPOIB_MAX_EXT_HEADERS) {
        return -1;
    }
    *ofs = w.ofs;
    return (w.broken || w.proto == IPPROTO_ESP || w.ofs >= ip_len
            ? IPPROTO_NONE : w.proto);
}

static enum ipoib_ip_class
check_ipv6(const uint8_t *ip, size_t len, size_t *ip_len, size_t *l4_ofs)
{
    const struct ovs_16aligned_ip6_hdr *nh = (const void *) ip;

    if (len < IPV6_HEADER_LEN || ip[0] >> 4 != 6) {
        return IPOIB_IP_BAD;
    }
    size_t total = IPV6_HEADER_LEN + ntohs(nh->ip6_plen);
    if (total > len) {
        return IPOIB_IP_BAD;
    }

    size_t ofs;
    int proto = find_upper_layer(ip, total, &ofs);
    if (proto < 0) {
        return IPOIB_IP_BAD;
    }
    *ip_len = total;
    if (proto == IPPROTO_NONE) {
        return IPOIB_IP_DATA;
    }
    *l4_ofs = ofs;
    return (proto == IPPROTO_ICMPV6
            ? classify_icmp6(ip + ofs, total - ofs)
            : proto == IPPROTO_PIM && total - ofs >= PIM_HEADER_LEN
            ? IPOIB_IP_PIM : IPOIB_IP_DATA);
}

enum ipoib_ip_class
ipoib_packet_check_ip(uint16_t type, const void *ip, size_t len,
                      size_t *ip_len, size_t *l4_ofs)
{
    *ip_len = *l4_ofs = 0;
    return (type == ETH_TYPE_IP ? check_ipv4(ip, len, ip_len, l4_ofs)
            : type == ETH_TYPE_IPV6 ? check_ipv6(ip, len, ip_len, l4_ofs)
            : IPOIB_IP_BAD);
}

/* Neighbour discovery. */

static bool
is_lladdr_option(uint8_t type)
{
    return type == ND_OPT_SOURCE_LINKADDR || type == ND_OPT_TARGET_LINKADDR;
}

/* Length of an ND message of 'type' without options, 0: not ND. */
static size_t
nd_fixed_len(uint8_t type)
{
    switch (type) {
    case ND_ROUTER_SOLICIT:   return 8;
    case ND_ROUTER_ADVERT:    return 16;
    case ND_NEIGHBOR_SOLICIT: return 24;
    case ND_NEIGHBOR_ADVERT:  return 24;
    case ND_REDIRECT:         return 40;
    default:                  return 0;
    }
}

/* Type of the link-layer address option that a message of 'type' may have. */
static uint8_t
nd_lladdr_type(uint8_t type)
{
    return (type == ND_NEIGHBOR_ADVERT || type == ND_REDIRECT
            ? ND_OPT_TARGET_LINKADDR : ND_OPT_SOURCE_LINKADDR);
}

/* Checks the options of 'len' bytes at 'opts': each link-layer address option
 * must be of type 'want' and have 'opt_len' bytes.  Stores the number of these
 * in '*n', and in '*lladdr' the first one or NULL. */
static bool
nd_parse_options(const uint8_t *opts, size_t len, uint8_t want,
                 size_t opt_len, size_t *n, const uint8_t **lladdr)
{
    *n = 0;
    *lladdr = NULL;
    while (len) {
        size_t this_len = len >= 2 ? opts[1] * 8 : 0;

        if (!this_len || this_len > len) {
            return false;
        }
        if (is_lladdr_option(opts[0])) {
            if (opts[0] != want || this_len != opt_len
                || ++*n > MAX_LLADDR_OPTIONS) {
                return false;
            }
            if (!*lladdr) {
                *lladdr = opts;
            }
        }
        opts += this_len;
        len -= this_len;
    }
    return true;
}

/* Parses all but the link-layer address, whose option, if any, '*lladdr' then
 * points to. */
static bool
nd_parse(const uint8_t *ip, size_t len, size_t l4_ofs, size_t opt_len,
         struct ipoib_nd_info *info, const uint8_t **lladdr)
{
    const struct ovs_16aligned_ip6_hdr *nh = (const void *) ip;

    if (len < IPV6_HEADER_LEN) {
        return false;
    }

    size_t ip_len = IPV6_HEADER_LEN + ntohs(nh->ip6_plen);
    if (ip_len > len || l4_ofs < IPV6_HEADER_LEN || l4_ofs >= ip_len) {
        return false;
    }

    const uint8_t *icmp = ip + l4_ofs;
    size_t l4_len = ip_len - l4_ofs;
    size_t fixed_len = nd_fixed_len(icmp[0]);
    if (!fixed_len || l4_len < fixed_len || icmp[1] || nh->ip6_hlim != 255
        || packet_csum_upperlayer6(nh, icmp, IPPROTO_ICMPV6, l4_len)) {
        return false;
    }

    memset(info, 0, sizeof *info);
    info->type = icmp[0];
    memcpy(&info->src, &nh->ip6_src, sizeof info->src);
    memcpy(&info->dst, &nh->ip6_dst, sizeof info->dst);
    if (fixed_len >= 24) {
        memcpy(&info->target, icmp + 8, sizeof info->target);
    }
    if (info->type == ND_NEIGHBOR_ADVERT) {
        info->na_flags = icmp[4] & 0xe0;
    }

    size_t n;
    if (!nd_parse_options(icmp + fixed_len, l4_len - fixed_len,
                          nd_lladdr_type(info->type), opt_len, &n, lladdr)) {
        return false;
    }
    info->has_lladdr = *lladdr != NULL;
    return (opt_len == IPOIB_ND_OPT_LEN
            || ip_len - IPV6_HEADER_LEN + n * ND_OPT_DIFF <= UINT16_MAX);
}

bool
ipoib_nd_parse_ib(const void *ip, size_t len, size_t l4_ofs,
                  struct ipoib_nd_info *info)
{
    const uint8_t *lladdr;

    if (!nd_parse(ip, len, l4_ofs, IPOIB_ND_OPT_LEN, info, &lladdr)) {
        return false;
    }
    if (lladdr) {
        memcpy(&info->lladdr.ib, lladdr + 4, sizeof info->lladdr.ib);
    }
    return true;
}

bool
ipoib_nd_parse_eth(const void *ip, size_t len, size_t l4_ofs,
                   struct ipoib_nd_info *info)
{
    const uint8_t *lladdr;

    if (!nd_parse(ip, len, l4_ofs, ND_LLA_OPT_LEN, info, &lladdr)) {
        return false;
    }
    if (lladdr) {
        memcpy(&info->lladdr.mac, lladdr + 2, sizeof info->lladdr.mac);
    }
    return true;
}

/* Sets the checksum of the ICMPv6 message of 'l4_len' bytes at 'l4_ofs' of
 * 'ip'. */
static void
set_icmp6_csum(uint8_t *ip, size_t l4_ofs, size_t l4_len)
{
    const struct ovs_16aligned_ip6_hdr *nh = (const void *) ip;
    struct icmp6_header *icmp = ALIGNED_CAST(struct icmp6_header *,
                                             ip + l4_ofs);

    icmp->icmp6_cksum = 0;
    icmp->icmp6_cksum = packet_csum_upperlayer6(nh, icmp, IPPROTO_ICMPV6,
                                                l4_len);
}

/* The options of an ND message. */
struct nd_options {
    size_t ofs;                 /* Where they begin, from the IPv6 header. */
    size_t len;                 /* In bytes. */
    size_t n_lladdrs;           /* Link-layer address options of 'opt_len'. */
};

/* Finds the options of the message at 'l4_ofs' of 'ip', which passed
 * nd_parse(). */
static struct nd_options
nd_find_options(const uint8_t *ip, size_t l4_ofs, size_t opt_len)
{
    const struct ovs_16aligned_ip6_hdr *nh = (const void *) ip;
    const uint8_t *lladdr;
    struct nd_options o;

    o.ofs = l4_ofs + nd_fixed_len(ip[l4_ofs]);
    o.len = IPV6_HEADER_LEN + ntohs(nh->ip6_plen) - o.ofs;
    nd_parse_options(ip + o.ofs, o.len, nd_lladdr_type(ip[l4_ofs]), opt_len,
                     &o.n_lladdrs, &lladdr);
    return o;
}

/* Copies the options of 'len' bytes at 'src' to 'dst', with 'opt' of 'opt_len'
 * bytes, but for the type, in place of each link-layer address option.  'dst'
 * may overlap 'src' if it does not get ahead of it. */
static void
nd_translate_options(uint8_t *dst, const uint8_t *src, size_t len,
                     const uint8_t *opt, size_t opt_len)
{
    const uint8_t *end = src + len;

    while (src < end) {
        uint8_t type = src[0];
        size_t this_len = src[1] * 8;

        if (is_lladdr_option(type)) {
            memcpy(dst, opt, opt_len);
            dst[0] = type;
            dst += opt_len;
        } else {
            memmove(dst, src, this_len);
            dst += this_len;
        }
        src += this_len;
    }
}

/* Makes room for 'n' bytes more at the end of 'packet', in its tailroom,
 * headroom, or, if it has neither, by allocation: a packet in memory that
 * cannot be reallocated (of DPDK or AF_XDP) has headroom. */
static void
packet_extend(struct dp_packet *packet, size_t n)
{
    size_t tail = MIN(n, dp_packet_tailroom(packet));
    size_t shift = ROUND_UP(n - tail, 2);   /* Alignment stays. */

    if (shift <= dp_packet_headroom(packet)) {
        dp_packet_shift(packet, -(int) shift);
    }
    dp_packet_put_uninit(packet, n);
}

/* Completes a translation: 'ip' has options of 'opts_len' bytes instead of
 * those in '*o'. */
static void
nd_finish(uint8_t *ip, size_t l4_ofs, const struct nd_options *o,
          size_t opts_len)
{
    struct ovs_16aligned_ip6_hdr *nh
        = ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *, ip);
    size_t ip_len = o->ofs + opts_len;

    nh->ip6_plen = htons(ip_len - IPV6_HEADER_LEN);
    set_icmp6_csum(ip, l4_ofs, ip_len - l4_ofs);
}

void
ipoib_nd_to_eth(struct dp_packet *packet, size_t ip_ofs, size_t l4_ofs,
                struct eth_addr mac)
{
    uint8_t *ip = dp_packet_at_assert(packet, ip_ofs, l4_ofs + 8);
    struct nd_options o = nd_find_options(ip, l4_ofs, IPOIB_ND_OPT_LEN);
    size_t opts_len = o.len - o.n_lladdrs * ND_OPT_DIFF;
    uint8_t opt[ND_LLA_OPT_LEN] = { 0, ND_LLA_OPT_LEN / 8 };

    memcpy(&opt[2], &mac, sizeof mac);
    nd_translate_options(ip + o.ofs, ip + o.ofs, o.len, opt, sizeof opt);
    dp_packet_set_size(packet, ip_ofs + o.ofs + opts_len);
    nd_finish(ip, l4_ofs, &o, opts_len);
}

void
ipoib_nd_to_ib(struct dp_packet *packet, size_t ip_ofs, size_t l4_ofs,
               const struct ipoib_addr *addr)
{
    uint8_t *ip = dp_packet_at_assert(packet, ip_ofs, l4_ofs + 8);
    struct nd_options o = nd_find_options(ip, l4_ofs, ND_LLA_OPT_LEN);
    size_t diff = o.n_lladdrs * ND_OPT_DIFF;
    uint8_t opt[IPOIB_ND_OPT_LEN] = { 0, IPOIB_ND_OPT_LEN / 8 };

    /* Padding goes; the options move to the end and are translated from there
     * to where they were. */
    dp_packet_set_size(packet, ip_ofs + o.ofs + o.len);
    packet_extend(packet, diff);
    ip = dp_packet_at_assert(packet, ip_ofs, o.ofs + o.len + diff);
    memmove(ip + o.ofs + diff, ip + o.ofs, o.len);

    memcpy(&opt[4], addr, sizeof *addr);
    nd_translate_options(ip + o.ofs, ip + o.ofs + diff, o.len, opt,
                         sizeof opt);
    nd_finish(ip, l4_ofs, &o, o.len + diff);
}

/* Composing. */

/* A new packet with room for 'len' bytes, all to be put. */
static struct dp_packet *
compose_new(size_t len)
{
    return dp_packet_new_with_headroom(len, COMPOSE_HEADROOM);
}

static void
put_ipoib_header(struct dp_packet *packet, uint16_t type)
{
    struct ipoib_header *h = dp_packet_put_zeros(packet, sizeof *h);

    h->type = htons(type);
}

static void
put_eth_header(struct dp_packet *packet, struct eth_addr dst,
               struct eth_addr src, uint16_t type)
{
    struct eth_header *eth = dp_packet_put_uninit(packet, sizeof *eth);

    eth->eth_dst = dst;
    eth->eth_src = src;
    eth->eth_type = htons(type);
}

/* Zeros up to the shortest Ethernet frame. */
static void
pad_eth(struct dp_packet *packet)
{
    size_t size = dp_packet_size(packet);

    if (size < ETH_TOTAL_MIN) {
        dp_packet_put_zeros(packet, ETH_TOTAL_MIN - size);
    }
}

struct dp_packet *
ipoib_compose_arp_ib(uint16_t op, bool rarp, const struct ipoib_addr *sha,
                     ovs_be32 spa, const struct ipoib_addr *tha, ovs_be32 tpa)
{
    struct dp_packet *packet = compose_new(IPOIB_HEADER_LEN + IPOIB_ARP_LEN);

    put_ipoib_header(packet, rarp ? ETH_TYPE_RARP : ETH_TYPE_ARP);

    struct ipoib_arp *arp = dp_packet_put_zeros(packet, sizeof *arp);
    arp->htype = htons(IPOIB_ARP_HTYPE);
    arp->ptype = htons(ETH_TYPE_IP);
    arp->hlen = IPOIB_ADDR_LEN;
    arp->plen = 4;
    arp->op = htons(op);
    arp->sha = *sha;
    put_16aligned_be32(&arp->spa, spa);
    if (tha) {
        arp->tha = *tha;
    }
    put_16aligned_be32(&arp->tpa, tpa);
    return packet;
}

struct dp_packet *
ipoib_compose_arp_eth(uint16_t op, bool rarp, struct eth_addr eth_src,
                      struct eth_addr eth_dst, struct eth_addr sha,
                      ovs_be32 spa, struct eth_addr tha, ovs_be32 tpa)
{
    struct dp_packet *packet = compose_new(ETH_TOTAL_MIN);

    put_eth_header(packet, eth_dst, eth_src,
                   rarp ? ETH_TYPE_RARP : ETH_TYPE_ARP);

    struct arp_eth_header *arp = dp_packet_put_uninit(packet, sizeof *arp);
    arp->ar_hrd = htons(ARP_HRD_ETHERNET);
    arp->ar_pro = htons(ARP_PRO_IP);
    arp->ar_hln = ETH_ADDR_LEN;
    arp->ar_pln = 4;
    arp->ar_op = htons(op);
    arp->ar_sha = sha;
    put_16aligned_be32(&arp->ar_spa, spa);
    arp->ar_tha = tha;
    put_16aligned_be32(&arp->ar_tpa, tpa);
    pad_eth(packet);
    return packet;
}

/* Puts a solicitation or an advertisement with hop limit 255 and the option
 * of 'opt_len' bytes at 'opt'. */
static void
put_nd(struct dp_packet *packet, const struct in6_addr *src,
       const struct in6_addr *dst, uint8_t type, uint8_t flags,
       const struct in6_addr *target, const uint8_t *opt, size_t opt_len)
{
    size_t l4_len = nd_fixed_len(type) + opt_len;
    uint8_t *ip = dp_packet_put_zeros(packet, IPV6_HEADER_LEN + l4_len);
    uint8_t *icmp = ip + IPV6_HEADER_LEN;
    struct ovs_16aligned_ip6_hdr *nh
        = ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *, ip);

    nh->ip6_vfc = 0x60;
    nh->ip6_plen = htons(l4_len);
    nh->ip6_nxt = IPPROTO_ICMPV6;
    nh->ip6_hlim = 255;
    memcpy(&nh->ip6_src, src, sizeof *src);
    memcpy(&nh->ip6_dst, dst, sizeof *dst);

    icmp[0] = type;
    icmp[4] = flags;
    memcpy(icmp + 8, target, sizeof *target);
    memcpy(icmp + nd_fixed_len(type), opt, opt_len);
    set_icmp6_csum(ip, IPV6_HEADER_LEN, l4_len);
}

static void
put_nd_ib(struct dp_packet *packet, const struct in6_addr *src,
          const struct in6_addr *dst, uint8_t type, uint8_t flags,
          const struct in6_addr *target, uint8_t opt_type,
          const struct ipoib_addr *lladdr)
{
    uint8_t opt[IPOIB_ND_OPT_LEN] = { opt_type, IPOIB_ND_OPT_LEN / 8 };

    memcpy(&opt[4], lladdr, sizeof *lladdr);
    put_ipoib_header(packet, ETH_TYPE_IPV6);
    put_nd(packet, src, dst, type, flags, target, opt, sizeof opt);
}

struct dp_packet *
ipoib_compose_na_ib(const struct in6_addr *target, const struct in6_addr *dst,
                    uint8_t na_flags, const struct ipoib_addr *lladdr)
{
    struct dp_packet *packet = compose_new(IPOIB_HEADER_LEN + IPV6_HEADER_LEN
                                           + ND_MSG_LEN + IPOIB_ND_OPT_LEN);

    put_nd_ib(packet, target, dst, ND_NEIGHBOR_ADVERT, na_flags, target,
              ND_OPT_TARGET_LINKADDR, lladdr);
    return packet;
}

struct dp_packet *
ipoib_compose_na_eth(const struct in6_addr *target,
                     const struct in6_addr *dst, uint8_t na_flags,
                     struct eth_addr lladdr, struct eth_addr eth_dst)
{
    struct dp_packet *packet = compose_new(ETH_HEADER_LEN + IPV6_HEADER_LEN
                                           + ND_MSG_LEN + ND_LLA_OPT_LEN);
    uint8_t opt[ND_LLA_OPT_LEN] = { ND_OPT_TARGET_LINKADDR,
                                    ND_LLA_OPT_LEN / 8 };

    memcpy(&opt[2], &lladdr, sizeof lladdr);
    put_eth_header(packet, eth_dst, lladdr, ETH_TYPE_IPV6);
    put_nd(packet, target, dst, ND_NEIGHBOR_ADVERT, na_flags, target, opt,
           sizeof opt);
    return packet;
}

struct dp_packet *
ipoib_compose_ns_ib(const struct in6_addr *src, const struct in6_addr *target,
                    const struct ipoib_addr *lladdr)
{
    struct dp_packet *packet = compose_new(IPOIB_HEADER_LEN + IPV6_HEADER_LEN
                                           + ND_MSG_LEN + IPOIB_ND_OPT_LEN);
    struct in6_addr dst = ipoib_solicited_node(target);

    put_nd_ib(packet, src, &dst, ND_NEIGHBOR_SOLICIT, 0, target,
              ND_OPT_SOURCE_LINKADDR, lladdr);
    return packet;
}

void
ipoib_packet_pop_tag(struct dp_packet *packet)
{
    uint8_t *eth = dp_packet_data(packet);

    memmove(eth + VLAN_HEADER_LEN, eth, 2 * ETH_ADDR_LEN);
    dp_packet_resize_l2(packet, -VLAN_HEADER_LEN);
}
