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

/* Tests of a running ovs-ipoib-fabric:
 *
 *     test-ipoib-fabric TEST ADDRESS UNIXCTL
 *
 * where ADDRESS is unix:PATH or udp:ADDR:PORT. */

#include <config.h>
#undef NDEBUG
#include "test-ipoib-fabric.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "openvswitch/vlog.h"
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

#define GUID_A UINT64_C(0x0002c90300001001)
#define GUID_B UINT64_C(0x0002c90300002001)
#define GUID_C UINT64_C(0x0002c90300003001)

/* Waits until the counter 'name' is 'value'. */
static void
expect_counter(const char *name, uint64_t value)
{
    uint64_t got = 0;

    for (int i = 0; i < 500; i++) {
        got = tf_counter(name);
        if (got == value) {
            return;
        }
        usleep(10000);
    }
    ovs_fatal(0, "%s is %"PRIu64", not %"PRIu64, name, got, value);
}

/* Waits until 'port' has a PORT that came after 'n_ports' of them. */
static void
expect_ports(struct tf_port *port, int n_ports)
{
    while (port->n_ports < n_ports) {
        tf_expect_port(port);
    }
}

static void
drain(struct tf_port *port)
{
    while (tf_receive(port, 20)) {
        continue;
    }
}

/* Attachment. */

static void
test_attach(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b, *other;
    struct ib_gid mgid = tf_mgid(0xe0000001);
    struct ib_sa_mad mad;
    uint16_t lid = a->lid;

    CHECK_EQ(a->state, 4);
    CHECK_EQ(a->sm_lid, 1);
    CHECK(lid > 1);
    CHECK_EQ(a->lmc, 0);
    CHECK_EQ(a->prefix, IB_GID_PREFIX_DEFAULT);
    CHECK_EQ(a->mtu, 4);
    CHECK_EQ(a->n_pkeys, 1);
    CHECK_EQ(a->pkeys[0], 0xffff);
    CHECK_EQ(a->flags, IB_SOFT_PORT_REREGISTER);

    /* Again: a refresh, by which the MTU may change. */
    tf_send_attach(a, GUID_A, 3, "again");
    tf_expect_port(a);
    CHECK_EQ(a->mtu, 3);
    CHECK_EQ(a->lid, lid);
    if (!a->udp) {
        CHECK_EQ(a->n_reregisters, 1);
    }
    tf_send_attach(a, GUID_A, 5, "again");
    tf_expect_port(a);

    /* From elsewhere: taken over, with the LID and without the groups. */
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, true, NULL), 0);
    b = tf_attach(GUID_A);
    CHECK_EQ(b->lid, lid);
    CHECK_EQ(b->flags, IB_SOFT_PORT_REREGISTER);
    CHECK_EQ(tf_sa(b, IB_METHOD_GET, IB_ATTR_MCMEMBER_RECORD, IB_MCM_MGID,
                   &mgid, sizeof mgid, &mad), IB_SA_NO_RECORDS);
    if (!a->udp) {
        CHECK(!tf_receive(a, 5000));
        CHECK(a->closed);
        close(a->fd);
        free(a);
    } else {
        tf_send_text(a, lid, 0x300, "from a stranger");
        expect_counter("drop_unattached", 1);
        tf_close(a);
        expect_counter("drop_unattached", 2);
    }

    /* Gone and back: the same LID, which nobody else got. */
    tf_send_message(b, IB_SOFT_DETACH, NULL, 0);
    other = tf_attach(GUID_B);
    CHECK(other->lid != lid);
    tf_send_text(other, lid, 0x300, "nobody there");
    expect_counter("drop_no_lid", 1);
    tf_send_attach(b, GUID_A, 5, "back");
    tf_expect_port(b);
    CHECK_EQ(b->lid, lid);
    CHECK_EQ(b->flags, IB_SOFT_PORT_REREGISTER);

    /* Another GUID from the same place is another port. */
    tf_send_attach(b, GUID_C, 5, "third");
    tf_expect_port(b);
    CHECK(b->lid != lid && b->lid != other->lid);
    tf_send_text(other, lid, 0x300, "nobody there");
    expect_counter("drop_no_lid", 2);
    tf_close(b);
    tf_close(other);
}

