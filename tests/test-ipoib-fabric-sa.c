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

/* The subnet administrator of ovs-ipoib-fabric, asked over the fabric. */

#include <config.h>
#undef NDEBUG
#include "test-ipoib-fabric.h"

#include <stdlib.h>
#include <string.h>

#include "timeval.h"
#include "util.h"

#define GUID_A UINT64_C(0x0002c90300001001)
#define GUID_B UINT64_C(0x0002c90300002001)

/* What OpenSM 3.3.23 answered to each request, on a fabric of ibsim with the
 * P_Keys 0xffff and 0x8002, MTU 2048 and 10 Gb/s, to the port of GUID 0x100003
 * with LID 3; LID 4 was that of 0x100005.  (It also let one port join for
 * another, which this fabric does not.) */
static const struct {
    const char *name;
    uint8_t method;
    uint16_t attr;
    uint64_t mask;
    uint16_t status;
    const char *request, *answer;
} opensm[] = {
    { "J1 full join broadcast, kernel join mask",
      0x02, 0x0038, 0x10083, 0x0000,
      "ff12401bffff000000000000fffffffffe8000000000000000000000001000"
      "030000000000000000ffff00000000000001000000",
      "ff12401bffff000000000000fffffffffe8000000000000000000000001000"
      "0300000b1bc0008400ffff83920000000021000000" },
    { "J2 full join of a missing group 224.0.0.251 with the join mask only",
      0x02, 0x0038, 0x10083, 0x0600,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000ffff00000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000ffff00000000000001000000" },
    { "J3 same with the kernel create mask",
      0x02, 0x0038, 0x173f7, 0x0000,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1b00008400ffff83000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1bc0028400ffff83800000000001000000" },
    { "J4 SendOnlyNonMember(4) to a missing group, create mask",
      0x02, 0x0038, 0x173f7, 0x0200,
      "ff12401bffff00000000000001010101fe8000000000000000000000001000"
      "0300000b1b00008400ffff83000000000004000000",
      "ff12401bffff00000000000001010101fe8000000000000000000000001000"
      "0300000b1b00008400ffff83000000000004000000" },
    { "J5 SendOnlyFullMember(8) to a missing group, create mask",
      0x02, 0x0038, 0x173f7, 0x0000,
      "ff12401bffff00000000000001010102fe8000000000000000000000001000"
      "0300000b1b00008400ffff83000000000008000000",
      "ff12401bffff00000000000001010102fe8000000000000000000000001000"
      "0300000b1bc0038400ffff83800000000008000000" },
    { "J6 SendOnlyNonMember(4) to an existing group",
      0x02, 0x0038, 0x10083, 0x0000,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000ffff00000000000004000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1bc0028400ffff83800000000005000000" },
    { "J7 join existing with a wrong Q_Key",
      0x02, 0x0038, 0x10087, 0x0200,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000123400000000ffff00000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000123400000000ffff00000000000001000000" },
    { "J8 join existing with a larger MTU exactly",
      0x02, 0x0038, 0x100b3, 0x0000,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000008400ffff00000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1bc0028400ffff83800000000005000000" },
    { "J9 limited P_Key 0x7fff in MGID and record, create mask",
      0x02, 0x0038, 0x173f7, 0x0200,
      "ff12401b7fff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1b000084007fff83000000000001000000",
      "ff12401b7fff000000000000000000fbfe8000000000000000000000001000"
      "0300000b1b000084007fff83000000000001000000" },
    { "J10 P_Key not in the port's table 0x8005, create mask",
      0x02, 0x0038, 0x173f7, 0x0200,
      "ff12401b8005000000000000000000fbfe8000000000000000000000001000"
      "0300000b1b00008400800583000000000001000000",
      "ff12401b8005000000000000000000fbfe8000000000000000000000001000"
      "0300000b1b00008400800583000000000001000000" },
    { "J12 leave J3",
      0x15, 0x0038, 0x10003, 0x0000,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000000000000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000008000000080800000000004000000" },
    { "J13 leave again",
      0x15, 0x0038, 0x10003, 0x0200,
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000000000000000000001000000",
      "ff12401bffff000000000000000000fbfe8000000000000000000000001000"
      "030000000000000000000000000000000001000000" },
    { "J14 join P_Key 0x8002 broadcast",
      0x02, 0x0038, 0x10083, 0x0000,
      "ff12401b8002000000000000fffffffffe8000000000000000000000001000"
      "030000000000000000800200000000000001000000",
      "ff12401b8002000000000000fffffffffe8000000000000000000000001000"
      "0300000b1bc0018400800283920000000021000000" },
    { "P1 PathRecord kernel mask",
      0x01, 0x0035, 0x340c, 0x0000,
      "0000000000000000fe800000000000000000000000100005fe800000000000"
      "00000000000010000300000000000000000001ffff00000000000000000000"
      "0000",
      "0000000000000000fe800000000000000000000000100005fe800000000000"
      "00000000000010000300040003000000000080ffff00008483920000000000"
      "0000" },
    { "P2 PathRecord unknown DGID",
      0x01, 0x0035, 0x340c, 0x0300,
      "0000000000000000fe800000000000000000000000100072fe800000000000"
      "00000000000010000300000000000000000001ffff00000000000000000000"
      "0000",
      "0000000000000000fe800000000000000000000000100072fe800000000000"
      "00000000000010000300000000000000000001ffff00000000000000000000"
      "0000" },
    { "P3 PathRecord with a P_Key not shared",
      0x01, 0x0035, 0x340c, 0x0300,
      "0000000000000000fe800000000000000000000000100005fe800000000000"
      "00000000000010000300000000000000000001800500000000000000000000"
      "0000",
      "0000000000000000fe800000000000000000000000100005fe800000000000"
      "00000000000010000300000000000000000001800500000000000000000000"
      "0000" },
};

static size_t
parse_hex(const char *s, uint8_t *bytes)
{
    size_t n = strlen(s) / 2;

    for (size_t i = 0; i < n; i++) {
        bool ok;

        bytes[i] = hexits_value(s + 2 * i, 2, &ok);
        ovs_assert(ok);
    }
    return n;
}

void
tf_test_opensm(void)
{
    struct tf_port *b = tf_attach(0x100005);
    struct tf_port *a = tf_attach(0x100003);

    tf_do("fabric/set-lid", "100003", "10", NULL);
    tf_do("fabric/set-lid", "100005", "4", NULL);
    tf_do("fabric/set-lid", "100003", "3", NULL);
    while (a->lid != 3) {
        tf_expect_port(a);
    }

    for (size_t i = 0; i < ARRAY_SIZE(opensm); i++) {
        uint8_t request[IB_SA_DATA_LEN], want[IB_SA_DATA_LEN];
        size_t n = parse_hex(opensm[i].request, request);
        struct ib_sa_mad answer;
        uint16_t status;

        status = tf_sa(a, opensm[i].method, opensm[i].attr, opensm[i].mask,
                       request, n, &answer);
        if (status != opensm[i].status) {
            ovs_fatal(0, "%s: status 0x%04"PRIx16", not 0x%04"PRIx16,
                      opensm[i].name, status, opensm[i].status);
        }
        parse_hex(opensm[i].answer, want);
        for (size_t j = 0; j < n; j++) {
            if (answer.data[j] != want[j]) {
                ovs_fatal(0, "%s: byte %"PRIuSIZE" is 0x%02"PRIx8
                          ", not 0x%02"PRIx8, opensm[i].name, j,
                          answer.data[j], want[j]);
            }
        }
        CHECK_EQ(ntohl(answer.comp_mask[1]), opensm[i].mask);
    }
    tf_close(a);
    tf_close(b);
}

/* MCMemberRecord. */

static uint8_t
member_state(struct tf_port *asker, const struct ib_gid *mgid,
             const struct tf_port *member)
{
    struct ib_mcmember_record r;
    struct ib_sa_mad answer;

    memset(&r, 0, sizeof r);
    r.mgid = *mgid;
    r.port_gid = tf_gid(member);
    if (tf_sa(asker, IB_METHOD_GET, IB_ATTR_MCMEMBER_RECORD,
              IB_MCM_MGID | IB_MCM_PORT_GID, &r, sizeof r, &answer)) {
        CHECK_EQ(ntohs(answer.status), IB_SA_NO_RECORDS);
        return 0;
    }
    memcpy(&r, answer.data, sizeof r);
    return r.scope_join & 0xf;
}

static bool
group_exists(struct tf_port *asker, const struct ib_gid *mgid)
{
    struct ib_sa_mad answer;

    return !tf_sa(asker, IB_METHOD_GET, IB_ATTR_MCMEMBER_RECORD, IB_MCM_MGID,
                  mgid, sizeof *mgid, &answer);
}

/* Sends a join with one component changed.  Returns the status. */
static uint16_t
join_with(struct tf_port *port, const struct ib_gid *mgid, uint64_t mask,
          const struct ib_mcmember_record *changed)
{
    struct ib_mcmember_record r = *changed;
    struct ib_sa_mad answer;

    r.mgid = *mgid;
    r.scope_join |= r.scope_join & 0xf ? 0 : IB_JOIN_FULL;
    return tf_sa(port, IB_METHOD_SET, IB_ATTR_MCMEMBER_RECORD, mask, &r,
                 sizeof r, &answer);
}

static void
test_join_refusals(struct tf_port *a, struct tf_port *b)
{
    struct ib_gid mgid = tf_mgid(0xe0000042), other = tf_mgid(0xe0000043);
    struct ib_mcmember_record r, good;

    memset(&good, 0, sizeof good);
    good.port_gid = tf_gid(a);
    good.pkey = htons(0xffff);
    good.qkey = htonl(0xb1b);
    good.mtu = IB_SELECTOR_EXACTLY << 6 | 4;
    good.rate = IB_SELECTOR_EXACTLY << 6 | 3;

    /* The ends. */
    r = good;
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE & ~IB_MCM_PORT_GID, &r),
             IB_SA_INSUFFICIENT_COMPS);
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE & ~IB_MCM_JOIN, &r),
             IB_SA_INSUFFICIENT_COMPS);
    r.port_gid = tf_gid(b);
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r), IB_SA_REQ_DENIED);
    r.port_gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0xdead);
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r),
             IB_SA_REQ_INVALID_GID);
    r.port_gid = ib_gid_make(0x1234, a->guid);
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r),
             IB_SA_REQ_INVALID_GID);

    /* What a creation needs. */
    static const uint64_t needed[] = {
        IB_MCM_QKEY, IB_MCM_TCLASS, IB_MCM_PKEY, IB_MCM_SL, IB_MCM_FLOW
    };
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE & ~needed[i], &good),
                 IB_SA_INSUFFICIENT_COMPS);
    }
    r = good;
    r.mtu = IB_SELECTOR_EXACTLY << 6 | 5;
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r), IB_SA_REQ_INVALID);
    r = good;
    r.rate = IB_SELECTOR_EXACTLY << 6 | 17;     /* 200 Gb/s. */
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r), IB_SA_REQ_INVALID);
    r = good;
    r.scope_join = IB_JOIN_NON;
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &r), IB_SA_REQ_INVALID);
    CHECK(!group_exists(b, &mgid));

    /* What an existing group wants. */
    CHECK_EQ(join_with(a, &mgid, IB_MCM_MASK_CREATE, &good), 0);
    static const struct {
        size_t offset;
        uint8_t bit;
    } changes[] = {
        { offsetof(struct ib_mcmember_record, qkey), 1 },
        { offsetof(struct ib_mcmember_record, mtu), 1 },
        { offsetof(struct ib_mcmember_record, tclass), 1 },
        { offsetof(struct ib_mcmember_record, pkey), 1 },
        { offsetof(struct ib_mcmember_record, rate), 1 },
        { offsetof(struct ib_mcmember_record, sl_flow_hop), 0x10 },
        { offsetof(struct ib_mcmember_record, sl_flow_hop) + 1, 1 },
        { offsetof(struct ib_mcmember_record, sl_flow_hop) + 3, 1 },
    };
    good.port_gid = tf_gid(b);
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
        r = good;
        ((uint8_t *) &r)[changes[i].offset] ^= changes[i].bit;
        CHECK_EQ(join_with(b, &mgid, IB_MCM_MASK_CREATE, &r),
                 IB_SA_REQ_INVALID);
    }
    CHECK_EQ(join_with(b, &mgid, IB_MCM_MASK_CREATE, &good), 0);

    /* A port of a smaller MTU than the group's, and one without its P_Key. */
    CHECK_EQ(tf_leave(b, &mgid, IB_JOIN_FULL), 0);
    tf_do("fabric/set-mtu", "2c90300002001", "1024", NULL);
    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, false, NULL), IB_SA_REQ_INVALID);
    CHECK_EQ(tf_join(b, &other, IB_JOIN_FULL, true, NULL), IB_SA_REQ_INVALID);
    tf_do("fabric/set-mtu", "2c90300002001", "2048", NULL);
    tf_do("fabric/set-pkeys", "2c90300002001", "0x8777", NULL);
    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, false, NULL), IB_SA_REQ_INVALID);
    tf_do("fabric/set-pkeys", "2c90300002001", "0x7fff", NULL);
    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, false, NULL), 0);
}

