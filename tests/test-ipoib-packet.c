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

/* Tests of ipoib-packet. */

#include <config.h>
#undef NDEBUG

#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dp-packet.h"
#include "ipoib-packet.h"
#include "ipoib-vectors.h"
#include "openvswitch/dynamic-string.h"
#include "ovstest.h"
#include "util.h"

#define GUID UINT64_C(0x0002c9020024f636)

/* The bytes of 'hex', in a buffer of their length, so that a sanitizer sees
 * what is read beyond them. */
struct bytes {
    uint8_t *data;
    size_t len;
};

static struct bytes
from_hex(const char *hex)
{
    struct bytes b = { .len = strlen(hex) / 2 };

    b.data = xmalloc(MAX(b.len, 1));
    for (size_t i = 0; i < b.len; i++) {
        bool ok;

        b.data[i] = hexits_value(hex + i * 2, 2, &ok);
        ovs_assert(ok);
    }
    return b;
}

static struct bytes
copy_bytes(const void *data, size_t len)
{
    struct bytes b = { .data = xmalloc(MAX(len, 1)), .len = len };

    nullable_memcpy(b.data, data, len);
    return b;
}

static void
check_bytes(const char *what, const void *data, size_t len, const void *exp,
            size_t exp_len)
{
    if (len != exp_len || memcmp(data, exp, len)) {
        struct ds ds = DS_EMPTY_INITIALIZER;

        ds_put_format(&ds, "%s: is\n", what);
        ds_put_hex_dump(&ds, data, len, 0, false);
        ds_put_cstr(&ds, "should be\n");
        ds_put_hex_dump(&ds, exp, exp_len, 0, false);
        ovs_fatal(0, "%s", ds_cstr(&ds));
    }
}

/* Checks 'packet' against 'hex', and deletes it. */
static void
check_packet(const char *what, struct dp_packet *packet, const char *hex)
{
    struct bytes exp = from_hex(hex);

    ovs_assert(dp_packet_headroom(packet) >= 64);
    check_bytes(what, dp_packet_data(packet), dp_packet_size(packet),
                exp.data, exp.len);
    dp_packet_delete(packet);
    free(exp.data);
}

static struct ipoib_addr
addr_from_hex(const char *hex)
{
    struct bytes b = from_hex(hex);
    struct ipoib_addr addr;

    ovs_assert(b.len == sizeof addr);
    memcpy(&addr, b.data, sizeof addr);
    free(b.data);
    return addr;
}

static struct eth_addr
mac_from_hex(const char *hex)
{
    struct bytes b = from_hex(hex);
    struct eth_addr mac;

    ovs_assert(b.len == sizeof mac);
    memcpy(&mac, b.data, sizeof mac);
    free(b.data);
    return mac;
}

static struct in6_addr
ip6(const char *s)
{
    struct in6_addr addr;

    ovs_assert(inet_pton(AF_INET6, s, &addr) == 1);
    return addr;
}

static ovs_be32
ip4(const char *s)
{
    struct in_addr addr;

    ovs_assert(inet_pton(AF_INET, s, &addr) == 1);
    return addr.s_addr;
}

/* Addresses. */

static void
check_addr(void)
{
    struct ipoib_addr a = addr_from_hex(V_NEIGH_IB), b;
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, GUID);
    struct ds ds = DS_EMPTY_INITIALIZER;

    ovs_assert(ipoib_addr_qpn(&a) == 0x405);
    ovs_assert(ib_gid_guid(&a.gid) == GUID);
    ipoib_addr_format(&a, &ds);
    ovs_assert(!strcmp(ds_cstr(&ds), "80:00:04:05:fe:80:00:00:00:00:00:00:"
                       "00:02:c9:02:00:24:f6:36"));
    ds_destroy(&ds);

    b = ipoib_addr_make(0xff000405, &gid);
    ovs_assert(memcmp(&a, &b, sizeof a) && ipoib_addr_equals(&a, &b));
    ovs_assert(!((uint8_t *) &b)[0]);
    for (size_t i = 1; i < sizeof b; i++) {
        struct ipoib_addr c = b;

        ((uint8_t *) &c)[i] ^= 1;
        ovs_assert(!ipoib_addr_equals(&a, &c));
    }

    ovs_assert(ipoib_addr_is_station(&a));
    static const uint32_t no_station[] = { 0, 1, 0xffffff };
    for (size_t i = 0; i < ARRAY_SIZE(no_station); i++) {
        b = ipoib_addr_make(no_station[i], &gid);
        ovs_assert(!ipoib_addr_is_station(&b));
    }
    b = ipoib_addr_make(2, &gid);
    ovs_assert(ipoib_addr_is_station(&b));
    gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0);
    b = ipoib_addr_make(2, &gid);
    ovs_assert(!ipoib_addr_is_station(&b));
    gid = ipoib_mgid_broadcast(0xffff, 2);
    b = ipoib_addr_make(2, &gid);
    ovs_assert(!ipoib_addr_is_station(&b));
}

static bool
is_local_unicast(struct eth_addr mac)
{
    return (mac.ea[0] & 3) == 2;
}

