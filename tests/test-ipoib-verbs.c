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
#include "test-ipoib-verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include "ipoib-soft.h"
#include "openvswitch/dynamic-string.h"
#include "ovs-rcu.h"
#include "ovstest.h"

/* How a device of 'struct ipoib_verbs' behaves, one line a check, as TAP:
 *
 *   test-ipoib-verbs [--control=COMMAND] [--qps=N] DEVICE [OTHER]
 *
 * DEVICE and OTHER (by default the same device, opened once) are ports of one
 * subnet with a subnet administrator.  COMMAND is run by the shell with
 * arguments that change the subnet; without it, what needs that is skipped:
 *
 *   lid GUID LID | lmc GUID N | state GUID 1..4 | pkeys GUID A,B,...
 *   smlid LID | prefix HEX | rereg GUID | grh GUID on|off
 *
 * GUID is a port's, in hex.
 */

#define SLOT   4608             /* A receive buffer: GRH, 4096 bytes, more. */
#define N_SLOTS 128
#define SEND_SLOT N_SLOTS       /* One slot more, to send from. */
#define QKEY   0x11223344u

static struct dev dev_a, dev_b;
struct dev *A, *B;
const char *control;
static int n_many = 4000;
static int n_checks, n_failed;

/* Output. */

void
check(bool good, const char *format, ...)
{
    va_list args;

    printf("%s %d - ", good ? "ok" : "not ok", ++n_checks);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    n_failed += !good;
}

void
skip(const char *what, const char *why)
{
    printf("ok %d - %s # SKIP %s\n", ++n_checks, what, why);
}

/* Objects. */

void
open_dev(struct dev *d, const char *name)
{
    char *error;

    d->name = name;
    d->v = ipoib_verbs_for_device(name);
    d->ctx = d->v->open_device(name, &error);
    if (!d->ctx) {
        ovs_fatal(0, "%s", error);
    }
    d->pd = d->v->alloc_pd(d->ctx);
    ovs_assert(d->pd);
}

bool
port_is(struct dev *d, enum ibv_port_state state)
{
    return (!d->v->query_port(d->ctx, 1, &d->port)
            && d->port.state == state);
}

/* Waits until the port of 'd' is in 'state'. */
bool
wait_port(struct dev *d, enum ibv_port_state state)
{
    long long int end = time_msec() + 5000;

    while (!port_is(d, state)) {
        if (time_msec() > end) {
            return false;
        }
        xnanosleep(5 * 1000 * 1000);
    }
    return !d->v->query_gid(d->ctx, 1, 0, &d->gid);
}

struct ibv_qp *
make_qp(struct end *e, int send_wr, int inline_len, bool block)
{
    struct ibv_qp_init_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.send_cq = e->scq;
    attr.recv_cq = e->rcq;
    attr.srq = e->srq;
    attr.qp_type = IBV_QPT_UD;
    attr.cap.max_send_wr = send_wr;
    attr.cap.max_send_sge = 2;
    attr.cap.max_inline_data = inline_len;
    if (!e->srq) {
        attr.cap.max_recv_wr = N_SLOTS;
        attr.cap.max_recv_sge = 2;
    }
    return e->d->v->create_qp(e->d->pd, &attr, block);
}

int
start(struct end *e, struct ibv_qp *qp, uint16_t pkey_index, uint32_t qkey)
{
    struct ipoib_ud_params p = { .port = 1, .pkey_index = pkey_index,
                                 .qkey = qkey };

    return ipoib_verbs_ud_restart(e->d->v, qp, &p);
}

void
make_end(struct end *e, struct dev *d, struct ibv_srq *srq)
{
    memset(e, 0, sizeof *e);
    e->d = d;
    e->srq = srq;
    e->size = SLOT * (N_SLOTS + 1);
    e->mem = xmalloc_pagealign(e->size);
    memset(e->mem, 0, e->size);
    e->mr = d->v->reg_mr(d->pd, e->mem, e->size, IBV_ACCESS_LOCAL_WRITE);
    e->scq = d->v->create_cq(d->ctx, N_SLOTS, NULL, NULL, 0);
    e->rcq = d->v->create_cq(d->ctx, N_SLOTS, NULL, NULL, 0);
    ovs_assert(e->mr && e->scq && e->rcq);
    e->qp = make_qp(e, 64, 0, false);
    ovs_assert(e->qp && !start(e, e->qp, 0, QKEY));
}

void
free_end(struct end *e)
{
    const struct ipoib_verbs *v = e->d->v;

    if (e->qp) {
        ovs_assert(!v->destroy_qp(e->qp));
    }
    ovs_assert(!v->destroy_cq(e->scq));
    ovs_assert(!v->destroy_cq(e->rcq));
    ovs_assert(!v->dereg_mr(e->mr));
    free_pagealign(e->mem);
}

