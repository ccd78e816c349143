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
#include "ipoib-offload.h"

#include <netinet/in.h>
#include <netinet/ip6.h>
#include <string.h>

#include "crc32c.h"
#include "csum.h"
#include "dp-packet.h"
#include "ipoib-packet.h"
#include "packets.h"
#include "unaligned.h"
#include "util.h"

/* Room in front of what is made here. */
#define HEADROOM 128

/* A packet that asks for more segments is not cut: it is made to keep somebody
 * busy. */
#define MAX_SEGMENTS 1024


/* Headers. */

static const struct ip_header *
ipv4_header(const uint8_t *ip)
{
    return ALIGNED_CAST(const struct ip_header *, ip);
}

static struct tcp_header *
tcp_header(uint8_t *l4)
{
    return ALIGNED_CAST(struct tcp_header *, l4);
}

/* The address at the end of the way that the routing header 'rh', of 'len'
 * bytes, describes; NULL if it cannot be told. */
static const uint8_t *
routing_destination(const uint8_t *rh, size_t len)
{
    switch (rh[2]) {
    case 0:                     /* Source route: the last one. */
    case 2:                     /* Mobile IPv6: the only one. */
        return len >= 24 ? rh + len - 16 : NULL;

    case 4:                     /* Segment routing: the first one. */
        return len >= 24 ? rh + 8 : NULL;

    default:
        return NULL;
    }
}

/* Finds layer 4 behind the extension headers of an IPv6 packet. */
static bool
parse_ipv6_ext(struct ipoib_offload *o)
{
    struct ipoib_ipv6_walk w = ipoib_ipv6_walk(o->ip, o->ip_len);

    o->dst = o->ip + 24;
    while (ipoib_ipv6_walk_next(&w)) {
        const uint8_t *h = o->ip + w.ofs;

        switch (w.proto) {
        case IPPROTO_HOPOPTS:
        case IPPROTO_DSTOPTS:
            break;

        case IPPROTO_ROUTING:
            if (h[3]) {
                o->dst = routing_destination(h, w.len);
                if (!o->dst) {
                    return false;
                }
            }
            break;

        default:
            return false;
        }
    }
    o->proto = w.proto;
    o->l4_ofs = w.ofs;
    return !w.broken;
}

/* Finds layer 4 of an IP packet, of which 'len' bytes are there. */
static bool
parse_ip(struct ipoib_offload *o, ovs_be16 type, size_t len)
{
    const uint8_t *ip = o->ip;

    o->v4 = type == htons(ETH_TYPE_IP);
    if (o->v4 && len >= IP_HEADER_LEN && ip[0] >> 4 == 4) {
        const struct ip_header *nh = ipv4_header(ip);

        o->ip_len = ntohs(nh->ip_tot_len);
        o->l4_ofs = IP_IHL(nh->ip_ihl_ver) * 4;
        o->proto = nh->ip_proto;
        o->dst = ip + 16;
        return (o->l4_ofs >= IP_HEADER_LEN && o->ip_len >= o->l4_ofs
                && o->ip_len <= len && !IP_IS_FRAGMENT(nh->ip_frag_off));
    } else if (type == htons(ETH_TYPE_IPV6) && len >= IPV6_HEADER_LEN
               && ip[0] >> 4 == 6) {
        o->ip_len = IPV6_HEADER_LEN + ((ip[4] << 8) | ip[5]);
        return o->ip_len <= len && parse_ipv6_ext(o);
    }
    return false;
}

/* True if there is all of the header of layer 4, and it can be right. */
static bool
check_l4(const struct ipoib_offload *o)
{
    size_t l4_len = o->ip_len - o->l4_ofs;
    uint8_t *l4 = o->ip + o->l4_ofs;

    switch (o->proto) {
    case IPPROTO_TCP:
        if (l4_len >= TCP_HEADER_LEN) {
            size_t hlen = TCP_OFFSET(tcp_header(l4)->tcp_ctl) * 4;

            return hlen >= TCP_HEADER_LEN && hlen <= l4_len;
        }
        return false;

    case IPPROTO_UDP:
        return (l4_len >= UDP_HEADER_LEN
                && (ntohs(ALIGNED_CAST(struct udp_header *, l4)->udp_len)
                    == l4_len));

    case IPPROTO_SCTP:
        return l4_len >= SCTP_HEADER_LEN;

    default:
        return false;
    }
}

