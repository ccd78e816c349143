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

/* The wire formats, against packets that real InfiniBand hosts exchanged (a
 * capture of Linux hosts and an SM of 2008). */

#include <config.h>
#undef NDEBUG
#include "ipoib-wire.h"

#include <string.h>

#include "openvswitch/dynamic-string.h"
#include "ovstest.h"
#include "random.h"
#include "util.h"

/* From the LRH to the VCRC. */
static const char broadcast_ip[] =
    "0003c000002b000560000000007c1b00fe800000000000000002c90300001f2d"
    "ff12401bffff000000000000ffffffff6440ffff00ffffff000de6f800000b1b"
    "000000480800000045000060000040004011256b0a0000240a0000ffc15dc15d"
    "004cc8db000010060000003c0200c15ec0a87f24000000000000000033396661"
    "653032392d323835642d343532372d623936302d313464343235336335306332"
    "00000000000000000566d54d35df";
static const char arp_request[] =
    "0003c000002100046000000000541b00fe800000000000000002c9020024f636"
    "ff12401bffff000000000000ffffffff6440ffff00ffffff000020af00000b1b"
    "0000040508060000002008001404000180000405fe800000000000000002c902"
    "0024f6360a00012200000000000000000000000000000000000000000a00003a"
    "bd6bd6a88883";
static const char arp_reply[] =
    "00020004001700016440ffff00000405000d43bc00000b1b0000040408060000"
    "002008001404000280000404fe800000000000000002c9020020b4dd0a00003a"
    "80000405fe800000000000000002c9020024f6360a00012206e87bdb685c";
static const char ns[] =
    "0003c007002900046000000000741b00fe800000000000000002c9020024f636"
    "ff12601bffff000000000001ff0018956440ffff00ffffff0000229100000b1b"
    "0000040586dd00006000000000303afffe800000000000000202c9020024f636"
    "ff0200000000000000000001ff00189587007d1500000000fe80000000000000"
    "0202c903000018950103000080000405fe800000000000000002c9020024f636"
    "eeebefb1a375";
static const char path_query[] =
    "00020001004800046400ffff0000000100002f1e800100000000000101030201"
    "000000000000000bb9647f9e0035000000000000000000000000000000000000"
    "000000000000000000000000000000000000340c0000000000000000fe800000"
    "000000000002c90300001895fe800000000000000002c9020024f63600000000"
    "000000000001ffff000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000004cc1eb2f"
    "c253";
static const char path_answer[] =
    "00020004004800016400ffff00000001000ef356800100000000000101030281"
    "000000000000000bb9647f9e0035000000000000000000000000000000000000"
    "000000000000000000080000000000000000340c0000000000000000fe800000"
    "000000000002c90300001895fe800000000000000002c9020024f63600020004"
    "000000000080ffff000084839200000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000023531101"
    "c367";
static const char rc_send[] =
    "00020001001c00040440ffff00fc040780d40a55080000004500005400004000"
    "4001254e0a0001220a00003a0800857617020001f7412b480000000072290800"
    "00000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b"
    "2c2d2e2f30313233343536370acca5df24a8";

struct packet {
    uint8_t *data;              /* Of exactly 'len' bytes, for sanitizers. */
    size_t len;
};

static struct packet
from_hex(const char *hex)
{
    struct packet packet = { .len = strlen(hex) / 2 };

    packet.data = xmalloc(packet.len);
    for (size_t i = 0; i < packet.len; i++) {
        bool ok;

        packet.data[i] = hexits_value(hex + 2 * i, 2, &ok);
        ovs_assert(ok);
    }
    return packet;
}

static void
parse_ok(const struct packet *packet, struct ib_ud *ud)
{
    const char *error = ib_ud_parse(packet->data, packet->len, ud);

    if (error) {
        ovs_fatal(0, "unexpected error: %s", error);
    }
    ovs_assert((const uint8_t *) ud->payload >= packet->data);
    ovs_assert((const uint8_t *) ud->payload + ud->payload_len
               <= packet->data + packet->len - IB_CRC_LEN);
}

