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
#include "ipoib-hca.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "openvswitch/poll-loop.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

/* <infiniband/umad.h> has functions of these names, unless they are macros. */
#define ntohll ntohll
#define htonll htonll
#include <infiniband/umad.h>

/* test-ipoib-umad client CA N
 *
 *     An SA client over libibumad on port 1 of CA: joins the broadcast group
 *     and N others, resolves paths, and leaves.  Prints "ok".
 *
 * test-ipoib-umad gone CA
 *
 *     The same where no SA answers: requests come back undelivered.
 *
 * test-ipoib-umad fallback CA eperm|silent|umad
 *
 *     An HCA (a software one, that is taken for CA) on which a queue pair for
 *     the SA cannot be made, or gets no answer, or is not wanted: it finds the
 *     SA by libibumad.
 *
 * test-ipoib-umad none
 *
 *     The same where there is no libibumad: it stays with its queue pair. */

struct client {
    struct ipoib_mad_transport *transport;
    struct ipoib_sa *sa;
    struct ib_gid gid;
    int n_ok, n_refused, n_timeouts;
    size_t n_records;           /* Of the last table, and */
    bool has_broadcast;         /* whether 'rec' was there. */
    struct ib_mcmember_record rec; /* Of the last answer that is one. */
};

static void
receive(void *client_, const struct ib_sa_mad *mad, uint16_t slid)
{
    struct client *client = client_;

    ipoib_sa_receive(client->sa, mad, slid);
}

static void
undelivered(void *client_, const struct ib_sa_mad *mad)
{
    struct client *client = client_;

    ipoib_sa_undelivered(client->sa, mad);
}

static void
answer(void *client_, int error, uint16_t status, const struct ib_sa_mad *mad)
{
    struct client *client = client_;

    client->n_ok += !error && !status;
    client->n_refused += !error && status;
    client->n_timeouts += error == ETIMEDOUT;
    if (!error && !status
        && mad->attr_id == htons(IB_ATTR_MCMEMBER_RECORD)) {
        memcpy(&client->rec, mad->data, sizeof client->rec);
    }
}

/* Runs until all requests have ended, or for 30 seconds. */
static void
client_run(struct client *client)
{
    long long int end = time_msec() + 30000;
    struct ipoib_sa_stats stats;

    do {
        client->transport->class->run(client->transport);
        ipoib_sa_run(client->sa, time_msec());
        ipoib_sa_get_stats(client->sa, &stats);
        ovs_assert(!client->transport->broken);
        if (!stats.n_outstanding && !stats.n_queued) {
            return;
        }
        client->transport->class->wait(client->transport);
        ipoib_sa_wait(client->sa);
        poll_timer_wait_until(end);
        poll_block();
    } while (time_msec() < end);
    ovs_fatal(0, "%u requests are outstanding", stats.n_outstanding);
}

static void
expect(struct client *client, const char *what, int n_ok, int n_refused,
       int n_timeouts)
{
    client_run(client);
    if (client->n_ok != n_ok || client->n_refused != n_refused
        || client->n_timeouts != n_timeouts) {
        ovs_fatal(0, "%s: %d ok, %d refused, %d timeouts", what, client->n_ok,
                  client->n_refused, client->n_timeouts);
    }
    client->n_ok = client->n_refused = client->n_timeouts = 0;
}

static void
read_port(const char *ca, uint16_t *sm_lid, struct ib_gid *gid)
{
    umad_port_t port;

    if (umad_get_port(ca, 1, &port) < 0) {
        ovs_fatal(0, "no port 1 of %s", ca);
    }
    *sm_lid = port.sm_lid;
    memcpy(&gid->raw[0], &port.gid_prefix, 8);
    memcpy(&gid->raw[8], &port.port_guid, 8);
    umad_release_port(&port);
}

static void
client_open(struct client *client, const char *ca)
{
    struct ipoib_mad_dest dest = { .lid = 0 };

    memset(client, 0, sizeof *client);
    client->sa = ipoib_sa_create();
    client->transport = ipoib_mad_umad_create(ca, 1, receive, client);
    if (!client->transport) {
        ovs_fatal(errno, "%s", ca);
    }
    client->transport->undelivered = undelivered;
    read_port(ca, &dest.lid, &client->gid);
    ovs_assert(dest.lid);
    ipoib_sa_set_transport(client->sa, client->transport);
    ipoib_sa_set_dest(client->sa, &dest);
}

static void
client_close(struct client *client)
{
    ipoib_sa_set_transport(client->sa, NULL);
    ipoib_sa_destroy(client->sa);
    client->transport->class->destroy(client->transport);
}

/* Joins or leaves group 'i' (-1: the broadcast group), like the broadcast
 * group 'b'. */
