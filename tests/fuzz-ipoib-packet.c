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

/* Fuzzer of ipoib-packet, and of what works on packets that it found good:
 * ipoib-mtu, ipoib-dhcp, ipoib-snoop.
 *
 * In the test program it is the command "fuzz-ipoib-packet SEED RUNS", which
 * changes well-formed packets at random.  For libFuzzer, compile this file
 * and the library with clang -fsanitize=fuzzer,address,undefined and
 * -DIPOIB_LIBFUZZER. */

#include <config.h>
#undef NDEBUG

#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <stdlib.h>
#include <string.h>

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-dhcp.h"
#include "ipoib-mtu.h"
#include "ipoib-packet.h"
#include "ipoib-snoop.h"
#include "ipoib-vectors.h"
#include "util.h"

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

/* First byte of the input. */
#define FIX_PLEN 0x01           /* Make the IPv6 payload length right. */
#define FIX_CSUM 0x02           /* Make ND's checksum right. */
#define TAILROOM 0x0c           /* Multiples of 9 bytes of tailroom. */
#define HEADROOM 0x70           /* Multiples of 8 bytes of headroom. */

static const struct eth_addr test_mac = ETH_ADDR_C(02,12,34,56,78,9a);

static struct ipoib_addr
test_addr(void)
{
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0x123456789abcdef);

    return ipoib_addr_make(0xabcdef, &gid);
}

static bool
nd_parse(bool ib, const void *ip, size_t len, size_t l4_ofs,
         struct ipoib_nd_info *info)
{
    return (ib ? ipoib_nd_parse_ib(ip, len, l4_ofs, info)
            : ipoib_nd_parse_eth(ip, len, l4_ofs, info));
}

/* Translates the ND message in 'packet', from IPoIB if 'ib' is true, and
 * checks that the result is one, says the same, and has our address. */
static void
nd_translate(bool ib, struct dp_packet *packet, size_t front, size_t l4_ofs)
{
    struct ipoib_addr addr = test_addr();
    struct ipoib_nd_info before, after;
    size_t ip_len, new_l4_ofs;

    ovs_assert(nd_parse(ib, dp_packet_at_assert(packet, front, 0),
                        dp_packet_size(packet) - front, l4_ofs, &before));
    if (ib) {
        ipoib_nd_to_eth(packet, front, l4_ofs, test_mac);
    } else {
        ipoib_nd_to_ib(packet, front, l4_ofs, &addr);
    }

    const void *ip = dp_packet_at_assert(packet, front, IPV6_HEADER_LEN);
    size_t len = dp_packet_size(packet) - front;
    ovs_assert(ipoib_packet_check_ip(ETH_TYPE_IPV6, ip, len, &ip_len,
                                     &new_l4_ofs) == IPOIB_IP_ND);
    ovs_assert(ip_len == len && new_l4_ofs == l4_ofs);
    ovs_assert(nd_parse(!ib, ip, len, l4_ofs, &after));
    ovs_assert(after.type == before.type
               && after.na_flags == before.na_flags
               && after.has_lladdr == before.has_lladdr
               && ipv6_addr_equals(&after.src, &before.src)
               && ipv6_addr_equals(&after.dst, &before.dst)
               && ipv6_addr_equals(&after.target, &before.target));
    if (after.has_lladdr) {
        ovs_assert(ib ? eth_addr_equals(after.lladdr.mac, test_mac)
                   : ipoib_addr_equals(&after.lladdr.ib, &addr));
    }
}

/* To the other side, back and again: the two translations to the same side
 * must be equal. */