void
tf_test_join(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_gid broadcast = tf_mgid(0xffffffff), mgid = tf_mgid(0xe0000001);
    struct ib_mcmember_record r;

    broadcast.raw[12] = 0xff;
    CHECK_EQ(tf_join(a, &broadcast, IB_JOIN_FULL, false, &r), 0);
    CHECK_EQ(ntohs(r.mlid), 0xc000);
    CHECK_EQ(ntohl(r.qkey), 0xb1b);
    CHECK_EQ(r.mtu, 0x84);
    CHECK_EQ(r.scope_join, 2 << 4 | IB_JOIN_FULL);

    /* A group comes with a join that suffices, and goes with the last member
     * of the sort that keeps it. */
    CHECK(!group_exists(a, &mgid));
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, false, NULL),
             IB_SA_INSUFFICIENT_COMPS);
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_SEND_ONLY_FULL, true, &r), 0);
    CHECK(ntohs(r.mlid) > 0xc000);
    CHECK_EQ(member_state(b, &mgid, a), IB_JOIN_SEND_ONLY_FULL);
    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_NON, false, &r), 0);
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, false, &r), 0);
    CHECK_EQ(r.scope_join & 0xf, IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL);
    CHECK_EQ(tf_leave(a, &mgid, IB_JOIN_SEND_ONLY_FULL), 0);
    CHECK_EQ(member_state(b, &mgid, a), IB_JOIN_FULL);
    CHECK_EQ(tf_leave(a, &mgid, IB_JOIN_NON), IB_SA_REQ_INVALID);
    CHECK(group_exists(a, &mgid));
    CHECK_EQ(tf_leave(a, &mgid, IB_JOIN_FULL), 0);
    CHECK(!group_exists(a, &mgid));
    CHECK_EQ(tf_leave(b, &mgid, IB_JOIN_NON), IB_SA_REQ_INVALID);
    CHECK_EQ(tf_leave(b, &broadcast, IB_JOIN_FULL), IB_SA_REQ_INVALID);
    CHECK_EQ(tf_leave(a, &broadcast, IB_JOIN_FULL), 0);
    CHECK(group_exists(a, &broadcast));

    /* The MLID is free again. */
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, &r), 0);
    CHECK_EQ(ntohs(r.mlid), 0xc001);

    test_join_refusals(a, b);

    /* A group that the SA names. */
    memset(&mgid, 0, sizeof mgid);
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, &r), 0);
    CHECK(ib_gid_is_multicast(&r.mgid));
    CHECK_EQ(member_state(a, &r.mgid, a), IB_JOIN_FULL);

    /* A port that goes leaves its groups. */
    mgid = r.mgid;
    tf_send_message(a, IB_SOFT_DETACH, NULL, 0);
    while (group_exists(b, &mgid)) {
        continue;
    }
    tf_close(a);
    tf_close(b);
}

