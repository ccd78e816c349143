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
#include "ipoib-mtu.h"

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#include "csum.h"
#include "dp-packet.h"
#include "hash.h"
#include "ipoib-packet.h"
#include "packets.h"
#include "random.h"
#include "unaligned.h"
#include "util.h"

/* Room in front of what is made here. */
#define HEADROOM 128

/* Errors quote the packet so far that they have no more than this (RFC 1812,
 * 4.3.2.3; RFC 4443, 2.4). */
#define ICMP4_ERROR_MAX 576
#define ICMP6_ERROR_MAX IPOIB_MTU_IPV6_MIN

#define ERROR_TTL 64

static const struct ip_header *
ipv4_header(const void *ip)
{
    return ip;
}

static size_t
ipv4_hlen(const void *ip)
{
    return IP_IHL(ipv4_header(ip)->ip_ihl_ver) * 4;
}

/* Upper layers. */

/* The upper layer of a packet. */
struct upper {
    int proto;                  /* -1: cannot be found. */
    const uint8_t *data;
    size_t len;                 /* That there is. */
    bool later;                 /* A fragment other than the first: 'data' is
                                 * not the beginning. */
};

static struct upper
upper_ipv4(const uint8_t *ip, size_t ip_len)
{
    const struct ip_header *nh = ipv4_header(ip);
    size_t hlen = ipv4_hlen(ip);

    return (struct upper) {
        .proto = nh->ip_proto,
        .data = ip + hlen,
        .len = ip_len - hlen,
        .later = (nh->ip_frag_off & htons(IP_FRAG_OFF_MASK)) != 0,
    };
}

static struct upper
upper_ipv6(const uint8_t *ip, size_t ip_len)
{
    struct ipoib_ipv6_walk w = ipoib_ipv6_walk(ip, ip_len);
    struct upper upper = { .proto = -1 };

    while (ipoib_ipv6_walk_next(&w)) {
        const uint8_t *h = ip + w.ofs;

        if (w.proto == IPPROTO_FRAGMENT && (h[2] || h[3] & 0xf8)) {
            upper.proto = h[0];
            upper.data = h + w.len;
            upper.len = ip_len - w.ofs - w.len;
            upper.later = true;
            return upper;
        }
    }
    if (!w.broken) {
        upper.proto = w.proto;
        upper.data = ip + w.ofs;
        upper.len = ip_len - w.ofs;
    }
    return upper;
}

static struct upper
upper_layer(uint16_t type, const uint8_t *ip, size_t ip_len)
{
    return (type == ETH_TYPE_IP ? upper_ipv4(ip, ip_len)
            : upper_ipv6(ip, ip_len));
}

/* Verdict. */

/* Source and destination of 'ip'; IPv4 is mapped. */
static void
ip_addresses(uint16_t type, const uint8_t *ip, struct in6_addr *src,
             struct in6_addr *dst)
{
    if (type == ETH_TYPE_IP) {
        const struct ip_header *nh = ipv4_header(ip);

        *src = in6_addr_mapped_ipv4(get_16aligned_be32(&nh->ip_src));
        *dst = in6_addr_mapped_ipv4(get_16aligned_be32(&nh->ip_dst));
    } else {
        memcpy(src, ip + 8, sizeof *src);
        memcpy(dst, ip + 24, sizeof *dst);
    }
}

/* True if 'ip' can be written to, and from: a station's, and of those that
 * are seen on a link. */
static bool
is_host_addr(const struct in6_addr *ip)
{
    if (IN6_IS_ADDR_V4MAPPED(ip)) {
        uint32_t ip4 = ntohl(in6_addr_get_mapped_ipv4(ip));

        return ip4 >> 24 && ip4 >> 24 != 127 && ip4 < 0xe0000000;
    }
    return ipoib_ip_is_station(ip) && !IN6_IS_ADDR_LOOPBACK(ip);
}