static void
fuzz_nd(bool ib, const uint8_t *ip, size_t len, size_t l4_ofs, uint8_t control)
{
    size_t tailroom = (control & TAILROOM) / 4 * 9;
    size_t headroom = (control & HEADROOM) / 16 * 8;
    size_t front = ib ? IPOIB_HEADER_LEN : ETH_HEADER_LEN;
    struct dp_packet packet;

    dp_packet_init(&packet, headroom + front + len + tailroom);
    dp_packet_reserve(&packet, headroom);
    dp_packet_put_zeros(&packet, front);
    dp_packet_put(&packet, ip, len);

    nd_translate(ib, &packet, front, l4_ofs);
    struct dp_packet *first = dp_packet_clone(&packet);
    nd_translate(!ib, &packet, front, l4_ofs);
    nd_translate(ib, &packet, front, l4_ofs);
    ovs_assert(dp_packet_equal(first, &packet));

    dp_packet_delete(first);
    dp_packet_uninit(&packet);
}

/* What the fragments of the good IPv4 packet at 'ip' carry is what it carries,
 * and each is good. */
static void
fuzz_fragments(const uint8_t *ip, size_t ip_len, uint32_t mtu)
{
    const uint8_t l2[IPOIB_HEADER_LEN] = { 0x08, 0 };
    size_t hlen = (ip[0] & 0xf) * 4, done = 0;
    struct ipoib_mtu_fragmenter f;
    struct dp_packet *frag;

    ipoib_mtu_fragment(&f, ip, ip_len, mtu, l2, sizeof l2);
    while ((frag = ipoib_mtu_next_fragment(&f))) {
        const uint8_t *part = dp_packet_at_assert(frag, sizeof l2, hlen);
        size_t len = dp_packet_size(frag) - sizeof l2, part_len, l4_ofs;

        ovs_assert(len <= mtu);
        ovs_assert(ipoib_packet_check_ip(ETH_TYPE_IP, part, len, &part_len,
                                         &l4_ofs) != IPOIB_IP_BAD);
        ovs_assert(part_len == len && !csum(part, hlen));
        ovs_assert(!memcmp(part + hlen, ip + hlen + done, len - hlen));
        done += len - hlen;
        dp_packet_delete(frag);
    }
    ovs_assert(done == ip_len - hlen);
}

/* 'packet', which answers an IP packet of 'type', is one itself, and is not
 * answered in turn. */
static void
check_error(uint16_t type, struct dp_packet *packet)
{
    const uint8_t *ip = dp_packet_data(packet);
    size_t len = dp_packet_size(packet), ip_len, l4_ofs;

    ovs_assert(ipoib_packet_check_ip(type, ip, len, &ip_len, &l4_ofs)
               == IPOIB_IP_DATA);
    ovs_assert(ip_len == len);
    ovs_assert(ipoib_mtu_judge(type, ip, len, 68) == IPOIB_MTU_DROP);
    dp_packet_delete(packet);
}

/* The good IP packet at 'ip' is too long for 'mtu'. */
static void
fuzz_mtu(uint16_t type, uint8_t *ip, size_t ip_len, uint32_t mtu)
{
    if (ip_len > mtu) {
        enum ipoib_mtu_verdict verdict = ipoib_mtu_judge(type, ip, ip_len,
                                                         mtu);

        ovs_assert(verdict != IPOIB_MTU_FRAGMENT || type == ETH_TYPE_IP);
        if (verdict == IPOIB_MTU_FRAGMENT) {
            fuzz_fragments(ip, ip_len, mtu);
        } else if (verdict == IPOIB_MTU_ERROR) {
            check_error(type, ipoib_mtu_compose_error(type, ip, ip_len, mtu));
        }
    }
    if (ipoib_mtu_clamp_mss(type, ip, ip_len, mtu)) {
        ovs_assert(!ipoib_mtu_clamp_mss(type, ip, ip_len, mtu));
    }
}

static void
nobody(void *aux OVS_UNUSED, const struct in6_addr *group OVS_UNUSED)
{
}