static void
test_bad_messages(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_open();
    uint8_t msg[4200] = { 'I', 'B', 1, IB_SOFT_PACKET };
    struct ib_soft_attach attach;

    tf_send_raw(a, "I", 1);
    tf_send_raw(a, "IB\1", 3);
    tf_send_raw(a, "IC\1\3", 4);
    tf_send_raw(a, "IB\2\3", 4);
    expect_counter("drop_bad_message", 4);
    tf_send_raw(a, "IB\1\2", 4);
    tf_send_raw(a, "IB\1\5", 4);
    tf_send_raw(a, "IB\1\377", 4);
    expect_counter("drop_unknown_type", 3);
    for (int n = 4; n < 4 + 26; n++) {
        tf_send_raw(a, msg, n);
    }
    expect_counter("drop_malformed", 26);
    tf_send_raw(a, msg, sizeof msg);
    expect_counter("drop_bad_message", 5);

    memset(&attach, 0, sizeof attach);
    tf_send_message(b, IB_SOFT_ATTACH, &attach.h + 1,
                    sizeof attach - sizeof attach.h);   /* GUID 0. */
    tf_send_message(b, IB_SOFT_ATTACH, NULL, 0);
    tf_send_attach(b, GUID_B, 0, "MTU");
    tf_send_attach(b, GUID_B, 6, "MTU");
    expect_counter("drop_bad_attach", 4);
    tf_send_attach(b, UINT64_C(0x024f5653ffff0001), 5, "as if the SM");
    expect_counter("drop_attach_refused", 1);
    tf_send_message(b, IB_SOFT_PACKET, NULL, 0);
    tf_send_message(b, IB_SOFT_DETACH, NULL, 0);
    expect_counter("drop_unattached", 2);

    /* The port is still there. */
    tf_send_text(a, a->lid, 0x300, "to myself");
    tf_expect_payload(a, "to myself");
    tf_close(a);
    tf_close(b);
}

/* Forwarding. */

static void
send_sized(struct tf_port *from, uint16_t dlid, uint32_t dqpn, size_t size)
{
    static const uint8_t payload[8192];
    struct ib_ud ud = tf_ud(from, dlid, dqpn, payload, size);

    tf_send_ud(from, &ud);
}

static void
test_unicast_rules(struct tf_port *a, struct tf_port *b)
{
    uint8_t raw[26] = { 0 };
    struct ib_ud ud;

    tf_send_text(a, b->lid, 0x300, "hello");
    tf_expect_packet(b, &ud);
    CHECK_EQ(ud.slid, a->lid);
    CHECK_EQ(ud.dlid, b->lid);
    CHECK_EQ(ud.dqpn, 0x300);
    CHECK(ud.payload_len == 5 && !memcmp(ud.payload, "hello", 5));

    ud = tf_ud(a, b->lid, 0x300, "x", 1);
    ud.slid = b->lid;
    tf_send_ud(a, &ud);
    expect_counter("drop_bad_slid", 1);
    tf_send_text(a, b->lid, 0, "QP 0");
    expect_counter("drop_qp0", 1);
    tf_send_text(a, 0xffff, 0x300, "permissive");
    expect_counter("drop_permissive_lid", 1);
    tf_send_text(a, 0x9999, 0x300, "nobody");
    tf_send_text(a, 0, 0x300, "nobody");
    expect_counter("drop_no_lid", 2);
    tf_send_text(a, 0xcccc, 0x300, "no group");
    expect_counter("drop_no_group", 1);

    /* The MTU is that of the receiver, and of the payload alone. */
    send_sized(a, b->lid, 0x300, 2048);
    tf_expect_packet(b, &ud);
    CHECK_EQ(ud.payload_len, 2048);
    send_sized(a, b->lid, 0x300, 2049);
    expect_counter("drop_too_long", 1);
    tf_do("fabric/set-mtu", "2c90300002001", "4096", NULL);
    send_sized(a, b->lid, 0x300, 4096);
    tf_expect_packet(b, &ud);
    CHECK_EQ(ud.payload_len, 4096);
    tf_do("fabric/set-mtu", "2c90300002001", "2048", NULL);

    /* Any transport goes by the LRH, down to the smallest packet. */
    raw[1] = IB_LNH_BTH;
    raw[2] = b->lid >> 8;
    raw[3] = b->lid;
    raw[5] = (sizeof raw - 2) / 4;
    raw[6] = a->lid >> 8;
    raw[7] = a->lid;
    raw[8] = 0xc0;              /* For manufacturers. */
    raw[15] = 7;
    tf_send_message(a, IB_SOFT_PACKET, raw, sizeof raw);
    while (tf_receive(b, 5000) != IB_SOFT_PACKET) {
        continue;
    }
    CHECK_EQ(b->packet_len, sizeof raw);
    CHECK(!memcmp(b->packet, raw, sizeof raw));
    raw[5]++;
    tf_send_message(a, IB_SOFT_PACKET, raw, sizeof raw);
    raw[5]--;
    raw[1] = 0;                 /* No IBA transport. */
    tf_send_message(a, IB_SOFT_PACKET, raw, sizeof raw);
    expect_counter("drop_malformed", 2);
}

