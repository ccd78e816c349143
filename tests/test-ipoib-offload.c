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
#include "ipoib-offload.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "ipoib-rx.h"
#include "ipoib-test-gateway.h"
#include "ipoib-tx.h"
#include "ipoib-tx-tso.h"
#include "openvswitch/vlog.h"
#include "ovstest.h"
#include "packets.h"
#include "random.h"
#include "smap.h"
#include "userspace-tso.h"
#include "util.h"

/* Checksums and segments, against sums that are made here a byte at a time,
 * and the path of such packets through a transmit queue. */

#define EXT_MAX 3
#define PARTIAL 0x1234          /* In place of a checksum. */

/* A packet to be made. */
struct spec {
    bool v4;
    uint8_t proto;
    size_t opt_len;             /* Of IPv4 options. */
    uint8_t ext[EXT_MAX];       /* IPv6: types of extension headers; 0: end. */
    size_t tcp_opt_len;
    uint16_t tcp_flags;
    size_t len;                 /* Of data behind layer 4's header. */
    size_t pad;                 /* Behind the IP packet. */
};

static uint16_t
get16(const uint8_t *p)
{
    return (p[0] << 8) | p[1];
}

static uint32_t
get32(const uint8_t *p)
{
    return ((uint32_t) get16(p) << 16) | get16(p + 2);
}

static void
put16(uint8_t *p, uint16_t x)
{
    p[0] = x >> 8;
    p[1] = x;
}

/* Internet checksum: a sum of big-endian 16-bit words, an odd byte at the end
 * being the upper half of one. */
static uint16_t
fold(uint64_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static uint64_t
sum_bytes(const uint8_t *p, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    return sum;
}

/* CRC32c, a bit at a time. */
static uint32_t
crc_bits(const uint8_t *p, size_t n)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
        }
    }
    return ~crc;
}

static size_t
l4_header_len(const struct spec *s)
{
    return (s->proto == IPPROTO_TCP ? TCP_HEADER_LEN + s->tcp_opt_len
            : s->proto == IPPROTO_UDP ? UDP_HEADER_LEN : SCTP_HEADER_LEN);
}

/* The extension headers are 8 or 24 bytes long; a routing header's last
 * address is the final destination. */
static size_t
ext_len(uint8_t type)
{
    return type == IPPROTO_ROUTING ? 24 : type ? 8 : 0;
}

static size_t
l4_ofs(const struct spec *s)
{
    size_t ofs = s->v4 ? IP_HEADER_LEN + s->opt_len : IPV6_HEADER_LEN;

    for (size_t i = 0; !s->v4 && i < EXT_MAX; i++) {
        ofs += ext_len(s->ext[i]);
    }
    return ofs;
}

static void
put_ipv6_ext(const struct spec *s, uint8_t *ip)
{
    uint8_t *next = &ip[6], *p = ip + IPV6_HEADER_LEN;

    for (size_t i = 0; i < EXT_MAX && s->ext[i]; i++) {
        size_t len = ext_len(s->ext[i]);

        *next = s->ext[i];
        next = p;
        p[1] = len / 8 - 1;
        if (s->ext[i] == IPPROTO_ROUTING) {
            p[2] = 2;
            p[3] = 1;
        } else {
            p[2] = 1;           /* PadN. */
            p[3] = 4;
            memset(p + 4, 0, 4);
        }
        p += len;
    }
    *next = s->proto;
}