static void
check_mac(void)
{
    struct ipoib_addr a = addr_from_hex(V_NEIGH_IB), b = a;
    struct eth_addr mac = ipoib_standin_mac(0xffff, &a, 0);

    /* Whoever changes these parts company with all other gateways. */
    ovs_assert(eth_addr_equals(mac, mac_from_hex("12f0da93c99f")));
    ovs_assert(eth_addr_equals(ipoib_standin_mac(0xffff, &a, 1),
                               mac_from_hex("8ec73bdd0653")));
    ovs_assert(eth_addr_equals(ipoib_standin_mac(0x8001, &a, 0),
                               mac_from_hex("56701d1fc5dd")));
    ovs_assert(eth_addr_equals(ipoib_port_mac(GUID, 0xffff),
                               mac_from_hex("e6ca6678e0b4")));

    /* Neither flags, nor prefix, nor membership count. */
    ((uint8_t *) &b)[0] ^= 0xff;
    ((uint8_t *) &b)[4] ^= 0x40;
    ovs_assert(eth_addr_equals(mac, ipoib_standin_mac(0x7fff, &b, 0)));
    ovs_assert(eth_addr_equals(ipoib_port_mac(GUID, 0x7fff),
                               ipoib_port_mac(GUID, 0xffff)));

    /* Each bit of the rest does, and each attempt. */
    for (int i = 0; i < 24 + 64; i++) {
        uint64_t guid = GUID ^ (i < 64 ? UINT64_C(1) << i : 0);
        struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid);
        uint32_t qpn = 0x405 ^ (i < 64 ? 0 : 1u << (i - 64));

        b = ipoib_addr_make(qpn, &gid);
        struct eth_addr other = ipoib_standin_mac(0xffff, &b, 0);
        ovs_assert(!eth_addr_equals(mac, other) && is_local_unicast(other));
        ovs_assert(!eth_addr_equals(other, ipoib_port_mac(guid, 0xffff)));
        other = ipoib_standin_mac(0xffff, &a, i + 1);
        ovs_assert(!eth_addr_equals(mac, other) && is_local_unicast(other));
    }
    for (int i = 0; i < 15; i++) {
        ovs_assert(!eth_addr_equals(mac, ipoib_standin_mac(0xffff ^ 1 << i, &a,
                                                           0)));
    }
    ovs_assert(is_local_unicast(ipoib_port_mac(GUID, 0xffff)));
}

static void
check_mgid(struct ib_gid mgid, const char *hex)
{
    struct bytes exp = from_hex(hex);

    check_bytes("MGID", &mgid, sizeof mgid, exp.data, exp.len);
    free(exp.data);
}

static void
check_multicast(void)
{
    static const struct {
        const char *ip, *mgid, *mac;
    } v4[] = {
        { "224.0.0.1", "ff12401bffff00000000000000000001", "01005e000001" },
        { "224.0.0.22", "ff12401bffff00000000000000000016", "01005e000016" },
        { "224.0.0.251", "ff12401bffff000000000000000000fb", "01005e0000fb" },
        { "239.255.0.1", "ff12401bffff0000000000000fff0001", "01005e7f0001" },
    }, v6[] = {
        { "ff02::1", "ff12601bffff00000000000000000001", "333300000001" },
        { "ff02::16", "ff12601bffff00000000000000000016", "333300000016" },
        { "ff02::1:ff00:1895", "ff12601bffff000000000001ff001895",
          "3333ff001895" },
        { "ff05::1:3", "ff12601bffff00000000000000010003", "333300010003" },
        { "ff3e:30:2001:db8::1234", "ff12601bffff0db80000000000001234",
          "333300001234" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(v4); i++) {
        ovs_be32 ip = ip4(v4[i].ip);

        check_mgid(ipoib_mgid_ipv4(ip, 0xffff, 2), v4[i].mgid);
        ovs_assert(eth_addr_equals(ipoib_group_mac_ipv4(ip),
                                   mac_from_hex(v4[i].mac)));
    }
    for (size_t i = 0; i < ARRAY_SIZE(v6); i++) {
        struct in6_addr ip = ip6(v6[i].ip);

        check_mgid(ipoib_mgid_ipv6(&ip, 0x7fff, 2), v6[i].mgid);
        ovs_assert(eth_addr_equals(ipoib_group_mac_ipv6(&ip),
                                   mac_from_hex(v6[i].mac)));
    }
    check_mgid(ipoib_mgid_broadcast(0xffff, 2),
               "ff12401bffff000000000000ffffffff");
    check_mgid(ipoib_mgid_broadcast(0x0002, 2),
               "ff12401b8002000000000000ffffffff");
    check_mgid(ipoib_mgid_ipv4(ip4("224.0.0.2"), 0, 5),
               "ff15401b800000000000000000000002");

    struct in6_addr host = ip6("fe80::505:400:feaa:bb01");
    struct in6_addr group = ip6("ff02::1:ffaa:bb01");
    host = ipoib_solicited_node(&host);
    ovs_assert(ipv6_addr_equals(&host, &group));
}

static void
check_ip_is_station(void)
{
    static const struct {
        const char *ip;
        bool is_station;
    } tests[] = {
        { "::", false }, { "ff02::1", false }, { "fe80::1", true },
        { "2001:db8::1", true }, { "::ffff:10.0.0.1", true },
        { "::ffff:0.0.0.0", false }, { "::ffff:224.0.0.1", false },
        { "::ffff:255.255.255.255", false }, { "::ffff:1.0.0.0", true },
    };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        struct in6_addr ip = ip6(tests[i].ip);

        ovs_assert(ipoib_ip_is_station(&ip) == tests[i].is_station);
    }
}