/* True if 'upper' is, or may be, an error, which no error may answer. */
static bool
upper_may_be_error(uint16_t type, const struct upper *upper)
{
    if (upper->proto < 0) {
        return true;
    } else if (upper->proto != (type == ETH_TYPE_IP ? IPPROTO_ICMP
                                : IPPROTO_ICMPV6)) {
        return false;
    } else if (upper->later || !upper->len) {
        return true;
    } else if (type == ETH_TYPE_IP) {
        switch (upper->data[0]) {
        case ICMP_DEST_UNREACH:
        case ICMP_SOURCE_QUENCH:
        case ICMP_REDIRECT:
        case ICMP_TIME_EXCEEDED:
        case ICMP_PARAMETERPROB:
            return true;
        default:
            return false;
        }
    } else {
        return !(upper->data[0] & ICMP6_INFOMSG_MASK)
               || upper->data[0] == ND_REDIRECT;
    }
}

static enum ipoib_mtu_verdict
judge_error(uint16_t type, const uint8_t *ip, size_t ip_len)
{
    struct upper upper = upper_layer(type, ip, ip_len);
    struct in6_addr src, dst;

    ip_addresses(type, ip, &src, &dst);
    if (!is_host_addr(&src) || !is_host_addr(&dst)
        || (type == ETH_TYPE_IP && upper.later)
        || upper_may_be_error(type, &upper)) {
        return IPOIB_MTU_DROP;
    }
    return IPOIB_MTU_ERROR;
}

enum ipoib_mtu_verdict
ipoib_mtu_judge(uint16_t type, const void *ip, size_t ip_len, uint32_t mtu)
{
    if (type == ETH_TYPE_IP) {
        const struct ip_header *nh = ipv4_header(ip);
        size_t hlen = ipv4_hlen(ip);
        size_t ofs = ntohs(nh->ip_frag_off & htons(IP_FRAG_OFF_MASK)) * 8;

        if (csum(ip, hlen) || ofs + ip_len > UINT16_MAX) {
            return IPOIB_MTU_BAD;
        } else if (!(nh->ip_frag_off & htons(IP_DF))) {
            return mtu >= hlen + 8 ? IPOIB_MTU_FRAGMENT : IPOIB_MTU_DROP;
        }
    }
    return judge_error(type, ip, ip_len);
}

/* Fragments. */

void
ipoib_mtu_fragment(struct ipoib_mtu_fragmenter *f, const void *ip,
                   size_t ip_len, uint32_t mtu, const void *l2, size_t l2_len)
{
    f->ip = ip;
    f->l2 = l2;
    f->l2_len = l2_len;
    f->hlen = ipv4_hlen(ip);
    f->len = ip_len - f->hlen;
    f->ofs = 0;
    f->step = (mtu - f->hlen) & ~7;
}

/* Of the 'len' bytes of IP options at 'opt', fragments other than the first
 * have those alone that say so (RFC 791, 3.1); the place of the others is
 * filled with no-operations. */
static void
clear_options(uint8_t *opt, size_t len)
{
    while (len && opt[0] != 0) {
        size_t n = opt[0] == 1 ? 1 : len < 2 ? 0 : opt[1];

        if (n > len || (opt[0] != 1 && n < 2)) {
            return;
        }
        if (!(opt[0] & 0x80)) {
            memset(opt, 1, n);
        }
        opt += n;
        len -= n;
    }
}

struct dp_packet *
ipoib_mtu_next_fragment(struct ipoib_mtu_fragmenter *f)
{
    size_t n = MIN(f->step, f->len - f->ofs);
    bool last = f->ofs + n == f->len;
    struct dp_packet *packet;
    struct ip_header *nh;
    uint16_t frag_off;

    if (!n) {
        return NULL;
    }
    packet = dp_packet_new_with_headroom(f->l2_len + f->hlen + n, HEADROOM);
    dp_packet_put(packet, f->l2, f->l2_len);
    nh = dp_packet_put(packet, f->ip, f->hlen);
    if (f->ofs) {
        clear_options((uint8_t *) (nh + 1), f->hlen - sizeof *nh);
    }
    frag_off = ntohs(nh->ip_frag_off) + f->ofs / 8;
    nh->ip_frag_off = htons(last ? frag_off : frag_off | IP_MORE_FRAGMENTS);
    nh->ip_tot_len = htons(f->hlen + n);
    nh->ip_csum = 0;
    nh->ip_csum = csum(nh, f->hlen);
    dp_packet_put(packet, f->ip + f->hlen + f->ofs, n);
    f->ofs += n;
    return packet;
}

/* Errors. */