static void
test_multicast_rules(struct tf_port *a, struct tf_port *b, struct tf_port *c)
{
    struct ib_gid mgid = tf_mgid(0xe0000001);
    struct ib_mcmember_record r;
    uint16_t mlid;

    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, true, &r), 0);
    mlid = ntohs(r.mlid);
    CHECK_EQ(tf_join(c, &mgid, IB_JOIN_SEND_ONLY_FULL, false, NULL), 0);

    /* The sender need not be a member; a send-only member gets nothing. */
    tf_send_text(a, mlid, IB_QPN_MULTICAST, "one");
    tf_expect_payload(b, "one");
    tf_expect_silence(c, 50);
    tf_send_text(c, mlid, IB_QPN_MULTICAST, "two");
    tf_expect_payload(b, "two");
    /* Never back to the sender. */
    tf_send_text(b, mlid, IB_QPN_MULTICAST, "three");
    tf_expect_silence(b, 50);
    CHECK_EQ(tf_join(c, &mgid, IB_JOIN_NON, false, NULL), 0);
    tf_send_text(b, mlid, IB_QPN_MULTICAST, "four");
    tf_expect_payload(c, "four");
    tf_expect_silence(a, 50);

    send_sized(a, mlid, IB_QPN_MULTICAST, 2049);
    expect_counter("drop_too_long", 2);
}

static void
test_forward(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct tf_port *c = tf_attach(GUID_C);

    test_unicast_rules(a, b);
    test_multicast_rules(a, b, c);

    /* Ports that are not Active. */
    tf_do("fabric/port-state", "2c90300002001", "init", NULL);
    tf_send_text(a, b->lid, 0x300, "to Init");
    expect_counter("drop_dst_not_active", 1);
    tf_send_text(b, a->lid, 0x300, "from Init");
    expect_counter("drop_src_not_active", 1);
    tf_do("fabric/port-state", "2c90300002001", "active", NULL);
    drain(b);
    tf_send_text(a, b->lid, 0x300, "to Active");
    tf_expect_payload(b, "to Active");
    tf_close(a);
    tf_close(b);
    tf_close(c);
}

/* Path bits: every LID of a port is its own. */
static void
test_lmc(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_ud ud;

    CHECK_EQ(a->lmc, 3);
    CHECK_EQ(a->lid % 8, 0);
    CHECK(a->lid != b->lid && b->lid % 8 == 0);
    for (int i = 0; i < 8; i++) {
        ud = tf_ud(a, b->lid + i, 0x300, "x", 1);
        ud.slid += 7 - i;
        tf_send_ud(a, &ud);
        tf_expect_packet(b, &ud);
        CHECK_EQ(ud.dlid, b->lid + i);
        CHECK_EQ(ud.slid, a->lid + 7 - i);
    }
    ud.slid = a->lid + 8;
    ud.dlid = b->lid;
    tf_send_ud(a, &ud);
    expect_counter("drop_bad_slid", 1);
    tf_close(a);
    tf_close(b);
}