/* Makes the frame, random wherever 's' says nothing. */
static struct dp_packet *
make(const struct spec *s)
{
    size_t hlen = l4_header_len(s), ofs = l4_ofs(s);
    size_t ip_len = ofs + hlen + s->len;
    struct dp_packet *packet = dp_packet_new_with_headroom(
        ETH_HEADER_LEN + ip_len + s->pad, 128);
    uint8_t *eth = dp_packet_put_uninit(packet,
                                        ETH_HEADER_LEN + ip_len + s->pad);
    uint8_t *ip = eth + ETH_HEADER_LEN, *l4 = ip + ofs;

    random_bytes(eth, ETH_HEADER_LEN + ip_len + s->pad);
    put16(eth + 12, s->v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
    if (s->v4) {
        ip[0] = 0x40 | (ofs / 4);
        put16(ip + 2, ip_len);
        put16(ip + 6, IP_DF);
        ip[9] = s->proto;
        put16(ip + 10, 0);
        put16(ip + 10, ~fold(sum_bytes(ip, ofs)));
    } else {
        ip[0] = 0x60 | (ip[0] & 0xf);
        put16(ip + 4, ip_len - IPV6_HEADER_LEN);
        put_ipv6_ext(s, ip);
    }
    switch (s->proto) {
    case IPPROTO_TCP:
        put16(l4 + 12, (hlen / 4) << 12 | s->tcp_flags);
        put16(l4 + 16, PARTIAL);
        break;
    case IPPROTO_UDP:
        put16(l4 + 4, hlen + s->len);
        put16(l4 + 6, PARTIAL);
        break;
    }
    return packet;
}

/* The sum of the pseudo-header of the packet at 'ip', made as 's' says. */
static uint64_t
sum_pseudo(const struct spec *s, const uint8_t *ip, size_t l4_len)
{
    const uint8_t *dst = ip + (s->v4 ? 16 : 24);
    size_t n = s->v4 ? 4 : 16;

    for (size_t i = 0, ofs = IPV6_HEADER_LEN; !s->v4 && i < EXT_MAX; i++) {
        if (s->ext[i] == IPPROTO_ROUTING) {
            dst = ip + ofs + 8;
        }
        ofs += ext_len(s->ext[i]);
    }
    return (sum_bytes(s->v4 ? ip + 12 : ip + 8, n) + sum_bytes(dst, n)
            + s->proto + l4_len);
}

/* All checksums of the IP packet of 'len' bytes, made as 's' says, are
 * right. */
static void
check_checksums(const struct spec *s, const uint8_t *ip, size_t len)
{
    size_t ofs = l4_ofs(s), l4_len = len - ofs;
    const uint8_t *l4 = ip + ofs;

    if (s->v4) {
        ovs_assert(get16(ip + 2) == len);
        ovs_assert(fold(sum_bytes(ip, ofs)) == 0xffff);
    } else {
        ovs_assert(get16(ip + 4) == len - IPV6_HEADER_LEN);
    }
    if (s->proto == IPPROTO_SCTP) {
        uint8_t *copy = xmemdup(l4, l4_len);
        uint32_t crc;

        memset(copy + 8, 0, 4);
        crc = crc_bits(copy, l4_len);
        ovs_assert(l4[8] == (crc & 0xff) && l4[9] == (crc >> 8 & 0xff)
                   && l4[10] == (crc >> 16 & 0xff) && l4[11] == crc >> 24);
        free(copy);
    } else {
        ovs_assert(fold(sum_pseudo(s, ip, l4_len) + sum_bytes(l4, l4_len))
                   == 0xffff);
        ovs_assert(s->proto != IPPROTO_UDP || get16(l4 + 6));
    }
}

/* Checksums. */

static void
check_complete(const struct spec *s)
{
    struct dp_packet *packet = make(s), *copy = dp_packet_clone(packet);
    const uint8_t *eth = dp_packet_data(packet);
    const uint8_t *old = dp_packet_data(copy);
    size_t csum_ofs = (ETH_HEADER_LEN + l4_ofs(s)
                       + (s->proto == IPPROTO_TCP ? 16
                          : s->proto == IPPROTO_UDP ? 6 : 8));
    size_t csum_len = s->proto == IPPROTO_SCTP ? 4 : 2;
    size_t end = csum_ofs + csum_len;
    struct ipoib_offload o;

    ovs_assert(ipoib_offload_parse(packet, &o));
    ovs_assert(o.proto == s->proto && o.l4_ofs == l4_ofs(s)
               && o.v4 == s->v4);
    ovs_assert(o.ip_len == l4_ofs(s) + l4_header_len(s) + s->len);
    ovs_assert(ipoib_offload_is_simple(&o)
               == (s->proto != IPPROTO_SCTP && !s->opt_len && !s->ext[0]));
    if (s->proto != IPPROTO_SCTP) {
        ipoib_offload_prepare(&o);
        ovs_assert(get16(eth + csum_ofs)
                   == fold(sum_pseudo(s, o.ip, o.ip_len - o.l4_ofs)));
    }
    ipoib_offload_complete(&o);
    check_checksums(s, eth + ETH_HEADER_LEN, o.ip_len);

    /* And nothing else has changed. */
    ovs_assert(!memcmp(eth, old, csum_ofs));
    ovs_assert(!memcmp(eth + end, old + end, dp_packet_size(packet) - end));
    dp_packet_delete(packet);
    dp_packet_delete(copy);
}

/* The lists of extension headers that are tried. */
static const uint8_t exts[][EXT_MAX] = {
    { 0 },
    { IPPROTO_DSTOPTS },
    { IPPROTO_ROUTING },
    { IPPROTO_DSTOPTS, IPPROTO_ROUTING, IPPROTO_DSTOPTS },
};

static void
test_complete(void)
{
    static const uint8_t protos[] = { IPPROTO_TCP, IPPROTO_UDP,
                                      IPPROTO_SCTP };
    static const size_t lens[] = { 0, 1, 2, 3, 7, 64, 1001, 1460, 8999 };

    for (size_t i = 0; i < ARRAY_SIZE(protos); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(lens); j++) {
            struct spec s = { .proto = protos[i], .len = lens[j] };

            for (size_t k = 0; k < ARRAY_SIZE(exts); k++) {
                memcpy(s.ext, exts[k], sizeof s.ext);
                s.tcp_opt_len = 4 * k;
                s.pad = k;
                check_complete(&s);
            }
            memset(s.ext, 0, sizeof s.ext);
            s.v4 = true;
            for (s.opt_len = 0; s.opt_len <= 40; s.opt_len += 20) {
                s.tcp_opt_len = s.opt_len;
                check_complete(&s);
            }
        }
    }
}

/* A UDP checksum that comes out as 0 is sent as 0xffff. */
static void
test_udp_zero(void)
{
    struct spec s = { .v4 = true, .proto = IPPROTO_UDP, .len = 2 };
    struct dp_packet *packet = make(&s);
    struct ipoib_offload o;
    uint8_t *l4;

    ovs_assert(ipoib_offload_parse(packet, &o));
    l4 = o.ip + o.l4_ofs;
    put16(l4 + 6, 0);
    put16(l4 + 8, 0);
    put16(l4 + 8, ~fold(sum_pseudo(&s, o.ip, 10) + sum_bytes(l4, 10)));
    ipoib_offload_complete(&o);
    ovs_assert(get16(l4 + 6) == 0xffff);
    check_checksums(&s, o.ip, o.ip_len);
    dp_packet_delete(packet);
}

/* What no device could complete. */

static void
check_bad(const struct spec *s, size_t ofs, uint16_t value)
{
    struct dp_packet *packet = make(s);
    struct ipoib_offload o;

    ovs_assert(ipoib_offload_parse(packet, &o));
    put16((uint8_t *) dp_packet_data(packet) + ofs, value);
    ovs_assert(!ipoib_offload_parse(packet, &o));
    dp_packet_delete(packet);
}