/* PathRecord. */

void
tf_test_path(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_path_record path, want;
    struct ib_gid mgid = tf_mgid(0xe0000007);
    struct ib_mcmember_record group;
    struct ib_sa_mad answer;
    uint8_t *records;
    size_t n, step;

    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(ntohs(path.dlid), b->lid);
    CHECK_EQ(ntohs(path.slid), a->lid);
    CHECK_EQ(path.mtu, 0x84);
    CHECK_EQ(path.rate, 0x90);
    CHECK_EQ(path.raw_flow_hop, 0);
    CHECK_EQ(tf_path(a, 0xdead, 0xffff, &path), IB_SA_NO_RECORDS);
    CHECK_EQ(tf_path(a, GUID_B, 0x8005, &path), IB_SA_NO_RECORDS);

    /* The smaller MTU counts. */
    tf_do("fabric/set-mtu", "2c90300002001", "512", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(path.mtu, 0x82);

    /* Limited members: only with a full one. */
    tf_do("fabric/set-pkeys", "2c90300002001", "0x7fff,0x8005", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    tf_do("fabric/set-pkeys", "2c90300001001", "0x7fff,0x8005", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_SA_NO_RECORDS);
    CHECK_EQ(tf_path(a, GUID_B, 0x8005, &path), 0);

    /* What is missing, or wrong. */
    memset(&want, 0, sizeof want);
    want.dgid = tf_gid(b);
    want.sgid = tf_gid(a);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PATH_RECORD, IB_PR_DGID, &want,
                   sizeof want, &answer), IB_SA_INSUFFICIENT_COMPS);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PATH_RECORD, IB_PR_SGID, &want,
                   sizeof want, &answer), IB_SA_INSUFFICIENT_COMPS);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                   IB_PR_SGID | IB_PR_DGID, &want, sizeof want, &answer), 0);
    memcpy(&path, answer.data, sizeof path);
    CHECK_EQ(ntohs(path.pkey), 0x8005);
    want.sgid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0xdead);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                   IB_PR_SGID | IB_PR_DGID, &want, sizeof want, &answer),
             IB_SA_REQ_INVALID_GID);

    /* To a group. */
    tf_do("fabric/set-pkeys", "all", "0xffff", NULL);
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, &group), 0);
    memset(&want, 0, sizeof want);
    want.dgid = mgid;
    want.sgid = tf_gid(a);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                   IB_PR_SGID | IB_PR_DGID, &want, sizeof want, &answer), 0);
    memcpy(&path, answer.data, sizeof path);
    CHECK_EQ(ntohs(path.dlid), ntohs(group.mlid));

    /* Path bits: a table has a path for each, a Get the first. */
    tf_do("fabric/set-lmc", "2c90300002001", "2", NULL);
    while (b->lmc != 2) {
        tf_expect_port(b);
    }
    want.dgid = tf_gid(b);
    n = tf_table(a, IB_ATTR_PATH_RECORD, IB_PR_SGID | IB_PR_DGID, &want,
                 sizeof want, 1, &records, &step);
    CHECK_EQ(n, 4);
    for (size_t i = 0; i < n; i++) {
        memcpy(&path, records + i * step, sizeof path);
        CHECK_EQ(ntohs(path.dlid), b->lid + i);
        CHECK_EQ(ntohs(path.slid), a->lid);
    }
    free(records);
    want.dlid = htons(b->lid + 3);
    n = tf_table(a, IB_ATTR_PATH_RECORD, IB_PR_SGID | IB_PR_DLID, &want,
                 sizeof want, 1, &records, &step);
    CHECK_EQ(n, 1);
    free(records);

    /* From one port to all: the two, and the SM's. */
    n = tf_table(a, IB_ATTR_PATH_RECORD, IB_PR_SGID | IB_PR_NUMB_PATH, &want,
                 sizeof want, 1, &records, &step);
    CHECK_EQ(n, 2 + 4);
    free(records);

    /* From all to all, each pair once. */
    want.numb_path = 1;
    n = tf_table(a, IB_ATTR_PATH_RECORD, IB_PR_NUMB_PATH, &want, sizeof want,
                 1, &records, &step);
    CHECK_EQ(n, 3 * 3);
    free(records);
    tf_close(a);
    tf_close(b);
}