/* Composing what was parsed gives the same bytes, CRCs apart. */
static void
check_round_trip(const char *hex)
{
    uint8_t header[IB_UD_HEADER_MAX], trailer[IB_UD_TRAILER_MAX];
    struct packet packet = from_hex(hex);
    size_t header_len, trailer_len;
    struct ib_ud ud;

    parse_ok(&packet, &ud);
    header_len = ib_ud_compose(&ud, header, trailer, &trailer_len);
    ovs_assert(header_len + ud.payload_len + trailer_len == packet.len);
    /* The 2008 hosts leave BTH.MigReq clear for QP 1. */
    header[(const uint8_t *) ud.payload - packet.data
           - IB_DETH_LEN - IB_BTH_LEN + 1] &= ~IB_BTH_MIGREQ;
    packet.data[(const uint8_t *) ud.payload - packet.data
                - IB_DETH_LEN - IB_BTH_LEN + 1] &= ~IB_BTH_MIGREQ;
    ovs_assert(!memcmp(packet.data, header, header_len));
    free(packet.data);
}

static void
test_arp_request(void)
{
    struct packet packet = from_hex(arp_request);
    struct ds ds = DS_EMPTY_INITIALIZER;
    struct ib_ud ud;

    parse_ok(&packet, &ud);
    ovs_assert(ud.slid == 4 && ud.dlid == 0xc000 && !ud.sl);
    ovs_assert(ud.opcode == IB_OPCODE_UD_SEND && !ud.solicited);
    ovs_assert(ud.pkey == 0xffff && ud.dqpn == IB_QPN_MULTICAST);
    ovs_assert(ud.sqpn == 0x405 && ud.psn == 0x20af && ud.qkey == 0xb1b);
    ovs_assert(ud.payload_len == 60);
    ovs_assert(ud.has_grh && ib_gid_is_multicast(&ud.grh.dgid));
    ovs_assert(ib_gid_prefix(&ud.grh.sgid) == IB_GID_PREFIX_DEFAULT);
    ovs_assert(ib_gid_guid(&ud.grh.sgid) == UINT64_C(0x0002c9020024f636));
    ib_gid_format(&ud.grh.dgid, &ds);
    ovs_assert(!strcmp(ds_cstr(&ds),
                       "ff12:401b:ffff:0000:0000:0000:ffff:ffff"));
    ds_destroy(&ds);
    free(packet.data);
}

static void
test_unicast(void)
{
    struct packet packet = from_hex(arp_reply);
    struct ib_ud ud;

    parse_ok(&packet, &ud);
    ovs_assert(!ud.has_grh && ud.slid == 1 && ud.dlid == 4);
    ovs_assert(ud.dqpn == 0x405 && ud.sqpn == 0x404);
    free(packet.data);

    /* Not unreliable datagrams. */
    packet = from_hex(rc_send);
    ovs_assert(!strcmp(ib_ud_parse(packet.data, packet.len, &ud),
                       "opcode is not UD"));
    free(packet.data);
}

static void
test_path_records(void)
{
    struct packet packet = from_hex(path_query);
    struct ib_path_record path;
    struct ib_sa_mad mad;
    struct ib_ud ud;

    parse_ok(&packet, &ud);
    ovs_assert(ud.dqpn == IB_QPN_GSI && ud.qkey == IB_QKEY_GSI);
    ovs_assert(ud.payload_len == sizeof mad);
    memcpy(&mad, ud.payload, sizeof mad);
    ovs_assert(mad.mgmt_class == IB_MGMT_CLASS_SA
               && mad.class_version == IB_SA_CLASS_VERSION
               && mad.method == IB_METHOD_GET
               && ntohs(mad.attr_id) == IB_ATTR_PATH_RECORD);
    ovs_assert(!mad.comp_mask[0]
               && ntohl(mad.comp_mask[1]) == IB_PR_MASK_IPOIB);
    free(packet.data);

    packet = from_hex(path_answer);
    parse_ok(&packet, &ud);
    memcpy(&mad, ud.payload, sizeof mad);
    ovs_assert(mad.method == IB_METHOD_GET_RESP && !mad.status);
    ovs_assert(ntohs(mad.attr_offset) * 8 == sizeof path);
    memcpy(&path, mad.data, sizeof path);
    ovs_assert(ib_gid_guid(&path.dgid) == UINT64_C(0x0002c90300001895));
    ovs_assert(ib_gid_guid(&path.sgid) == UINT64_C(0x0002c9020024f636));
    ovs_assert(ntohs(path.dlid) == 2 && ntohs(path.slid) == 4);
    ovs_assert(ntohs(path.pkey) == 0xffff && !path.qos_sl);
    ovs_assert(path.mtu == (IB_SELECTOR_EXACTLY << 6 | 4)
               && path.rate == (IB_SELECTOR_EXACTLY << 6 | 3)
               && path.life == (IB_SELECTOR_EXACTLY << 6 | 18));
    free(packet.data);
}