static void
test_bad(void)
{
    struct spec v4 = { .v4 = true, .proto = IPPROTO_TCP, .len = 100 };
    struct spec udp = { .v4 = true, .proto = IPPROTO_UDP, .len = 100 };
    struct spec v6 = { .proto = IPPROTO_TCP, .len = 100,
                       .ext = { IPPROTO_DSTOPTS, IPPROTO_ROUTING } };

    check_bad(&v4, 12, ETH_TYPE_ARP);
    check_bad(&v4, 12, ETH_TYPE_IPV6);
    check_bad(&v4, 14, 0x4400);         /* Header length. */
    check_bad(&v4, 14, 0x6500);
    check_bad(&v4, 16, 141);            /* Longer than it is. */
    check_bad(&v4, 16, 39);             /* No room for TCP. */
    check_bad(&v4, 20, IP_MORE_FRAGMENTS);
    check_bad(&v4, 20, 1);
    check_bad(&v4, 22, 0x4001);         /* ICMP. */
    check_bad(&v4, 46, 0x4000);         /* TCP's header length. */
    check_bad(&udp, 38, 107);           /* UDP's length. */
    check_bad(&udp, 38, 109);
    check_bad(&v6, 12, ETH_TYPE_IP);
    check_bad(&v6, 18, 153);
    check_bad(&v6, 18, 51);
    check_bad(&v6, 54, 0x2b30);         /* Longer than the packet. */
    check_bad(&v6, 54, 0x2c00);         /* A fragment. */
    check_bad(&v6, 64, 0x0601);         /* A kind of routing not known. */

    /* Cut short anywhere. */
    struct dp_packet *packet = make(&v6);
    struct ipoib_offload o;

    ovs_assert(ipoib_offload_parse(packet, &o));
    while (dp_packet_size(packet)) {
        dp_packet_set_size(packet, dp_packet_size(packet) - 1);
        ovs_assert(!ipoib_offload_parse(packet, &o));
    }
    dp_packet_delete(packet);
}

/* Segments. */

static void
check_segments(const struct spec *s, size_t mtu, size_t segsz)
{
    struct dp_packet *packet = make(s), *segment;
    const uint8_t *ip = (uint8_t *) dp_packet_data(packet) + ETH_HEADER_LEN;
    size_t ofs = l4_ofs(s), hlen = ofs + l4_header_len(s);
    size_t size = MIN(segsz ? segsz : SIZE_MAX, mtu - hlen);
    struct ipoib_segments segs;
    struct ipoib_offload o;
    size_t done = 0, i = 0;

    packet->md.in_port.odp_port = u32_to_odp(7);
    ovs_assert(ipoib_offload_parse(packet, &o));
    ovs_assert(ipoib_segments_init(&segs, packet, &o, mtu, segsz));
    while ((segment = ipoib_segments_next(&segs))) {
        const uint8_t *eth = dp_packet_data(segment);
        const uint8_t *seg = eth + ETH_HEADER_LEN;
        size_t len = dp_packet_size(segment) - ETH_HEADER_LEN;
        size_t n = len - hlen;
        bool last = done + n == s->len;
        uint16_t flags = s->tcp_flags;

        ovs_assert(n <= size && (last || n == size));
        ovs_assert(odp_to_u32(segment->md.in_port.odp_port) == 7);
        ovs_assert(!ipoib_pkt_needs_offload(segment));
        ovs_assert(!memcmp(eth, dp_packet_data(packet), ETH_HEADER_LEN));
        check_checksums(s, seg, len);
        ovs_assert(!memcmp(seg + hlen, ip + hlen + done, n));

        /* IP. */
        if (s->v4) {
            ovs_assert(get16(seg + 4) == ((get16(ip + 4) + i) & 0xffff));
            ovs_assert(!memcmp(seg + 6, ip + 6, 4));
            ovs_assert(!memcmp(seg + 12, ip + 12, ofs - 12));
        } else {
            ovs_assert(!memcmp(seg, ip, 4));
            ovs_assert(!memcmp(seg + 6, ip + 6, ofs - 6));
        }

        /* TCP. */
        if (i) {
            flags &= ~TCP_CWR;
        }
        if (!last) {
            flags &= ~(TCP_FIN | TCP_PSH);
        }
        ovs_assert(get32(seg + ofs + 4) == get32(ip + ofs + 4) + done);
        ovs_assert((get16(seg + ofs + 12) & 0xfff) == flags);
        ovs_assert(!memcmp(seg + ofs, ip + ofs, 4));
        ovs_assert(!memcmp(seg + ofs + 8, ip + ofs + 8, 4));
        ovs_assert(!memcmp(seg + ofs + 18, ip + ofs + 18, hlen - ofs - 18));
        done += n;
        i++;
        dp_packet_delete(segment);
    }
    ovs_assert(done == s->len && i == DIV_ROUND_UP(s->len, size));
    dp_packet_delete(packet);
}

static void
test_segments(void)
{
    static const size_t lens[] = { 1, 1000, 2003, 2004, 2005, 4008, 65400 };
    static const uint16_t flags[] = {
        TCP_ACK, TCP_ACK | TCP_PSH, TCP_ACK | TCP_FIN | TCP_PSH | TCP_CWR,
        TCP_ACK | TCP_CWR | TCP_ECE | TCP_NS,
    };

    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(flags); j++) {
            struct spec s = { .proto = IPPROTO_TCP, .len = lens[i],
                              .tcp_flags = flags[j] };

            memcpy(s.ext, exts[j], sizeof s.ext);
            check_segments(&s, 2044, 0);
            check_segments(&s, 2044, 1448);
            check_segments(&s, 1281, 9000);
            memset(s.ext, 0, sizeof s.ext);
            s.v4 = true;
            s.tcp_opt_len = 12;
            check_segments(&s, 2044, 0);
            check_segments(&s, 4092, 536);
            s.opt_len = 8;
            check_segments(&s, 575, 0);
        }
    }
}

static void
test_bad_segments(void)
{
    struct spec s = { .v4 = true, .proto = IPPROTO_TCP, .len = 2000 };
    struct dp_packet *packet = make(&s);
    struct ipoib_segments segs;
    struct ipoib_offload o;

    ovs_assert(ipoib_offload_parse(packet, &o));
    ovs_assert(!ipoib_segments_init(&segs, packet, &o, 40, 0));
    ovs_assert(!ipoib_segments_init(&segs, packet, &o, 2044, 1));
    ovs_assert(!ipoib_segments_init(&segs, packet, &o, 41, 0));
    ovs_assert(ipoib_segments_init(&segs, packet, &o, 42, 0));
    dp_packet_delete(packet);

    s.len = 0;
    packet = make(&s);
    ovs_assert(ipoib_offload_parse(packet, &o));
    ovs_assert(!ipoib_segments_init(&segs, packet, &o, 2044, 0));
    dp_packet_delete(packet);

    s.proto = IPPROTO_UDP;
    s.len = 3000;
    packet = make(&s);
    ovs_assert(ipoib_offload_parse(packet, &o));
    ovs_assert(!ipoib_segments_init(&segs, packet, &o, 2044, 0));
    dp_packet_delete(packet);
}