struct ibv_srq *
make_srq(struct dev *d, uint32_t max_wr)
{
    struct ibv_srq_init_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.attr.max_wr = max_wr;
    attr.attr.max_sge = 2;
    return d->v->create_srq(d->pd, &attr);
}

struct ibv_ah *
make_ah(struct dev *d, uint16_t dlid, const union ibv_gid *dgid)
{
    struct ibv_ah_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.dlid = dlid;
    attr.port_num = 1;
    attr.sl = 3;
    if (dgid) {
        attr.is_global = 1;
        attr.grh.dgid = *dgid;
        attr.grh.flow_label = 0x54321;
        attr.grh.traffic_class = 0xa5;
        attr.grh.hop_limit = 9;
    }
    return d->v->create_ah(d->pd, &attr);
}

enum ibv_qp_state
state_of(struct end *e)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    return (e->d->v->query_qp(e->qp, &attr, IBV_QP_STATE, &init)
            ? IBV_QPS_UNKNOWN : attr.qp_state);
}

int
set_state(struct end *e, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = QKEY;
    return e->d->v->modify_qp(qp, &attr, IBV_QP_STATE
                              | (state == IBV_QPS_INIT
                                 ? (IBV_QP_PORT | IBV_QP_QKEY
                                    | IBV_QP_PKEY_INDEX) : 0));
}

/* Completions. */

/* Polls up to 'n' completions, for up to 'ms' milliseconds. */
int
poll_n(struct ibv_cq *cq, struct ibv_wc *wc, int n, int ms)
{
    long long int end = time_msec() + ms;
    int have = 0;

    ovsrcu_quiesce();
    for (;;) {
        int k = ibv_poll_cq(cq, n - have, wc + have);

        if (k < 0) {
            return k;
        }
        have += k;
        if (have == n || time_msec() > end) {
            return have;
        }
        if (!k) {
            xnanosleep(200 * 1000);
        }
    }
}

bool
poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
    return poll_n(cq, wc, 1, 3000) == 1;
}

bool
poll_none(struct ibv_cq *cq)
{
    struct ibv_wc wc;

    return poll_n(cq, &wc, 1, 100) == 0;
}

/* Waits up to 'ms' for the asynchronous event 'type' of 'element' (NULL:
 * whatever's), dropping others. */
bool
wait_event(struct dev *d, enum ibv_event_type type, void *element, int ms)
{
    long long int end = time_msec() + ms;

    for (;;) {
        struct pollfd pfd = { .fd = d->ctx->async_fd, .events = POLLIN };
        struct ibv_async_event e;

        while (!d->v->get_async_event(d->ctx, &e)) {
            bool found = (e.event_type == type
                          && (!element || element == e.element.qp));

            d->v->ack_async_event(&e);
            if (found) {
                return true;
            }
        }
        if (time_msec() >= end) {
            return false;
        }
        ignore(poll(&pfd, 1, MAX(1, end - time_msec())));
    }
}

void
drop_events(struct dev *d)
{
    struct ibv_async_event e;

    while (!d->v->get_async_event(d->ctx, &e)) {
        d->v->ack_async_event(&e);
    }
}

/* Sending and receiving. */

uint8_t *
slot(struct end *e, int i)
{
    return e->mem + (size_t) i * SLOT;
}

uint64_t
addr_of(struct end *e, int i)
{
    return (uintptr_t) e->mem + (size_t) i * SLOT;
}

int
post_recv(struct end *e, uint64_t id, int where, uint32_t len)
{
    struct ibv_sge sge = { addr_of(e, where), len, e->mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
    struct ibv_recv_wr *bad;

    return (e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad)
            : ibv_post_recv(e->qp, &wr, &bad));
}

void
post_recvs(struct end *e, int n)
{
    for (int i = 0; i < n; i++) {
        ovs_assert(!post_recv(e, i, i, SLOT));
    }
}

void
fill(uint8_t *p, uint64_t seed, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        p[i] = seed * 7 + i;
    }
}

bool
filled(const uint8_t *p, uint64_t seed, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (p[i] != (uint8_t) (seed * 7 + i)) {
            return false;
        }
    }
    return true;
}

void
ud_wr(struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t id, int flags,
      struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    memset(wr, 0, sizeof *wr);
    wr->wr_id = id;
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->opcode = IBV_WR_SEND;
    wr->send_flags = flags;
    wr->wr.ud.ah = ah;
    wr->wr.ud.remote_qpn = qpn;
    wr->wr.ud.remote_qkey = qkey;
}