/* The good IP packet at 'ip' is a group message. */
static void
fuzz_snoop(uint16_t type, enum ipoib_ip_class class, const uint8_t *ip,
           size_t ip_len, size_t l4_ofs)
{
    static const struct ipoib_snoop_ops ops = {
        .joined = nobody, .left = nobody, .ask = nobody,
    };
    bool v6 = type == ETH_TYPE_IPV6;
    struct ipoib_snoop *snoop = ipoib_snoop_create(&ops, NULL);

    if (class == IPOIB_IP_PIM) {
        ipoib_snoop_pim(snoop, v6, ip, ip_len, l4_ofs, 1000);
    } else {
        ipoib_snoop_from_fabric(snoop, v6, ip, ip_len, l4_ofs, 1000);
        if (v6) {
            ipoib_snoop_mld(snoop, ip, ip_len, l4_ofs, test_mac, 2000);
        } else {
            ipoib_snoop_igmp(snoop, ip, ip_len, l4_ofs, test_mac, 2000);
        }
    }
    ipoib_snoop_run(snoop, 100000);
    ipoib_snoop_destroy(snoop);
}

/* What is done to a good IP packet, in a copy of exactly its length. */
static void
fuzz_good(uint16_t type, enum ipoib_ip_class class, const uint8_t *data,
          size_t ip_len, size_t l4_ofs, uint8_t control)
{
    uint8_t *ip = xmemdup(data, ip_len);

    if (control & FIX_CSUM && type == ETH_TYPE_IP) {
        struct ip_header *nh = ALIGNED_CAST(struct ip_header *, ip);

        nh->ip_csum = 0;
        nh->ip_csum = csum(nh, IP_IHL(nh->ip_ihl_ver) * 4);
    }
    if (class == IPOIB_IP_IGMP || class == IPOIB_IP_MLD
        || class == IPOIB_IP_PIM) {
        if (control & FIX_CSUM && type == ETH_TYPE_IP
            && ip_len >= l4_ofs + 4) {
            ovs_be16 checksum;

            memset(ip + l4_ofs + 2, 0, sizeof checksum);
            checksum = csum(ip + l4_ofs, ip_len - l4_ofs);
            memcpy(ip + l4_ofs + 2, &checksum, sizeof checksum);
        }
        fuzz_snoop(type, class, ip, ip_len, l4_ofs);
    }
    if (type == ETH_TYPE_IP) {
        if (ipoib_dhcp_set_broadcast(ip, ip_len)) {
            ovs_assert(!ipoib_dhcp_set_broadcast(ip, ip_len));
        }
    }
    fuzz_mtu(type, ip, ip_len, 28 + control);
    fuzz_mtu(type, ip, ip_len, 1280);
    free(ip);
}

static void
fuzz_ip(uint16_t type, uint8_t *ip, size_t len, uint8_t control)
{
    struct ovs_16aligned_ip6_hdr *nh
        = ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *, ip);
    size_t ip_len, l4_ofs;

    if (control & FIX_PLEN && type == ETH_TYPE_IPV6 && len >= IPV6_HEADER_LEN
        && len - IPV6_HEADER_LEN <= UINT16_MAX) {
        nh->ip6_plen = htons(len - IPV6_HEADER_LEN);
    }

    enum ipoib_ip_class class = ipoib_packet_check_ip(type, ip, len, &ip_len,
                                                      &l4_ofs);
    ovs_assert(ip_len <= len && (l4_ofs < ip_len || !l4_ofs));
    ovs_assert(!ip_len == (class == IPOIB_IP_BAD));
    ovs_assert(!l4_ofs || class != IPOIB_IP_BAD);
    if (class != IPOIB_IP_BAD) {
        fuzz_good(type, class, ip, ip_len, l4_ofs, control);
    }
    if (class != IPOIB_IP_ND) {
        return;
    }

    if (control & FIX_CSUM && ip_len - l4_ofs >= ICMP6_HEADER_LEN) {
        struct icmp6_header *icmp = ALIGNED_CAST(struct icmp6_header *,
                                                 ip + l4_ofs);

        icmp->icmp6_cksum = 0;
        icmp->icmp6_cksum = packet_csum_upperlayer6(nh, icmp, IPPROTO_ICMPV6,
                                                    ip_len - l4_ofs);
    }
    for (int ib = 0; ib < 2; ib++) {
        struct ipoib_nd_info info;

        if (len <= 8192 && nd_parse(ib, ip, len, l4_ofs, &info)) {
            uint8_t *copy = xmemdup(ip, ip_len);

            if (info.type == ND_ROUTER_ADVERT) {
                ipoib_mtu_lower_ra(copy, ip_len, l4_ofs, 1300);
                ovs_assert(!ipoib_mtu_lower_ra(copy, ip_len, l4_ofs, 1300));
            }
            free(copy);
            fuzz_nd(ib, ip, len, l4_ofs, control);
        }
    }
}