/* Virtual ports: one LID, told apart by the GRH. */
static void
test_grh(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct tf_port *c = tf_attach(GUID_C);
    struct ib_path_record path;
    char *lid = xasprintf("%d", b->lid);
    struct ib_ud ud;

    free(tf_appctl_fails("fabric/set-lid", "2c90300003001", lid, NULL));
    tf_do("fabric/set-grh-required", "2c90300002001", "on", NULL);
    free(tf_appctl_fails("fabric/set-lid", "2c90300003001", lid, NULL));
    tf_do("fabric/set-grh-required", "2c90300003001", "on", NULL);
    tf_do("fabric/set-lid", "2c90300003001", lid, NULL);
    free(tf_appctl_fails("fabric/set-grh-required", "2c90300003001", "off",
                         NULL));
    drain(b);
    drain(c);
    drain(a);
    CHECK_EQ(b->caps, IB_SOFT_PORTCAP_GRH_REQUIRED);
    CHECK_EQ(c->caps, IB_SOFT_PORTCAP_GRH_REQUIRED);
    CHECK_EQ(a->caps, 0);
    CHECK_EQ(c->lid, b->lid);

    ud = tf_ud(a, b->lid, 0x300, "for b", 5);
    tf_send_ud(a, &ud);
    expect_counter("drop_no_grh", 1);
    ud.has_grh = true;
    put_16aligned_be32(&ud.grh.vtf, htonl(6u << 28));
    ud.grh.nxthdr = IB_GRH_NXTHDR;
    ud.grh.sgid = tf_gid(a);
    ud.grh.dgid = tf_gid(b);
    tf_send_ud(a, &ud);
    tf_expect_payload(b, "for b");
    ud.payload = "for c";
    ud.grh.dgid = tf_gid(c);
    tf_send_ud(a, &ud);
    tf_expect_payload(c, "for c");
    ud.grh.dgid = tf_gid(a);
    tf_send_ud(a, &ud);
    expect_counter("drop_no_gid", 1);
    /* Nor may such a port send without one. */
    tf_send_text(b, a->lid, 0x300, "without");
    expect_counter("drop_no_grh", 2);
    tf_expect_silence(b, 20);
    tf_expect_silence(c, 20);

    /* Paths say so. */
    CHECK_EQ(tf_path(a, GUID_C, 0xffff, &path), 0);
    CHECK(ntohl(path.raw_flow_hop) & 0xff);
    CHECK_EQ(ntohs(path.dlid), c->lid);

    /* One of them leaves, the other stays. */
    tf_close(c);
    ud.payload = "for b";
    ud.grh.dgid = tf_gid(b);
    tf_send_ud(a, &ud);
    tf_expect_payload(b, "for b");
    free(lid);
    tf_close(a);
    tf_close(b);
}

/* Events. */