int
post(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
     uint64_t id, uint32_t len, int flags)
{
    struct ibv_sge sge = { addr_of(e, SEND_SLOT), len, e->mr->lkey };
    struct ibv_send_wr wr, *bad;

    fill(slot(e, SEND_SLOT), id, MIN(len, SLOT));
    ud_wr(&wr, &sge, id, flags, ah, qpn, qkey);
    return ibv_post_send(e->qp, &wr, &bad);
}

/* Sends, and takes the completion, which must be good. */
bool
sent(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
     uint64_t id, uint32_t len)
{
    struct ibv_wc wc;

    return (!post(e, ah, qpn, qkey, id, len, IBV_SEND_SIGNALED)
            && poll_one(e->scq, &wc) && wc.status == IBV_WC_SUCCESS
            && wc.wr_id == id && wc.qp_num == e->qp->qp_num);
}

bool
subnet(const char *format, ...)
{
    struct ds ds = DS_EMPTY_INITIALIZER;
    va_list args;
    int retval;

    ds_put_format(&ds, "%s ", control);
    va_start(args, format);
    ds_put_format_valist(&ds, format, args);
    va_end(args);
    ds_put_cstr(&ds, " >/dev/null");
    retval = system(ds_cstr(&ds));
    if (retval) {
        printf("# failed: %s\n", ds_cstr(&ds));
    }
    ds_destroy(&ds);
    return !retval;
}

unsigned long long int
guid_of(const struct dev *d)
{
    return ntohll(d->gid.global.interface_id);
}

/* The device and its port. */

static void
test_device(void)
{
    struct ibv_device_attr attr;
    union ibv_gid gid;
    ovs_be16 pkey;
    int error;

    memset(&attr, 0, sizeof attr);
    error = A->v->query_device(A->ctx, &attr);
    check(!error && attr.max_qp >= 4096 && attr.max_cqe >= 65535
          && attr.max_sge >= 2 && attr.node_guid
          && attr.phys_port_cnt >= 1,
          "query_device: %d QPs, %d CQEs", attr.max_qp, attr.max_cqe);
    check(attr.max_srq > 0 && attr.max_srq_wr >= 4096
          && attr.max_srq_sge >= 2, "query_device: shared receive queues");
    check(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach >= 32,
          "query_device: multicast groups");
    check(port_is(A, IBV_PORT_ACTIVE)
          && A->port.link_layer == IBV_LINK_LAYER_INFINIBAND
          && A->port.lid > 0 && A->port.lid < IB_LID_MULTICAST
          && A->port.sm_lid && A->port.active_mtu <= A->port.max_mtu,
          "query_port: active, InfiniBand, LID and SM LID");
    check(A->v->query_port(A->ctx, 77, &A->port) != 0
          && port_is(A, IBV_PORT_ACTIVE), "query_port: no port 77");
    check(A->gid.global.subnet_prefix && A->gid.global.interface_id
          && A->v->query_gid(A->ctx, 1, A->port.gid_tbl_len, &gid),
          "query_gid: index 0, and none beyond the table");
    check(!A->v->query_pkey(A->ctx, 1, 0, &pkey)
          && ntohs(pkey) & IB_PKEY_MASK
          && A->v->query_pkey(A->ctx, 1, A->port.pkey_tbl_len, &pkey),
          "query_pkey: index 0, and none beyond the table");
    check(A->v->numa_node(A->ctx) >= -1, "numa_node");
}

static void
test_names(void)
{
    static const char *const bad[] = {
        "soft:", "soft:tcp:x", "soft:unix:", "soft:udp:1.2.3.4",
        "soft:udp:host:7", "soft:udp:1.2.3.4:70000", "soft:loop?guid=0",
        "soft:loop?guid=xyz", "soft:loop?colour=red",
        "soft:unix:a?source", "soft:loop?size=9", "soft:loop?pkeys=x",
    };
    char *error;
    bool good = true;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (!ipoib_soft_name_parse(bad[i], &error) || !error
            || !strstr(error, bad[i])) {
            printf("# %s: %s\n", bad[i], error ? error : "no error");
            good = false;
        }
        free(error);
    }
    check(good, "malformed soft names are refused by name");
    check(ipoib_soft_name_parse("soft:udp:127.0.0.1:7?guid=0x12", &error)
          && !error && !ipoib_soft_name_parse("mlx5_0", &error) && !error,
          "well-formed ones are not, and others are not soft");
    good = !ipoib_verbs_hw.open_device("no-such-dev9", &error);
    check(good && error
          && strstr(error, "no InfiniBand device 'no-such-dev9' (there"),
          "a device that does not exist: %s", error);
    free(error);
}

/* Memory regions and protection domains. */

