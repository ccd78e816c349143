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
#include "ipoib-mad.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "fatal-signal.h"
#include "ipoib-mcast.h"
#include "ipoib-path.h"
#include "ipoib-sa.h"
#include "ipoib-verbs.h"
#include "openvswitch/poll-loop.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* test-ipoib-subnet DEVICE N SOCKET [GUID COUNT]
 *
 * Opens DEVICE, a software HCA on a fabric, joins the broadcast group and N
 * others, half of them to send only, and resolves paths: to three other HCAs,
 * to itself, and to one that does not exist.  Goes on until it is told
 * otherwise by "ovs-appctl -t SOCKET exit"; "show" prints one line:
 *
 *     broadcast JOINED, N joined, N attached, N ready, N stale, N failed
 *
 * (and ", needs a GRH" where the port requires one).  With GUID, resolves
 * COUNT paths more, to the GUIDs from GUID on; "ahs" prints how many address
 * handles there are.
 *
 * "refresh" asks for all paths again, "leave" leaves all groups, "break sqe"
 * and "break err" stop the queue pair for management. */

#define CHECK_ERROR(EXPR)                                               \
    do {                                                                \
        int error__ = (EXPR);                                           \
        if (error__) {                                                  \
            ovs_fatal(error__, "%s: %s", OVS_SOURCE_LOCATOR, #EXPR);    \
        }                                                               \
    } while (0)

#define N_PEERS 3
#define OWN_GUID UINT64_C(0x0002c90300100000)

struct subnet {
    const struct ipoib_verbs *verbs;
    struct ibv_context *ctx;
    struct ibv_context *peers[N_PEERS];
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;          /* To attach. */
    bool qp_started;
    struct ipoib_mad_transport *transport;
    struct ibv_qp *mad_qp;      /* Of 'transport'. */
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    struct ipoib_path_table *paths;
    struct ipoib_mcast *mcast;
    struct ibv_port_attr attr;
    bool needs_grh;             /* As 'attr', at the last refresh. */
    int n_attached;
    bool exiting;
};

static void
receive_mad(void *subnet_, const struct ib_sa_mad *mad, uint16_t slid)
{
    struct subnet *subnet = subnet_;

    ipoib_sa_receive(subnet->sa, mad, slid);
}

static void
path_changed(void *subnet OVS_UNUSED, struct ipoib_path *path)
{
    ovs_assert((path->state == IPOIB_PATH_READY) == (path->ah != NULL));
}

static void
group_changed(void *subnet_, struct ipoib_mcast_group *group)
{
    struct subnet *subnet = subnet_;

    if (group == ipoib_mcast_broadcast(subnet->mcast)
        && !subnet->qp_started) {
        struct ipoib_ud_params params = { .port = 1, .qkey = group->qkey };

        CHECK_ERROR(ipoib_verbs_ud_start(subnet->verbs, subnet->qp, &params));
        subnet->qp_started = true;
    }
}

static void
group_removed(void *subnet OVS_UNUSED,
              struct ipoib_mcast_group *group OVS_UNUSED)
{
}

static int
group_attach(void *subnet_, const struct ib_gid *mgid, uint16_t mlid)
{
    struct subnet *subnet = subnet_;
    union ibv_gid gid;
    int error;

    memcpy(gid.raw, mgid->raw, sizeof gid.raw);
    error = subnet->verbs->attach_mcast(subnet->qp, &gid, mlid);
    subnet->n_attached += !error;
    return error;
}

static int
group_detach(void *subnet_, const struct ib_gid *mgid, uint16_t mlid)
{
    struct subnet *subnet = subnet_;
    union ibv_gid gid;
    int error;

    memcpy(gid.raw, mgid->raw, sizeof gid.raw);
    error = subnet->verbs->detach_mcast(subnet->qp, &gid, mlid);
    CHECK_ERROR(error);
    subnet->n_attached--;
    return error;
}

static const struct ipoib_mcast_ops ops = {
    .changed = group_changed,
    .removed = group_removed,
    .attach = group_attach,
    .detach = group_detach,
};

/* The table of verbs, with an eye on the queue pairs that are made. */
static struct ipoib_verbs verbs_table;
static struct ibv_qp *last_qp;
static struct ibv_qp *(*real_create_qp)(struct ibv_pd *,
                                        struct ibv_qp_init_attr *, bool);

static struct ibv_qp *
create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init, bool block)
{
    last_qp = real_create_qp(pd, init, block);
    return last_qp;
}