/* ARP. */

/* Checks that 'data' is refused cut short anywhere, and with any of its first
 * six bytes changed. */
static void
check_arp_refused(const uint8_t *data, size_t len, bool ib)
{
    size_t min = ib ? IPOIB_ARP_LEN : ARP_ETH_HEADER_LEN;

    for (size_t i = 0; i <= len; i++) {
        struct bytes b = copy_bytes(data, i);

        ovs_assert((ib ? ipoib_arp_parse(b.data, i) != NULL
                    : ipoib_arp_eth_parse(b.data, i) != NULL) == (i >= min));
        free(b.data);
    }
    for (size_t i = 0; i < 6; i++) {
        struct bytes b = copy_bytes(data, len);

        b.data[i] ^= 0x10;
        ovs_assert(!(ib ? ipoib_arp_parse(b.data, len) != NULL
                     : ipoib_arp_eth_parse(b.data, len) != NULL));
        ovs_assert(!(ib ? ipoib_arp_eth_parse(data, len) != NULL
                     : ipoib_arp_parse(data, len) != NULL));
        free(b.data);
    }
}

static void
check_arp(void)
{
    struct ipoib_addr neigh = addr_from_hex(V_NEIGH_IB);
    struct ipoib_addr host = addr_from_hex(V_HOST_IB);
    struct eth_addr neigh_mac = mac_from_hex(V_NEIGH_MAC);
    struct eth_addr host_mac = mac_from_hex(V_HOST_MAC);
    ovs_be32 neigh_ip = ip4("10.0.1.34"), host_ip = ip4("10.0.0.58");

    check_packet("V1 on IPoIB",
                 ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &neigh, neigh_ip,
                                      NULL, host_ip), V1_IB);
    check_packet("V1 on Ethernet",
                 ipoib_compose_arp_eth(ARP_OP_REQUEST, false, neigh_mac,
                                       eth_addr_broadcast, neigh_mac, neigh_ip,
                                       eth_addr_zero, host_ip), V1_ETH);
    check_packet("V2 on IPoIB",
                 ipoib_compose_arp_ib(ARP_OP_REPLY, false, &host, host_ip,
                                      &neigh, neigh_ip), V2_IB);
    check_packet("V2 on Ethernet",
                 ipoib_compose_arp_eth(ARP_OP_REPLY, false, host_mac,
                                       neigh_mac, host_mac, host_ip,
                                       neigh_mac, neigh_ip), V2_ETH);

    struct dp_packet *rarp = ipoib_compose_arp_ib(3, true, &host, 0, &host, 0);
    const struct ipoib_header *h = dp_packet_data(rarp);
    ovs_assert(h->type == htons(ETH_TYPE_RARP) && !h->reserved);
    ovs_assert(ipoib_arp_parse(h + 1, IPOIB_ARP_LEN)->op == htons(3));
    dp_packet_delete(rarp);
    rarp = ipoib_compose_arp_eth(3, true, host_mac, eth_addr_broadcast,
                                 host_mac, 0, host_mac, 0);
    const struct eth_header *eth = dp_packet_data(rarp);
    ovs_assert(eth->eth_type == htons(ETH_TYPE_RARP));
    ovs_assert(dp_packet_size(rarp) == ETH_TOTAL_MIN);
    dp_packet_delete(rarp);

    struct bytes b = from_hex(V1_IB);
    const struct ipoib_arp *arp = ipoib_arp_parse(b.data + 4, b.len - 4);
    ovs_assert(arp && ipoib_addr_equals(&arp->sha, &neigh));
    ovs_assert(get_16aligned_be32(&arp->spa) == neigh_ip);
    ovs_assert(get_16aligned_be32(&arp->tpa) == host_ip);
    check_arp_refused(b.data + 4, b.len - 4, true);
    free(b.data);

    b = from_hex(V2_ETH);
    const struct arp_eth_header *arp_eth = ipoib_arp_eth_parse(b.data + 14,
                                                               b.len - 14);
    ovs_assert(arp_eth && eth_addr_equals(arp_eth->ar_sha, host_mac));
    check_arp_refused(b.data + 14, b.len - 14, false);
    free(b.data);
}

/* IP. */

static enum ipoib_ip_class
check_ip(uint16_t type, const struct bytes *b, size_t *ip_len, size_t *l4_ofs)
{
    enum ipoib_ip_class class = ipoib_packet_check_ip(type, b->data, b->len,
                                                      ip_len, l4_ofs);

    ovs_assert(*ip_len <= b->len && *l4_ofs <= *ip_len);
    ovs_assert(!*ip_len == (class == IPOIB_IP_BAD));
    ovs_assert(*l4_ofs || class == IPOIB_IP_BAD || class == IPOIB_IP_DATA);
    return class;
}