static void
client_mcast(struct client *client, int i, bool join,
             const struct ib_mcmember_record *b)
{
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    if (i >= 0) {
        rec = *b;
        rec.mgid = (struct ib_gid) { { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff } };
        rec.mgid.raw[14] = i >> 8;
        rec.mgid.raw[15] = i;
        rec.mtu = IB_SELECTOR_EXACTLY << 6 | (b->mtu & 0x3f);
        rec.rate = IB_SELECTOR_EXACTLY << 6 | (b->rate & 0x3f);
    } else {
        rec.mgid = (struct ib_gid) { {
            0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
            0xff, 0xff } };
    }
    rec.port_gid = client->gid;
    rec.pkey = htons(IB_PKEY_DEFAULT);
    rec.scope_join = IB_JOIN_FULL;
    ipoib_sa_send(client->sa, join ? IB_METHOD_SET : IB_METHOD_DELETE,
                  IB_ATTR_MCMEMBER_RECORD,
                  !join ? IB_MCM_MASK_LEAVE
                  : i < 0 ? IB_MCM_MASK_JOIN_BROADCAST : IB_MCM_MASK_CREATE,
                  &rec, sizeof rec, answer, client);
}

static void
client_path(struct client *client, uint64_t xor_guid)
{
    struct ib_path_record rec;

    memset(&rec, 0, sizeof rec);
    rec.sgid = client->gid;
    rec.dgid = ib_gid_make(ib_gid_prefix(&client->gid),
                           ib_gid_guid(&client->gid) ^ xor_guid);
    rec.pkey = htons(IB_PKEY_DEFAULT);
    rec.numb_path = 1;
    ipoib_sa_send(client->sa, IB_METHOD_GET, IB_ATTR_PATH_RECORD,
                  IB_PR_MASK_IPOIB, &rec, sizeof rec, answer, client);
}

static void
table_answer(void *client_, int error, uint16_t status, const uint8_t *records,
             size_t n, size_t size)
{
    struct client *client = client_;

    client->n_ok += !error && !status;
    client->n_refused += !error && status;
    client->n_timeouts += error == ETIMEDOUT;
    client->n_records = n;
    for (size_t i = 0; i < n; i++) {
        client->has_broadcast |= !memcmp(records + i * size, &client->rec.mgid,
                                         sizeof client->rec.mgid);
    }
}

/* Asks for the table of groups, of which 'n' records are to come.  (Of answers
 * of several datagrams, libumad2sim hands on the first one, with three.) */
static void
client_table(struct client *client, size_t n)
{
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    rec.pkey = htons(IB_PKEY_DEFAULT);
    ipoib_sa_send_get_table(client->sa, IB_ATTR_MCMEMBER_RECORD, IB_MCM_PKEY,
                            &rec, sizeof rec, table_answer, client);
    expect(client, "table", 1, 0, 0);
    if (client->n_records != n) {
        ovs_fatal(0, "%"PRIuSIZE" records", client->n_records);
    }
}

static void
test_client(const char *ca, int n)
{
    struct ib_mcmember_record b;
    struct ipoib_sa_stats stats;
    struct client client;

    client_open(&client, ca);
    expect(&client, "ClassPortInfo", 0, 0, 0);
    ovs_assert(ipoib_sa_send_only_full_member(client.sa));
    client_mcast(&client, -1, true, NULL);
    expect(&client, "broadcast", 1, 0, 0);
    b = client.rec;
    client_table(&client, 1);
    ovs_assert(client.has_broadcast);
    for (int i = 0; i < n; i++) {
        client_mcast(&client, i, true, &b);
    }
    expect(&client, "joins", n, 0, 0);
    client_table(&client, MIN(n + 1, 3));
    client_path(&client, 0);
    client_path(&client, UINT64_C(1) << 40);
    expect(&client, "paths", 1, 1, 0);
    for (int i = 0; i < n; i++) {
        client_mcast(&client, i, false, &b);
    }
    expect(&client, "leaves", n, 0, 0);
    ipoib_sa_get_stats(client.sa, &stats);
    ovs_assert(!stats.n_bad && !stats.n_late && !stats.n_undelivered);
    client_close(&client);

    /* Once more: everything was released. */
    client_open(&client, ca);
    client_path(&client, 0);
    expect(&client, "again", 1, 0, 0);
    client_close(&client);
}

static void
test_gone(const char *ca)
{
    struct ipoib_sa_stats stats;
    struct ipoib_sa_info info;
    struct client client;
    long long int start = time_msec();

    client_open(&client, ca);
    client_path(&client, 0);
    expect(&client, "path", 0, 0, 1);
    ipoib_sa_get_stats(client.sa, &stats);
    ipoib_sa_get_info(client.sa, &info);
    ovs_assert(info.silent && !info.known);
    ovs_assert(stats.n_undelivered >= 6);
    /* No need to wait for 7.5 s where all tries came back at once. */
    ovs_assert(time_msec() - start < 5000);
    client_close(&client);
}

/* The table of verbs of the HCA, changed. */
static struct ipoib_verbs verbs;
static uint16_t sm_lid;

static int
query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int error = ipoib_verbs_soft.query_port(ctx, port, attr);

    attr->sm_lid = sm_lid;
    return error;
}