/* Random packets. */

static void
make_random_spec(struct spec *s)
{
    static const uint8_t protos[] = { IPPROTO_TCP, IPPROTO_TCP, IPPROTO_UDP,
                                      IPPROTO_SCTP };

    memset(s, 0, sizeof *s);
    s->v4 = random_range(2);
    s->proto = protos[random_range(ARRAY_SIZE(protos))];
    if (s->v4) {
        s->opt_len = 4 * random_range(11);
    } else {
        memcpy(s->ext, exts[random_range(ARRAY_SIZE(exts))], sizeof s->ext);
    }
    s->tcp_opt_len = 4 * random_range(11);
    s->tcp_flags = random_range(0x1000);
    s->len = random_range(random_range(2) ? 100 : 9000);
    s->pad = random_range(20);
}

/* Changes some bytes of the packet, which must do no harm. */
static void
check_mutilated(const struct spec *s)
{
    struct dp_packet *packet = make(s), *segment;
    uint8_t *data = dp_packet_data(packet);
    struct ipoib_segments segs;
    struct ipoib_offload o;

    for (int i = random_range(4); i >= 0; i--) {
        data[random_range(MIN(120, dp_packet_size(packet)))]
            = random_range(256);
    }
    dp_packet_set_size(packet, random_range(dp_packet_size(packet) + 1));
    if (ipoib_offload_parse(packet, &o)) {
        ovs_assert(o.ip + o.ip_len <= (uint8_t *) dp_packet_tail(packet));
        ipoib_offload_complete(&o);
        if (ipoib_segments_init(&segs, packet, &o,
                                random_range(3000), random_range(3000))) {
            while ((segment = ipoib_segments_next(&segs))) {
                dp_packet_delete(segment);
            }
        }
    }
    dp_packet_delete(packet);
}

static void
test_random(void)
{
    for (int i = 0; i < 5000; i++) {
        struct spec s;

        make_random_spec(&s);
        check_complete(&s);
        check_mutilated(&s);
        if (s.proto == IPPROTO_TCP && s.len) {
            check_segments(&s, 200 + random_range(4000),
                           random_range(2) ? 0 : 100 + random_range(3000));
        }
    }
}

/* Through a transmit queue. */

#ifndef HAVE_DP_PACKET_OL_SEND_PREPARE
static struct dp_packet *
make_to_neigh(const struct spec *s, const struct ipoib_neigh *neigh,
              uint64_t flags)
{
    struct dp_packet *packet = make(s);
    struct eth_header *eth = dp_packet_data(packet);

    eth->eth_dst = neigh ? neigh->mac : eth_addr_broadcast;
    eth->eth_src = gw_host_mac(1);
    *dp_packet_ol_flags_ptr(packet) |= flags;
    return packet;
}

static uint64_t
counter(const atomic_uint64_t *c)
{
    return ipoib_counter_read(c);
}

static void
send_batch(struct gw *gw, struct dp_packet *packets[], size_t n)
{
    struct dp_packet_batch batch;

    ipoib_batch_init(&batch);
    for (size_t i = 0; i < n; i++) {
        ipoib_batch_push(&batch, packets[i]);
    }
    ipoib_tx_batch(gw->txq, &batch);
    ipoib_batch_destroy(&batch);
}

/* Half of a batch need a checksum; the order stays. */
static void
check_tx_checksums(struct gw *gw, const struct ipoib_neigh *neigh)
{
    const struct spec s = { .v4 = true, .proto = IPPROTO_UDP, .len = 300 };
    uint64_t flag = DP_PACKET_OL_TX_UDP_CKSUM | DP_PACKET_OL_TX_IPV4;
    struct dp_packet *packets[NETDEV_MAX_BURST];
    uint32_t first = gw->hca->n_sent;

    for (size_t i = 0; i < ARRAY_SIZE(packets); i++) {
        uint8_t *l4;

        packets[i] = make_to_neigh(&s, neigh, i & 1 ? flag : 0);
        l4 = ((uint8_t *) dp_packet_data(packets[i]) + ETH_HEADER_LEN
              + IP_HEADER_LEN);
        put16(l4, i);
    }
    send_batch(gw, packets, ARRAY_SIZE(packets));
    ovs_assert(gw->hca->n_sent == first + ARRAY_SIZE(packets));
    for (size_t i = 0; i < ARRAY_SIZE(packets); i++) {
        const uint8_t *ip = gw->hca->sent[(first + i) % NULL_MAX].data + 4;

        ovs_assert(get16(ip + 20) == i);
        if (i & 1) {
            check_checksums(&s, ip, 328);
        } else {
            ovs_assert(get16(ip + 26) == PARTIAL);
        }
    }
    ovs_assert(counter(&gw->txq->stats.offload_csum)
               == ARRAY_SIZE(packets) / 2);
}