/* Checks an IP packet in hex: as it is, with padding behind it, and cut short
 * anywhere. */
static void
check_class(uint16_t type, const char *hex, enum ipoib_ip_class expected,
            size_t expected_l4_ofs)
{
    struct bytes b = from_hex(hex);
    struct bytes padded = { .data = xzalloc(b.len + 20), .len = b.len + 20 };
    size_t ip_len, l4_ofs;

    memcpy(padded.data, b.data, b.len);
    for (size_t i = 0; i <= b.len; i++) {
        struct bytes cut = copy_bytes(b.data, i);
        enum ipoib_ip_class class = check_ip(type, &cut, &ip_len, &l4_ofs);

        if (class != (i < b.len ? IPOIB_IP_BAD : expected)
            || l4_ofs != (i < b.len ? 0 : expected_l4_ofs)) {
            ovs_fatal(0, "%s: %"PRIuSIZE" bytes of class %d, l4 at %"PRIuSIZE,
                      hex, i, class, l4_ofs);
        }
        free(cut.data);
    }
    if (check_ip(type, &padded, &ip_len, &l4_ofs) != expected
        || ip_len != (expected == IPOIB_IP_BAD ? 0 : b.len)) {
        ovs_fatal(0, "%s: not of class %d with padding", hex, expected);
    }
    free(b.data);
    free(padded.data);
}

#define IP_ADDRS4 "0a000001" "0a000002"
#define IP_ADDRS6 "fe800000000000000000000000000001" \
                  "ff020000000000000000000000000002"
#define EXT0(NEXT) NEXT "000104" "00000000"     /* 8 bytes of PadN. */
#define EXT8(NEXT) EXT0(NEXT) EXT0(NEXT) EXT0(NEXT) EXT0(NEXT) \
                   EXT0(NEXT) EXT0(NEXT) EXT0(NEXT) EXT0(NEXT)