static int
modify_qp_eperm(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_QKEY && attr->qkey & 0x80000000) {
        return EPERM;
    }
    return ipoib_verbs_soft.modify_qp(qp, attr, mask);
}

static struct ibv_ah *
create_ah_nowhere(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    attr->dlid = 0xb000;
    return ipoib_verbs_soft.create_ah(pd, attr);
}

static struct ipoib_hca_port *
fallback_open(const char *ca, const char *how)
{
    struct ipoib_hca_port *port;
    struct ipoib_hca *hca;
    char *errp = NULL;

    if (ipoib_hca_ref("soft:loop", &hca, &errp)) {
        ovs_fatal(0, "%s", errp);
    }
    ovs_mutex_lock(&hca->mutex);
    verbs = ipoib_verbs_soft;
    verbs.query_port = query_port;
    if (!strcmp(how, "eperm")) {
        verbs.modify_qp = modify_qp_eperm;
    } else if (!strcmp(how, "silent")) {
        verbs.create_ah = create_ah_nowhere;
    }
    hca->verbs = &verbs;
    if (ca) {
        ovs_strlcpy(hca->ctx->device->name, ca,
                    sizeof hca->ctx->device->name);
    }
    ovs_assert(!ipoib_hca_port_ref(hca, 1, &port));
    if (!strcmp(how, "umad")) {
        ipoib_hca_port_set_sa_mode(port, IPOIB_SA_UMAD);
    }
    ovs_mutex_unlock(&hca->mutex);
    ipoib_hca_kick(hca);
    return port;
}

/* Waits until the SA has told its capabilities by 'transport', 'seconds' at
 * most. */
static bool
fallback_wait(struct ipoib_hca_port *port, const char *transport, int seconds)
{
    long long int end = time_msec() + seconds * 1000;

    while (time_msec() < end) {
        struct ipoib_sa_info info;
        bool done;

        ovs_mutex_lock(&port->hca->mutex);
        ipoib_sa_get_info(port->sa, &info);
        done = (port->transport
                && !strcmp(port->transport->class->name, transport)
                && info.known);
        ovs_mutex_unlock(&port->hca->mutex);
        if (done) {
            return true;
        }
        xnanosleep(10 * 1000 * 1000);
    }
    return false;
}

static void
fallback_close(struct ipoib_hca_port *port)
{
    struct ipoib_hca *hca = port->hca;

    ovs_mutex_lock(&hca->mutex);
    ipoib_hca_port_unref(port);
    ovs_mutex_unlock(&hca->mutex);
    ipoib_hca_unref(hca);
}

static void
test_fallback(const char *ca, const char *how)
{
    struct ipoib_hca_port *port;
    struct ib_gid gid;

    read_port(ca, &sm_lid, &gid);
    port = fallback_open(ca, how);
    ovs_assert(fallback_wait(port, "umad", 10));
    if (strcmp(how, "umad")) {
        ovs_mutex_lock(&port->hca->mutex);
        ovs_assert(port->use_umad && port->sa_mode == IPOIB_SA_AUTO);
        ovs_assert(port->events.n
                   && (port->events.events[port->events.n - 1].type
                       == IPOIB_EVENT_SA));
        ovs_mutex_unlock(&port->hca->mutex);
    }
    fallback_close(port);
}

static void
test_none(void)
{
    struct ipoib_hca_port *port;

    sm_lid = 1;
    port = fallback_open(NULL, "silent");
    ovs_assert(!fallback_wait(port, "umad", 5));
    ovs_mutex_lock(&port->hca->mutex);
    ovs_assert(!strcmp(port->transport->class->name, "qp"));
    ovs_assert(!port->use_umad);

    /* Not what the user wants: then there is none, and a reason. */
    ipoib_hca_port_set_sa_mode(port, IPOIB_SA_UMAD);
    ovs_assert(!port->transport);
    ovs_mutex_unlock(&port->hca->mutex);
    ovs_assert(!fallback_wait(port, "umad", 1));
    ovs_mutex_lock(&port->hca->mutex);
    ovs_assert(!port->transport && port->transport_error);

    verbs.create_ah = ipoib_verbs_soft.create_ah;
    ipoib_hca_port_set_sa_mode(port, IPOIB_SA_QP);
    ovs_mutex_unlock(&port->hca->mutex);
    ovs_assert(fallback_wait(port, "qp", 10));
    fallback_close(port);
}

static void
test_ipoib_umad_main(int argc, char *argv[])
{
    set_program_name(argv[0]);
    if (argc == 4 && !strcmp(argv[1], "client")) {
        test_client(argv[2], atoi(argv[3]));
    } else if (argc == 3 && !strcmp(argv[1], "gone")) {
        test_gone(argv[2]);
    } else if (argc == 4 && !strcmp(argv[1], "fallback")) {
        test_fallback(argv[2], argv[3]);
    } else if (argc == 2 && !strcmp(argv[1], "none")) {
        test_none();
    } else {
        ovs_fatal(0, "bad arguments");
    }
    printf("ok\n");
}

OVSTEST_REGISTER("test-ipoib-umad", test_ipoib_umad_main);