static void
test_objects(void)
{
    struct ibv_qp_init_attr attr;
    struct ibv_device_attr dev;
    struct end e;

    make_end(&e, A, NULL);
    check(A->v->destroy_cq(e.rcq) == EBUSY, "a CQ in use stays");
    check(A->v->dealloc_pd(A->pd) == EBUSY, "a PD in use stays");
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_UD;
    attr.send_cq = attr.recv_cq = e.rcq;
    attr.cap.max_send_wr = 1 << 30;
    errno = 0;
    check(!A->v->create_qp(A->pd, &attr, false) && errno,
          "a QP with a queue beyond the limit is refused: %s",
          ovs_strerror(errno));
    ovs_assert(!A->v->query_device(A->ctx, &dev));
    errno = 0;
    check(!A->v->create_cq(A->ctx, dev.max_cqe + 1, NULL, NULL, 0) && errno,
          "a CQ beyond max_cqe is refused");
    free_end(&e);
}

/* Closing frees what is left. */
static void
test_leftovers(void)
{
    struct ibv_comp_channel *ch;
    struct ibv_cq *cq;
    struct end e;

    if (A->v != &ipoib_verbs_soft) {
        return;
    }
    make_end(&e, A, make_srq(A, 4));
    post_recvs(&e, 2);
    ch = A->v->create_comp_channel(A->ctx);
    cq = A->v->create_cq(A->ctx, 4, NULL, ch, 0);
    check(cq && make_ah(A, 1, NULL), "closing with objects left");
    free_pagealign(e.mem);
}

static void
test_verbs(int argc, char *argv[])
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    while (argc > 1 && !strncmp(argv[1], "--", 2)) {
        if (!strncmp(argv[1], "--control=", 10)) {
            control = argv[1] + 10;
        } else if (!strncmp(argv[1], "--qps=", 6)) {
            n_many = atoi(argv[1] + 6);
        } else {
            ovs_fatal(0, "%s: unknown option", argv[1]);
        }
        argv++;
        argc--;
    }
    if (argc < 2) {
        ovs_fatal(0, "usage: test-ipoib-verbs [--control=COMMAND] [--qps=N] "
                  "DEVICE [OTHER]");
    }
    alarm(300);
    test_names();
    open_dev(&dev_a, argv[1]);
    A = B = &dev_a;
    if (argc > 2) {
        open_dev(&dev_b, argv[2]);
        B = &dev_b;
    }
    if (!wait_port(A, IBV_PORT_ACTIVE) || !wait_port(B, IBV_PORT_ACTIVE)) {
        ovs_fatal(0, "the port does not become active");
    }
    test_device();
    test_objects();
    test_srq_post();
    test_srq_limit();
    test_srq_empty();
    test_chain();
    test_send_errors();
    test_receive_error();
    test_states();
    test_inline();
    test_cq();
    test_packets();
    test_scatter();
    test_path_bits();
    test_pkeys();
    test_grh_required();
    test_sa();
    test_mcast();
    test_events();
    test_many(n_many);
    test_threads();
    test_model();
    test_leftovers();
    printf("1..%d\n", n_checks);

    if (A->v == &ipoib_verbs_soft) {
        ipoib_soft_counters(A->ctx, &ds);
        printf("# %s", ds_cstr(&ds));
        ds_destroy(&ds);
    } else {
        ovs_assert(!A->v->dealloc_pd(A->pd));
    }
    if (B != A) {
        ovs_assert(!B->v->dealloc_pd(B->pd));
        ovs_assert(!B->v->close_device(B->ctx));
    }
    ovs_assert(!A->v->close_device(A->ctx));
    exit(n_failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* test-ipoib-attach DEVICE START STOP: a fabric that comes and goes. */
static void
test_attach_main(int argc, char *argv[])
{
    if (argc != 4) {
        ovs_fatal(0, "usage: test-ipoib-attach DEVICE START STOP");
    }
    alarm(60);
    open_dev(&dev_a, argv[1]);
    test_attach(&dev_a, argv[2], argv[3]);
    printf("1..%d\n", n_checks);
    ovs_assert(!dev_a.v->dealloc_pd(dev_a.pd));
    ovs_assert(!dev_a.v->close_device(dev_a.ctx));
    exit(n_failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* test-ipoib-hostile SOCKET: a fabric that sends nonsense. */
static void
test_hostile_main(int argc, char *argv[])
{
    if (argc != 2) {
        ovs_fatal(0, "usage: test-ipoib-hostile SOCKET");
    }
    alarm(60);
    test_hostile(argv[1]);
    printf("1..%d\n", n_checks);
    exit(n_failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

OVSTEST_REGISTER("test-ipoib-verbs", test_verbs);
OVSTEST_REGISTER("test-ipoib-hostile", test_hostile_main);
OVSTEST_REGISTER("test-ipoib-attach", test_attach_main);