bool
ipoib_offload_parse_ip(uint8_t *ip, size_t len, ovs_be16 type,
                       struct ipoib_offload *o)
{
    o->ip = ip;
    o->l2_len = 0;
    return parse_ip(o, type, len) && check_l4(o);
}

bool
ipoib_offload_parse(const struct dp_packet *packet, struct ipoib_offload *o)
{
    const struct vlan_eth_header *eth = dp_packet_data(packet);
    size_t size = dp_packet_size(packet);
    bool tagged = (size >= VLAN_ETH_HEADER_LEN
                   && eth_type_vlan(eth->veth_type));
    size_t l2_len = tagged ? VLAN_ETH_HEADER_LEN : ETH_HEADER_LEN;

    if (size < l2_len
        || !ipoib_offload_parse_ip(
            (uint8_t *) dp_packet_data(packet) + l2_len, size - l2_len,
            tagged ? eth->veth_next_type : eth->veth_type, o)) {
        return false;
    }
    o->l2_len = l2_len;
    return true;
}

bool
ipoib_offload_is_simple(const struct ipoib_offload *o)
{
    return (o->proto != IPPROTO_SCTP
            && o->l4_ofs == (o->v4 ? IP_HEADER_LEN : IPV6_HEADER_LEN));
}


/* Checksums. */

/* As csum_continue(), for much data.  That function takes two bytes at a time,
 * which would be most of what it costs to cut a packet into segments. */
static uint32_t
sum_data(uint32_t partial, const uint8_t *p, size_t n)
{
    uint64_t a = partial, b = 0;

    for (; n >= 16; p += 16, n -= 16) {
        uint32_t words[4];

        memcpy(words, p, sizeof words);
        a += words[0];
        b += words[1];
        a += words[2];
        b += words[3];
    }
    /* The carries of 32 bits are worth 1, as those of 16 bits are. */
    a += b;
    a = (a & UINT32_MAX) + (a >> 32);
    a = (a & UINT16_MAX) + (a >> 16);
    return csum_continue((a & UINT16_MAX) + (a >> 16), p, n);
}

/* The sum of the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1). */
static uint32_t
pseudo_header(const struct ipoib_offload *o)
{
    size_t l4_len = o->ip_len - o->l4_ofs;
    uint32_t sum;

    sum = (o->v4 ? csum_continue(0, o->ip + 12, 4)
           : csum_continue(0, o->ip + 8, 16));
    sum = csum_continue(sum, o->dst, o->v4 ? 4 : 16);
    sum = csum_add16(sum, htons(o->proto));
    return csum_add32(sum, htonl(l4_len));
}

/* Where the checksum of TCP or UDP is. */
static ovs_be16 *
checksum_place(const struct ipoib_offload *o)
{
    uint8_t *l4 = o->ip + o->l4_ofs;

    return (o->proto == IPPROTO_TCP ? &tcp_header(l4)->tcp_csum
            : &ALIGNED_CAST(struct udp_header *, l4)->udp_csum);
}

void
ipoib_offload_complete(const struct ipoib_offload *o)
{
    uint8_t *l4 = o->ip + o->l4_ofs;
    size_t l4_len = o->ip_len - o->l4_ofs;

    if (o->proto == IPPROTO_SCTP) {
        struct sctp_header *sctp = ALIGNED_CAST(struct sctp_header *, l4);

        put_16aligned_be32(&sctp->sctp_csum, 0);
        put_16aligned_be32(&sctp->sctp_csum, crc32c(l4, l4_len));
    } else {
        ovs_be16 *place = checksum_place(o);

        *place = 0;
        *place = csum_finish(sum_data(pseudo_header(o), l4, l4_len));
        if (o->proto == IPPROTO_UDP && !*place) {
            *place = OVS_BE16_MAX; /* 0 says that there is none. */
        }
    }
}