/* 'data' is a byte of bits from above, a byte of nothing, and a packet on
 * IPoIB, from its header on; what is behind the header may as well have come
 * from Ethernet. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 + IPOIB_HEADER_LEN) {
        return 0;
    }

    /* To be written to, and of its length for the sanitizer. */
    size_t len = size - 2 - IPOIB_HEADER_LEN;
    uint8_t *payload = xmalloc(MAX(len, 1));
    memcpy(payload, data + 2 + IPOIB_HEADER_LEN, len);

    uint16_t type = data[2] << 8 | data[3];
    const struct ipoib_arp *arp = ipoib_arp_parse(payload, len);
    ovs_assert(!arp || len >= IPOIB_ARP_LEN);
    ovs_assert(!arp || !ipoib_arp_eth_parse(payload, len));
    if (arp) {
        struct dp_packet *packet = ipoib_compose_arp_ib(
            ntohs(arp->op), type == ETH_TYPE_RARP, &arp->sha,
            get_16aligned_be32(&arp->spa), &arp->tha,
            get_16aligned_be32(&arp->tpa));

        ovs_assert(!memcmp(dp_packet_at_assert(packet, IPOIB_HEADER_LEN,
                                               IPOIB_ARP_LEN),
                           arp, IPOIB_ARP_LEN));
        dp_packet_delete(packet);
    }
    fuzz_ip(type, payload, len, data[0]);
    free(payload);
    return 0;
}

#ifndef IPOIB_LIBFUZZER
#include "ovstest.h"

/* Packets to begin with: on IPoIB (or IP packets, with a header put in front),
 * ND with more options and behind an extension header, IPv4 UDP, IGMP, and
 * ND as it is on Ethernet. */
#define ND6 "fe800000000000000000000000000001" \
            "ff020000000000000000000000000001"
#define TARGET "fe800000000000000000000000000009"
static const char *seeds[] = {
    V1_IB, V2_IB, V3_IB, V4_IB, "86dd0000" V5_IP,
    "86dd0000" "6000000000303aff" ND6 "88000000" "e0000000" TARGET
    "0e01a1b2c3d4e5f6" "0201020000000001" "fd01020304050607",
    "86dd0000" "6000000000403cff" ND6 "3a00010400000000"
    "87000000" "00000000" TARGET
    "01030000" V_NEIGH_IB "0e01a1b2c3d4e5f6",
    "86dd0000" "6000000000403aff" ND6 "89000000" "00000000" TARGET TARGET
    "0201020000000001" "0401000000000000" "0201020000000001",
    "86dd0000" "6000000000283aff" ND6 "86000000" "40000708" "00000000"
    "00000000" "0101020000000001" "0501000000000578" "1901000000000000",
    "86dd0000" "6000000000183aff" ND6 "85000000" "00000000"
    "0101020000000001" "0e01a1b2c3d4e5f6",
    "08000000" "4500001c" "00000000" "40110000" "0a0000010a000002"
    "0044004300080000",
    "08000000" "46000020" "00000000" "01020000" "0a000001e0000016"
    "94040000" "2200000000000000",
    /* A TCP SYN, with the MSS option at an odd offset. */
    "08000000" "47000038" "00000000" "40060000" "0a0000010a000002"
    "8304050601010100" "0014001500000000" "0000000070020000" "00000000"
    "01020423c4000101",
    "86dd0000" "60000000" "00180640" ND6 "0014001500000000" "00000000"
    "60020000" "00000000" "020423c4",
    /* IGMPv3 and MLDv2 reports, an IGMPv3 query, a PIM hello. */
    "08000000" "46000034" "00000000" "01020000" "0a000001e0000016"
    "94040000" "22000000" "00000002" "03000001ef010203" "0a000009"
    "04000000ef010204",
    "08000000" "46000024" "00000000" "01020000" "0a000001e0000001"
    "94040000" "1164000000000000" "02140000",
    "86dd0000" "60000000" "00380001" ND6 "3a00050200000100"
    "8f00000000000001" "01000001" TARGET TARGET "00000000",
    "08000000" "45000022" "00000000" "01670000" "0a000001e000000d"
    "20000000" "000100020069" "00140004",
};