/* A packet cut at any length, or with bytes after it, is none. */
static void
test_truncated(const char *hex)
{
    struct packet packet = from_hex(hex);
    struct ib_ud ud;

    for (size_t len = 0; len <= packet.len + 8; len++) {
        uint8_t *copy = xzalloc(len ? len : 1);
        const char *error;

        memcpy(copy, packet.data, MIN(len, packet.len));
        error = ib_ud_parse(copy, len, &ud);
        ovs_assert(len == packet.len ? !error : error != NULL);
        free(copy);
    }

    /* The same with an LRH that agrees: nothing is read past the end. */
    for (size_t len = IB_LRH_LEN; len < packet.len; len++) {
        ovs_be16 words = htons((len - 2) / 4);
        uint8_t *copy = xmemdup(packet.data, len);

        memcpy(copy + 4, &words, sizeof words);
        if (!ib_ud_parse(copy, len, &ud)) {
            ovs_assert((const uint8_t *) ud.payload + ud.payload_len
                       + IB_CRC_LEN <= copy + len);
        }
        free(copy);
    }
    free(packet.data);
}

/* Each header field that can contradict the packet does. */
static void
test_contradictions(void)
{
    static const struct {
        size_t offset;
        uint8_t value;
        const char *error;
    } tests[] = {
        { 0, 0x01, "LRH link version is not 0" },
        { 1, 0x00, "LRH next header is neither BTH nor GRH" },
        { 1, 0x01, "LRH next header is neither BTH nor GRH" },
        { 5, 0x22, "LRH packet length contradicts packet length" },
        { 8, 0x40, "GRH version is not 6" },
        { 13, 0x55, "GRH payload length contradicts packet length" },
        { 14, 0x3a, "GRH next header is not InfiniBand transport" },
        { 48, 0x63, "opcode is not UD" },
        { 48, 0x66, "opcode is not UD" },
        { 49, 0x41, "BTH transport version is not 0" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        struct packet packet = from_hex(arp_request);
        const char *error;
        struct ib_ud ud;

        packet.data[tests[i].offset] = tests[i].value;
        error = ib_ud_parse(packet.data, packet.len, &ud);
        if (!error || strcmp(error, tests[i].error)) {
            ovs_fatal(0, "byte %"PRIuSIZE": expected \"%s\", got \"%s\"",
                      tests[i].offset, tests[i].error,
                      error ? error : "no error");
        }
        free(packet.data);
    }
}

/* Every length of payload, with and without GRH and immediate data. */
static void
test_compose(void)
{
    static uint8_t payload[4096];

    for (size_t i = 0; i < sizeof payload; i++) {
        payload[i] = i * 7;
    }
    for (size_t n = 0; n <= sizeof payload; n = n < 70 ? n + 1 : n + 61) {
        for (int variant = 0; variant < 4; variant++) {
            uint8_t buf[IB_UD_PACKET_MAX], trailer[IB_UD_TRAILER_MAX];
            size_t len, trailer_len;
            struct ib_ud ud = {
                .slid = 0x1234, .dlid = 0xc123, .sl = 11,
                .opcode = (variant & 1 ? IB_OPCODE_UD_SEND_IMM
                           : IB_OPCODE_UD_SEND),
                .solicited = n & 1,
                .has_grh = variant & 2,
                .pkey = 0x8005, .dqpn = 0xabcdef, .sqpn = 0x123456,
                .psn = 0x1fffffe, .qkey = 0xdeadbeef,
                .imm = htonl(0x01020304),
                .payload = payload, .payload_len = n,
            };
            struct ib_ud out;

            if (ud.has_grh) {
                put_16aligned_be32(&ud.grh.vtf, htonl(0x612abcde));
                ud.grh.nxthdr = IB_GRH_NXTHDR;
                ud.grh.hoplimit = 9;
                ud.grh.sgid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 1);
                ud.grh.dgid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 2);
            }
            len = ib_ud_compose(&ud, buf, trailer, &trailer_len);
            memcpy(buf + len, payload, n);
            memcpy(buf + len + n, trailer, trailer_len);
            len += n + trailer_len;
            ovs_assert(len <= sizeof buf && len % 4 == 2);
            ovs_assert(!ib_ud_parse(buf, len, &out));
            ovs_assert(out.slid == ud.slid && out.dlid == ud.dlid
                       && out.sl == ud.sl && out.opcode == ud.opcode
                       && out.solicited == ud.solicited
                       && out.has_grh == ud.has_grh && out.pkey == ud.pkey
                       && out.dqpn == ud.dqpn && out.sqpn == ud.sqpn
                       && out.psn == (ud.psn & 0xffffff)
                       && out.qkey == ud.qkey && out.payload_len == n);
            ovs_assert(!(variant & 1) || out.imm == ud.imm);
            ovs_assert(!memcmp(out.payload, payload, n));
            if (ud.has_grh) {
                ud.grh.paylen = out.grh.paylen;
                ovs_assert(!memcmp(&out.grh, &ud.grh, sizeof ud.grh));
            }
        }
    }
}

