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
#include "ipoib-mtu.h"

#include <errno.h>
#include <netinet/icmp6.h>
#include <stdlib.h>

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-ring-private.h"
#include "ipoib-rx.h"
#include "ipoib-test-gateway.h"
#include "ipoib-tx.h"
#include "ovstest.h"
#include "packets.h"
#include "random.h"
#include "unaligned.h"
#include "util.h"

/* Tests of packets that are too long: by themselves, and on the data path of a
 * null device. */

#define HOST_QPN 0x500          /* Of host 0. */

/* Packets.  Each is in a buffer of its length, so that valgrind and sanitizers
 * see what is read beyond it. */

static uint16_t
get16(const uint8_t *p)
{
    return (p[0] << 8) | p[1];
}

static void
put16(uint8_t *p, uint16_t value)
{
    p[0] = value >> 8;
    p[1] = value;
}

/* The Internet checksum over pseudo-header and data is right. */
static bool
l4_is_good(uint16_t type, const uint8_t *ip, size_t len, size_t l4_ofs,
           uint8_t proto)
{
    uint8_t *buf = xzalloc(40 + len - l4_ofs);
    bool good;

    memcpy(buf, type == ETH_TYPE_IP ? ip + 12 : ip + 8,
           type == ETH_TYPE_IP ? 8 : 32);
    put16(buf + 32, (len - l4_ofs) >> 16);
    put16(buf + 34, len - l4_ofs);
    buf[39] = proto;
    if (type == ETH_TYPE_IP && proto == IPPROTO_ICMP) {
        memset(buf, 0, 40);     /* None. */
    }
    memcpy(buf + 40, ip + l4_ofs, len - l4_ofs);
    good = !csum(buf, 40 + len - l4_ofs);
    free(buf);
    return good;
}

static void
set_ip_csum(uint8_t *ip)
{
    put16(ip + 10, 0);
    put16(ip + 10, ntohs(csum(ip, (ip[0] & 0xf) * 4)));
}

/* An IPv4 packet of 'len' bytes, with 'n_opt' bytes of options at 'opt'. */
static uint8_t *
make_ip4(size_t len, uint8_t proto, uint16_t frag_off, const void *opt,
         size_t n_opt)
{
    uint8_t *ip = xmalloc(len);

    for (size_t i = 0; i < len; i++) {
        ip[i] = i * 7 + (i >> 8);
    }
    memset(ip, 0, 20);
    ip[0] = 0x40 | (5 + n_opt / 4);
    put16(ip + 2, len);
    put16(ip + 4, 0x1234);
    put16(ip + 6, frag_off);
    ip[8] = 64;
    ip[9] = proto;
    memcpy(ip + 12, "\x0a\x01\x01\x01\x0a\x01\x01\x0b", 8);
    nullable_memcpy(ip + 20, opt, n_opt);
    set_ip_csum(ip);
    return ip;
}

/* An IPv6 packet of 'len' bytes, whose header is followed by 'n_ext' bytes of
 * extension headers at 'ext', the first of which is 'next'. */
static uint8_t *
make_ip6(size_t len, uint8_t next, const void *ext, size_t n_ext)
{
    uint8_t *ip = xmalloc(len);

    for (size_t i = 0; i < len; i++) {
        ip[i] = i * 7 + (i >> 8);
    }
    memset(ip, 0, 40);
    ip[0] = 0x60;
    put16(ip + 4, len - 40);
    ip[6] = next;
    ip[7] = 64;
    ip[8] = ip[24] = 0xfd;
    ip[23] = 1;
    ip[39] = 2;
    nullable_memcpy(ip + 40, ext, n_ext);
    return ip;
}

/* Fragments. */

/* Cuts 'ip', and checks that the fragments are right by themselves and put
 * together are 'ip' again. */
static void
check_fragments(const uint8_t *ip, uint32_t mtu)
{
    static const char l2[] = "0123456789abcd";
    size_t len = get16(ip + 2), hlen = (ip[0] & 0xf) * 4;
    size_t first = (get16(ip + 6) & 0x1fff) * 8, ofs = 0;
    struct ipoib_mtu_fragmenter f;
    struct dp_packet *frag;

    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, len, mtu)
               == IPOIB_MTU_FRAGMENT);
    ipoib_mtu_fragment(&f, ip, len, mtu, l2, 14);
    while ((frag = ipoib_mtu_next_fragment(&f))) {
        const uint8_t *p = dp_packet_data(frag);
        size_t n = dp_packet_size(frag) - 14;
        bool last;

        ovs_assert(!memcmp(p, l2, 14));
        p += 14;
        last = ofs + n - hlen == len - hlen;
        ovs_assert(p[0] == ip[0] && p[1] == ip[1]);
        ovs_assert(get16(p + 2) == n && n <= mtu && n > hlen);
        ovs_assert(!memcmp(p + 4, ip + 4, 2) && !memcmp(p + 8, ip + 8, 2));
        ovs_assert(!memcmp(p + 12, ip + 12, 8));
        ovs_assert((get16(p + 6) & 0x1fff) * 8 == first + ofs);
        ovs_assert(!(get16(p + 6) & 0x4000));
        ovs_assert(!(get16(p + 6) & 0x2000)
                   == (last && !(get16(ip + 6) & 0x2000)));
        ovs_assert(last || !((n - hlen) % 8));
        ovs_assert(last || n + 8 > mtu);
        ovs_assert(!csum(p, hlen));
        ovs_assert(ofs || !memcmp(p + 20, ip + 20, hlen - 20));
        ovs_assert(!memcmp(p + hlen, ip + hlen + ofs, n - hlen));
        ofs += n - hlen;
        dp_packet_delete(frag);
    }
    ovs_assert(ofs == len - hlen);
}