static void
check_tx_segments(struct gw *gw, struct ipoib_neigh *neigh)
{
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    struct spec s = { .v4 = true, .proto = IPPROTO_TCP, .len = 65000 };
    uint64_t flags = (DP_PACKET_OL_TX_TCP_SEG | DP_PACKET_OL_TX_TCP_CKSUM
                      | DP_PACKET_OL_TX_IPV4);
    struct dp_packet *packets[2];
    uint32_t first = gw->hca->n_sent;
    size_t n = DIV_ROUND_UP(65000, 2004);

    packets[0] = make_to_neigh(&s, neigh, flags);
    s.len = 100;
    packets[1] = make_to_neigh(&s, neigh, 0);
    send_batch(gw, packets, 2);
    ovs_assert(gw->hca->n_sent == first + n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct null_send *send = &gw->hca->sent[(first + i) % NULL_MAX];

        ovs_assert(send->len == (i < n - 1 ? 2048
                                 : 44 + 65000 - (n - 1) * 2004));
        check_checksums(&s, send->data + 4, send->len - 4);
    }
    ovs_assert(gw->hca->sent[(first + n) % NULL_MAX].len == 144);
    ovs_assert(counter(&stats->offload_segmented) == 1);
    ovs_assert(counter(&stats->offload_segments) == n);

    /* It is a segment, or does not even have data. */
    for (s.len = 0; s.len <= 2004; s.len += 2004) {
        uint64_t n_csum = counter(&stats->offload_csum);
        const struct null_send *send;

        packets[0] = make_to_neigh(&s, neigh, flags);
        send_batch(gw, packets, 1);
        send = &gw->hca->sent[(gw->hca->n_sent - 1) % NULL_MAX];
        ovs_assert(send->len == 44 + s.len);
        check_checksums(&s, send->data + 4, send->len - 4);
        ovs_assert(counter(&stats->offload_csum) == n_csum + 1);
        ovs_assert(counter(&stats->offload_segmented) == 1);
    }

    /* The path takes less. */
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 1000);
    s.len = 2000;
    packets[0] = make_to_neigh(&s, neigh, flags);
    send_batch(gw, packets, 1);
    ovs_assert(counter(&stats->offload_segments) == n + 3);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 2044);

    /* So does the Ethernet side. */
    atomic_store_relaxed(&gw->shared.eth_mtu, 540);
    packets[0] = make_to_neigh(&s, neigh, flags);
    send_batch(gw, packets, 1);
    ovs_assert(counter(&stats->offload_segments) == n + 7);
    atomic_store_relaxed(&gw->shared.eth_mtu, 0);
    ovs_assert(counter(&stats->packets) == gw->hca->n_sent);
}

/* What goes to the control thread is complete, and what cannot be is
 * dropped. */
static void
check_tx_others(struct gw *gw, const struct ipoib_neigh *neigh)
{
    const struct spec s = { .v4 = true, .proto = IPPROTO_UDP, .len = 300 };
    const struct spec tcp = { .v4 = true, .proto = IPPROTO_TCP, .len = 3000 };
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    uint32_t n_sent = gw->hca->n_sent;
    struct dp_packet *packet;
    struct ipoib_msg msg;
    uint8_t *ip;

    packet = make_to_neigh(&s, NULL, DP_PACKET_OL_TX_UDP_CKSUM);
    send_batch(gw, &packet, 1);
    do {
        ovs_assert(ipoib_msgq_pop(gw->txq->to_control, &msg));
    } while (msg.type == IPOIB_MSG_TX_HOST);
    ovs_assert(msg.type == IPOIB_MSG_TX_BROADCAST);
    ip = (uint8_t *) dp_packet_data(msg.packet) + ETH_HEADER_LEN;
    check_checksums(&s, ip, 328);
    ovs_assert(!ipoib_pkt_needs_offload(msg.packet));
    dp_packet_delete(msg.packet);

    /* A tag that is a priority only. */
    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_UDP_CKSUM);
    eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(0xa000));
    send_batch(gw, &packet, 1);
    packet = make_to_neigh(&tcp, neigh, DP_PACKET_OL_TX_TCP_SEG);
    eth_push_vlan(packet, htons(ETH_TYPE_VLAN_8021Q), htons(0xa000));
    send_batch(gw, &packet, 1);
    ovs_assert(gw->hca->n_sent == n_sent + 3);
    check_checksums(&s, gw->hca->sent[n_sent++ % NULL_MAX].data + 4, 328);
    check_checksums(&tcp, gw->hca->sent[n_sent++ % NULL_MAX].data + 4, 2044);
    check_checksums(&tcp, gw->hca->sent[n_sent++ % NULL_MAX].data + 4, 1036);

    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_UDP_CKSUM);
    ip = (uint8_t *) dp_packet_data(packet) + ETH_HEADER_LEN;
    ip[9] = IPPROTO_ICMP;
    send_batch(gw, &packet, 1);
    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_TCP_SEG);
    send_batch(gw, &packet, 1);
    ovs_assert(counter(&stats->drop_offload) == 2);
    ovs_assert(gw->hca->n_sent == n_sent);
}

/* The packet of 'send' is to be completed by the device: all is right but for
 * the checksum of layer 4, which is that of the pseudo-header.  Completes it
 * as the device would. */
static void
check_for_device(const struct spec *s, struct null_send *send)
{
    uint8_t *ip = send->data + 4;
    size_t len = send->len - 4, l4_len = len - l4_ofs(s);
    uint8_t *place = ip + l4_ofs(s) + (s->proto == IPPROTO_TCP ? 16 : 6);

    ovs_assert(send->flags & IBV_SEND_IP_CSUM);
    ovs_assert(get16(place) == fold(sum_pseudo(s, ip, l4_len)));
    put16(place, ~fold(sum_bytes(ip + l4_ofs(s), l4_len)));
    check_checksums(s, ip, len);
}