/* NodeRecord, PortInfoRecord, ClassPortInfo. */

void
tf_test_records(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_class_port_info cpi;
    struct ib_sa_mad answer;
    uint8_t want[IB_SA_DATA_LEN] = { 0 };
    ovs_be64 guid = htonll(GUID_B);
    ovs_be16 lid = htons(b->lid);
    uint8_t *records;
    size_t n, step;

    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL, 0,
                   &answer), 0);
    memcpy(&cpi, answer.data, sizeof cpi);
    CHECK_EQ(cpi.base_version, 1);
    CHECK_EQ(cpi.class_version, 2);
    CHECK(ntohl(cpi.cap_mask2_resp) >> 5
          & IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);

    /* A NodeRecord by port GUID and by LID. */
    memcpy(want + 24, &guid, sizeof guid);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_NODE_RECORD, 1 << 8, want,
                   sizeof want, &answer), 0);
    CHECK(!memcmp(answer.data, &lid, sizeof lid));
    CHECK(!memcmp(answer.data + 24, &guid, sizeof guid));
    CHECK(!strcmp((char *) answer.data + 44, "test 2001"));
    memcpy(want, &lid, sizeof lid);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_NODE_RECORD, 1 << 0, want,
                   sizeof want, &answer), 0);
    CHECK(!memcmp(answer.data + 24, &guid, sizeof guid));
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_NODE_RECORD, 0, NULL, 0,
                   &answer), IB_SA_TOO_MANY_RECORDS);
    want[24] ^= 1;
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_NODE_RECORD, 1 << 8, want,
                   sizeof want, &answer), IB_SA_NO_RECORDS);

    /* The two ports and the SM's. */
    n = tf_table(a, IB_ATTR_NODE_RECORD, 0, NULL, 0, 1, &records, &step);
    CHECK_EQ(n, 3);
    CHECK_EQ(step, 112);
    free(records);
    n = tf_table(a, IB_ATTR_PORT_INFO_RECORD, 0, NULL, 0, 1, &records, &step);
    CHECK_EQ(n, 3);
    CHECK_EQ(step, 72);
    free(records);
    n = tf_table(a, IB_ATTR_NODE_RECORD, 1 << 8, want, sizeof want, 1,
                 &records, &step);
    CHECK_EQ(n, 0);
    free(records);

    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_PORT_INFO_RECORD, 1, want,
                   sizeof want, &answer), 0);
    CHECK(!memcmp(answer.data + 4 + 16, &lid, sizeof lid));
    CHECK_EQ(answer.data[4 + 32] & 0xf, 4);     /* Active. */
    CHECK_EQ(answer.data[4 + 36] >> 4, 4);      /* MTU 2048. */
    tf_close(a);
    tf_close(b);
}