static void
test_fragments(void)
{
    /* Record route (not copied), a no-operation, router alert (copied),
     * timestamp (not copied), end. */
    static const uint8_t opt[24] =
        "\x07\x07\x04\0\0\0\0" "\x01" "\x94\x04\0\0" "\x44\x08\x05\0\0\0\0\0"
        "\0\0\0\0";
    static const uint8_t copied[24] =
        "\1\1\1\1\1\1\1" "\x01" "\x94\x04\0\0" "\1\1\1\1\1\1\1\1"
        "\0\0\0\0";
    static const uint8_t bad_opt[4] = "\x07\x00\x04\x00";
    struct ipoib_mtu_fragmenter f;
    struct dp_packet *frag;
    uint8_t *ip;

    for (size_t len = 69; len < 300; len++) {
        ip = make_ip4(len, IPPROTO_UDP, 0, NULL, 0);
        check_fragments(ip, 68);
        free(ip);
    }
    for (size_t len = 2045; len < 65536; len += 1 + random_range(999)) {
        ip = make_ip4(len, IPPROTO_UDP, 0, NULL, 0);
        check_fragments(ip, 2044);
        check_fragments(ip, 1500);
        free(ip);
    }

    /* Fragments: in the middle, at the end. */
    ip = make_ip4(4000, IPPROTO_UDP, 0x2000 | 100, NULL, 0);
    check_fragments(ip, 2044);
    free(ip);
    ip = make_ip4(4001, IPPROTO_UDP, 100, NULL, 0);
    check_fragments(ip, 2044);
    free(ip);

    ip = make_ip4(4000, IPPROTO_UDP, 0, opt, sizeof opt);
    check_fragments(ip, 2044);
    ipoib_mtu_fragment(&f, ip, 4000, 2044, NULL, 0);
    dp_packet_delete(ipoib_mtu_next_fragment(&f));
    frag = ipoib_mtu_next_fragment(&f);
    ovs_assert(!memcmp((uint8_t *) dp_packet_data(frag) + 20, copied, 24));
    dp_packet_delete(frag);
    free(ip);

    ip = make_ip4(4000, IPPROTO_UDP, 0, bad_opt, sizeof bad_opt);
    check_fragments(ip, 2044);
    free(ip);
}

/* Verdicts. */

static void
check_verdict4(size_t len, uint8_t proto, uint16_t frag_off, uint8_t type,
               const char *src, const char *dst,
               enum ipoib_mtu_verdict verdict)
{
    uint8_t *ip = make_ip4(len, proto, frag_off, NULL, 0);
    ovs_be32 addr;

    ip[20] = type;
    ovs_assert(ip_parse(src, &addr));
    memcpy(ip + 12, &addr, 4);
    ovs_assert(ip_parse(dst, &addr));
    memcpy(ip + 16, &addr, 4);
    set_ip_csum(ip);
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, len, 2044) == verdict);
    ip[10]++;
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, len, 2044) == IPOIB_MTU_BAD);
    free(ip);
}

static void
check_verdict6(uint8_t next, const void *ext, size_t n_ext, const char *src,
               const char *dst, enum ipoib_mtu_verdict verdict)
{
    uint8_t *ip = make_ip6(2100, next, ext, n_ext);
    struct in6_addr addr;

    ovs_assert(ipv6_parse(src, &addr));
    memcpy(ip + 8, &addr, 16);
    ovs_assert(ipv6_parse(dst, &addr));
    memcpy(ip + 24, &addr, 16);
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IPV6, ip, 2100, 2044) == verdict);
    free(ip);
}