/* The device computes checksums, of those packets that go straight to it. */
static void
check_tx_device(struct gw *gw, struct ipoib_neigh *neigh)
{
    struct spec s = { .v4 = true, .proto = IPPROTO_UDP, .len = 300 };
    const struct spec tcp = { .proto = IPPROTO_TCP, .len = 5000 };
    uint64_t flags = DP_PACKET_OL_TX_UDP_CKSUM;
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    uint64_t n = counter(&stats->offload_csum_device);
    uint32_t i = gw->hca->n_sent;
    struct dp_packet *packets[6];
    struct ipoib_msg msg;

    atomic_store_relaxed(&gw->shared.tx_csum, true);
    packets[0] = make_to_neigh(&s, neigh, flags);
    packets[1] = make_to_neigh(&s, neigh, 0);
    packets[2] = make_to_neigh(&s, neigh, flags);
    packets[3] = make_to_neigh(&tcp, neigh, DP_PACKET_OL_TX_TCP_SEG);
    s.opt_len = 4;
    packets[4] = make_to_neigh(&s, neigh, flags);
    s.opt_len = 0;
    packets[5] = make_to_neigh(&s, neigh, 0);
    send_batch(gw, packets, 6);
    ovs_assert(gw->hca->n_sent == i + 8);
    check_for_device(&s, &gw->hca->sent[i % NULL_MAX]);
    ovs_assert(!(gw->hca->sent[(i + 1) % NULL_MAX].flags & IBV_SEND_IP_CSUM));
    check_for_device(&s, &gw->hca->sent[(i + 2) % NULL_MAX]);
    for (size_t j = 3; j < 6; j++) {
        check_for_device(&tcp, &gw->hca->sent[(i + j) % NULL_MAX]);
    }
    ovs_assert(!(gw->hca->sent[(i + 6) % NULL_MAX].flags & IBV_SEND_IP_CSUM));
    s.opt_len = 4;
    check_checksums(&s, gw->hca->sent[(i + 6) % NULL_MAX].data + 4, 332);
    ovs_assert(!(gw->hca->sent[(i + 7) % NULL_MAX].flags & IBV_SEND_IP_CSUM));
    ovs_assert(counter(&stats->offload_csum_device) == n + 5);

    /* Cut into fragments. */
    s.opt_len = 0;
    s.len = 3000;
    packets[0] = make_to_neigh(&s, neigh, flags);
    put16((uint8_t *) dp_packet_data(packets[0]) + 20, 0);
    put16((uint8_t *) dp_packet_data(packets[0]) + 24, 0);
    put16((uint8_t *) dp_packet_data(packets[0]) + 24,
          ~fold(sum_bytes((uint8_t *) dp_packet_data(packets[0]) + 14, 20)));
    i = gw->hca->n_sent;
    send_batch(gw, packets, 1);
    ovs_assert(gw->hca->n_sent == i + 2);
    ovs_assert(!(gw->hca->sent[i % NULL_MAX].flags & IBV_SEND_IP_CSUM));
    ovs_assert(counter(&stats->offload_csum_device) == n + 5);

    /* No path: the control thread gets it complete. */
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, NULL, 0);
    s.len = 300;
    packets[0] = make_to_neigh(&s, neigh, flags);
    send_batch(gw, packets, 1);
    do {
        ovs_assert(ipoib_msgq_pop(gw->txq->to_control, &msg));
    } while (msg.type == IPOIB_MSG_TX_HOST);
    ovs_assert(msg.type == IPOIB_MSG_TX_NO_PATH);
    check_checksums(&s, (uint8_t *) dp_packet_data(msg.packet) + 14, 328);
    dp_packet_delete(msg.packet);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 2044);
}

/* 'tso' is to become segments of 'size' bytes, of which 's' tells. */
static void
check_tso(const struct spec *s, struct null_tso *tso, size_t size)
{
    size_t hlen = l4_ofs(s) + TCP_HEADER_LEN, len = tso->len - 4;
    uint8_t *ip = tso->data + 4;

    ovs_assert(tso->flags == (IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM));
    ovs_assert(tso->dqpn == 0x2001 && tso->ah == gw_ah(1));
    ovs_assert(tso->qkey == GW_QKEY);
    ovs_assert(get16(tso->data) == (s->v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6));
    ovs_assert(!get16(tso->data + 2));
    ovs_assert(tso->hdr_sz == 4 + hlen && tso->mss == size);
    ovs_assert(len == hlen + s->len);
    ovs_assert(get16(ip + l4_ofs(s) + 16)
               == fold(sum_pseudo(s, ip, len - l4_ofs(s))));
    put16(ip + l4_ofs(s) + 16,
          ~fold(sum_bytes(ip + l4_ofs(s), len - l4_ofs(s))));
    check_checksums(s, ip, len);
}

/* Sends a long packet, which becomes 'n' segments by the device, or in
 * software if 'n' is 0.  Returns in how many pieces the device got it. */
static int
send_long(struct gw *gw, const struct ipoib_neigh *neigh,
          const struct spec *s, size_t n, size_t size)
{
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    uint64_t n_device = counter(&stats->offload_segmented_device);
    uint64_t n_packets = counter(&stats->packets);
    uint64_t n_bytes = counter(&stats->bytes);
    uint64_t n_segments = counter(&stats->offload_segments);
    uint32_t n_tso = gw->hca->tso.n, n_sent = gw->hca->n_sent;
    struct dp_packet *packets[3];
    struct spec other = { .v4 = true, .proto = IPPROTO_UDP, .len = 50 };

    packets[0] = make_to_neigh(&other, neigh, 0);
    packets[1] = make_to_neigh(s, neigh, DP_PACKET_OL_TX_TCP_SEG);
    packets[2] = make_to_neigh(&other, neigh, 0);
    send_batch(gw, packets, 3);
    ovs_assert(gw->hca->tso.n == n_tso + !!n);
    ovs_assert(counter(&stats->offload_segmented_device) == n_device + !!n);
    if (n) {
        size_t hlen = l4_ofs(s) + TCP_HEADER_LEN;

        check_tso(s, &gw->hca->tso, size);
        ovs_assert(gw->hca->n_sent == n_sent + 2);
        ovs_assert(counter(&stats->offload_segments) == n_segments + n);
        ovs_assert(counter(&stats->packets) == n_packets + n + 2);
        ovs_assert(counter(&stats->bytes)
                   == n_bytes + n * (14 + hlen) + s->len + 2 * (14 + 78));
    } else {
        size_t m = counter(&stats->offload_segments) - n_segments;

        ovs_assert(gw->hca->n_sent == n_sent + m + 2);
        ovs_assert(counter(&stats->packets) == n_packets + m + 2);
    }
    return gw->hca->tso.num_sge;
}

