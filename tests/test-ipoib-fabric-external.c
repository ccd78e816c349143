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
#include "test-ipoib-fabric.h"

#include <string.h>

#include "timeval.h"
#include "util.h"

/* The fabric under an external subnet manager: an OpenSM with the partitions
 *
 *     0x7fff: all full                     MTU 2048
 *     0x0005: all full, Q_Key 0x1234, MTU 1024
 *     0x0006: all limited                  MTU 2048
 */

#define GUID_A UINT64_C(0x0002c90300000001)
#define GUID_B UINT64_C(0x0002c90300000002)
#define GUID_C UINT64_C(0x0002c90300000003)
#define PORT_ACTIVE 4
#define WAIT_MS 5000
#define SILENCE_MS 50

/* Waits until the manager has made 'port' active, with a LID and 'n_pkeys'
 * P_Keys. */
static void
wait_active(struct tf_port *port, int n_pkeys)
{
    long long int deadline = time_wall_msec() + WAIT_MS;

    while (port->state != PORT_ACTIVE || port->n_pkeys < n_pkeys) {
        CHECK(time_wall_msec() < deadline);
        tf_receive(port, 100);
    }
    CHECK(port->lid);
    CHECK(port->sm_lid);
}

/* Attaches a port and waits until it is active. */
static struct tf_port *
attach(uint64_t guid, uint8_t max_mtu, const char *name)
{
    struct tf_port *port = tf_open();

    tf_send_attach(port, guid, max_mtu, name);
    tf_expect_port(port);
    CHECK(port->flags & IB_SOFT_PORT_REREGISTER);
    wait_active(port, 3);
    return port;
}

static struct ib_gid
broadcast_gid(uint8_t pkey)
{
    return (struct ib_gid) { { 0xff, 0x12, 0x40, 0x1b, 0x80, pkey, 0, 0,
                               0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff } };
}

/* Sends 'text' from 'port' to the group 'mgid' of 'mlid' until it arrives at
 * 'to': a join is answered before the switches know of it. */
static void
send_until_received(struct tf_port *port, struct tf_port *to, uint16_t mlid,
                    const char *text)
{
    long long int deadline = time_wall_msec() + WAIT_MS;

    for (;;) {
        tf_send_text(port, mlid, IB_QPN_MULTICAST, text);
        if (tf_receive(to, 20) == IB_SOFT_PACKET) {
            break;
        }
        CHECK(time_wall_msec() < deadline);
    }
}

/* Takes what still comes to 'port'. */
static void
drain(struct tf_port *port)
{
    while (tf_receive(port, SILENCE_MS)) {
        continue;
    }
}

static void
check_pkeys(const struct tf_port *port)
{
    CHECK_EQ(port->pkeys[0], 0xffff);
    CHECK_EQ(port->n_pkeys, 3);
    CHECK((port->pkeys[1] == 0x8005 && port->pkeys[2] == 0x0006)
          || (port->pkeys[1] == 0x0006 && port->pkeys[2] == 0x8005));
}

static void
check_paths(struct tf_port *a, struct tf_port *b)
{
    struct ib_path_record path;

    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
    CHECK_EQ(ntohs(path.slid), a->lid);
    CHECK_EQ(ntohs(path.dlid), b->lid);
    CHECK_EQ(path.mtu & 0x3f, 4);
    CHECK_EQ(tf_path(a, GUID_B, 0x8005, &path), 0);
    CHECK_EQ(ntohs(path.pkey), 0x8005);
    CHECK(tf_path(a, UINT64_C(0x0002c90300009999), 0xffff, &path));
    CHECK(tf_path(a, GUID_B, 0x8007, &path));
}

/* Joins the broadcast group of 'pkey'. */
static uint16_t
join_broadcast(struct tf_port *port, uint8_t pkey,
               struct ib_mcmember_record *r)
{
    struct ib_sa_mad answer;
    uint16_t status;

    memset(r, 0, sizeof *r);
    r->mgid = broadcast_gid(pkey);
    r->port_gid = tf_gid(port);
    r->pkey = htons(IB_PKEY_FULL | pkey);
    r->scope_join = IB_JOIN_FULL;
    status = tf_sa(port, IB_METHOD_SET, IB_ATTR_MCMEMBER_RECORD,
                   IB_MCM_MASK_JOIN_BROADCAST, r, sizeof *r, &answer);
    memcpy(r, answer.data, sizeof *r);
    return status;
}

static void
check_broadcast_groups(struct tf_port *a)
{
    struct ib_mcmember_record r;
    struct ib_gid mgid = broadcast_gid(5);

    CHECK_EQ(join_broadcast(a, 5, &r), 0);
    CHECK_EQ(ntohl(r.qkey), 0x1234);
    CHECK_EQ(r.mtu & 0x3f, 3);
    CHECK_EQ(tf_leave(a, &mgid, IB_JOIN_FULL), 0);
    CHECK_EQ(tf_leave(a, &mgid, IB_JOIN_FULL), IB_SA_REQ_INVALID);
    CHECK_EQ(join_broadcast(a, 7, &r), IB_SA_INSUFFICIENT_COMPS);
}

/* Packets of the broadcast group go to members, and to those that are members
 * to send only as well. */