static struct ibv_context *
open_hca(struct subnet *subnet, const char *device, uint64_t guid)
{
    char *name = xasprintf("%s?guid=0x%016"PRIx64, device, guid);
    struct ibv_context *ctx;
    char *error = NULL;

    ctx = subnet->verbs->open_device(name, &error);
    if (!ctx) {
        ovs_fatal(errno, "%s", error ? error : name);
    }
    free(name);
    return ctx;
}

static void
subnet_open(struct subnet *subnet, const char *device)
{
    struct ibv_qp_init_attr init;

    verbs_table = *ipoib_verbs_for_device(device);
    real_create_qp = verbs_table.create_qp;
    verbs_table.create_qp = create_qp;
    subnet->verbs = &verbs_table;
    subnet->ctx = open_hca(subnet, device, OWN_GUID);
    for (int i = 0; i < N_PEERS; i++) {
        subnet->peers[i] = open_hca(subnet, device, OWN_GUID + 1 + i);
    }
    subnet->pd = subnet->verbs->alloc_pd(subnet->ctx);
    subnet->cq = subnet->verbs->create_cq(subnet->ctx, 16, NULL, NULL, 0);
    ovs_assert(subnet->pd && subnet->cq);
    memset(&init, 0, sizeof init);
    init.send_cq = init.recv_cq = subnet->cq;
    init.qp_type = IBV_QPT_UD;
    init.cap.max_send_wr = init.cap.max_recv_wr = 1;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    subnet->qp = subnet->verbs->create_qp(subnet->pd, &init, true);
    ovs_assert(subnet->qp);

    subnet->sa = ipoib_sa_create();
    subnet->transport = ipoib_mad_qp_create(subnet->verbs, subnet->ctx,
                                            subnet->pd, 1, receive_mad,
                                            subnet);
    if (!subnet->transport) {
        ovs_fatal(errno, "no transport");
    }
    subnet->mad_qp = last_qp;
    ipoib_sa_set_transport(subnet->sa, subnet->transport);
    subnet->reaper = ipoib_ah_reaper_create(subnet->verbs);
    subnet->paths = ipoib_path_table_create(subnet->verbs, subnet->pd,
                                            subnet->sa, subnet->reaper,
                                            path_changed, subnet);
    subnet->mcast = ipoib_mcast_create(subnet->verbs, subnet->pd, subnet->sa,
                                       subnet->reaper, &ops, subnet);
}

static void
subnet_close(struct subnet *subnet)
{
    const struct ipoib_verbs *verbs = subnet->verbs;

    ipoib_mcast_leave_all(subnet->mcast);
    ipoib_mcast_destroy(subnet->mcast);
    ovs_assert(!subnet->n_attached);
    ipoib_path_table_destroy(subnet->paths);
    ipoib_sa_set_transport(subnet->sa, NULL);
    ipoib_sa_destroy(subnet->sa);
    subnet->transport->class->destroy(subnet->transport);
    ipoib_ah_reaper_destroy(subnet->reaper);
    CHECK_ERROR(verbs->destroy_qp(subnet->qp));
    CHECK_ERROR(verbs->destroy_cq(subnet->cq));
    CHECK_ERROR(verbs->dealloc_pd(subnet->pd));
    CHECK_ERROR(verbs->close_device(subnet->ctx));
    for (int i = 0; i < N_PEERS; i++) {
        CHECK_ERROR(verbs->close_device(subnet->peers[i]));
    }
}

/* Reads the port and tells everybody what it is like now. */
static void
subnet_refresh(struct subnet *subnet)
{
    struct ipoib_mcast_params mp = { .port = 1, .pkey = 0xffff };
    struct ipoib_path_params pp = { .port = 1, .pkey = 0xffff };
    struct ipoib_mad_dest dest = { .lid = 0 };
    union ibv_gid gid;

    CHECK_ERROR(subnet->verbs->query_port(subnet->ctx, 1, &subnet->attr));
    CHECK_ERROR(subnet->verbs->query_gid(subnet->ctx, 1, 0, &gid));
    CHECK_ERROR(subnet->transport->class->update(subnet->transport));
    mp.active = subnet->attr.state == IBV_PORT_ACTIVE;
    dest.lid = mp.active ? subnet->attr.sm_lid : 0;
    dest.sl = subnet->attr.sm_sl;
    subnet->needs_grh = subnet->verbs->port_needs_grh(subnet->ctx, 1);
    dest.has_grh = pp.needs_grh = subnet->needs_grh;
    memcpy(mp.port_gid.raw, gid.raw, sizeof gid.raw);
    dest.dgid = ib_gid_make(ib_gid_prefix(&mp.port_gid),
                            UINT64_C(0x0200000000000002));
    ipoib_sa_set_dest(subnet->sa, &dest);

    mp.lid = pp.lid = subnet->attr.lid;
    mp.port_mtu = pp.port_mtu = subnet->attr.active_mtu;
    pp.sgid = mp.port_gid;
    pp.lmc = subnet->attr.lmc;
    ipoib_mcast_set_params(subnet->mcast, &mp);
    if (mp.active) {
        ipoib_path_table_set_params(subnet->paths, &pp);
    }
}