static void
test_events(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    int n_a, n_b;

    /* A LID changes: everybody is to join again. */
    tf_do("fabric/set-lid", "2c90300002001", "0x77", NULL);
    expect_ports(a, 2);
    expect_ports(b, 2);
    CHECK_EQ(b->lid, 0x77);
    CHECK_EQ(b->n_reregisters, 2);
    CHECK_EQ(a->n_reregisters, 2);
    tf_send_text(a, 0x77, 0x300, "new LID");
    tf_expect_payload(b, "new LID");
    /* Quietly: only the port itself learns of it. */
    tf_do("fabric/set-lid", "test 2001", "0x78", "--quiet", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->lid, 0x78);
    CHECK_EQ(b->n_reregisters, 2);
    drain(a);
    CHECK_EQ(a->n_ports, 2);
    free(tf_appctl_fails("fabric/set-lid", "2c90300002001", "1", NULL));
    free(tf_appctl_fails("fabric/set-lid", "2c90300002001", "0", NULL));
    free(tf_appctl_fails("fabric/set-lid", "2c90300002001", "0xc000", NULL));

    /* The SM's LID and the prefix: everybody too. */
    tf_do("fabric/set-sm-lid", "0x100", NULL);
    expect_ports(a, 3);
    CHECK_EQ(a->sm_lid, 0x100);
    CHECK_EQ(a->n_reregisters, 3);
    tf_do("fabric/set-prefix", "fec0000000000001", NULL);
    expect_ports(a, 4);
    CHECK_EQ(a->prefix, UINT64_C(0xfec0000000000001));
    CHECK_EQ(a->n_reregisters, 4);
    struct ib_path_record path;
    drain(b);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(ntohs(path.dlid), 0x78);

    /* State, P_Keys and MTU: the port itself, without reregistration. */
    n_a = a->n_reregisters;
    n_b = b->n_reregisters;
    tf_do("fabric/port-state", "2c90300002001", "down", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->state, 1);
    tf_do("fabric/port-state", "2c90300002001", "armed", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->state, 3);
    tf_do("fabric/port-state", "2c90300002001", "active", NULL);
    tf_expect_port(b);
    tf_do("fabric/set-pkeys", "2c90300002001", "0x8005,0xffff,0", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->n_pkeys, 3);
    CHECK_EQ(b->pkeys[0], 0x8005);
    CHECK_EQ(b->pkeys[2], 0);
    tf_do("fabric/set-mtu", "2c90300002001", "1024", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->mtu, 3);
    drain(a);
    CHECK_EQ(b->n_reregisters, n_b);
    CHECK_EQ(a->n_reregisters, n_a);

    /* On request. */
    tf_do("fabric/reregister", "2c90300002001", NULL);
    tf_expect_port(b);
    CHECK_EQ(b->n_reregisters, n_b + 1);
    drain(a);
    CHECK_EQ(a->n_reregisters, n_a);
    tf_do("fabric/reregister", NULL);
    tf_expect_port(a);
    CHECK_EQ(a->n_reregisters, n_a + 1);

    free(tf_appctl_fails("fabric/port-state", "2c90300002001", "up", NULL));
    free(tf_appctl_fails("fabric/port-state", "nobody", "down", NULL));
    free(tf_appctl_fails("fabric/set-pkeys", "all", "0x10000", NULL));
    free(tf_appctl_fails("fabric/set-mtu", "all", "1500", NULL));
    tf_close(a);
    tf_close(b);
}

/* Over UDP a PORT can be lost: the flag comes three times, or until the first
 * join. */
static void
test_udp_reregister(void)
{
    struct ib_gid broadcast = tf_mgid(0xffffffff);
    struct tf_port *a = tf_attach(GUID_A);

    broadcast.raw[12] = 0xff;
    for (int i = 0; i < 4; i++) {
        tf_send_attach(a, GUID_A, 5, "again");
        tf_expect_port(a);
    }
    CHECK_EQ(a->n_ports, 5);
    CHECK_EQ(a->n_reregisters, 3);

    tf_do("fabric/reregister", NULL);
    tf_expect_port(a);
    CHECK_EQ(a->n_reregisters, 4);
    CHECK_EQ(tf_join(a, &broadcast, IB_JOIN_FULL, false, NULL), 0);
    tf_send_attach(a, GUID_A, 5, "again");
    tf_expect_port(a);
    CHECK_EQ(a->n_reregisters, 4);
    tf_close(a);
}

/* A UDP port that is silent for 30 seconds is gone, one that says anything is
 * not. */
static void
test_udp_silence(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    long long int start = time_msec();
    char *ports;

    for (int i = 0; i < 45; i++) {
        sleep(1);
        tf_send_text(b, b->lid, 0x300, "here");
        tf_expect_payload(b, "here");
        ports = tf_appctl("fabric/ports", NULL);
        CHECK(strstr(ports, "0002c90300002001"));
        if (!strstr(ports, "0002c90300001001")) {
            break;
        }
        free(ports);
        ports = NULL;
    }
    CHECK(ports != NULL);
    free(ports);
    CHECK(time_msec() - start >= 29000 && time_msec() - start <= 40000);
    tf_close(a);
    tf_close(b);
}

/* Faults. */