/* GetTable and RMPP. */

void
tf_test_table(void)
{
    static const uint32_t windows[] = { 1, 2, 3, 64, 100000 };
    struct tf_port *a = tf_attach(GUID_A);
    struct ib_mcmember_record want;
    struct ib_sa_mad answer;
    const int n_groups = 500;

    for (int i = 0; i < n_groups; i++) {
        struct ib_gid mgid = tf_mgid(0xe1000000 + i);

        CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, NULL), 0);
    }
    memset(&want, 0, sizeof want);
    want.pkey = htons(0xffff);
    for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
        bool seen[n_groups];
        uint8_t *records;
        size_t n, step;

        n = tf_table(a, IB_ATTR_MCMEMBER_RECORD, IB_MCM_PKEY, &want,
                     sizeof want, windows[i], &records, &step);
        CHECK_EQ(step, 56);
        CHECK_EQ(n, n_groups + 1);
        memset(seen, 0, sizeof seen);
        for (size_t j = 0; j < n; j++) {
            struct ib_mcmember_record r;
            uint64_t low;

            memcpy(&r, records + j * step, sizeof r);
            CHECK_EQ(ntohs(r.mlid), 0xc000 + j);
            low = ib_gid_guid(&r.mgid) - 0x01000000;
            if (low < n_groups) {
                CHECK(!seen[low]);
                seen[low] = true;
            }
        }
        for (int j = 0; j < n_groups; j++) {
            CHECK(seen[j]);
        }
        free(records);
    }
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_MCMEMBER_RECORD, IB_MCM_PKEY,
                   &want, sizeof want, &answer), IB_SA_TOO_MANY_RECORDS);
    CHECK_EQ(tf_counter("rmpp_tables"), ARRAY_SIZE(windows));
    CHECK_EQ(tf_counter("rmpp_aborts"), 0);
    tf_close(a);
}

static void
send_rmpp(struct tf_port *port, const struct ib_sa_mad *request, uint8_t type,
          uint32_t data1, uint32_t data2)
{
    struct ib_sa_mad mad = *request;

    mad.rmpp_version = IB_RMPP_VERSION;
    mad.rmpp_type = type;
    mad.rmpp_flags = IB_RMPP_FLAG_ACTIVE;
    mad.rmpp_data1 = htonl(data1);
    mad.rmpp_data2 = htonl(data2);
    tf_send_mad(port, &mad);
}