static void
subnet_run(struct subnet *subnet)
{
    long long int now = time_msec();
    struct ibv_async_event event;
    bool news = false;

    while (!subnet->verbs->get_async_event(subnet->ctx, &event)) {
        subnet->verbs->ack_async_event(&event);
        subnet_refresh(subnet);
        news |= (event.event_type == IBV_EVENT_CLIENT_REREGISTER
                 || event.event_type == IBV_EVENT_SM_CHANGE);
    }
    if (news) {
        ipoib_mcast_rejoin_all(subnet->mcast);
        ipoib_path_refresh_all(subnet->paths);
    }
    subnet->transport->class->run(subnet->transport);
    ipoib_sa_run(subnet->sa, now);
    ipoib_path_table_run(subnet->paths, now);
    ipoib_mcast_run(subnet->mcast, now);
    ipoib_ah_reaper_run(subnet->reaper, now);
}

static void
subnet_wait(struct subnet *subnet)
{
    poll_fd_wait(subnet->ctx->async_fd, POLLIN);
    subnet->transport->class->wait(subnet->transport);
    ipoib_sa_wait(subnet->sa);
    ipoib_path_table_wait(subnet->paths);
    ipoib_mcast_wait(subnet->mcast);
    ipoib_ah_reaper_wait(subnet->reaper);
}

/* Commands. */

struct counts {
    int joined, attached, ready, stale, failed;
    bool needs_grh;
};

static void
count_group(const struct ipoib_mcast_group *group, void *counts_)
{
    struct counts *counts = counts_;

    counts->joined += (group->state == IPOIB_MCAST_JOINED && !group->again
                       && !group->request);
    counts->attached += group->attached;
}

static void
count_path(const struct ipoib_path *path, void *counts_)
{
    struct counts *counts = counts_;

    ovs_assert(!path->ah || path->stale
               || path->attr.is_global == counts->needs_grh);

    counts->ready += path->state == IPOIB_PATH_READY;
    counts->stale += path->stale;
    counts->failed += path->state == IPOIB_PATH_FAILED;
}

static void
show(struct unixctl_conn *conn, int argc OVS_UNUSED,
     const char *argv[] OVS_UNUSED, void *subnet_)
{
    struct subnet *subnet = subnet_;
    struct counts counts = { .joined = 0 };
    char *s;

    counts.needs_grh = subnet->needs_grh;
    ipoib_mcast_for_each(subnet->mcast, count_group, &counts);
    ipoib_path_for_each(subnet->paths, count_path, &counts);
    ovs_assert(counts.attached == subnet->n_attached);
    s = xasprintf("broadcast %s, %d joined, %d attached, %d ready, %d stale, "
                  "%d failed%s",
                  ipoib_mcast_broadcast(subnet->mcast) ? "joined" : "missing",
                  counts.joined, counts.attached, counts.ready, counts.stale,
                  counts.failed, counts.needs_grh ? ", needs a GRH" : "");
    unixctl_command_reply(conn, s);
    free(s);
}

static void
show_stats(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *subnet_)
{
    struct subnet *subnet = subnet_;
    struct ipoib_sa_stats stats;
    char *s;

    ipoib_sa_get_stats(subnet->sa, &stats);
    s = xasprintf("sent %"PRIu64", resent %"PRIu64", answers %"PRIu64", "
                  "timeouts %"PRIu64", late %"PRIu64", busy %"PRIu64", "
                  "refused %"PRIu64", bad %"PRIu64,
                  stats.n_sent, stats.n_resent, stats.n_answers,
                  stats.n_timeouts, stats.n_late, stats.n_busy,
                  stats.n_refused, stats.n_bad);
    unixctl_command_reply(conn, s);
    free(s);
}

static void
show_ahs(struct unixctl_conn *conn, int argc OVS_UNUSED,
         const char *argv[] OVS_UNUSED, void *subnet_)
{
    const struct subnet *subnet = subnet_;
    char *s = xasprintf("%"PRIuSIZE, ipoib_ah_count(subnet->reaper));

    unixctl_command_reply(conn, s);
    free(s);
}