static struct dp_packet *
compose_icmp4(const uint8_t *ip, size_t ip_len, uint32_t mtu)
{
    const struct ip_header *orig = ipv4_header(ip);
    size_t quoted = MIN(ip_len, ICMP4_ERROR_MAX - IP_HEADER_LEN
                                - ICMP_HEADER_LEN);
    struct dp_packet *packet;
    struct icmp_header *icmp;
    struct ip_header *nh;

    packet = dp_packet_new_with_headroom(ICMP4_ERROR_MAX, HEADROOM);
    nh = dp_packet_put_zeros(packet, IP_HEADER_LEN);
    icmp = dp_packet_put_zeros(packet, ICMP_HEADER_LEN);
    dp_packet_put(packet, ip, quoted);

    icmp->icmp_type = ICMP_DEST_UNREACH;
    icmp->icmp_code = ICMP_FRAG_NEEDED;
    icmp->icmp_fields.frag.mtu = htons(MIN(mtu, UINT16_MAX));
    icmp->icmp_csum = csum(icmp, ICMP_HEADER_LEN + quoted);

    nh->ip_ihl_ver = IP_IHL_VER(5, 4);
    nh->ip_tos = 0xc0;          /* Internetwork control (RFC 1812, 4.3.2.5). */
    nh->ip_tot_len = htons(dp_packet_size(packet));
    nh->ip_frag_off = htons(IP_DF);
    nh->ip_ttl = ERROR_TTL;
    nh->ip_proto = IPPROTO_ICMP;
    nh->ip_src = orig->ip_dst;
    nh->ip_dst = orig->ip_src;
    nh->ip_csum = csum(nh, sizeof *nh);
    return packet;
}

static struct dp_packet *
compose_icmp6(const uint8_t *ip, size_t ip_len, uint32_t mtu)
{
    const struct ovs_16aligned_ip6_hdr *orig = (const void *) ip;
    size_t quoted = MIN(ip_len, ICMP6_ERROR_MAX - IPV6_HEADER_LEN
                                - ICMP6_DATA_HEADER_LEN);
    size_t len = ICMP6_DATA_HEADER_LEN + quoted;
    struct icmp6_data_header *icmp;
    struct ovs_16aligned_ip6_hdr *nh;
    struct dp_packet *packet;

    packet = dp_packet_new_with_headroom(ICMP6_ERROR_MAX, HEADROOM);
    nh = dp_packet_put_zeros(packet, IPV6_HEADER_LEN);
    icmp = dp_packet_put_zeros(packet, ICMP6_DATA_HEADER_LEN);
    dp_packet_put(packet, ip, quoted);

    put_16aligned_be32(&nh->ip6_flow, htonl(6u << 28));
    nh->ip6_plen = htons(len);
    nh->ip6_nxt = IPPROTO_ICMPV6;
    nh->ip6_hlim = ERROR_TTL;
    nh->ip6_src = orig->ip6_dst;
    nh->ip6_dst = orig->ip6_src;

    icmp->icmp6_base.icmp6_type = ICMP6_PACKET_TOO_BIG;
    put_16aligned_be32(icmp->icmp6_data.be32, htonl(mtu));
    icmp->icmp6_base.icmp6_cksum
        = csum_finish(csum_continue(packet_csum_pseudoheader6(nh), icmp,
                                    len));
    return packet;
}

struct dp_packet *
ipoib_mtu_compose_error(uint16_t type, const void *ip, size_t ip_len,
                        uint32_t mtu)
{
    return (type == ETH_TYPE_IP ? compose_icmp4(ip, ip_len, mtu)
            : compose_icmp6(ip, ip_len, mtu));
}

/* The limit.  A bucket gets one token a millisecond; an error takes as many as
 * make the rate. */
#define TOKENS(RATE) (1000 / (RATE))
BUILD_ASSERT_DECL(1000 % IPOIB_MTU_RATE_SOURCE == 0);
BUILD_ASSERT_DECL(1000 % IPOIB_MTU_RATE_ALL == 0);

static void
limiter_init(struct ipoib_mtu_limiter *limiter)
{
    limiter->basis = random_uint32() | 1;
    for (size_t i = 0; i < ARRAY_SIZE(limiter->source); i++) {
        token_bucket_init(&limiter->source[i], 1, 1000);
    }
    token_bucket_init(&limiter->all, 1, 1000);
}