static void
start_table(struct tf_port *port, struct ib_sa_mad *request)
{
    struct ib_sa_mad mad;

    tf_init_mad(request, IB_METHOD_GET_TABLE, IB_ATTR_MCMEMBER_RECORD, 0,
                NULL, 0);
    tf_send_mad(port, request);
    tf_expect_mad(port, &mad);
    CHECK_EQ(mad.rmpp_type, IB_RMPP_TYPE_DATA);
    CHECK_EQ(ntohl(mad.rmpp_data1), 1);
}

static void
expect_segment(struct tf_port *port, uint8_t type, uint32_t segment)
{
    struct ib_sa_mad mad;

    tf_expect_mad(port, &mad);
    CHECK_EQ(mad.rmpp_type, type);
    CHECK_EQ(ntohl(mad.rmpp_data1), segment);
}

void
tf_test_rmpp_errors(void)
{
    struct tf_port *a = tf_attach(GUID_A);
    struct ib_sa_mad request, mad;
    long long int start;

    for (int i = 0; i < 40; i++) {
        struct ib_gid mgid = tf_mgid(0xe1000000 + i);

        CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, NULL), 0);
    }

    /* A lost ACK: the window comes again; an old ACK changes nothing. */
    start_table(a, &request);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 1, 4);
    for (uint32_t i = 2; i <= 4; i++) {
        expect_segment(a, IB_RMPP_TYPE_DATA, i);
    }
    for (uint32_t i = 2; i <= 4; i++) {
        expect_segment(a, IB_RMPP_TYPE_DATA, i);
    }
    CHECK_EQ(tf_counter("rmpp_retries"), 1);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 3, 5);
    expect_segment(a, IB_RMPP_TYPE_DATA, 5);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 1, 4);
    send_rmpp(a, &request, IB_RMPP_TYPE_STOP, 0, 0);
    tf_expect_silence(a, 500);

    /* An ACK of what was not sent, and a window that shrinks. */
    start_table(a, &request);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 2, 9);
    tf_expect_mad(a, &mad);
    CHECK_EQ(mad.rmpp_type, IB_RMPP_TYPE_ABORT);
    CHECK_EQ(mad.rmpp_status, 123);
    start_table(a, &request);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 1, 0);
    tf_expect_mad(a, &mad);
    CHECK_EQ(mad.rmpp_type, IB_RMPP_TYPE_ABORT);
    CHECK_EQ(mad.rmpp_status, 122);

    /* An ABORT ends it. */
    start_table(a, &request);
    send_rmpp(a, &request, IB_RMPP_TYPE_ABORT, 0, 0);
    tf_expect_silence(a, 500);
    send_rmpp(a, &request, IB_RMPP_TYPE_ACK, 1, 2);
    tf_expect_silence(a, 50);
    CHECK_EQ(tf_counter("rmpp_unexpected"), 1);

    /* Nobody acknowledges: 5 retries, then an ABORT. */
    start = time_msec();
    start_table(a, &request);
    for (int i = 0; i < 5; i++) {
        expect_segment(a, IB_RMPP_TYPE_DATA, 1);
    }
    tf_expect_mad(a, &mad);
    CHECK_EQ(mad.rmpp_type, IB_RMPP_TYPE_ABORT);
    CHECK_EQ(mad.rmpp_status, 126);
    CHECK(time_msec() - start >= 1500);
    tf_close(a);
}

/* InformInfo and Reports. */

static uint16_t
inform(struct tf_port *port, uint16_t trap, bool subscribe)
{
    struct ib_inform_info info;
    struct ib_sa_mad answer;

    memset(&info, 0, sizeof info);
    info.lid_begin = htons(0xffff);
    info.is_generic = 1;
    info.subscribe = subscribe;
    info.type = htons(0xffff);
    info.trap_number = htons(trap);
    info.producer = htonl(0xffffff);
    return tf_sa(port, IB_METHOD_SET, IB_ATTR_INFORM_INFO, 0, &info,
                 sizeof info, &answer);
}

/* Waits for a Report of 'trap' about 'gid'. */
static void
expect_report(struct tf_port *port, uint16_t trap, const struct ib_gid *gid,
              struct ib_sa_mad *mad)
{
    struct ib_notice notice;

    tf_expect_mad(port, mad);
    CHECK_EQ(mad->method, IB_METHOD_REPORT);
    CHECK_EQ(ntohs(mad->attr_id), IB_ATTR_NOTICE);
    memcpy(&notice, mad->data, sizeof notice);
    CHECK_EQ(notice.generic_type >> 7, 1);
    CHECK_EQ(ntohs(notice.trap_number), trap);
    CHECK_EQ(ntohs(notice.issuer_lid), port->sm_lid);
    CHECK(!memcmp(notice.details + 6, gid, sizeof *gid));
}

static void
acknowledge(struct tf_port *port, const struct ib_sa_mad *report)
{
    struct ib_sa_mad mad = *report;

    mad.method = IB_METHOD_REPORT_RESP;
    tf_send_mad(port, &mad);
}