static void
test_verdicts(void)
{
    static const struct { const char *src, *dst; } no_hosts4[] = {
        { "0.0.0.0", "10.0.0.2" }, { "127.0.0.1", "10.0.0.2" },
        { "224.0.0.1", "10.0.0.2" }, { "240.0.0.1", "10.0.0.2" },
        { "10.0.0.1", "255.255.255.255" }, { "10.0.0.1", "239.1.2.3" },
        { "10.0.0.1", "127.0.0.1" },
    }, no_hosts6[] = {
        { "::", "fd00::2" }, { "::1", "fd00::2" }, { "ff02::1", "fd00::2" },
        { "fd00::1", "ff02::1" }, { "fd00::1", "::" },
    };
    static const uint8_t errors4[] = { 3, 4, 5, 11, 12 };
    static const uint8_t errors6[] = { 1, 2, 3, 4, 127, 137 };
    const char *a = "10.0.0.1", *b = "10.0.0.2";
    const char *c = "fd00::1", *d = "fd00::2";
    uint8_t *ip;

    /* DF decides. */
    check_verdict4(2045, IPPROTO_UDP, 0, 0, a, b, IPOIB_MTU_FRAGMENT);
    check_verdict4(2045, IPPROTO_UDP, 0x4000, 0, a, b, IPOIB_MTU_ERROR);
    check_verdict4(9000, IPPROTO_TCP, 0x4000, 0, a, b, IPOIB_MTU_ERROR);
    check_verdict4(9000, IPPROTO_ICMP, 0x4000, 8, a, b, IPOIB_MTU_ERROR);
    check_verdict4(9000, IPPROTO_ICMP, 0x4000, 0, a, b, IPOIB_MTU_ERROR);
    /* Of fragments, the first one is answered. */
    check_verdict4(9000, IPPROTO_UDP, 0x6000, 0, a, b, IPOIB_MTU_ERROR);
    check_verdict4(9000, IPPROTO_UDP, 0x6001, 0, a, b, IPOIB_MTU_DROP);
    check_verdict4(9000, IPPROTO_UDP, 0x4001, 0, a, b, IPOIB_MTU_DROP);
    /* No errors for errors. */
    for (size_t i = 0; i < ARRAY_SIZE(errors4); i++) {
        check_verdict4(2100, IPPROTO_ICMP, 0x4000, errors4[i], a, b,
                       IPOIB_MTU_DROP);
        check_verdict4(2100, IPPROTO_ICMP, 0, errors4[i], a, b,
                       IPOIB_MTU_FRAGMENT);
    }
    for (size_t i = 0; i < ARRAY_SIZE(no_hosts4); i++) {
        check_verdict4(2100, IPPROTO_UDP, 0x4000, 0, no_hosts4[i].src,
                       no_hosts4[i].dst, IPOIB_MTU_DROP);
        check_verdict4(2100, IPPROTO_UDP, 0, 0, no_hosts4[i].src,
                       no_hosts4[i].dst, IPOIB_MTU_FRAGMENT);
    }

    /* A fragment that ends beyond what a packet can be. */
    ip = make_ip4(9000, IPPROTO_UDP, 0x1fff, NULL, 0);
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, 9000, 2044)
               == IPOIB_MTU_BAD);
    free(ip);
    /* No room for a fragment. */
    ip = make_ip4(100, IPPROTO_UDP, 0, NULL, 0);
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, 100, 28)
               == IPOIB_MTU_FRAGMENT);
    ovs_assert(ipoib_mtu_judge(ETH_TYPE_IP, ip, 100, 27) == IPOIB_MTU_DROP);
    free(ip);

    check_verdict6(IPPROTO_UDP, NULL, 0, c, d, IPOIB_MTU_ERROR);
    check_verdict6(IPPROTO_ESP, NULL, 0, c, d, IPOIB_MTU_ERROR);
    check_verdict6(IPPROTO_NONE, NULL, 0, c, d, IPOIB_MTU_ERROR);
    check_verdict6(IPPROTO_ICMPV6, "\x80", 1, c, d, IPOIB_MTU_ERROR);
    for (size_t i = 0; i < ARRAY_SIZE(errors6); i++) {
        uint8_t ext[24] = "\x3a\0\0\0\0\0\0\0";

        check_verdict6(IPPROTO_ICMPV6, &errors6[i], 1, c, d, IPOIB_MTU_DROP);
        /* Behind options, and in the first fragment. */
        ext[8] = errors6[i];
        check_verdict6(IPPROTO_DSTOPTS, ext, 9, c, d, IPOIB_MTU_DROP);
        check_verdict6(IPPROTO_FRAGMENT, ext, 9, c, d, IPOIB_MTU_DROP);
    }
    /* Who knows what a later fragment of ICMPv6 is of. */
    check_verdict6(IPPROTO_FRAGMENT, "\x3a\0\0\x09\0\0\0\0\x80", 9, c, d,
                   IPOIB_MTU_DROP);
    check_verdict6(IPPROTO_FRAGMENT, "\x11\0\0\x09\0\0\0\0\x80", 9, c, d,
                   IPOIB_MTU_ERROR);
    check_verdict6(IPPROTO_FRAGMENT, "\x3a\0\0\x01\0\0\0\0\x80", 9, c, d,
                   IPOIB_MTU_ERROR);
    /* A header that goes on beyond the end. */
    check_verdict6(IPPROTO_DSTOPTS, "\x00\xff", 2, c, d, IPOIB_MTU_DROP);
    for (size_t i = 0; i < ARRAY_SIZE(no_hosts6); i++) {
        check_verdict6(IPPROTO_UDP, NULL, 0, no_hosts6[i].src,
                       no_hosts6[i].dst, IPOIB_MTU_DROP);
    }
}

/* Errors. */

static void
check_error4(size_t len, size_t n_opt)
{
    static const uint8_t opt[40] = "\1\1\1\1";
    uint8_t *ip = make_ip4(len, IPPROTO_UDP, 0x4000, opt, n_opt);
    struct dp_packet *packet = ipoib_mtu_compose_error(ETH_TYPE_IP, ip, len,
                                                       2044);
    const uint8_t *p = dp_packet_data(packet);
    size_t size = dp_packet_size(packet);

    ovs_assert(size == MIN(576, len + 28) && get16(p + 2) == size);
    ovs_assert(p[0] == 0x45 && p[1] == 0xc0 && p[8] == 64 && p[9] == 1);
    ovs_assert(!csum(p, 20));
    ovs_assert(!memcmp(p + 12, ip + 16, 4) && !memcmp(p + 16, ip + 12, 4));
    ovs_assert(p[20] == 3 && p[21] == 4 && !get16(p + 24)
               && get16(p + 26) == 2044);
    ovs_assert(l4_is_good(ETH_TYPE_IP, p, size, 20, IPPROTO_ICMP));
    ovs_assert(!memcmp(p + 28, ip, size - 28));
    ovs_assert(dp_packet_headroom(packet) >= ETH_HEADER_LEN);
    dp_packet_delete(packet);
    free(ip);
}

static void
check_error6(size_t len)
{
    uint8_t *ip = make_ip6(len, IPPROTO_UDP, NULL, 0);
    struct dp_packet *packet = ipoib_mtu_compose_error(ETH_TYPE_IPV6, ip, len,
                                                       1500);
    const uint8_t *p = dp_packet_data(packet);
    size_t size = dp_packet_size(packet);

    ovs_assert(size == MIN(1280, len + 48) && get16(p + 4) == size - 40);
    ovs_assert(p[0] == 0x60 && p[6] == 58 && p[7] == 64);
    ovs_assert(!memcmp(p + 8, ip + 24, 16) && !memcmp(p + 24, ip + 8, 16));
    ovs_assert(p[40] == 2 && !p[41] && !get16(p + 44)
               && get16(p + 46) == 1500);
    ovs_assert(l4_is_good(ETH_TYPE_IPV6, p, size, 40, IPPROTO_ICMPV6));
    ovs_assert(!memcmp(p + 48, ip, size - 48));
    dp_packet_delete(packet);
    free(ip);
}

static void
test_errors(void)
{
    check_error4(2045, 0);
    check_error4(9000, 0);
    check_error4(9000, 40);
    check_error4(100, 40);      /* All of it is quoted. */
    check_error4(547, 0);
    check_error4(549, 0);
    check_error6(2045);
    check_error6(9001);
    check_error6(1231);
    check_error6(1232);
    check_error6(1233);
}