static void
test_faults(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_path_record path;
    long long int start;
    char *list;

    /* Loss, of a kind and a direction. */
    tf_do("fabric/fault", "add", "2c90300002001", "loss", "100", "kind=data",
          "direction=to", NULL);
    tf_send_text(a, b->lid, 0x300, "lost");
    expect_counter("fault_lost", 1);
    CHECK_EQ(tf_path(b, GUID_A, 0xffff, &path), 0);
    tf_send_text(b, a->lid, 0x300, "not lost");
    tf_expect_payload(a, "not lost");
    list = tf_appctl("fabric/fault", "list", NULL);
    CHECK(strstr(list, "1: port 0002c90300002001 loss 100% kind=data "
                 "direction=to, 1 hits"));
    free(list);
    tf_do("fabric/fault", "remove", "1", NULL);
    tf_send_text(a, b->lid, 0x300, "back");
    tf_expect_payload(b, "back");

    /* Half of them, more or less. */
    tf_do("fabric/fault", "add", "all", "loss", "50%", "from", NULL);
    for (int i = 0; i < 2000; i++) {
        tf_send_text(a, 0xbfff, 0x300, "x");
    }
    while (tf_counter("fault_lost") + tf_counter("drop_no_lid") < 2001) {
        usleep(10000);
    }
    CHECK(tf_counter("fault_lost") > 800 && tf_counter("fault_lost") < 1200);
    tf_do("fabric/fault", "clear", NULL);

    tf_do("fabric/fault", "add", "all", "duplicate", "100", "to", NULL);
    tf_send_text(a, b->lid, 0x300, "twice");
    tf_expect_payload(b, "twice");
    tf_expect_payload(b, "twice");
    tf_expect_silence(b, 50);
    tf_do("fabric/fault", "clear", NULL);

    /* A delay keeps the order. */
    tf_do("fabric/fault", "add", "all", "delay", "200ms", "to", NULL);
    start = time_msec();
    tf_send_text(a, b->lid, 0x300, "1");
    tf_send_text(a, b->lid, 0x300, "2");
    tf_send_text(a, b->lid, 0x300, "3");
    tf_expect_payload(b, "1");
    CHECK(time_msec() - start >= 199);
    tf_expect_payload(b, "2");
    tf_expect_payload(b, "3");
    CHECK(time_msec() - start < 2000);
    tf_do("fabric/fault", "clear", NULL);

    /* Reordering: each pair changes places, and a single one still comes. */
    tf_do("fabric/fault", "add", "all", "reorder", "100", "to", NULL);
    tf_send_text(a, b->lid, 0x300, "1");
    tf_send_text(a, b->lid, 0x300, "2");
    tf_send_text(a, b->lid, 0x300, "3");
    tf_send_text(a, b->lid, 0x300, "4");
    tf_expect_payload(b, "2");
    tf_expect_payload(b, "1");
    tf_expect_payload(b, "4");
    tf_expect_payload(b, "3");
    tf_send_text(a, b->lid, 0x300, "5");
    tf_expect_payload(b, "5");
    /* The port goes while its packet is held. */
    tf_send_text(a, b->lid, 0x300, "6");
    expect_counter("fault_reordered", 4);
    tf_close(b);
    usleep(100000);
    b = tf_attach(GUID_B);
    tf_expect_silence(b, 50);

    free(tf_appctl_fails("fabric/fault", "add", "all", "loss", "101", NULL));
    free(tf_appctl_fails("fabric/fault", "add", "all", "loss", "x", NULL));
    free(tf_appctl_fails("fabric/fault", "add", "all", "rain", "1", NULL));
    free(tf_appctl_fails("fabric/fault", "add", "all", "delay", "1",
                         "kind=odd", NULL));
    free(tf_appctl_fails("fabric/fault", "remove", "77", NULL));
    tf_close(a);
    tf_close(b);
}

/* Load. */