bool
ipoib_offload_verify(const struct ipoib_offload *o)
{
    return ((o->v4 && o->proto == IPPROTO_UDP && !*checksum_place(o))
            || !csum_finish(sum_data(pseudo_header(o), o->ip + o->l4_ofs,
                                     o->ip_len - o->l4_ofs)));
}

void
ipoib_offload_prepare(const struct ipoib_offload *o)
{
    *checksum_place(o) = ~csum_finish(pseudo_header(o));
}


/* Segments. */

bool
ipoib_segments_init(struct ipoib_segments *segs,
                    const struct dp_packet *packet,
                    const struct ipoib_offload *all, size_t mtu, size_t segsz)
{
    if (all->proto != IPPROTO_TCP) {
        return false;
    }
    segs->all = *all;
    segs->packet = packet;
    segs->hlen = all->l4_ofs
                 + TCP_OFFSET(tcp_header(all->ip + all->l4_ofs)->tcp_ctl) * 4;
    segs->len = all->ip_len - segs->hlen;
    segs->ofs = 0;
    segs->prepare = false;
    segs->id = all->v4 ? ntohs(ipv4_header(all->ip)->ip_id) : 0;
    if (mtu <= segs->hlen || !segs->len) {
        return false;
    }
    segs->size = segsz ? MIN(segsz, mtu - segs->hlen) : mtu - segs->hlen;
    return ipoib_segments_n(segs) <= MAX_SEGMENTS;
}

size_t
ipoib_segments_n(const struct ipoib_segments *segs)
{
    return DIV_ROUND_UP(segs->len, segs->size);
}

size_t
ipoib_segments_ip_bytes(const struct ipoib_segments *segs)
{
    return ipoib_segments_n(segs) * segs->hlen + segs->len;
}

/* Writes the lengths, and what counts up, to the headers of a segment with
 * 'n' bytes of TCP's. */
static void
set_headers(const struct ipoib_segments *segs, const struct ipoib_offload *o,
            size_t n)
{
    struct tcp_header *tcp = tcp_header(o->ip + o->l4_ofs);
    uint32_t seq = ntohl(get_16aligned_be32(&tcp->tcp_seq));

    if (o->v4) {
        struct ip_header *nh = ALIGNED_CAST(struct ip_header *, o->ip);

        nh->ip_tot_len = htons(o->ip_len);
        nh->ip_id = htons(segs->id);
        nh->ip_csum = 0;
        nh->ip_csum = csum(nh, o->l4_ofs);
    } else {
        ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *, o->ip)->ip6_plen
            = htons(o->ip_len - IPV6_HEADER_LEN);
    }

    put_16aligned_be32(&tcp->tcp_seq, htonl(seq + segs->ofs));
    if (segs->ofs) {
        tcp->tcp_ctl &= htons(~TCP_CWR);
    }
    if (segs->ofs + n < segs->len) {
        tcp->tcp_ctl &= htons(~(TCP_FIN | TCP_PSH));
    }
}

struct dp_packet *
ipoib_segments_next(struct ipoib_segments *segs)
{
    size_t n = MIN(segs->size, segs->len - segs->ofs);
    struct ipoib_offload o = segs->all;
    struct dp_packet *packet;
    uint8_t *eth;

    if (!n) {
        return NULL;
    }
    o.ip_len = segs->hlen + n;
    packet = dp_packet_new_with_headroom(o.l2_len + o.ip_len, HEADROOM);
    packet->md.in_port = segs->packet->md.in_port;
    eth = dp_packet_put(packet, segs->all.ip - o.l2_len,
                        o.l2_len + segs->hlen);
    o.ip = eth + o.l2_len;
    dp_packet_put(packet, segs->all.ip + segs->hlen + segs->ofs, n);
    set_headers(segs, &o, n);
    if (segs->prepare) {
        ipoib_offload_prepare(&o);
    } else {
        ipoib_offload_complete(&o);
    }
    segs->ofs += n;
    segs->id++;
    return packet;
}