static size_t
count_admitted(struct ipoib_mtu_limiter *limiter, uint8_t first, uint8_t last)
{
    uint8_t *ip = make_ip4(28, IPPROTO_UDP, 0, NULL, 0);
    size_t n = 0;

    for (size_t i = 0; i < 5000; i++) {
        ip[15] = first + i % (last - first + 1);
        n += ipoib_mtu_limiter_admit(limiter, ETH_TYPE_IP, ip);
    }
    free(ip);
    return n;
}

static void
test_limits(void)
{
    struct ipoib_mtu_limiter limiter;
    size_t n;

    /* A few more may be let through as time passes. */
    memset(&limiter, 0, sizeof limiter);
    n = count_admitted(&limiter, 1, 1);
    ovs_assert(n >= IPOIB_MTU_RATE_SOURCE && n < IPOIB_MTU_RATE_SOURCE * 2);
    n = count_admitted(&limiter, 2, 255);
    ovs_assert(n > IPOIB_MTU_RATE_SOURCE
               && n < IPOIB_MTU_RATE_ALL + IPOIB_MTU_RATE_SOURCE);
}

/* TCP. */

/* A TCP packet with 'n_opt' bytes of options (a multiple of 4) at 'opt', and
 * 'n' bytes of data, behind a header of IP. */
static uint8_t *
make_tcp(uint16_t type, const void *ext, size_t n_ext, const void *opt,
         size_t n_opt, size_t n, uint8_t flags, size_t *len)
{
    size_t hlen = (type == ETH_TYPE_IP ? 20 : 40) + n_ext;
    uint8_t *ip, *tcp;

    *len = hlen + 20 + n_opt + n;
    ip = (type == ETH_TYPE_IP ? make_ip4(*len, IPPROTO_TCP, 0x4000, ext, n_ext)
          : make_ip6(*len, n_ext ? IPPROTO_DSTOPTS : IPPROTO_TCP, ext, n_ext));
    tcp = ip + hlen;
    tcp[12] = (5 + n_opt / 4) << 4;
    tcp[13] = flags;
    memcpy(tcp + 20, opt, n_opt);
    put16(tcp + 16, 0);
    for (uint32_t sum = 0; sum < 65536; sum++) {
        put16(tcp + 16, sum);
        if (l4_is_good(type, ip, *len, hlen, IPPROTO_TCP)) {
            break;
        }
    }
    return ip;
}

/* Clamps to 'mtu'; the MSS at 'ofs' of the options becomes 'mss', or if that
 * is 0 nothing is changed. */
static void
check_clamp(uint16_t type, const void *ext, size_t n_ext, const void *opt,
            size_t n_opt, uint8_t flags, uint32_t mtu, size_t ofs,
            uint16_t mss)
{
    for (size_t n = 0; n < 2; n++) {
        size_t hlen = (type == ETH_TYPE_IP ? 20 : 40) + n_ext, len;
        uint8_t *ip = make_tcp(type, ext, n_ext, opt, n_opt, n, flags, &len);
        uint8_t *copy = xmemdup(ip, len);

        ovs_assert(ipoib_mtu_clamp_mss(type, ip, len, mtu) == (mss != 0));
        if (mss) {
            ovs_assert(get16(ip + hlen + 20 + ofs) == mss);
            ovs_assert(l4_is_good(type, ip, len, hlen, IPPROTO_TCP));
            put16(copy + hlen + 20 + ofs, mss);
            memcpy(copy + hlen + 16, ip + hlen + 16, 2);
        }
        ovs_assert(!memcmp(ip, copy, len));
        free(copy);
        free(ip);
    }
}

static void
test_clamp(void)
{
    static const uint8_t first[] = "\2\4\x22\xcc";        /* 8908. */
    static const uint8_t usual[] = "\2\4\x22\xcc\4\2\x8\xa\1\2\3\4\0\0\0\0"
                                   "\1\3\3\7";
    static const uint8_t odd[] = "\1\2\4\x22\xcc\1\1\0";
    static const uint8_t last[] = "\1\1\1\1\2\4\x22\xcc";
    static const uint8_t two[] = "\3\3\7\2\4\x22\xcc\0";
    static const uint8_t none[] = "\1\1\4\2";
    static const uint8_t ended[] = "\0\0\0\0\2\4\x22\xcc";
    static const uint8_t cut[] = "\1\1\2\4";
    static const uint8_t zero[] = "\5\0\2\4\x22\xcc\0\0";
    static const uint8_t overrun[] = "\5\x9\2\4\x22\xcc\0\0";
    static const uint8_t wrong_len[] = "\2\3\x22\0\2\2\0\0";
    static const uint8_t ext[8] = { IPPROTO_TCP, 0, 1, 4 };
    static const uint8_t ip_opt[8] = "\1\1\1\1\1\1\1\1";
    enum { SYN = TCP_SYN };
    static const uint16_t types[] = { ETH_TYPE_IP, ETH_TYPE_IPV6 };
    size_t len;
    uint8_t *ip;

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        uint16_t t = types[i], h = t == ETH_TYPE_IP ? 40 : 60;

        check_clamp(t, NULL, 0, first, 4, SYN, 2044, 2, 2044 - h);
        check_clamp(t, NULL, 0, first, 4, SYN | TCP_ACK, 1500, 2, 1500 - h);
        check_clamp(t, NULL, 0, usual, 20, SYN, 2044, 2, 2044 - h);
        check_clamp(t, NULL, 0, odd, 8, SYN, 2044, 3, 2044 - h);
        check_clamp(t, NULL, 0, last, 8, SYN, 2044, 6, 2044 - h);
        check_clamp(t, NULL, 0, two, 8, SYN, 2044, 5, 2044 - h);
        check_clamp(t, t == ETH_TYPE_IP ? ip_opt : ext, 8, odd, 8, SYN, 2044,
                    3, 2044 - h);
        /* It fits, by one byte. */
        check_clamp(t, NULL, 0, first, 4, SYN, 8908 + h, 0, 0);
        check_clamp(t, NULL, 0, first, 4, SYN, 8907 + h, 2, 8907);
        /* Not a SYN, no option, or none that can be believed. */
        check_clamp(t, NULL, 0, first, 4, TCP_ACK, 2044, 0, 0);
        check_clamp(t, NULL, 0, none, 4, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, ended, 8, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, cut, 4, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, zero, 8, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, overrun, 8, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, wrong_len, 8, SYN, 2044, 0, 0);
        check_clamp(t, NULL, 0, first, 4, SYN, 40, 0, 0);
    }

    /* Not TCP, a later fragment, a header that is not all there. */
    ip = make_tcp(ETH_TYPE_IP, NULL, 0, first, 4, 0, SYN, &len);
    for (size_t n = 20; n < len; n++) {
        uint8_t *part = xmemdup(ip, n);

        ovs_assert(!ipoib_mtu_clamp_mss(ETH_TYPE_IP, part, n, 2044));
        free(part);
    }
    ip[7] = 1;
    ovs_assert(!ipoib_mtu_clamp_mss(ETH_TYPE_IP, ip, len, 2044));
    ip[7] = 0;
    ip[9] = IPPROTO_UDP;
    ovs_assert(!ipoib_mtu_clamp_mss(ETH_TYPE_IP, ip, len, 2044));
    free(ip);
}