/* Ports and members in great number. */
static void
test_many(void)
{
    enum { N = 1000 };
    struct tf_port *ports[N];
    struct ib_gid broadcast = tf_mgid(0xffffffff);
    struct rlimit limit;

    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    broadcast.raw[12] = 0xff;
    for (int i = 0; i < N; i++) {
        ports[i] = tf_attach(GUID_A + i);
        CHECK_EQ(tf_join(ports[i], &broadcast, IB_JOIN_FULL, false, NULL), 0);
    }
    tf_send_text(ports[0], 0xc000, IB_QPN_MULTICAST, "to all");
    for (int i = 1; i < N; i++) {
        tf_expect_payload(ports[i], "to all");
    }
    for (int i = 0; i < N; i++) {
        CHECK_EQ(ports[i]->lid, ports[0]->lid + i);
        tf_send_text(ports[i], ports[N - 1 - i]->lid, 0x300, "across");
        tf_expect_payload(ports[N - 1 - i], "across");
    }
    CHECK_EQ(tf_counter("drop_send_failed"), 0);
    for (int i = 0; i < N; i++) {
        tf_close(ports[i]);
    }
}

/* A receiver that does not read costs packets, and nobody else. */
static void
test_slow_receiver(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct tf_port *c = tf_attach(GUID_C);
    struct ib_ud ud;
    int n = 0;

    for (int i = 0; i < 20000; i++) {
        send_sized(a, b->lid, 0x300, 2048);
    }
    tf_send_text(a, c->lid, 0x300, "still here");
    tf_expect_payload(c, "still here");
    CHECK(tf_counter("drop_send_failed") > 0);
    for (tf_expect_packet(b, &ud); tf_receive(b, 100); n++) {
        continue;
    }
    CHECK(n > 10);

    /* A PORT that cannot be sent comes later. */
    for (int i = 0; i < 20000; i++) {
        send_sized(a, b->lid, 0x300, 2048);
    }
    tf_do("fabric/set-lid", "2c90300002001", "0x99", NULL);
    while (b->lid != 0x99) {
        tf_expect_port(b);
    }
    CHECK(b->flags & IB_SOFT_PORT_REREGISTER);
    tf_close(a);
    tf_close(b);
    tf_close(c);
}

/* More than 20,000 packets a second pass. */
static void
test_rate(void)
{
    enum { N = 100000, WINDOW = 64 };
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    long long int start = time_usec(), us;
    struct ib_ud ud;

    for (int i = 0; i < N; i += WINDOW) {
        for (int j = 0; j < WINDOW; j++) {
            send_sized(a, b->lid, 0x300, 256);
        }
        for (int j = 0; j < WINDOW; j++) {
            tf_expect_packet(b, &ud);
        }
    }
    us = time_usec() - start;
    printf("%lld packets/s\n", N * 1000000LL / us);
    CHECK(N * 1000000LL / us > 20000);
    tf_close(a);
    tf_close(b);
}