static void
do_refresh(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *subnet_)
{
    struct subnet *subnet = subnet_;

    subnet_refresh(subnet);
    ipoib_path_refresh_all(subnet->paths);
    unixctl_command_reply(conn, NULL);
}

static void
do_leave(struct unixctl_conn *conn, int argc OVS_UNUSED,
         const char *argv[] OVS_UNUSED, void *subnet_)
{
    struct subnet *subnet = subnet_;

    ipoib_mcast_leave_all(subnet->mcast);
    unixctl_command_reply(conn, NULL);
}

/* Stops the queue pair for management: in SQE by a work request that is
 * wrong, or in ERR. */
static void
do_break(struct unixctl_conn *conn, int argc OVS_UNUSED,
         const char *argv[], void *subnet_)
{
    struct subnet *subnet = subnet_;

    if (!strcmp(argv[1], "err")) {
        CHECK_ERROR(ipoib_verbs_ud_to_error(subnet->verbs, subnet->mad_qp));
    } else {
        struct ibv_ah_attr attr = { .dlid = 1, .port_num = 1 };
        struct ibv_sge sge = { .addr = 16, .length = 256, .lkey = 0xdead };
        struct ibv_send_wr *bad, wr = {
            .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED,
        };

        wr.wr.ud.ah = subnet->verbs->create_ah(subnet->pd, &attr);
        ovs_assert(wr.wr.ud.ah);
        wr.wr.ud.remote_qpn = 1;
        wr.wr.ud.remote_qkey = IB_QKEY_GSI;
        CHECK_ERROR(ibv_post_send(subnet->mad_qp, &wr, &bad));
        ipoib_ah_retire(subnet->reaper, wr.wr.ud.ah);
    }
    unixctl_command_reply(conn, NULL);
}

static void
do_exit(struct unixctl_conn *conn, int argc OVS_UNUSED,
        const char *argv[] OVS_UNUSED, void *subnet_)
{
    struct subnet *subnet = subnet_;

    subnet->exiting = true;
    unixctl_command_reply(conn, NULL);
}

static void
test_ipoib_subnet_main(int argc, char *argv[])
{
    struct subnet subnet = { .exiting = false };
    struct unixctl_server *server;
    int n_groups;

    set_program_name(argv[0]);
    if (argc != 4 && argc != 6) {
        ovs_fatal(0, "usage: %s DEVICE N SOCKET [GUID COUNT]", argv[0]);
    }
    fatal_ignore_sigpipe();
    coverage_init();
    n_groups = atoi(argv[2]);
    CHECK_ERROR(unixctl_server_create(argv[3], &server));
    unixctl_command_register("show", "", 0, 0, show, &subnet);
    unixctl_command_register("ahs", "", 0, 0, show_ahs, &subnet);
    unixctl_command_register("stats", "", 0, 0, show_stats, &subnet);
    unixctl_command_register("refresh", "", 0, 0, do_refresh, &subnet);
    unixctl_command_register("leave", "", 0, 0, do_leave, &subnet);
    unixctl_command_register("break", "sqe|err", 1, 1, do_break, &subnet);
    unixctl_command_register("exit", "", 0, 0, do_exit, &subnet);
    subnet_open(&subnet, argv[1]);
    subnet_refresh(&subnet);

    for (int i = 0; i < n_groups; i++) {
        struct ib_gid mgid = { { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff } };

        mgid.raw[13] = 1;
        mgid.raw[14] = i >> 8;
        mgid.raw[15] = i;
        ovs_assert(ipoib_mcast_want(subnet.mcast, &mgid,
                                    i & 1 ? IPOIB_MCAST_SEND
                                    : IPOIB_MCAST_RECV));
    }
    for (int i = 0; i < N_PEERS + 2; i++) {
        struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, OWN_GUID + i);

        ipoib_path_ref(subnet.paths, &gid);
    }
    for (int i = 0; argc > 5 && i < atoi(argv[5]); i++) {
        struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT,
                                        strtoull(argv[4], NULL, 16) + i);

        ipoib_path_ref(subnet.paths, &gid);
    }
    while (!subnet.exiting) {
        subnet_run(&subnet);
        unixctl_server_run(server);
        subnet_wait(&subnet);
        unixctl_server_wait(server);
        poll_block();
    }
    subnet_close(&subnet);
    unixctl_server_destroy(server);
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-subnet", test_ipoib_subnet_main);