/* Router advertisements. */

static void
check_ra(const void *options, size_t n, uint32_t mtu, size_t ofs,
         uint32_t lowered)
{
    size_t len = 40 + 16 + n;
    uint8_t *ip = make_ip6(len, IPPROTO_ICMPV6, NULL, 0), *copy;

    ip[40] = ND_ROUTER_ADVERT;
    memcpy(ip + 56, options, n);
    for (uint32_t sum = 0; sum < 65536; sum++) {
        put16(ip + 42, sum);
        if (l4_is_good(ETH_TYPE_IPV6, ip, len, 40, IPPROTO_ICMPV6)) {
            break;
        }
    }
    copy = xmemdup(ip, len);
    ovs_assert(ipoib_mtu_lower_ra(ip, len, 40, mtu) == (lowered != 0));
    ovs_assert(l4_is_good(ETH_TYPE_IPV6, ip, len, 40, IPPROTO_ICMPV6));
    if (lowered) {
        put16(copy + 56 + ofs, lowered >> 16);
        put16(copy + 56 + ofs + 2, lowered);
        memcpy(copy + 42, ip + 42, 2);
    }
    ovs_assert(!memcmp(ip, copy, len));
    free(copy);
    free(ip);
}

static void
test_ra(void)
{
    static const uint8_t opts[] = "\1\1\2\0\0\0\0\1" "\5\1\0\0\0\0\x23\x28"
                                  "\3\4\x40\xc0\0\0\0\1\0\0\0\1\0\0\0\0"
                                  "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    static const uint8_t huge[] = "\5\1\0\0\xff\xff\xff\xff";
    static const uint8_t zero[] = "\1\0\0\0\0\0\0\0" "\5\1\0\0\0\0\x23\x28";
    static const uint8_t wrong[] = "\5\2\0\0\0\0\x23\x28\0\0\0\0\0\0\0\0";

    check_ra(opts, 48, 2044, 12, 2044);
    check_ra(opts, 48, 8999, 12, 8999);
    check_ra(opts, 48, 9000, 12, 0);
    check_ra(opts, 48, 1280, 12, 1280);
    check_ra(opts, 48, 1279, 12, 0); /* Nobody would believe it. */
    check_ra(opts, 8, 2044, 12, 0);
    check_ra(opts, 16, 2044, 12, 2044);
    check_ra(opts, 12, 2044, 12, 0);
    check_ra(huge, 8, 2044, 4, 2044);
    check_ra(zero, 16, 2044, 0, 0);
    check_ra(wrong, 16, 2044, 0, 0);
    check_ra("", 0, 2044, 0, 0);
}

/* Whatever comes, nothing is read or written beyond it. */
static void
test_random(void)
{
    static const uint8_t protos[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP,
                                      IPPROTO_ICMPV6, IPPROTO_FRAGMENT,
                                      IPPROTO_DSTOPTS, IPPROTO_AH, 135 };

    for (int i = 0; i < 200000; i++) {
        bool six = random_range(2);
        uint16_t type = six ? ETH_TYPE_IPV6 : ETH_TYPE_IP;
        size_t n_opt = six ? 0 : random_range(11) * 4;
        size_t len = (six ? 40 : 20 + n_opt) + random_range(120);
        uint8_t *ip = (six ? make_ip6(len, 0, NULL, 0)
                       : make_ip4(len, 0, 0, NULL, 0));
        uint32_t mtu = 40 + random_range(100);
        struct ipoib_mtu_fragmenter f;
        struct dp_packet *packet;

        for (size_t j = six ? 40 : 20; j < len; j++) {
            ip[j] = random_range(3) ? random_range(8) : random_range(256);
        }
        if (!six) {
            ip[0] = 0x45 + n_opt / 4;
            ip[6] = random_range(2) * 0x40;
        }
        for (size_t j = 40; six && j + 8 <= len; j += 8) {
            ip[j] = protos[random_range(ARRAY_SIZE(protos))];
        }
        ip[six ? 6 : 9] = protos[random_range(ARRAY_SIZE(protos))];
        if (!six) {
            set_ip_csum(ip);
        }
        switch (ipoib_mtu_judge(type, ip, len, mtu)) {
        case IPOIB_MTU_FRAGMENT:
            ovs_assert(!six);
            ipoib_mtu_fragment(&f, ip, len, mtu, ip, 14);
            while ((packet = ipoib_mtu_next_fragment(&f))) {
                dp_packet_delete(packet);
            }
            break;
        case IPOIB_MTU_ERROR:
            dp_packet_delete(ipoib_mtu_compose_error(type, ip, len, mtu));
            break;
        case IPOIB_MTU_BAD:
        case IPOIB_MTU_DROP:
            break;
        }
        ipoib_mtu_clamp_mss(type, ip, len, mtu);
        if (six && len >= 56) {
            ipoib_mtu_lower_ra(ip, len, 40, 1280);
        }
        free(ip);
    }
}