/* Anything at all may come: random messages, and real ones with changes. */
static void
test_fuzz(void)
{
    struct tf_port *a = tf_attach(GUID_A), *b = tf_attach(GUID_B);
    struct ib_gid broadcast = tf_mgid(0xffffffff);
    struct ib_path_record path;

    broadcast.raw[12] = 0xff;
    CHECK_EQ(tf_join(b, &broadcast, IB_JOIN_FULL, false, NULL), 0);
    random_set_seed(1);
    for (int i = 0; i < 60000; i++) {
        static const uint16_t attrs[] = {
            IB_ATTR_CLASS_PORT_INFO, IB_ATTR_NOTICE, IB_ATTR_INFORM_INFO,
            IB_ATTR_NODE_RECORD, IB_ATTR_PORT_INFO_RECORD,
            IB_ATTR_PATH_RECORD, IB_ATTR_MCMEMBER_RECORD,
        };
        static const uint8_t methods[] = {
            IB_METHOD_GET, IB_METHOD_SET, IB_METHOD_GET_TABLE,
            IB_METHOD_DELETE, IB_METHOD_REPORT_RESP,
        };
        struct ib_sa_mad mad;
        struct ib_gid gid = tf_gid(a);

        if (a->closed) {
            /* It attached as something else, or was taken over. */
            close(a->fd);
            free(a);
            a = tf_attach(GUID_A);
        } else if (!(i % 16)) {
            tf_send_attach(a, GUID_A, 5, "fuzz");
        }
        if (!(i % 4)) {
            uint8_t msg[400];
            size_t n = random_range(sizeof msg) + 1;

            random_bytes(msg, n);
            memcpy(msg, "IB\1", MIN(n, 3));
            if (n > 3) {
                msg[3] = i % 8 ? IB_SOFT_PACKET : random_range(7);
            }
            if (n > 11) {
                msg[6] = 0;
                msg[7] = b->lid;
                msg[10] = a->lid >> 8;
                msg[11] = a->lid;
                msg[9] = (n - 6) / 4;
                msg[8] = 0;
            }
            tf_send_raw(a, msg, n);
        } else {
            tf_init_mad(&mad, methods[random_range(ARRAY_SIZE(methods))],
                        attrs[random_range(ARRAY_SIZE(attrs))],
                        (uint64_t) random_uint32() & random_uint32(), NULL,
                        0);
            random_bytes(mad.data, 64);
            if (i % 3) {
                memcpy(mad.data + (ntohs(mad.attr_id) == 0x35 ? 24 : 16),
                       &gid, sizeof gid);
            }
            if (i % 5) {
                mad.data[0] = 0xff;
                mad.data[1] = 0x12;
            }
            if (!(i % 7)) {
                uint8_t *bytes = (uint8_t *) &mad;

                random_bytes(bytes + random_range(250), random_range(6));
            }
            if (!(i % 11)) {
                mad.rmpp_flags = random_uint8();
                mad.rmpp_type = random_range(6);
                mad.rmpp_data1 = htonl(random_range(8));
                mad.rmpp_data2 = htonl(random_range(80));
                mad.tid.hi = mad.tid.lo = 0;
            }
            tf_send_mad(a, &mad);
        }
        while (tf_receive(a, 0) || tf_receive(b, 0)) {
            continue;
        }
    }
    /* Not as GUID_A: what the fabric has not read yet of the old connection
     * may say the same, and then takes the port over. */
    tf_close(a);
    a = tf_attach(GUID_C);
    drain(b);
    CHECK_EQ(tf_path(b, GUID_C, 0xffff, &path), 0);
    CHECK(tf_counter("sa_answers") > 1000);
    CHECK(tf_counter("drop_malformed") > 1000);
    tf_close(a);
    tf_close(b);
}

static void
test_ipoib_fabric_main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        { "attach", test_attach },
        { "bad-messages", test_bad_messages },
        { "forward", test_forward },
        { "lmc", test_lmc },
        { "grh", test_grh },
        { "events", test_events },
        { "udp-reregister", test_udp_reregister },
        { "udp-silence", test_udp_silence },
        { "faults", test_faults },
        { "many", test_many },
        { "slow-receiver", test_slow_receiver },
        { "rate", test_rate },
        { "fuzz", test_fuzz },
        { "opensm", tf_test_opensm },
        { "join", tf_test_join },
        { "path", tf_test_path },
        { "records", tf_test_records },
        { "table", tf_test_table },
        { "rmpp-errors", tf_test_rmpp_errors },
        { "inform", tf_test_inform },
        { "sa-faults", tf_test_sa_faults },
        { "sa-waiting", tf_test_sa_waiting },
        { "sm-restart", tf_test_sm_restart },
        { "sa-headers", tf_test_sa_headers },
        { "made-up", tf_test_made_up },
        { "external", tf_test_external },
    };

    set_program_name(argv[0]);
    vlog_set_levels(NULL, VLF_CONSOLE, VLL_ERR);
    if (argc != 4) {
        ovs_fatal(0, "usage: test-ipoib-fabric TEST ADDRESS UNIXCTL");
    }
    tf_address = argv[2];
    tf_connect_daemon(argv[3]);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        if (!strcmp(argv[1], tests[i].name)) {
            tests[i].run();
            return;
        }
    }
    ovs_fatal(0, "%s: no such test", argv[1]);
}

OVSTEST_REGISTER("test-ipoib-fabric", test_ipoib_fabric_main);