static void
check_multicast(struct tf_port *a, struct tf_port *b, struct tf_port *c)
{
    struct ib_gid mgid = broadcast_gid(0);
    struct ib_mcmember_record r;
    uint16_t mlid;

    mgid.raw[4] = mgid.raw[5] = 0xff;
    CHECK_EQ(tf_join(a, &mgid, IB_JOIN_FULL, false, &r), 0);
    mlid = ntohs(r.mlid);
    CHECK(mlid >= IB_LID_MULTICAST);

    /* One member is none. */
    drain(a);
    tf_send_text(c, mlid, IB_QPN_MULTICAST, "too early");
    tf_expect_silence(a, SILENCE_MS);

    CHECK_EQ(tf_join(b, &mgid, IB_JOIN_FULL, false, &r), 0);
    CHECK_EQ(ntohs(r.mlid), mlid);
    send_until_received(a, b, mlid, "to b");
    drain(b);
    send_until_received(b, a, mlid, "to a");
    drain(a);
    tf_expect_silence(c, SILENCE_MS);

    CHECK_EQ(tf_join(c, &mgid, IB_JOIN_SEND_ONLY_FULL, false, &r), 0);
    send_until_received(a, c, mlid, "to c, which drops it");
    drain(c);
    send_until_received(c, a, mlid, "from c");
    drain(a);
    drain(b);

    CHECK_EQ(tf_leave(c, &mgid, IB_JOIN_SEND_ONLY_FULL), 0);
    CHECK_EQ(tf_leave(b, &mgid, IB_JOIN_FULL), 0);
}

static void
check_unicast(struct tf_port *a, struct tf_port *b, struct tf_port *c)
{
    uint64_t no_lid = tf_counter("drop_no_lid");

    tf_send_text(a, b->lid, 0x200, "a to b");
    tf_expect_payload(b, "a to b");
    tf_send_text(b, c->lid, 0x200, "b to c");
    tf_expect_payload(c, "b to c");
    tf_send_text(c, 0x1234, 0x200, "to nobody");
    tf_send_text(c, 2, IB_QPN_GSI, "to a switch, or to the SM");
    tf_expect_silence(a, SILENCE_MS);
    tf_expect_silence(b, SILENCE_MS);
    CHECK(tf_counter("drop_no_lid") > no_lid);
}

/* A port with a small MTU, to which too large a packet from 'b' does not go,
 * and which cannot join the broadcast group. */
static void
check_small(struct tf_port *b)
{
    struct tf_port *small = attach(UINT64_C(0x0002c90300000005), 3, "small");
    uint64_t too_long = tf_counter("drop_too_long");
    struct ib_mcmember_record r;
    struct ib_gid mgid = broadcast_gid(0);
    static char text[1500];

    CHECK_EQ(small->mtu, 3);
    mgid.raw[4] = mgid.raw[5] = 0xff;
    CHECK_EQ(tf_join(small, &mgid, IB_JOIN_FULL, false, &r),
             IB_SA_REQ_INVALID);
    memset(text, 'x', sizeof text - 1);
    tf_send_text(b, small->lid, 0x200, text);
    tf_expect_silence(small, SILENCE_MS);
    CHECK_EQ(tf_counter("drop_too_long"), too_long + 1);
    tf_close(small);
}

/* Subscribes to Reports, and gets one when 'guid' attaches. */
static void
check_report(struct tf_port *a)
{
    struct ib_inform_info inform;
    struct ib_sa_mad mad;
    struct tf_port *d;

    memset(&inform, 0, sizeof inform);
    inform.lid_begin = htons(0xffff);
    inform.is_generic = 1;
    inform.subscribe = 1;
    inform.type = htons(0xffff);
    inform.trap_number = htons(IB_TRAP_PORT_IN_SERVICE);
    inform.producer = htonl(0xffffff);
    CHECK_EQ(tf_sa(a, IB_METHOD_SET, IB_ATTR_INFORM_INFO, 0x1b6, &inform,
                   sizeof inform, &mad), 0);
    d = attach(UINT64_C(0x0002c90300000004), 4, "d");
    do {
        tf_expect_mad(a, &mad);
    } while (mad.method != IB_METHOD_REPORT);
    CHECK_EQ(ntohs(mad.attr_id), IB_ATTR_NOTICE);
    mad.method = IB_METHOD_REPORT_RESP;
    tf_send_mad(a, &mad);
    tf_close(d);
}

/* Faults on requests work as with the built-in manager. */
static void
check_faults(struct tf_port *a)
{
    struct ib_path_record path;

    tf_do("fabric/sa-fault", "add", "all", "busy", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), IB_MAD_STATUS_BUSY);
    tf_do("fabric/sa-fault", "clear", NULL);
    CHECK_EQ(tf_path(a, GUID_B, 0xffff, &path), 0);
}

void
tf_test_external(void)
{
    struct tf_port *a = attach(GUID_A, 4, "a");
    struct tf_port *b = attach(GUID_B, 5, "b");
    struct tf_port *c = attach(GUID_C, 4, "c");
    uint16_t lid = a->lid;

    CHECK_EQ(a->mtu, 4);
    CHECK_EQ(b->mtu, 4);
    check_small(b);
    check_pkeys(a);
    check_paths(a, b);
    check_unicast(a, b, c);
    check_broadcast_groups(a);
    check_multicast(a, b, c);
    check_report(a);
    check_faults(a);

    /* It is attached anew, and is what it was. */
    tf_close(a);
    a = attach(GUID_A, 4, "a again");
    CHECK_EQ(a->lid, lid);
    check_paths(a, b);

    tf_close(a);
    tf_close(b);
    tf_close(c);
}