static void
check_ipv4(void)
{
    static const struct {
        const char *hex;
        enum ipoib_ip_class class;
        size_t l4_ofs;
    } tests[] = {
        /* UDP, DHCP to a server and to a client, other ports. */
        { "4500001c" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_DHCP, 20 },
        { "4500001c" "00000000" "40110000" IP_ADDRS4 "0043004400080000",
          IPOIB_IP_DHCP, 20 },
        { "4500001c" "00000000" "40110000" IP_ADDRS4 "0043004500080000",
          IPOIB_IP_DATA, 20 },
        { "4500001c" "00000000" "40060000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_DATA, 20 },
        /* Without the whole UDP header; DF; fragments: first, last. */
        { "4500001b" "00000000" "40110000" IP_ADDRS4 "00440043000800",
          IPOIB_IP_DATA, 20 },
        { "4500001c" "00004000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_DHCP, 20 },
        { "4500001c" "00002000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_DATA, 0 },
        { "4500001c" "00000001" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_DATA, 0 },
        /* IGMP: with the router alert option, whole and not. */
        { "46000020" "00000000" "01020000" IP_ADDRS4 "94040000"
          "1600000000000000", IPOIB_IP_IGMP, 24 },
        { "4600001f" "00000000" "01020000" IP_ADDRS4 "94040000"
          "16000000000000", IPOIB_IP_DATA, 24 },
        /* Nothing but a header. */
        { "45000014" "00000000" "40110000" IP_ADDRS4, IPOIB_IP_DATA, 0 },
        /* Header length 4 and 15, length 0 and 19, longer than it is, the
         * other version. */
        { "4400001c" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
        { "4f00001c" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
        { "45000000" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
        { "45000013" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
        { "4500ffff" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
        { "6500001c" "00000000" "40110000" IP_ADDRS4 "0044004300080000",
          IPOIB_IP_BAD, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        check_class(ETH_TYPE_IP, tests[i].hex, tests[i].class,
                    tests[i].l4_ofs);
        if (tests[i].hex[0] == '4') {
            check_class(ETH_TYPE_IPV6, tests[i].hex, IPOIB_IP_BAD, 0);
        }
        check_class(ETH_TYPE_ARP, tests[i].hex, IPOIB_IP_BAD, 0);
    }
}

static void
check_ipv6(void)
{
    static const struct {
        const char *hex;
        enum ipoib_ip_class class;
        size_t l4_ofs;
    } tests[] = {
        { V5_IP, IPOIB_IP_ND, 40 },
        /* Each type, and its neighbours. */
        { "6000000000083aff" IP_ADDRS6 "8400000000000000", IPOIB_IP_MLD, 40 },
        { "6000000000083aff" IP_ADDRS6 "8500000000000000", IPOIB_IP_ND, 40 },
        { "6000000000083aff" IP_ADDRS6 "8600000000000000", IPOIB_IP_ND, 40 },
        { "6000000000083aff" IP_ADDRS6 "8700000000000000", IPOIB_IP_ND, 40 },
        { "6000000000083aff" IP_ADDRS6 "8800000000000000", IPOIB_IP_ND, 40 },
        { "6000000000083aff" IP_ADDRS6 "8900000000000000", IPOIB_IP_ND, 40 },
        { "6000000000083aff" IP_ADDRS6 "8a00000000000000", IPOIB_IP_DATA, 40 },
        { "6000000000083aff" IP_ADDRS6 "8000000000000000", IPOIB_IP_DATA, 40 },
        { "6000000000083aff" IP_ADDRS6 "8100000000000000", IPOIB_IP_DATA, 40 },
        { "6000000000083aff" IP_ADDRS6 "8200000000000000", IPOIB_IP_MLD, 40 },
        { "6000000000083aff" IP_ADDRS6 "8f00000000000000", IPOIB_IP_MLD, 40 },
        { "6000000000073aff" IP_ADDRS6 "8f000000000000", IPOIB_IP_DATA, 40 },
        { "6000000000013aff" IP_ADDRS6 "87", IPOIB_IP_ND, 40 },
        { "6000000000003aff" IP_ADDRS6, IPOIB_IP_DATA, 0 },
        { "60000000000811ff" IP_ADDRS6 "0222022300080000", IPOIB_IP_DATA, 40 },
        /* Behind extension headers: hop by hop, routing, destination options,
         * authentication (which counts in 4 bytes). */
        { "60000000001000ff" IP_ADDRS6 "3a00050200000000" "8f00000000000000",
          IPOIB_IP_MLD, 48 },
        { "6000000000202bff" IP_ADDRS6 "3c00000000000000" EXT0("33")
          "3a00000000000000" "8700000000000000", IPOIB_IP_ND, 64 },
        { "60000000001433ff" IP_ADDRS6 "3a01000000000000" "00000000"
          "8700000000000000", IPOIB_IP_ND, 52 },
        { "60000000001087ff" IP_ADDRS6 EXT0("3a") "8700000000000000",
          IPOIB_IP_ND, 48 },
        { "6000000000182bff" IP_ADDRS6 "3c00000000000000" EXT0("33")
          "3a01000000000000", IPOIB_IP_DATA, 0 },
        /* Nothing behind them; cut; too long; without end. */
        { "60000000000800ff" IP_ADDRS6 EXT0("3a"), IPOIB_IP_DATA, 0 },
        { "60000000000700ff" IP_ADDRS6 "3a000104000000", IPOIB_IP_DATA, 0 },
        { "60000000000800ff" IP_ADDRS6 "3aff010400000000", IPOIB_IP_DATA, 0 },
        { "60000000001000ff" IP_ADDRS6 EXT0("00") EXT0("00"), IPOIB_IP_DATA,
          0 },
        /* 16 of them and ND, 17 and ND. */
        { "6000000000883cff" IP_ADDRS6 EXT8("3c") EXT0("3c") EXT0("3c")
          EXT0("3c") EXT0("3c") EXT0("3c") EXT0("3c") EXT0("3c") EXT0("3a")
          "8700000000000000", IPOIB_IP_ND, 168 },
        { "6000000000903cff" IP_ADDRS6 EXT8("3c") EXT8("3c") EXT0("3a")
          "8700000000000000", IPOIB_IP_BAD, 0 },
        /* Fragment headers, also of what is no fragment; ESP; nothing. */
        { "6000000000102cff" IP_ADDRS6 "3a00000000000000" "8700000000000000",
          IPOIB_IP_DATA, 0 },
        { "6000000000102cff" IP_ADDRS6 "3a00000100000000" "8700000000000000",
          IPOIB_IP_DATA, 0 },
        { "60000000001832ff" IP_ADDRS6 EXT0("3a") EXT0("3a")
          "8700000000000000", IPOIB_IP_DATA, 0 },
        { "6000000000083bff" IP_ADDRS6 "8700000000000000", IPOIB_IP_DATA, 0 },
        /* The other version, too long. */
        { "4000000000083aff" IP_ADDRS6 "8700000000000000", IPOIB_IP_BAD, 0 },
        { "60000000ffff3aff" IP_ADDRS6 "8700000000000000", IPOIB_IP_BAD, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        check_class(ETH_TYPE_IPV6, tests[i].hex, tests[i].class,
                    tests[i].l4_ofs);
        check_class(ETH_TYPE_IP, tests[i].hex, IPOIB_IP_BAD, 0);
    }
}

/* Neighbour discovery. */

enum side { IB, ETH };

/* Makes the checksum of the ICMPv6 message at 'l4_ofs' of 'ip' right. */
static void
fix_csum(uint8_t *ip, size_t len, size_t l4_ofs)
{
    struct icmp6_header *icmp = ALIGNED_CAST(struct icmp6_header *,
                                             ip + l4_ofs);

    icmp->icmp6_cksum = 0;
    icmp->icmp6_cksum = packet_csum_upperlayer6(
        ALIGNED_CAST(struct ovs_16aligned_ip6_hdr *, ip), icmp, IPPROTO_ICMPV6,
        len - l4_ofs);
}

/* An IPv6 packet of hop limit 255: the extension headers 'ext' (hex, which
 * begin with one of type 60), if any, and the ICMPv6 message 'icmp' (hex),
 * whose checksum is made right. */
static struct bytes
make_nd(const char *ext, const char *icmp)
{
    size_t ext_len = strlen(ext) / 2;
    char *hex = xasprintf("60000000%04x%sff" IP_ADDRS6 "%s%s",
                          (unsigned int) (ext_len + strlen(icmp) / 2),
                          ext_len ? "3c" : "3a", ext, icmp);
    struct bytes b = from_hex(hex);

    if (b.len >= 40 + ext_len + 4) {
        fix_csum(b.data, b.len, 40 + ext_len);
    }
    free(hex);
    return b;
}

static bool
parse(enum side side, const struct bytes *b, size_t l4_ofs,
      struct ipoib_nd_info *info)
{
    return (side == IB
            ? ipoib_nd_parse_ib(b->data, b->len, l4_ofs, info)
            : ipoib_nd_parse_eth(b->data, b->len, l4_ofs, info));
}

/* Translates 'b', on 'side', to the other one, in a packet with 'front' bytes
 * in front of the IP packet, of 'headroom' and 'tailroom', and with 'pad'
 * bytes behind. */
static struct bytes
translate(enum side side, const struct bytes *b, size_t l4_ofs, size_t front,
          size_t headroom, size_t tailroom, size_t pad)
{
    struct ipoib_addr addr = addr_from_hex(V_HOST_IB);
    size_t len = front + b->len + pad;
    struct dp_packet packet;

    dp_packet_init(&packet, headroom + len + tailroom);
    dp_packet_reserve(&packet, headroom);
    memset(dp_packet_put_uninit(&packet, front), 0xab, front);
    dp_packet_put(&packet, b->data, b->len);
    dp_packet_put_zeros(&packet, pad);
    ovs_assert(dp_packet_tailroom(&packet) == tailroom);

    if (side == IB) {
        ipoib_nd_to_eth(&packet, front, l4_ofs, mac_from_hex(V_NEIGH_MAC));
    } else {
        ipoib_nd_to_ib(&packet, front, l4_ofs, &addr);
    }

    const uint8_t *data = dp_packet_data(&packet);
    ovs_assert(dp_packet_size(&packet) >= front);
    for (size_t i = 0; i < front; i++) {
        ovs_assert(data[i] == 0xab);
    }
    struct bytes result = copy_bytes(data + front,
                                     dp_packet_size(&packet) - front);
    dp_packet_uninit(&packet);
    return result;
}

/* Translates 'b' to the other side, with all kinds of room around it, and
 * checks the result against 'exp'. */
static void
check_translation(const char *what, enum side side, const struct bytes *b,
                  size_t l4_ofs, const struct bytes *exp)
{
    static const size_t headrooms[] = { 0, 2, 8, 14, 16, 30, 32, 200 };
    static const size_t tailrooms[] = { 0, 1, 8, 15, 16, 31, 32, 200 };
    struct ipoib_nd_info info;

    ovs_assert(parse(side, b, l4_ofs, &info));
    for (size_t i = 0; i < ARRAY_SIZE(headrooms); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(tailrooms); j++) {
            struct bytes got = translate(side, b, l4_ofs, i & 1 ? 14 : 4,
                                         headrooms[i], tailrooms[j],
                                         j & 1 ? 18 : 0);

            check_bytes(what, got.data, got.len, exp->data, exp->len);
            ovs_assert(parse(side == IB ? ETH : IB, &got, l4_ofs, &info));
            free(got.data);
        }
    }
}

/* As above for packets that are whole in hex; the IP packets are at 'ofs' and
 * 'exp_ofs'. */
static void
check_vector(const char *what, enum side side, const char *hex, size_t ofs,
             const char *exp_hex, size_t exp_ofs)
{
    struct bytes whole = from_hex(hex), exp_whole = from_hex(exp_hex);
    struct bytes b = copy_bytes(whole.data + ofs, whole.len - ofs);
    struct bytes exp = copy_bytes(exp_whole.data + exp_ofs,
                                  exp_whole.len - exp_ofs);

    check_translation(what, side, &b, 40, &exp);
    free(whole.data);
    free(exp_whole.data);
    free(b.data);
    free(exp.data);
}

static void
check_nd_vectors(void)
{
    struct ipoib_addr neigh = addr_from_hex(V_NEIGH_IB);
    struct ipoib_addr host = addr_from_hex(V_HOST_IB);
    struct eth_addr host_mac = mac_from_hex(V_HOST_MAC);
    struct eth_addr neigh_mac = mac_from_hex(V_NEIGH_MAC);
    struct in6_addr neigh_ip = ip6("fe80::202:c902:24:f636");
    struct in6_addr target = ip6("fe80::202:c903:0:1895");
    struct in6_addr host_ip = ip6("fe80::5054:ff:feaa:bb01");
    struct in6_addr group = ip6("ff02::1:ff00:1895");
    struct ipoib_nd_info info;

    check_vector("V3", IB, V3_IB, 4, V3_ETH, 14);
    check_vector("V4", ETH, V4_ETH, 14, V4_IB, 4);
    check_vector("V5 to Ethernet", IB, V5_IP, 0, V5_IP, 0);
    check_vector("V5 to IPoIB", ETH, V5_IP, 0, V5_IP, 0);

    struct bytes b = from_hex(V3_IB);
    ovs_assert(ipoib_nd_parse_ib(b.data + 4, b.len - 4, 40, &info));
    ovs_assert(info.type == ND_NEIGHBOR_SOLICIT && !info.na_flags);
    ovs_assert(ipv6_addr_equals(&info.src, &neigh_ip));
    ovs_assert(ipv6_addr_equals(&info.dst, &group));
    ovs_assert(ipv6_addr_equals(&info.target, &target));
    ovs_assert(info.has_lladdr);
    ovs_assert(!memcmp(&info.lladdr.ib, &neigh, sizeof neigh));
    ovs_assert(!ipoib_nd_parse_eth(b.data + 4, b.len - 4, 40, &info));
    free(b.data);

    b = from_hex(V4_ETH);
    ovs_assert(ipoib_nd_parse_eth(b.data + 14, b.len - 14, 40, &info));
    ovs_assert(info.type == ND_NEIGHBOR_ADVERT && info.na_flags == 0x60);
    ovs_assert(ipv6_addr_equals(&info.target, &host_ip));
    ovs_assert(info.has_lladdr && eth_addr_equals(info.lladdr.mac, host_mac));
    ovs_assert(!ipoib_nd_parse_ib(b.data + 14, b.len - 14, 40, &info));
    free(b.data);

    b = from_hex(V5_IP);
    ovs_assert(ipoib_nd_parse_ib(b.data, b.len, 40, &info));
    ovs_assert(!info.has_lladdr);
    ovs_assert(ipv6_addr_equals(&info.src, &in6addr_any));
    free(b.data);

    check_packet("V3 on IPoIB",
                 ipoib_compose_ns_ib(&neigh_ip, &target, &neigh), V3_IB);
    check_packet("V4 on IPoIB",
                 ipoib_compose_na_ib(&host_ip, &neigh_ip, 0x60, &host), V4_IB);
    check_packet("V4 on Ethernet",
                 ipoib_compose_na_eth(&host_ip, &neigh_ip, 0x60, host_mac,
                                      neigh_mac), V4_ETH);
}

/* Link-layer address options of either side, as check_translation() expects
 * them. */
#define OPT_IB(TYPE) TYPE "030000" V_HOST_IB
#define OPT_ETH(TYPE) TYPE "01" V_NEIGH_MAC
#define TARGET "fe800000000000000000000000000009"
#define NONCE "0e01a1b2c3d4e5f6"
#define UNKNOWN "fd020001020304050607080910111213"
#define RS "85000000" "00000000"
#define RA "86000000" "40000708" "0000000000000000"
#define NS "87000000" "00000000" TARGET
#define NA "88000000" "e0000000" TARGET
#define REDIRECT "89000000" "00000000" TARGET TARGET

static void
check_nd_messages(void)
{
    static const struct {
        const char *ib, *eth;
        uint8_t na_flags;
        bool has_target, has_lladdr;
    } tests[] = {
        { RS, RS, 0, false, false },
        { RS OPT_IB("01"), RS OPT_ETH("01"), 0, false, true },
        { RA OPT_IB("01") UNKNOWN, RA OPT_ETH("01") UNKNOWN, 0, false, true },
        { NS OPT_IB("01"), NS OPT_ETH("01"), 0, true, true },
        { NS NONCE OPT_IB("01") UNKNOWN, NS NONCE OPT_ETH("01") UNKNOWN,
          0, true, true },
        { NS UNKNOWN, NS UNKNOWN, 0, true, false },
        { NA OPT_IB("02"), NA OPT_ETH("02"), 0xe0, true, true },
        { NA OPT_IB("02") NONCE OPT_IB("02"),
          NA OPT_ETH("02") NONCE OPT_ETH("02"), 0xe0, true, true },
        { NA OPT_IB("02") OPT_IB("02") UNKNOWN NONCE,
          NA OPT_ETH("02") OPT_ETH("02") UNKNOWN NONCE, 0xe0, true, true },
        { REDIRECT UNKNOWN OPT_IB("02"), REDIRECT UNKNOWN OPT_ETH("02"), 0,
          true, true },
    };
    static const char *exts[] = { "", EXT0("3a"), EXT0("3c") EXT0("3a") };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(exts); j++) {
            struct bytes ib = make_nd(exts[j], tests[i].ib);
            struct bytes eth = make_nd(exts[j], tests[i].eth);
            size_t ip_len, l4_ofs;
            struct ipoib_nd_info info;

            ovs_assert(check_ip(ETH_TYPE_IPV6, &ib, &ip_len, &l4_ofs)
                       == IPOIB_IP_ND);
            ovs_assert(l4_ofs == 40 + strlen(exts[j]) / 2);
            check_translation(tests[i].ib, IB, &ib, l4_ofs, &eth);
            check_translation(tests[i].ib, ETH, &eth, l4_ofs, &ib);
            for (enum side side = IB; side <= ETH; side++) {
                ovs_assert(parse(side, side == IB ? &ib : &eth, l4_ofs,
                                 &info));
                ovs_assert(info.type == ib.data[l4_ofs]);
                ovs_assert(info.na_flags == tests[i].na_flags);
                ovs_assert(info.has_lladdr == tests[i].has_lladdr);
                ovs_assert((info.target.s6_addr[15] == 9)
                           == tests[i].has_target);
            }
            free(ib.data);
            free(eth.data);
        }
    }
}

/* Of several options the first one tells. */
static void
check_nd_first(void)
{
    struct bytes b = make_nd("", NA NONCE "0201020000000001"
                             NONCE);
    struct ipoib_nd_info info;

    ovs_assert(ipoib_nd_parse_eth(b.data, b.len, 40, &info));
    ovs_assert(eth_addr_equals(info.lladdr.mac, mac_from_hex("020000000001")));
    free(b.data);

    b = make_nd("", NA "0201020000000002" "0201020000000001");
    ovs_assert(ipoib_nd_parse_eth(b.data, b.len, 40, &info));
    ovs_assert(eth_addr_equals(info.lladdr.mac, mac_from_hex("020000000002")));
    free(b.data);
}

static void
check_nd_refused(void)
{
    static const char *tests[] = {
        /* Options: length 0, overrun, a single byte, 16 bytes, three. */
        NS "0100000000000000", NS "01ff000000000000", NS "01", NS NONCE "0e",
        NS NONCE "0e00000000000000", NS "0102" "0000000000000000000000000000",
        NS OPT_ETH("01") OPT_ETH("01") OPT_ETH("01"),
        NS OPT_IB("01") OPT_IB("01") OPT_IB("01"),
        /* One of each side. */
        NA OPT_ETH("02") OPT_IB("02"), NA OPT_IB("02") OPT_ETH("02"),
        /* The type of another message. */
        RS OPT_IB("02"), RS OPT_ETH("02"), RA OPT_ETH("02"), NS OPT_IB("02"),
        NA OPT_IB("01"), NA OPT_ETH("01") OPT_ETH("02"), REDIRECT OPT_IB("01"),
        /* Code, other messages. */
        "87010000" "00000000" TARGET, "84000000" "00000000" TARGET,
        "8a000000" "00000000" TARGET, "80000000" "00000000" TARGET,
        /* Cut. */
        "85000000" "000000", "86000000" "40000708" "00000000000000",
        "87000000" "00000000" "fe800000", "88000000" "00000000" "fe800000",
        "89000000" "00000000" TARGET, "87", "8700", "870000",
    };
    struct ipoib_nd_info info;

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        struct bytes b = make_nd("", tests[i]);

        ovs_assert(!ipoib_nd_parse_ib(b.data, b.len, 40, &info));
        ovs_assert(!ipoib_nd_parse_eth(b.data, b.len, 40, &info));
        free(b.data);
    }

    /* Each bit of a good message counts, but for: version, traffic class, flow
     * label and next header of IP, which were looked at before. */
    struct bytes b = make_nd("", NS NONCE OPT_IB("01"));
    for (size_t i = 4 * 8; i < b.len * 8; i++) {
        struct bytes flipped = copy_bytes(b.data, b.len);

        flipped.data[i / 8] ^= 1 << i % 8;
        ovs_assert(ipoib_nd_parse_ib(flipped.data, b.len, 40, &info)
                   == (i / 8 == 6));
        free(flipped.data);
    }
    for (size_t i = 0; i < b.len; i++) {
        struct bytes cut = copy_bytes(b.data, i);

        ovs_assert(!ipoib_nd_parse_ib(cut.data, i, 40, &info));
        ovs_assert(!ipoib_nd_parse_ib(b.data, b.len, i == 40 ? 0 : i, &info));
        free(cut.data);
    }
    ovs_assert(!ipoib_nd_parse_ib(b.data, b.len, SIZE_MAX, &info));
    ovs_assert(ipoib_nd_parse_ib(b.data, b.len, 40, &info));
    free(b.data);
}

/* A message that would be longer than IPv6 can say is refused; one that just
 * fits is not. */
static void
check_nd_huge(void)
{
    for (int fits = 0; fits < 2; fits++) {
        size_t payload = ROUND_DOWN(UINT16_MAX, 8) - (fits ? 16 : 8);
        struct bytes b = { .len = 40 + payload };
        struct bytes head = make_nd("", NS OPT_ETH("01"));
        struct ipoib_nd_info info;

        b.data = xzalloc(b.len);
        memcpy(b.data, head.data, head.len);
        for (size_t ofs = head.len; ofs < b.len; ) {
            size_t len = MIN(255 * 8, b.len - ofs);

            b.data[ofs] = 200;
            b.data[ofs + 1] = len / 8;
            ofs += len;
        }
        put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, b.data + 4),
                           htons(payload));
        fix_csum(b.data, b.len, 40);
        ovs_assert(ipoib_nd_parse_eth(b.data, b.len, 40, &info) == fits);
        free(b.data);
        free(head.data);
    }
}

static void
test_ipoib_packet_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_addr();
    check_mac();
    check_multicast();
    check_ip_is_station();
    check_arp();
    check_ipv4();
    check_ipv6();
    check_nd_vectors();
    check_nd_messages();
    check_nd_first();
    check_nd_refused();
    check_nd_huge();
}

OVSTEST_REGISTER("test-ipoib-packet", test_ipoib_packet_main);