/* A long packet in memory that the device can read. */
static struct dp_packet *
make_in_pool(struct gw *gw, const struct ipoib_neigh *neigh,
             const struct spec *s)
{
    struct dp_packet *copy = make_to_neigh(s, neigh, 0);
    struct dp_packet *packet;
    struct ipoib_buf buf;

    ovs_assert(ipoib_pool_get(gw->pool, &buf, 1) == 1);
    memcpy((uint8_t *) buf.data + 30, dp_packet_data(copy),
           dp_packet_size(copy));
    packet = ipoib_pool_to_packet(gw->pool, buf.id, 30, dp_packet_size(copy));
    *dp_packet_ol_flags_ptr(packet) |= DP_PACKET_OL_TX_TCP_SEG;
    dp_packet_delete(copy);
    return packet;
}

/* From memory that the device can read, a long packet is sent without a copy,
 * and takes no more room than another one. */
static void
check_tx_tso_zero_copy(struct gw *gw, struct ipoib_neigh *neigh)
{
    const struct spec s = { .v4 = true, .proto = IPPROTO_TCP, .len = 1500 };
    struct ipoib_txq_slots *slots = gw->txq->slots;
    uint64_t n_copied = counter(&gw->txq->stats.copied);
    struct dp_packet *packet;
    uint32_t lkey;

    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 640);
    packet = make_in_pool(gw, neigh, &s);
    lkey = ipoib_pool_region(&gw->hca->pd, packet).lkey;
    ovs_assert(lkey);

    gw->hca->hold = true;
    send_batch(gw, &packet, 1);
    check_tso(&s, &gw->hca->tso, 600);
    ovs_assert(gw->hca->tso.lkey == lkey && gw->hca->tso.num_sge == 1);
    ovs_assert(ipoib_txq_holds(gw->txq));
    ovs_assert(slots->held[(slots->held_head - 1) & slots->mask] == packet);
    ovs_assert(counter(&gw->txq->stats.copied) == n_copied);
    gw->hca->hold = false;
    ovs_assert(ipoib_tx_reap(gw->txq));
    ovs_assert(!ipoib_txq_holds(gw->txq));
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 2044);
}

/* A packet takes no more room than was found for it, even if by then its
 * memory looks as if it was not the device's. */
static void
check_tx_tso_memory_changes(struct gw *gw, const struct ipoib_neigh *neigh)
{
    const struct spec s = { .v4 = true, .proto = IPPROTO_TCP, .len = 1500 };
    struct ipoib_txq_slots *slots = gw->txq->slots;
    struct dp_packet *packet = make_in_pool(gw, neigh, &s);
    uint32_t head = slots->head, pool_lkey = ipoib_pool_lkey(gw->pool);
    uint32_t lkey = ipoib_pool_region(&gw->hca->pd, packet).lkey;
    struct ipoib_segments segments;
    struct ipoib_offload all;
    uint32_t slot_size;

    ovs_assert(ipoib_offload_parse(packet, &all));
    ovs_assert(ipoib_segments_init(&segments, packet, &all, 640, 0));
    slot_size = slots->slot_size;
    slots->slot_size = 100;     /* A copy would need many. */
    ovs_assert(ipoib_tx_tso_begin(gw->txq, packet, &segments));
    atomic_store_relaxed(&gw->pool->lkey, 0);
    ipoib_tx_tso(gw->txq, &packet, gw_ah(1), 0x2001);
    atomic_store_relaxed(&gw->pool->lkey, pool_lkey);
    slots->slot_size = slot_size;
    gw->txq->tso = NULL;

    ovs_assert(slots->head - head == 1);
    ovs_assert(gw->hca->tso.lkey == lkey);
    ovs_assert(!packet);
    ovs_assert(ipoib_tx_reap(gw->txq));
}

/* The device cuts TCP into segments, wherever it may and can. */
static void
check_tx_tso(void)
{
    struct gw *gw = gw_open(256, 128);
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct ipoib_tx_stats *stats = &gw->txq->stats;
    const struct spec other = { .v4 = true, .proto = IPPROTO_UDP, .len = 50 };
    struct spec s = { .v4 = true, .proto = IPPROTO_TCP, .len = 65000 };
    size_t n = DIV_ROUND_UP(65000, 2004);
    struct ipoib_pool_stats pool_stats;
    struct dp_packet *packet;
    struct ipoib_msg msg;
    uint64_t n_packets;
    int n_wraps = 0;
    uint32_t n_tso;

    atomic_store_relaxed(&gw->shared.tx_tso, 65536);
    send_long(gw, neigh, &s, 0, 0); /* Checksums are not proven. */
    atomic_store_relaxed(&gw->shared.tx_csum, true);
    for (int i = 0; i < 12; i++) {
        n_wraps += send_long(gw, neigh, &s, n, 2004) > 1;
    }
    ovs_assert(n_wraps > 1);    /* At the end of the ring. */
    s.v4 = false;
    send_long(gw, neigh, &s, DIV_ROUND_UP(65000, 1984), 1984);

    /* What the path takes, and the Ethernet side; neither alone makes a long
     * packet of it. */
    s.len = 3000;
    send_long(gw, neigh, &s, 2, 1984);
    atomic_store_relaxed(&gw->shared.eth_mtu, 540);
    send_long(gw, neigh, &s, 7, 480);
    atomic_store_relaxed(&gw->shared.eth_mtu, 60 + 256);
    send_long(gw, neigh, &s, 12, 256);
    atomic_store_relaxed(&gw->shared.eth_mtu, 60 + 255);
    send_long(gw, neigh, &s, 0, 0); /* Too short. */
    s.len = 1500;
    send_long(gw, neigh, &s, 0, 0);
    atomic_store_relaxed(&gw->shared.eth_mtu, 0);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 1060);
    send_long(gw, neigh, &s, 2, 1000);
    ipoib_neigh_set_ah(gw->shared.neighs, neigh, gw_ah(1), 2044);

    /* Too much at a time, or with headers that devices do not know. */
    s.len = 3000;
    atomic_store_relaxed(&gw->shared.tx_tso, 2999);
    send_long(gw, neigh, &s, 0, 0);
    atomic_store_relaxed(&gw->shared.tx_tso, 3000);
    send_long(gw, neigh, &s, 2, 1984);
    atomic_store_relaxed(&gw->shared.tx_tso, 65536);
    s.ext[0] = IPPROTO_DSTOPTS;
    send_long(gw, neigh, &s, 0, 0);
    s.ext[0] = 0;
    atomic_store_relaxed(&gw->shared.clamp_mss, true);
    send_long(gw, neigh, &s, 0, 0);
    atomic_store_relaxed(&gw->shared.clamp_mss, false);

    /* No room: it is cut into segments, of which there is room for some. */
    s.len = 60000;
    n = DIV_ROUND_UP(60000, 1984);
    gw->hca->hold = true;
    for (int i = 0; i < 3; i++) {
        send_long(gw, neigh, &s, n, 1984);
    }
    for (int i = 0; i < 10; i++) {
        packet = make_to_neigh(&other, neigh, 0);
        send_batch(gw, &packet, 1);
    }
    n_tso = gw->hca->tso.n;
    n_packets = counter(&stats->packets);
    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_TCP_SEG);
    send_batch(gw, &packet, 1);
    ovs_assert(gw->hca->tso.n == n_tso);
    ovs_assert(counter(&stats->drop_queue_full) > 0);
    ovs_assert(counter(&stats->packets) > n_packets);
    ovs_assert(counter(&stats->packets) + counter(&stats->drop_queue_full)
               == n_packets + n);
    gw->hca->hold = false;
    send_long(gw, neigh, &s, n, 1984);

    /* The device refuses it. */
    gw->hca->refuse_at = 0;
    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_TCP_SEG);
    send_batch(gw, &packet, 1);
    gw->hca->refuse_at = -1;
    ovs_assert(counter(&stats->drop_post) == n);
    send_long(gw, neigh, &s, n, 1984);

    ipoib_pool_get_stats(gw->pool, &pool_stats);
    if (pool_stats.zero_copy) {
        check_tx_tso_zero_copy(gw, neigh);
        check_tx_tso_memory_changes(gw, neigh);
    }

    /* A loop brought it. */
    packet = make_to_neigh(&s, neigh, DP_PACKET_OL_TX_TCP_SEG);
    ((struct eth_header *) dp_packet_data(packet))->eth_src = neigh->mac;
    send_batch(gw, &packet, 1);
    ovs_assert(counter(&stats->drop_loop) == 1);

    while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
    gw_close(gw);
}