/* A generator of our own: the same on all machines. */
static uint32_t
next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005)
             + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Changes the '*len' bytes at 'data', of room 'max', once. */
static void
mutate(uint8_t *data, size_t *len, size_t max, uint64_t *state)
{
    static const uint8_t magic[] = { 0, 1, 2, 3, 4, 8, 40, 58, 60, 0x7f, 0x80,
                                     0x85, 0x87, 0x88, 0xfe, 0xff };
    size_t n = 1 + next_random(state) % 32;
    size_t ofs = *len ? next_random(state) % *len : 0;

    switch (next_random(state) % 8) {
    case 0:                     /* A bit. */
        data[ofs] ^= 1 << next_random(state) % 8;
        break;

    case 1:                     /* A byte. */
        data[ofs] = next_random(state);
        break;

    case 2:
    case 3:                     /* A byte that has a meaning. */
        data[ofs] = magic[next_random(state) % ARRAY_SIZE(magic)];
        break;

    case 4:                     /* Cut. */
        *len = ofs;
        break;

    case 5:                     /* Longer, in units of options. */
        n = MIN(n * 8, max - *len);
        for (size_t i = 0; i < n; i++) {
            data[*len + i] = i % 8 ? next_random(state)
                                   : magic[next_random(state) % 5];
        }
        *len += n;
        break;

    case 6:                     /* A part twice. */
        n = MIN(MIN(n, *len - ofs), max - *len);
        memmove(data + ofs + n, data + ofs, *len - ofs);
        *len += n;
        break;

    case 7:                     /* A part taken out. */
        n = MIN(n, *len - ofs);
        memmove(data + ofs, data + ofs + n, *len - ofs - n);
        *len -= n;
        break;
    }
}

static void
fuzz_ipoib_packet_main(int argc, char *argv[])
{
    unsigned int seed, runs;

    if (argc != 3 || !str_to_uint(argv[1], 0, &seed)
        || !str_to_uint(argv[2], 0, &runs)) {
        ovs_fatal(0, "usage: fuzz-ipoib-packet SEED RUNS");
    }

    uint64_t state = seed;
    for (unsigned int i = 0; i < runs; i++) {
        const char *hex = seeds[next_random(&state) % ARRAY_SIZE(seeds)];
        uint8_t data[512];
        size_t len = 2 + strlen(hex) / 2;

        data[0] = next_random(&state);
        data[1] = 0;
        for (size_t j = 2; j < len; j++) {
            bool ok;

            data[j] = hexits_value(hex + (j - 2) * 2, 2, &ok);
            ovs_assert(ok);
        }
        for (unsigned int n = next_random(&state) % 4; n; n--) {
            mutate(data, &len, sizeof data, &state);
        }
        LLVMFuzzerTestOneInput(data, len);
    }
}

OVSTEST_REGISTER("fuzz-ipoib-packet", fuzz_ipoib_packet_main);
#endif