/* The data path. */

static uint64_t
counter(const atomic_uint64_t *c)
{
    return ipoib_counter_read(c);
}

/* The frame of host 0 to neighbour 1 with the IP packet 'ip' (freed). */
static struct dp_packet *
make_frame(struct eth_addr dst, uint16_t type, uint8_t *ip, size_t len)
{
    struct dp_packet *packet = dp_packet_new_with_headroom(14 + len, 128);
    struct eth_header *eth = dp_packet_put_zeros(packet, 14);

    eth->eth_src = gw_host_mac(0);
    eth->eth_dst = dst;
    eth->eth_type = htons(type);
    dp_packet_put(packet, ip, len);
    free(ip);
    return packet;
}

/* Sends 'n' frames to 'dst' at once, of 'len' bytes of IPv4 each. */
static void
send_frames(struct gw *gw, struct eth_addr dst, size_t n, size_t len,
            uint16_t frag_off)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    for (size_t i = 0; i < n; i++) {
        uint8_t *ip = make_ip4(len, IPPROTO_UDP, frag_off, NULL, 0);

        if (eth_addr_is_multicast(dst)) {
            memset(ip + 16, 0xff, 4);
        }
        put16(ip + 4, i);
        set_ip_csum(ip);
        ipoib_batch_push(&batch, make_frame(dst, ETH_TYPE_IP, ip, len));
    }
    ipoib_tx_batch(gw->txq, &batch);
    ipoib_batch_destroy(&batch);
}

static struct ipoib_msg
pop_message(struct ipoib_msgq *q, enum ipoib_msg_type type)
{
    struct ipoib_msg msg;

    do {
        ovs_assert(ipoib_msgq_pop(q, &msg));
    } while (msg.type == IPOIB_MSG_TX_HOST && type != msg.type);
    ovs_assert(msg.type == type);
    return msg;
}

/* What was sent from 'first' on is, in order, 'n' packets of 'len' bytes, cut
 * for 'mtu'. */
static void
check_sent(struct gw *gw, uint32_t first, size_t n, size_t len, size_t mtu)
{
    size_t step = (mtu - 20) & ~7;

    for (size_t i = 0; i < n; i++) {
        for (size_t ofs = 0; ofs < len - 20; ofs += step) {
            const struct null_send *send = &gw->hca->sent[first++ % NULL_MAX];
            size_t size = MIN(step, len - 20 - ofs) + 20;

            ovs_assert(send->len == size + 4 && send->ah == gw_ah(1)
                       && send->dqpn == 0x2001);
            ovs_assert(get16(send->data) == ETH_TYPE_IP);
            ovs_assert(get16(send->data + 4 + 4) == i);
            ovs_assert((get16(send->data + 4 + 6) & 0x1fff) * 8 == ofs);
            ovs_assert(!csum(send->data + 4, 20));
        }
    }
    ovs_assert(first == gw->hca->n_sent);
}

static void
test_tx_fragments(void)
{
    struct gw *gw = gw_open(1024, 512);
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct ipoib_msg msg;

    send_frames(gw, neigh->mac, 1, 9000, 0);
    check_sent(gw, 0, 1, 9000, 2044);
    send_frames(gw, neigh->mac, 32, 9000, 0);
    check_sent(gw, 5, 32, 9000, 2044);
    send_frames(gw, neigh->mac, 32, 2044, 0);
    check_sent(gw, 165, 32, 2044, 2044);
    /* Last fragments that are short are sent inline. */
    send_frames(gw, neigh->mac, 32, 2049, 0);
    check_sent(gw, 197, 32, 2049, 2044);
    ovs_assert(counter(&stats->fragmented) == 65);
    ovs_assert(counter(&stats->fragments) == 33 * 5 + 64);
    ovs_assert(counter(&stats->packets) == 33 * 5 + 32 + 64);
    ovs_assert(counter(&stats->packets) == gw->hca->n_sent);

    /* More than the ring takes, all at once. */
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 68);
    send_frames(gw, neigh->mac, 1, 60000, 0);
    ovs_assert(counter(&stats->packets) == gw->hca->n_sent);

    /* No path: the fragments wait. */
    while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, NULL, 0);
    send_frames(gw, neigh->mac, 1, 4000, 0);
    for (size_t i = 0; i < 2; i++) {
        msg = pop_message(gw->txq->to_control, IPOIB_MSG_TX_NO_PATH);
        ovs_assert(msg.slot == neigh->slot);
        ovs_assert(dp_packet_size(msg.packet) == 14 + (i ? 1976 : 2044));
        dp_packet_delete(msg.packet);
    }

    /* Broadcasts. */
    send_frames(gw, eth_addr_broadcast, 1, 4000, 0);
    for (size_t i = 0; i < 2; i++) {
        msg = pop_message(gw->txq->to_control, IPOIB_MSG_TX_BROADCAST);
        dp_packet_delete(msg.packet);
    }
    ovs_assert(!counter(&stats->drop_too_long));
    send_frames(gw, eth_addr_broadcast, 1, 4000, 0x4000);
    ovs_assert(counter(&stats->drop_too_long) == 1);
    ovs_assert(ipoib_msgq_is_empty(gw->txq->to_control));
    gw_close(gw);
}