void
tf_test_inform(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B), *c;
    struct ib_gid mgid = tf_mgid(0xe0000009);
    struct ib_gid gid_c = ib_gid_make(a->prefix, 0x3001);
    struct ib_sa_mad mad, again;

    CHECK_EQ(inform(a, IB_TRAP_GROUP_CREATED, false), IB_SA_REQ_INVALID);
    CHECK_EQ(inform(a, IB_TRAP_GROUP_CREATED, true), 0);
    CHECK_EQ(inform(a, IB_TRAP_GROUP_DELETED, true), 0);

    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, true, NULL), 0);
    expect_report(a, IB_TRAP_GROUP_CREATED, &mgid, &mad);
    acknowledge(a, &mad);
    tf_expect_silence(a, 700);

    /* Without an answer it comes again, 5 times. */
    CHECK_EQ(tf_leave(b, &mgid, IB_JOIN_FULL), 0);
    expect_report(a, IB_TRAP_GROUP_DELETED, &mgid, &mad);
    for (int i = 0; i < 5; i++) {
        expect_report(a, IB_TRAP_GROUP_DELETED, &mgid, &again);
        CHECK(!memcmp(&mad.tid, &again.tid, sizeof mad.tid));
    }
    tf_expect_silence(a, 700);
    CHECK_EQ(tf_counter("sa_report_timeouts"), 1);

    /* Ports in and out of service: all traps. */
    CHECK_EQ(inform(a, IB_TRAP_GROUP_CREATED, false), 0);
    CHECK_EQ(inform(a, IB_TRAP_GROUP_DELETED, false), 0);
    CHECK_EQ(inform(b, 0xffff, true), 0);
    c = tf_attach(0x3001);
    expect_report(b, IB_TRAP_PORT_IN_SERVICE, &gid_c, &mad);
    acknowledge(b, &mad);
    tf_do("fabric/port-state", "3001", "down", NULL);
    expect_report(b, IB_TRAP_PORT_OUT_SERVICE, &gid_c, &mad);
    acknowledge(b, &mad);
    tf_do("fabric/port-state", "3001", "active", NULL);
    expect_report(b, IB_TRAP_PORT_IN_SERVICE, &gid_c, &mad);
    acknowledge(b, &mad);
    tf_close(c);
    expect_report(b, IB_TRAP_PORT_OUT_SERVICE, &gid_c, &mad);
    acknowledge(b, &mad);
    tf_expect_silence(a, 50);
    tf_close(a);
    tf_close(b);
}

/* What the user wants of the SA. */

void
tf_test_sa_faults(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_path_record path;
    struct ib_sa_mad mad;

    tf_do("fabric/sa-fault", "add", "2c90300001001", "busy", "attr=0x35",
          "count=2", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_MAD_STATUS_BUSY);
    CHECK_EQ(tf_path(b, GUID_A, 0xffff, &path), 0);
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL, 0,
                   &mad), 0);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_MAD_STATUS_BUSY);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);

    tf_do("fabric/sa-fault", "add", "all", "status=0x0100", "method=get",
          NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_SA_NO_RESOURCES);
    tf_do("fabric/sa-fault", "clear", NULL);
    tf_do("fabric/sa-fault", "add", "test 1001", "refuse", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_SA_REQ_DENIED);
    tf_do("fabric/fault", "clear", NULL);

    tf_do("fabric/sa-fault", "add", "all", "ignore", "count=1", NULL);
    tf_init_mad(&mad, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL, 0);
    tf_send_mad(a, &mad);
    tf_expect_silence(a, 100);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(tf_counter("sa_faults"), 5);

    free(tf_appctl_fails("fabric/sa-fault", "add", "all", "wrong", NULL));
    free(tf_appctl_fails("fabric/sa-fault", "add", "all", "busy", "attr=x",
                         NULL));
    free(tf_appctl_fails("fabric/sa-fault", "add", "dead", "busy", NULL));
    tf_close(a);
    tf_close(b);
}

void
tf_test_sm_restart(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_gid mgid = tf_mgid(0xe0000009), broadcast = tf_mgid(0xffffffff);
    int n_reregisters = a->n_reregisters;
    struct ib_sa_mad mad;

    broadcast.raw[12] = 0xff;
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, NULL), 0);
    CHECK_EQ(tf_join(a, &broadcast, IB_JOIN_FULL, false, NULL), 0);
    tf_do("fabric/sm-restart", NULL);
    tf_expect_port(a);
    CHECK(a->flags & IB_SOFT_PORT_REREGISTER);
    CHECK(!group_exists(a, &mgid));
    CHECK_EQ(tf_leave(a, &broadcast, IB_JOIN_FULL), IB_SA_REQ_INVALID);

    /* Away for a while: no answer, then reregistration. */
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, NULL), 0);
    n_reregisters = a->n_reregisters;
    tf_do("fabric/sm-restart", "--down", "0.4", NULL);
    tf_init_mad(&mad, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL, 0);
    tf_send_mad(a, &mad);
    tf_expect_silence(a, 200);
    CHECK_EQ(a->n_reregisters, n_reregisters);
    tf_expect_port(a);
    CHECK_EQ(a->n_reregisters, n_reregisters + 1);
    CHECK(!group_exists(a, &mgid));
    CHECK_EQ(tf_counter("sa_down"), 1);
    tf_close(a);
    tf_close(b);
}