bool
ipoib_mtu_limiter_admit(struct ipoib_mtu_limiter *limiter, uint16_t type,
                        const void *ip)
{
    struct in6_addr src, dst;
    uint32_t hash;

    if (!limiter->basis) {
        limiter_init(limiter);
    }
    ip_addresses(type, ip, &src, &dst);
    hash = hash_bytes(&src, sizeof src, limiter->basis);
    return (token_bucket_withdraw(
                &limiter->source[hash % ARRAY_SIZE(limiter->source)],
                TOKENS(IPOIB_MTU_RATE_SOURCE))
            && token_bucket_withdraw(&limiter->all,
                                     TOKENS(IPOIB_MTU_RATE_ALL)));
}

/* TCP. */

/* Writes 'value' at 'p', 'ofs' bytes behind the beginning of what 'csum' sums
 * up: at an odd offset, its bytes belong to two of the sum's words. */
static void
put_be16_csum(uint8_t *p, size_t ofs, uint16_t value, ovs_be16 *csum)
{
    uint8_t *word = p - (ofs & 1 ? 1 : 2);
    ovs_be32 old, new;

    memcpy(&old, word, sizeof old);
    p[0] = value >> 8;
    p[1] = value;
    memcpy(&new, word, sizeof new);
    *csum = recalc_csum32(*csum, old, new);
}

bool
ipoib_mtu_clamp_mss(uint16_t type, void *ip, size_t ip_len, uint32_t mtu)
{
    struct upper upper = upper_layer(type, ip, ip_len);
    size_t headers = TCP_HEADER_LEN + (type == ETH_TYPE_IP ? IP_HEADER_LEN
                                       : IPV6_HEADER_LEN);
    struct tcp_header *tcp;
    size_t ofs, end;

    if (upper.proto != IPPROTO_TCP || upper.later
        || upper.len < TCP_HEADER_LEN || mtu <= headers) {
        return false;
    }
    tcp = CONST_CAST(struct tcp_header *,
                     ALIGNED_CAST(const struct tcp_header *, upper.data));
    end = TCP_OFFSET(tcp->tcp_ctl) * 4;
    if (!(tcp->tcp_ctl & htons(TCP_SYN)) || end > upper.len) {
        return false;
    }

    for (ofs = TCP_HEADER_LEN; ofs + 2 <= end; ) {
        uint8_t *opt = (uint8_t *) tcp + ofs;

        if (opt[0] == 0) {      /* End of options. */
            break;
        } else if (opt[0] == 1) {
            ofs++;
            continue;
        } else if (opt[1] < 2 || opt[1] > end - ofs) {
            break;
        } else if (opt[0] == 2 && opt[1] == 4) {
            uint16_t mss = (opt[2] << 8) | opt[3];

            if (mss <= mtu - headers) {
                break;
            }
            put_be16_csum(opt + 2, ofs + 2, mtu - headers, &tcp->tcp_csum);
            return true;
        }
        ofs += opt[1];
    }
    return false;
}

/* Router advertisements. */

#define RA_LEN 16
#define OPT_MTU_LEN 8

bool
ipoib_mtu_lower_ra(void *ip_, size_t ip_len, size_t l4_ofs, uint32_t mtu)
{
    uint8_t *ip = ip_;
    struct icmp6_header *icmp = (void *) (ip + l4_ofs);
    bool lowered = false;

    if (mtu < IPOIB_MTU_IPV6_MIN) {
        return false;           /* Stations would not believe it. */
    }
    for (size_t ofs = l4_ofs + RA_LEN; ofs + OPT_MTU_LEN <= ip_len; ) {
        uint8_t *opt = ip + ofs;

        if (opt[0] == ND_OPT_MTU && opt[1] == 1) {
            ovs_16aligned_be32 *value = (void *) (opt + 4);
            ovs_be32 old = get_16aligned_be32(value);

            if (ntohl(old) > mtu) {
                put_16aligned_be32(value, htonl(mtu));
                icmp->icmp6_cksum = recalc_csum32(icmp->icmp6_cksum, old,
                                                  htonl(mtu));
                lowered = true;
            }
        } else if (!opt[1]) {
            break;
        }
        ofs += opt[1] * 8;
    }
    return lowered;
}