static void
test_tx_errors(void)
{
    struct gw *gw = gw_open(256, 128);
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    const struct eth_header *eth;
    const uint8_t *ip;
    struct ipoib_msg msg;
    size_t n = 0;

    send_frames(gw, neigh->mac, 1, 9000, 0x4000);
    msg = pop_message(gw->txq->to_control, IPOIB_MSG_TX_ERROR);
    eth = dp_packet_data(msg.packet);
    ip = (const uint8_t *) (eth + 1);
    ovs_assert(eth_addr_equals(eth->eth_src, neigh->mac));
    ovs_assert(eth_addr_equals(eth->eth_dst, gw_host_mac(0)));
    ovs_assert(eth->eth_type == htons(ETH_TYPE_IP));
    ovs_assert(ip[20] == 3 && ip[21] == 4 && get16(ip + 26) == 2044);
    dp_packet_delete(msg.packet);

    /* The MTU of the path, if that is less; of a path that is just being
     * withdrawn, the port's. */
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 1020);
    send_frames(gw, neigh->mac, 1, 1021, 0x4000);
    msg = pop_message(gw->txq->to_control, IPOIB_MSG_TX_ERROR);
    ip = (const uint8_t *) dp_packet_data(msg.packet) + 14;
    ovs_assert(get16(ip + 26) == 1020);
    dp_packet_delete(msg.packet);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 0);
    send_frames(gw, neigh->mac, 1, 100, 0x4000);
    msg = pop_message(gw->txq->to_control, IPOIB_MSG_TX_NO_PATH);
    dp_packet_delete(msg.packet);

    /* Not more than so many. */
    for (size_t i = 0; i < 40; i++) {
        send_frames(gw, neigh->mac, 32, 2045, 0x4000);
        while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
            n += msg.type == IPOIB_MSG_TX_ERROR;
            dp_packet_delete(msg.packet);
        }
    }
    ovs_assert(n >= IPOIB_MTU_RATE_SOURCE - 2
               && n < 2 * IPOIB_MTU_RATE_SOURCE);
    ovs_assert(counter(&stats->pmtu_suppressed) == 40 * 32 - n);
    ovs_assert(counter(&stats->drop_too_long) == 40 * 32 + 2);
    ovs_assert(!gw->hca->n_sent);
    gw_close(gw);
}

/* Has a packet of 'len' bytes of IPv4 come from neighbour 1. */
static void
receive(struct gw *gw, size_t len, uint16_t frag_off, uint16_t id)
{
    struct null_packet *p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IP, len);
    uint8_t *ip = make_ip4(len, IPPROTO_UDP, frag_off, NULL, 0);

    put16(ip + 4, id);
    set_ip_csum(ip);
    memcpy(gw_payload(p), ip, len);
    free(ip);
}

static void
test_rx_fragments(void)
{
    struct gw *gw = gw_open(1024, 256);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    uint64_t standin = eth_addr_to_uint64(gw_add_neigh(gw, 1)->mac);
    size_t n = 0, bytes = 0, ofs = 0, id = 0;

    gw_add_host(gw, 0, HOST_QPN, false);
    atomic_store_relaxed(&gw->shared.eth_mtu, 1500);
    for (size_t i = 0; i < 64; i++) {
        receive(gw, i % 3 == 2 ? 1500 : 2044 - i, 0, i);
    }
    while (id < 64) {
        struct dp_packet_batch batch;
        struct dp_packet *packet;

        ipoib_batch_init(&batch);
        ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
        ovs_assert(dp_packet_batch_size(&batch) <= NETDEV_MAX_BURST);
        DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
            const struct eth_header *eth = dp_packet_data(packet);
            const uint8_t *ip = (const uint8_t *) (eth + 1);
            size_t len = get16(ip + 2);

            /* In order. */
            ovs_assert(get16(ip + 4) == id);
            ovs_assert((get16(ip + 6) & 0x1fff) * 8 == ofs);
            ovs_assert(len <= 1500 && dp_packet_size(packet)
                                      == MAX(60, 14 + len));
            ovs_assert(!csum(ip, 20));
            ovs_assert(eth_addr_equals(eth->eth_dst, gw_host_mac(0)));
            ovs_assert(eth_addr_to_uint64(eth->eth_src) == standin);
            ofs += len - 20;
            if (!(get16(ip + 6) & 0x2000)) {
                ovs_assert(ofs == (id % 3 == 2 ? 1480 : 2024 - id));
                ofs = 0;
                id++;
            }
            bytes += dp_packet_size(packet);
            n++;
            dp_packet_delete(packet);
        }
        ipoib_batch_destroy(&batch);
    }
    ovs_assert(n == 64 + 43);
    ovs_assert(counter(&stats->packets) == n);
    ovs_assert(counter(&stats->bytes) == bytes);
    ovs_assert(counter(&stats->fragmented) == 43);
    ovs_assert(counter(&stats->fragments) == 86);

    /* What waits when the queue goes is freed. */
    for (size_t i = 0; i < 32; i++) {
        receive(gw, 2044, 0, i);
    }
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
    dp_packet_delete_batch(&batch, true);
    ipoib_batch_destroy(&batch);
    ipoib_rxq_drop_waiting(gw->rxq);
    gw_close(gw);
}

static void
receive_none(struct gw *gw)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ovs_assert(ipoib_rx_batch(gw->rxq, &batch) == EAGAIN);
    ipoib_batch_destroy(&batch);
}