/* Random bytes, and real packets with random changes: what is taken for a
 * packet lies within it. */
static void
test_random(void)
{
    static const char *const seeds[] = { arp_request, arp_reply, ns,
                                         path_query, rc_send };

    random_set_seed(1);
    for (int i = 0; i < 200000; i++) {
        struct packet packet = from_hex(seeds[i % ARRAY_SIZE(seeds)]);
        struct ib_ud ud;

        for (int j = random_range(4); j >= 0; j--) {
            packet.data[random_range(random_range(2) ? packet.len : 70)]
                = random_uint8();
        }
        if (!ib_ud_parse(packet.data, packet.len, &ud)) {
            ovs_assert((const uint8_t *) ud.payload >= packet.data + 28
                       && ((const uint8_t *) ud.payload + ud.payload_len
                           <= packet.data + packet.len - IB_CRC_LEN));
        }
        free(packet.data);
    }
}

static void
test_pkeys(void)
{
    ovs_assert(ib_pkey_match(0xffff, 0xffff));
    ovs_assert(ib_pkey_match(0xffff, 0x7fff));
    ovs_assert(ib_pkey_match(0x7fff, 0xffff));
    ovs_assert(!ib_pkey_match(0x7fff, 0x7fff));
    ovs_assert(!ib_pkey_match(0x8001, 0x8002));
    ovs_assert(!ib_pkey_match(0x8000, 0x8000));
    ovs_assert(!ib_pkey_match(0, 0));
}

static void
test_names(void)
{
    ovs_assert(ib_mtu_bytes(1) == 256 && ib_mtu_bytes(5) == 4096);
    ovs_assert(!ib_mtu_bytes(0) && !ib_mtu_bytes(6));
    ovs_assert(!strcmp(ib_sa_status_to_string(0), "ok"));
    ovs_assert(!strcmp(ib_sa_status_to_string(IB_SA_NO_RECORDS),
                       "no records"));
    ovs_assert(!strcmp(ib_sa_status_to_string(0x7777), "unknown status"));
}

static void
test_ipoib_wire_main(int argc OVS_UNUSED, char *argv[])
{
    static const char *const packets[] = {
        broadcast_ip, arp_request, arp_reply, ns, path_query, path_answer
    };

    set_program_name(argv[0]);
    test_arp_request();
    test_unicast();
    test_path_records();
    for (size_t i = 0; i < ARRAY_SIZE(packets); i++) {
        check_round_trip(packets[i]);
        test_truncated(packets[i]);
    }
    test_contradictions();
    test_compose();
    test_random();
    test_pkeys();
    test_names();
}

OVSTEST_REGISTER("test-ipoib-wire", test_ipoib_wire_main);