static void
test_tx(void)
{
    const struct smap enable = SMAP_CONST1(&enable, "userspace-tso-enable",
                                           "true");
    struct gw *gw = gw_open(1024, 512);
    struct ipoib_neigh *neigh = gw_add_neigh(gw, 1);
    struct ipoib_msg msg;

    vlog_set_levels(NULL, VLF_ANY_DESTINATION, VLL_WARN);
    userspace_tso_init(&enable);
    check_tx_checksums(gw, neigh);
    check_tx_segments(gw, neigh);
    check_tx_others(gw, neigh);
    check_tx_device(gw, neigh);
    check_tx_tso();
    while (ipoib_msgq_pop(gw->txq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
    }
    gw_close(gw);
}
#else
static void
test_tx(void)
{
    /* Nothing of that kind arrives. */
}
#endif

/* Receiving: only what the device has found good is marked so, and only where
 * the device has been seen to tell the truth. */

static void
receive_marked(struct gw *gw, const struct spec *s, int wc_flags, bool ip,
               bool l4)
{
    struct dp_packet *packet = make(s);
    size_t len = dp_packet_size(packet) - ETH_HEADER_LEN;
    struct null_packet *p = gw_receive(gw, 1, 0x1001, s->v4 ? ETH_TYPE_IP
                                       : ETH_TYPE_IPV6, len);
    struct dp_packet_batch batch;

    memcpy(gw_payload(p), (uint8_t *) dp_packet_data(packet) + ETH_HEADER_LEN,
           len);
    p->wc.wc_flags |= wc_flags;
    dp_packet_delete(packet);
    ipoib_batch_init(&batch);
    ovs_assert(!ipoib_rx_batch(gw->rxq, &batch));
    ovs_assert(dp_packet_batch_size(&batch) == 1);
    packet = batch.packets[0];
    ovs_assert(dp_packet_ip_checksum_valid(packet) == ip);
    ovs_assert(dp_packet_l4_checksum_valid(packet) == l4);
    ovs_assert(!ipoib_pkt_needs_offload(packet));
    dp_packet_delete(packet);
    ipoib_batch_destroy(&batch);
}

static void
test_rx(void)
{
    const struct spec tcp = { .v4 = true, .proto = IPPROTO_TCP, .len = 90 };
    const struct spec sctp = { .v4 = true, .proto = IPPROTO_SCTP, .len = 90 };
    const struct spec v6 = { .proto = IPPROTO_TCP, .len = 90 };
    struct gw *gw = gw_open(256, 64);

    gw_add_neigh(gw, 1);
    gw_add_host(gw, 1, 0x1001, false);
    receive_marked(gw, &tcp, IBV_WC_IP_CSUM_OK, false, false);
    atomic_store_relaxed(&gw->shared.rx_csum, true);
    receive_marked(gw, &tcp, IBV_WC_IP_CSUM_OK, true, true);
    receive_marked(gw, &tcp, 0, false, false);
    receive_marked(gw, &sctp, IBV_WC_IP_CSUM_OK, true, false);
    receive_marked(gw, &v6, IBV_WC_IP_CSUM_OK, false, false);
    ovs_assert(ipoib_counter_read(&gw->rxq->stats.offload_csum) == 2);
    gw_close(gw);
}

static void
test_ipoib_offload_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    random_set_seed(getenv("SEED") ? atoi(getenv("SEED")) : 1);
    test_complete();
    test_udp_zero();
    test_bad();
    test_segments();
    test_bad_segments();
    test_random();
    test_tx();
    test_rx();
}

OVSTEST_REGISTER("test-ipoib-offload", test_ipoib_offload_main);