static void
test_rx_errors(void)
{
    struct gw *gw = gw_open(1024, 256);
    struct ipoib_rx_stats *stats = &gw->rxq->stats;
    struct in6_addr src = gw_neigh_ip6(1), dst = gw_host_ip6(0);
    struct ib_gid gid = gw_neigh_addr(1).gid;
    struct null_packet *p;
    struct ipoib_msg msg;
    const uint8_t *data;
    size_t n = 0;

    gw_add_neigh(gw, 1);
    gw_add_host(gw, 0, HOST_QPN, false);
    atomic_store_relaxed(&gw->shared.eth_mtu, 1500);

    receive(gw, 1501, 0x4000, 1);
    receive_none(gw);
    msg = pop_message(gw->rxq->to_control, IPOIB_MSG_RX_ERROR);
    data = dp_packet_data(msg.packet);
    ovs_assert(msg.sqpn == 0x2001 && msg.dqpn == HOST_QPN
               && msg.slid == gw_neigh_lid(1) && !msg.has_grh);
    ovs_assert(in6_addr_get_mapped_ipv4(&msg.src) == htonl(0x0a010101));
    ovs_assert(!memcmp(data, "\x08\0\0\0", 4));
    ovs_assert(data[4 + 20] == 3 && get16(data + 4 + 26) == 1500);
    dp_packet_delete(msg.packet);

    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IPV6, 2044);
    gw_ip6(gw_payload(p), &src, &dst, 2044);
    gw_grh(p, &gid, &gw->shared.gid);
    receive_none(gw);
    msg = pop_message(gw->rxq->to_control, IPOIB_MSG_RX_ERROR);
    data = dp_packet_data(msg.packet);
    ovs_assert(msg.has_grh && !msg.multicast
               && ib_gid_equals(&msg.sgid, &gid));
    ovs_assert(!memcmp(&msg.src, &src, sizeof src));
    ovs_assert(!memcmp(data, "\x86\xdd\0\0", 4));
    ovs_assert(data[4 + 40] == 2 && get16(data + 4 + 46) == 1500);
    dp_packet_delete(msg.packet);
    ovs_assert(counter(&stats->drop_eth_mtu) == 2);
    ovs_assert(!counter(&stats->packets) && !counter(&stats->bytes));

    /* Padding does not count. */
    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IPV6, 1600);
    gw_ip6(gw_payload(p), &src, &dst, 1500);
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
    dp_packet_delete_batch(&batch, true);
    ipoib_batch_destroy(&batch);

    /* More than the group takes; without a checksum. */
    atomic_store_relaxed(&gw->shared.group_mtu, 2000);
    receive(gw, 2001, 0x4000, 1);
    receive_none(gw);
    ovs_assert(counter(&stats->drop_too_long) == 1);
    p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IP, 1501);
    gw_ip4(gw_payload(p), gw_neigh_ip4(1), gw_host_ip4(0), 1501);
    receive_none(gw);
    ovs_assert(counter(&stats->drop_bad_ip) == 1);
    ovs_assert(ipoib_msgq_is_empty(gw->rxq->to_control));

    for (size_t i = 0; i < 1000; i++) {
        receive(gw, 1501, 0x4000, i);
        receive_none(gw);
        while (ipoib_msgq_pop(gw->rxq->to_control, &msg)) {
            n++;
            dp_packet_delete(msg.packet);
        }
    }
    ovs_assert(n >= IPOIB_MTU_RATE_SOURCE - 2
               && n < 3 * IPOIB_MTU_RATE_SOURCE);
    ovs_assert(counter(&stats->pmtu_suppressed) == 1000 - n);
    gw_close(gw);
}

/* The MSS of SYNs, in both directions. */
static void
test_clamp_data_path(void)
{
    static const uint8_t opt[] = "\2\4\x22\xcc";
    struct gw *gw = gw_open(256, 128);
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct dp_packet_batch batch;
    struct null_packet *p;
    const uint8_t *data;
    size_t len;
    uint8_t *ip;

    gw_add_host(gw, 0, HOST_QPN, false);
    for (int i = 0; i < 3; i++) {
        uint16_t mss = i == 0 ? 0x22cc : i == 1 ? 2004 : 1460;

        atomic_store_relaxed(&gw->shared.clamp_mss, i > 0);
        atomic_store_relaxed(&gw->shared.eth_mtu, i == 2 ? 1500 : 0);

        ip = make_tcp(ETH_TYPE_IP, NULL, 0, opt, 4, 0, TCP_SYN, &len);
        p = gw_receive(gw, 1, HOST_QPN, ETH_TYPE_IP, len);
        memcpy(gw_payload(p), ip, len);
        ipoib_batch_init(&batch);
        ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
        data = dp_packet_data(batch.packets[0]);
        ovs_assert(get16(data + 14 + 42) == mss);
        ovs_assert(l4_is_good(ETH_TYPE_IP, data + 14, len, 20, IPPROTO_TCP));
        dp_packet_delete_batch(&batch, true);
        ipoib_batch_destroy(&batch);

        ipoib_batch_init(&batch);
        ipoib_batch_push(&batch,
                         make_frame(neigh->mac, ETH_TYPE_IP, ip, len));
        ipoib_tx_batch(gw->txq, &batch);
        ipoib_batch_destroy(&batch);
        data = gw->hca->sent[gw->hca->n_sent - 1].data;
        ovs_assert(get16(data + 4 + 42) == mss);
        ovs_assert(l4_is_good(ETH_TYPE_IP, data + 4, len, 20, IPPROTO_TCP));
        ovs_assert(counter(&gw->txq->stats.mss_clamped) == i);
        ovs_assert(counter(&gw->rxq->stats.mss_clamped) == i);
    }
    gw_close(gw);
}

static void
test_ipoib_mtu_main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        void (*function)(void);
        bool data_path;
    } tests[] = {
        { "fragments", test_fragments, false },
        { "verdicts", test_verdicts, false },
        { "errors", test_errors, false },
        { "limits", test_limits, false },
        { "clamp", test_clamp, false },
        { "ra", test_ra, false },
        { "random", test_random, false },
        { "tx-fragments", test_tx_fragments, true },
        { "tx-errors", test_tx_errors, true },
        { "rx-fragments", test_rx_fragments, true },
        { "rx-errors", test_rx_errors, true },
        { "clamp-data-path", test_clamp_data_path, true },
    };
    size_t n_run = 0;

    random_set_seed(1);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        if (argc < 2 ? !tests[i].data_path
            : !strcmp(argv[1], tests[i].name)) {
            tests[i].function();
            n_run++;
        }
    }
    if (!n_run) {
        ovs_fatal(0, "no test \"%s\"", argv[1]);
    }
}

OVSTEST_REGISTER("test-ipoib-mtu", test_ipoib_mtu_main);