/* Ports that only the subnet manager knows. */
void
tf_test_made_up(void)
{
    struct tf_port *a = tf_attach(GUID_A);
    struct ib_path_record path;
    char *s;
    uint64_t first, last, no_lid;

    s = tf_appctl("fabric/add-ports", "10000", NULL);
    CHECK(sscanf(s, "%"SCNx64"-%"SCNx64, &first, &last) == 2);
    free(s);
    CHECK_EQ(last - first, 9999);
    for (uint64_t guid = first; guid <= last; guid++) {
        CHECK_EQ(tf_path(a, guid, 0xffff, &path), 0);
    }
    no_lid = tf_counter("drop_no_lid");
    tf_send_text(a, ntohs(path.dlid), 0x200, "to nobody");
    CHECK_EQ(tf_path(a, last + 1, 0xffff, &path), IB_SA_NO_RECORDS);
    CHECK_EQ(tf_counter("drop_no_lid"), no_lid + 1);

    /* There are no more LIDs than there are. */
    free(tf_appctl_fails("fabric/add-ports", "49000", NULL));
    free(tf_appctl_fails("fabric/add-ports", "0", NULL));
    free(tf_appctl_fails("fabric/add-ports", "x", NULL));
    tf_close(a);
}

/* Requests that wait for their turn when their port goes: nothing is done for
 * it.  The fabric answers twice a second. */
void
tf_test_sa_waiting(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_path_record path;
    struct ib_inform_info info;
    struct ib_sa_mad mad;

    CHECK_EQ(tf_path(b, GUID_B, 0xffff, &path), 0);
    memset(&info, 0, sizeof info);
    info.is_generic = info.subscribe = 1;
    info.trap_number = htons(0xffff);
    tf_init_mad(&mad, IB_METHOD_SET, IB_ATTR_INFORM_INFO, 0, &info,
                sizeof info);
    tf_send_mad(a, &mad);
    tf_close(a);
    CHECK_EQ(tf_path(b, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(tf_counter("sa_requests"), 3);
    CHECK_EQ(tf_counter("sa_answers"), 2);
    tf_close(b);
}

/* Versions, classes, methods, GRH, P_Keys. */
void
tf_test_sa_headers(void)
{
    struct tf_port *a = tf_attach(GUID_A);
    struct ib_sa_mad mad, answer;
    struct ib_ud ud;

    /* Unknown attributes and methods are refused, what is no request is
     * not answered. */
    CHECK_EQ(tf_sa(a, IB_METHOD_GET, 0x7777, 0, NULL, 0, &answer),
             IB_MAD_STATUS_BAD_ATTR);
    CHECK_EQ(tf_sa(a, IB_METHOD_DELETE, IB_ATTR_PATH_RECORD, 0, NULL, 0,
                   &answer), IB_MAD_STATUS_BAD_ATTR);
    tf_init_mad(&mad, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL, 0);
    mad.class_version = 1;
    tf_send_mad(a, &mad);
    tf_expect_mad(a, &answer);
    CHECK_EQ(ntohs(answer.status), IB_MAD_STATUS_BAD_VERSION);
    mad.class_version = IB_SA_CLASS_VERSION;
    mad.mgmt_class = 4;
    tf_send_mad(a, &mad);
    mad.mgmt_class = IB_MGMT_CLASS_SA;
    mad.base_version = 2;
    tf_send_mad(a, &mad);
    mad.base_version = 1;
    mad.method = IB_METHOD_GET_RESP;
    tf_send_mad(a, &mad);
    mad.method = 7;                     /* TrapRepress. */
    tf_send_mad(a, &mad);
    tf_expect_silence(a, 100);
    CHECK_EQ(tf_counter("drop_not_sa"), 4);

    /* What surrounds a request. */
    mad.method = IB_METHOD_GET;
    ud = tf_ud(a, a->sm_lid, IB_QPN_GSI, &mad, sizeof mad);
    tf_send_ud(a, &ud);                 /* Q_Key. */
    ud.qkey = IB_QKEY_GSI;
    ud.dqpn = 2;
    tf_send_ud(a, &ud);
    ud.dqpn = IB_QPN_GSI;
    ud.payload_len = sizeof mad - 4;
    tf_send_ud(a, &ud);
    tf_expect_silence(a, 100);
    CHECK_EQ(tf_counter("drop_not_sa"), 7);

    /* The answer has a GRH if the request had, and the P_Key with bit 15. */
    ud.payload_len = sizeof mad;
    ud.has_grh = true;
    ud.pkey = 0x7fff;
    ud.sl = 5;
    put_16aligned_be32(&ud.grh.vtf, htonl(6u << 28));
    ud.grh.nxthdr = IB_GRH_NXTHDR;
    ud.grh.sgid = tf_gid(a);
    ud.grh.dgid = ib_gid_make(a->prefix, 1);
    tf_send_ud(a, &ud);
    tf_expect_packet(a, &ud);
    CHECK_EQ(ud.pkey, 0xffff);
    CHECK_EQ(ud.sl, 5);
    CHECK(ud.has_grh);
    CHECK_EQ(ib_gid_guid(&ud.grh.dgid), GUID_A);
    CHECK_EQ(ib_gid_prefix(&ud.grh.sgid), a->prefix);
    tf_close(a);
}
